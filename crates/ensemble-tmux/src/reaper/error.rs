//! Errors of ending an agent's processes.

use ensemble_core::AreaError;

/// The processes of an agent were not ended. Callers find it by
/// [`Error::area`](ensemble_core::Error::area).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReaperError {
    #[error("process {pid} belongs to the agent to end: end the agent from elsewhere")]
    EndsItself { pid: u32 },
    #[error("process {pid} does not end although it was killed: it may hang in the kernel")]
    Survivor { pid: u32 },
}

impl AreaError for ReaperError {
    fn is_invariant_broken(&self) -> bool {
        true
    }
}
