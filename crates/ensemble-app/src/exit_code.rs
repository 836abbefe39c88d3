//! The exit codes.

use std::process::ExitCode;

/// The exit codes. They are part of the contract: none changes its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerbExit {
    /// Done.
    Done = 0,
    /// Refused or failed.
    Failed = 1,
    /// The command line is wrong, or a file it names, or the configuration.
    Usage = 2,
    /// Nothing there, or a wait timed out.
    Nothing = 3,
    /// A broken invariant or corrupt data.
    Corrupt = 4,
    /// A needed program is missing.
    MissingProgram = 5,
    /// An agent aborted gracefully; only ever passed on.
    Aborted = 42,
    /// Busy: the same call may succeed later.
    Busy = 75,
}

impl From<VerbExit> for ExitCode {
    fn from(exit: VerbExit) -> Self {
        Self::from(exit as u8)
    }
}
