//! Why a question to tmux failed, and what that means for a process that wanted to type.

use std::path::Path;

use super::{EXCHANGE_LIMIT, TmuxError};
use ensemble_core::Error;
use ensemble_core::pane::Deferral;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TmuxFailure {
    MissingProgram,
    NoServer,
    Timeout,
    /// The connection ended between question and answer: it is not known what was done.
    Lost,
    Refused(String),
}

impl TmuxFailure {
    pub(super) fn from_complaint(text: &str) -> Self {
        let no_server = text.contains("no server running on")
            || (text.contains("error connecting to")
                && (text.contains("(No such file") || text.contains("(Connection refused")));
        // A server ends with its last session, also while it is asked.
        let is_lost = ["server exited", "lost server"].iter().any(|said| text.contains(said));
        match () {
            () if no_server => Self::NoServer,
            () if is_lost => Self::Lost,
            () => Self::Refused(one_line(text)),
        }
    }

    pub(super) fn into_error(self, operation: &'static str, socket: &Path) -> Error {
        let socket = socket.to_owned();
        let error = match self {
            Self::MissingProgram => {
                return Error::MissingProgram {
                    program: "tmux",
                    remedy: "install tmux 3.2 or newer with the system's package manager",
                };
            }
            Self::NoServer => TmuxError::NoServer { operation, socket },
            Self::Timeout => TmuxError::Timeout { operation, socket, limit: EXCHANGE_LIMIT },
            Self::Lost => TmuxError::Lost { operation, socket },
            Self::Refused(complaint) => TmuxError::Refused { operation, socket, complaint },
        };
        error.into()
    }

    /// The reason to give for not having typed, where the failure is one: certain that nothing
    /// was typed, and worth trying again later.
    pub(super) const fn deferral(&self) -> Option<Deferral> {
        match self {
            Self::NoServer => Some(Deferral::ServerGone),
            Self::Timeout => Some(Deferral::Timeout),
            Self::MissingProgram | Self::Lost | Self::Refused(_) => None,
        }
    }
}

fn one_line(text: &str) -> String {
    const CHARS_MAX: usize = 300;
    let line = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>();
    let line = line.join("; ");
    if line.is_empty() {
        return "tmux ended without a word".to_owned();
    }
    line.chars().filter(|c| !c.is_control()).take(CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_told_apart() {
        for text in [
            "error connecting to /tmp/s (No such file or directory)\n",
            "error connecting to /tmp/s (Connection refused)",
            "no server running on /tmp/s",
        ] {
            assert_eq!(TmuxFailure::from_complaint(text), TmuxFailure::NoServer, "{text}");
        }
        for text in ["server exited unexpectedly\n", "lost server"] {
            assert_eq!(TmuxFailure::from_complaint(text), TmuxFailure::Lost, "{text}");
        }
        let denied = "error connecting to /tmp/s (Permission denied)";
        assert_eq!(TmuxFailure::from_complaint(denied), TmuxFailure::Refused(denied.to_owned()));
        assert_eq!(
            TmuxFailure::from_complaint("\n"),
            TmuxFailure::Refused("tmux ended without a word".to_owned())
        );
    }
}
