//! Worktrees that crashes left behind, put right by whoever supervises.

use std::time::Duration;

use super::run::Run;

/// What crashes left is not looked for more often, whatever the poll interval: it takes several runs of git.
const REPAIR_EVERY_MIN: Duration = Duration::from_secs(5);

impl Run<'_> {
    /// Finishes or takes back what crashes left of worktrees.
    pub(super) fn repair(&mut self) {
        self.repaired = Some(self.now());
        if let Some(worktrees) = self.worktrees
            && let Err(error) = worktrees.recover(true)
        {
            self.failed("repair worktrees", &error);
        }
    }

    /// The same, while there is nothing else to do and the last time is long ago.
    pub(super) fn repair_now_and_then(&mut self) {
        let pause = self.order.pace.poll.max(REPAIR_EVERY_MIN);
        if self.repaired.is_none_or(|last| self.now() >= last + pause) {
            self.repair();
        }
    }
}
