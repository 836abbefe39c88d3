//! A failure of a verb as an error of the library, for a part of a verb that must return one. It stays what it was: one that
//! may pass is still one that may pass.

use std::fmt;

use ensemble_core::{AreaError, Error};

use crate::exit::{Exit, Failure};

/// A [`Failure`] that was turned into an error.
#[derive(Debug)]
pub(crate) struct Failed {
    text: String,
    /// The exit code, if nothing handles it.
    pub(crate) exit: Exit,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Failed {}

impl AreaError for Failed {
    fn is_transient(&self) -> bool {
        self.exit == Exit::Busy
    }

    fn is_invariant_broken(&self) -> bool {
        self.exit == Exit::Corrupt
    }
}

/// The failure, which concerns this worker or mailbox.
pub(crate) fn failed(about: &impl fmt::Display, failure: &Failure) -> Error {
    Failed { text: format!("{about}: {}", failure.text()), exit: failure.exit() }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_still_may_and_keeps_its_exit_code() {
        let away = Error::Server {
            operation: "open the stream",
            server: "nats://hub".to_owned(),
            detail: "no answer in time".to_owned(),
            unreachable: true,
        };
        let refused = Failure::refused("no such worker");
        for (failure, is_transient, exit) in
            [(Failure::from(away), true, Exit::Busy), (refused, false, Exit::Failed)]
        {
            let error = failed(&"worker-2", &failure);
            assert_eq!(error.is_transient(), is_transient, "{error}");
            assert!(error.to_string().starts_with("worker-2: "), "{error}");
            assert_eq!(Failure::from(error).exit(), exit);
        }
    }
}
