//! Repair of worktrees that crashes left behind, done by supervisors.

use std::time::Duration;

use super::run::Run;

/// Shortest interval between repairs, because each takes several runs of git.
const REPAIR_EVERY_MIN: Duration = Duration::from_secs(5);

impl Run<'_> {
    /// Completes or undoes what crashes left in worktrees.
    pub(super) fn repair(&mut self) {
        self.repaired = Some(self.now());
        if let Some(worktrees) = self.worktrees
            && let Err(error) = worktrees.recover(true)
        {
            self.failed("repair worktrees", &error);
        }
    }

    /// Repairs while there is no other work and the last repair is long ago.
    pub(super) fn repair_now_and_then(&mut self) {
        let pause = self.order.pace.poll.max(REPAIR_EVERY_MIN);
        if self.repaired.is_none_or(|last| self.now() >= last + pause) {
            self.repair();
        }
    }
}
