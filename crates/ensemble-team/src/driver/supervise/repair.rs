//! Repair of worktrees that crashes left behind, done by supervisors.

use std::collections::BTreeSet;
use std::time::Duration;

use super::run::SupervisorRun;

/// Shortest interval between repairs, because each takes several runs of git.
const REPAIR_EVERY_MIN: Duration = Duration::from_secs(5);

impl SupervisorRun<'_> {
    pub(super) fn repair(&mut self) {
        self.repaired = Some(self.now());
        let Some(worktrees) = self.worktrees else { return };
        match worktrees.recover(true) {
            Ok(found) => {
                let left = found.into_iter().filter(|it| !it.repaired && !it.is_note);
                let left: BTreeSet<String> =
                    left.map(|it| format!("{}: {}", it.path, it.problem)).collect();
                let new: Vec<String> = left.difference(&self.unrepaired).cloned().collect();
                new.into_iter().for_each(|line| self.queue_line(line));
                self.unrepaired = left;
            }
            Err(error) => self.failed("repair worktrees", &error),
        }
    }

    pub(super) fn repair_now_and_then(&mut self) {
        let pause = self.order.pace.poll.max(REPAIR_EVERY_MIN);
        if self.repaired.is_none_or(|last| self.now() >= last + pause) {
            self.repair();
        }
    }
}
