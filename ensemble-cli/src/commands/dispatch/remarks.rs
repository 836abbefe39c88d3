//! Reports failures that last once, and not at each attempt.

use std::collections::BTreeSet;

use ensemble_app::diagnostics::say;

#[derive(Debug, Default)]
pub(super) struct LastRemarks(BTreeSet<String>);

impl LastRemarks {
    /// Says those of the failures of an attempt that are new. All others have ended.
    pub(super) fn say_new(&mut self, failures: impl IntoIterator<Item = String>) {
        let failures: BTreeSet<String> = failures.into_iter().collect();
        failures.difference(&self.0).for_each(|text| say(text));
        self.0 = failures;
    }
}
