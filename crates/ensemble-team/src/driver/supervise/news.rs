//! What a supervisor learns of the team besides the board: news of the servers, and gates that open.

use super::run::SupervisorRun;
use crate::proto::supervise::Event;

impl SupervisorRun<'_> {
    /// Makes this host's copy of a board on servers new, if something has changed there. It is tried again until that
    /// succeeds.
    pub(super) fn refresh(&mut self) {
        self.is_stale |= self.board.may_have_changed();
        if self.is_stale {
            match self.board.pull() {
                Ok(()) => self.is_stale = false,
                Err(error) => self.failed("reach the servers", &error),
            }
        }
    }

    pub(super) fn notice_gate(&mut self) {
        if self.board.controls().is_ok_and(|found| found.is_empty()) && !self.waits_for_review() {
            self.handle(Event::Woken);
        }
    }
}
