//! A failure under `--json`: one line on stderr, with a code that programs can rely on.
//!
//! Codes are only ever added. A failure without its own code has that of its exit code.

use ensemble_core::message::NameError;
use ensemble_core::requests::{GatedTask, UndecidedRequest};
use ensemble_core::{AreaError, Error};
use ensemble_team::admission::NotAdmitted;
use ensemble_team::board::BoardError;
use serde::Serialize;

use crate::exit_code::VerbExit;

/// The code of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailureCode {
    /// Refused or failed, for a reason that the message says
    Refused,
    /// The command line is wrong, or a file that it names, or the configuration
    Usage,
    /// Nothing there, or a wait timed out
    Nothing,
    /// A broken invariant or corrupt data
    Corrupt,
    /// A needed program is missing
    MissingProgram,
    /// An agent aborted gracefully
    Aborted,
    /// The same call may succeed later
    Busy,
    /// There is no queue
    NoQueue,
    /// There is no such mailbox
    NoMailbox,
    /// The mailbox already exists
    MailboxExists,
    /// The mailbox is full
    MailboxFull,
    /// The sender has too much in the mailbox
    Quota,
    /// The id is taken by other content
    Conflict,
    /// There is no such message
    NoMessage,
    /// Several messages are meant
    Ambiguous,
    /// The caller does not hold the message any more
    LeaseLost,
    /// The content is too large
    TooLarge,
    /// Another process holds a lock
    Locked,
    /// The file system refused an operation
    Io,
    /// A server refused or did not answer
    Server,
    /// The name is not valid
    BadName,
    /// The task may not be begun now: a plan, a pause, a budget or a departure is in the way
    NotAdmitted,
    /// The request needs an answer first
    Undecided,
    /// Another agent holds the task now
    Fenced,
    /// The call was cancelled while it waited
    Cancelled,
}

/// A call was cancelled while it slept; it holds nothing.
#[derive(Debug)]
pub struct CancelledCall;

impl std::fmt::Display for CancelledCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("cancelled")
    }
}

impl std::error::Error for CancelledCall {}

impl AreaError for CancelledCall {}

impl FailureCode {
    pub fn of(error: &Error, exit: VerbExit) -> Self {
        match error {
            Error::Io { .. } if exit != VerbExit::Busy => Self::Io,
            Error::NoMailbox { .. } => Self::NoMailbox,
            Error::MailboxExists { .. } => Self::MailboxExists,
            Error::NoQueue { .. } => Self::NoQueue,
            Error::Full { .. } => Self::MailboxFull,
            Error::Quota { .. } => Self::Quota,
            Error::Conflict { .. } => Self::Conflict,
            Error::NoMessage { .. } => Self::NoMessage,
            Error::Ambiguous { .. } => Self::Ambiguous,
            Error::LeaseLost { .. } => Self::LeaseLost,
            Error::TooLarge { .. } => Self::TooLarge,
            Error::Locked { .. } => Self::Locked,
            Error::Server { .. } => Self::Server,
            Error::Area(_) => Self::of_area(error).unwrap_or_else(|| exit.into()),
            _ => exit.into(),
        }
    }

    fn of_area(error: &Error) -> Option<Self> {
        if error.area::<NameError>().is_some() {
            return Some(Self::BadName);
        }
        if error.area::<NotAdmitted>().is_some() || error.area::<GatedTask>().is_some() {
            return Some(Self::NotAdmitted);
        }
        if error.area::<UndecidedRequest>().is_some() {
            return Some(Self::Undecided);
        }
        if error.area::<CancelledCall>().is_some() {
            return Some(Self::Cancelled);
        }
        matches!(error.area(), Some(BoardError::Fenced { .. })).then_some(Self::Fenced)
    }
}

impl From<VerbExit> for FailureCode {
    fn from(exit: VerbExit) -> Self {
        match exit {
            VerbExit::Done | VerbExit::Failed => Self::Refused,
            VerbExit::Usage => Self::Usage,
            VerbExit::Nothing => Self::Nothing,
            VerbExit::Corrupt => Self::Corrupt,
            VerbExit::MissingProgram => Self::MissingProgram,
            VerbExit::Aborted => Self::Aborted,
            VerbExit::Busy => Self::Busy,
        }
    }
}

/// The line of a failure.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct ErrorLine {
    pub error: ErrorBody,
}

/// The failure itself.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct ErrorBody {
    /// Its code
    pub code: FailureCode,
    /// Text for people
    pub message: String,
    /// The way to continue, if there is one
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The exit code
    pub exit: u8,
}

impl ErrorLine {
    pub const fn new(
        code: FailureCode,
        message: String,
        hint: Option<String>,
        exit: VerbExit,
    ) -> Self {
        Self { error: ErrorBody { code, message, hint, exit: exit as u8 } }
    }
}

/// Whether a hint offers nothing but the command that has just failed.
pub fn repeats(hint: &str, words: impl Iterator<Item = String>) -> bool {
    hint.contains(&format!("`ensemble {}`", words.collect::<Vec<_>>().join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_does_not_repeat_the_command_that_has_just_failed() {
        let run = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>().into_iter();
        assert!(repeats("see `ensemble agent attach w1`", run("agent attach w1")));
        assert!(!repeats("see `ensemble agent attach w1`", run("agent attach")));
        assert!(!repeats("`ensemble up` starts it again", run("agent attach w1")));
    }
}
