//! Errors of ending an agent's processes.

use ensemble_core::AreaError;

/// The processes of an agent were not ended. Callers find it by
/// [`Error::area`](ensemble_core::Error::area).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReaperError {
    /// The process that would end the agent is one of its processes.
    #[error("process {pid} belongs to the agent to end: end the agent from elsewhere")]
    EndsItself {
        /// This process or its ancestor.
        pid: u32,
    },
    /// A process was killed and still lives.
    #[error("process {pid} does not end although it was killed: it may hang in the kernel")]
    Survivor {
        /// The process.
        pid: u32,
    },
}

impl AreaError for ReaperError {
    fn is_invariant_broken(&self) -> bool {
        true
    }
}
