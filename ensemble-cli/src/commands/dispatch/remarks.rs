//! Reports a failure that lasts once, and not at each attempt.

use ensemble_app::diagnostics::say;
use ensemble_core::Error;

/// The last error, if it is not over.
#[derive(Debug, Default)]
pub(super) struct LastRemark(String);

impl LastRemark {
    /// Says an error, unless it was the last one.
    pub(super) fn error(&mut self, error: &Error) {
        let text = error.to_string();
        if text != self.0 {
            say(&text);
            self.0 = text;
        }
    }

    /// Forgets an error that has ended.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
