//! Handles the outcome of a line, and decides when the next one is due.

use std::time::Duration;

use super::pace::retry_max;
use super::{
    Effect, NUDGE_FOLLOW, NUDGE_REPEAT, NUDGE_REPEAT_MAX, NUDGES_MAX, NudgeRecord, NudgeSchedule,
    RETRY_MAX, State,
};
use ensemble_core::env::Monotonic;
use ensemble_core::pane::{Deferral, NudgeOutcome};

impl NudgeSchedule {
    /// The agent has taken a message and others wait.
    pub(super) fn followed(&self, now: Monotonic) -> State {
        State::Told { repeat_at: now + NUDGE_FOLLOW }
    }

    pub(super) fn state_after_nudge(&self, now: Monotonic) -> State {
        if let Some(probe) = self.probe {
            return State::Told { repeat_at: probe.at };
        }
        let doublings = self.nudges.saturating_sub(1).min(NUDGES_MAX);
        State::Told { repeat_at: now + (NUDGE_REPEAT * (1 << doublings)).min(NUDGE_REPEAT_MAX) }
    }

    pub(super) fn outcome(
        &mut self,
        now: Monotonic,
        outcome: NudgeOutcome,
        backoff: Duration,
    ) -> State {
        match outcome {
            NudgeOutcome::Sent => {
                self.last_try = Some(now);
                self.probe = self.probe.filter(|_| self.is_limited).map(|p| p.submitted(now));
                self.nudges += u32::from(self.probe.is_none());
                (self.typed, self.is_line_seen) = (None, false);
                self.deferral = None;
                if self.waiting > 0 { self.state_after_nudge(now) } else { State::Quiet }
            }
            NudgeOutcome::TextOnly { deferral } => {
                self.last_try = Some(now);
                self.typed = self.typed.or(Some(self.attempt));
                self.refused(now, deferral, backoff)
            }
            NudgeOutcome::Refused { deferral } => {
                if deferral.ends_line() {
                    (self.typed, self.is_line_seen) = (None, false);
                }
                match self.is_withdrawing && !self.has_line() && !deferral.is_permanent() {
                    true => self.withdrawn(now),
                    false => self.refused(now, deferral, backoff),
                }
            }
        }
    }

    fn refused(&mut self, now: Monotonic, deferral: Deferral, backoff: Duration) -> State {
        let (permanent, longest) = (deferral.is_permanent(), retry_max(&deferral));
        if self.waiting > 0 && self.deferral.as_ref() != Some(&deferral) {
            let waiting = self.waiting;
            let record = NudgeRecord::Deferred { deferral: deferral.clone(), waiting };
            self.effects.push_back(Effect::Record(record));
            self.deferral = Some(deferral);
        }
        if permanent {
            self.unbind()
        } else if self.waiting == 0 && !self.has_line() {
            self.deferral = None;
            State::Quiet
        } else {
            let backoff = backoff.min(longest);
            let next = (backoff * 2).min(longest);
            let probe = self.probe.map(|probe| probe.at).filter(|at| *at > now);
            let at = (now + backoff).min(probe.unwrap_or(now + RETRY_MAX));
            let at = at.max(self.parked_until(now).unwrap_or(now));
            State::Deferred { at, since: now, backoff: next, late: false }
        }
    }

    pub(super) fn overdue(&mut self, now: Monotonic, backoff: Duration) -> State {
        match self.refused(now, Deferral::Timeout, backoff) {
            State::Deferred { at, since, backoff, .. } => {
                State::Deferred { at, since, backoff, late: true }
            }
            state => state,
        }
    }
}
