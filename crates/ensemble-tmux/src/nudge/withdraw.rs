//! Taking back a line whose mail has arrived by another way.

use std::time::Duration;

use super::{Effect, NUDGES_MAX, NudgeSchedule, State};
use crate::tmux::LINE_PATIENCE;
use ensemble_core::env::Monotonic;

impl NudgeSchedule {
    /// Nothing waits any more: the line about it is withdrawn.
    pub(super) fn drained(&mut self) -> State {
        self.deferral = None;
        match self.state {
            State::Due { .. } | State::Deferred { .. } if self.has_line() => self.state,
            _ => State::Quiet,
        }
    }

    /// Whether our unsent line is believed to be in the composer.
    pub(super) const fn has_line(&self) -> bool {
        self.typed.is_some() || self.is_line_seen
    }

    /// Our unsent line is in the composer, and no attempt is under way. Where mail waits, the program has swallowed the
    /// Enter, so it gets another one.
    pub(super) fn line_left(&mut self, now: Monotonic, state: State) -> State {
        // The program may be slow to clear its composer.
        let is_swallowed = || self.last_try.is_some_and(|last| now >= last + LINE_PATIENCE);
        let is_left = match state {
            State::Quiet => true,
            State::Told { .. } => self.nudges < NUDGES_MAX && is_swallowed(),
            _ => false,
        };
        if !is_left {
            return state;
        }
        self.is_line_seen = true;
        self.as_soon_as_allowed(now)
    }

    pub(super) fn withdraw(&mut self, now: Monotonic, backoff: Duration) -> State {
        if !self.has_line() {
            return State::Quiet;
        }
        let in_flight = self.begin_attempt(now, backoff);
        self.is_withdrawing = true;
        self.effects.push_back(Effect::Withdraw { attempt: self.attempt });
        in_flight
    }

    /// Our line is gone, or a person has typed behind it, so the composer is not touched again for it.
    pub(super) fn withdrawn(&mut self, now: Monotonic) -> State {
        self.deferral = None;
        if self.waiting > 0 { self.as_soon_as_allowed(now) } else { State::Quiet }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{answer, bound_with, mail, nudge, refused};
    use super::super::{Event, NudgePhase};
    use super::*;
    use ensemble_core::pane::{Deferral, NudgeOutcome};
    use ensemble_core::proto::Machine as _;
    use ensemble_core::proto::testing::{at, at_millis, drain, run};

    /// The mail has come by another way since the line was typed.
    #[test]
    fn a_line_that_has_nothing_to_say_any_more_is_taken_back() {
        let mut schedule = bound_with(1);
        answer(&mut schedule, at(0), NudgeOutcome::TextOnly { deferral: Deferral::LineGone });
        drain(&mut schedule);
        schedule.handle(at(1), mail(0));
        schedule.handle_timeout(at(1));
        assert_eq!(drain(&mut schedule), [Effect::Withdraw { attempt: 2 }]);
        answer(&mut schedule, at(1), refused(Deferral::Busy));
        assert_eq!(drain(&mut schedule), [], "nothing waits, so nothing is deferred");
        schedule.handle_timeout(at(2));
        assert_eq!(drain(&mut schedule), [Effect::Withdraw { attempt: 3 }], "after the turn");
        answer(&mut schedule, at(2), refused(Deferral::LineGone));
        assert_eq!((schedule.status().phase, schedule.poll_timeout()), (NudgePhase::Quiet, None));
    }

    #[test]
    fn a_line_that_shows_up_later_is_taken_back_and_one_with_a_persons_words_is_left() {
        for over in [Deferral::LineGone, Deferral::Draft] {
            let mut schedule = bound_with(0);
            schedule.handle(at(5), Event::LineLeft);
            assert_eq!(drain(&mut schedule), [Effect::Withdraw { attempt: 1 }]);
            answer(&mut schedule, at(5), refused(over));
            assert_eq!(
                (schedule.status().phase, schedule.poll_timeout()),
                (NudgePhase::Quiet, None)
            );
        }
    }

    #[test]
    fn a_line_whose_enter_was_swallowed_gets_another_one() {
        let mut schedule = bound_with(1);
        answer(&mut schedule, at(0), NudgeOutcome::Sent);
        drain(&mut schedule);
        schedule.handle(at(2), Event::LineLeft);
        assert_eq!(drain(&mut schedule), [], "the program may be slow to clear its composer");
        for attempt in 2..=NUDGES_MAX {
            let now = at(4 * u64::from(attempt));
            schedule.handle(now, Event::LineLeft);
            assert_eq!(drain(&mut schedule), [nudge(attempt.into(), 1)]);
            answer(&mut schedule, now, NudgeOutcome::Sent);
        }
        schedule.handle(at(60), Event::LineLeft);
        assert_eq!(drain(&mut schedule), [], "no more often than any line");
    }

    #[test]
    fn mail_that_comes_while_a_line_is_taken_back_is_announced_at_once() {
        let mut schedule = bound_with(0);
        schedule.handle(at(5), Event::LineLeft);
        schedule.handle(at(5), mail(1));
        drain(&mut schedule);
        answer(&mut schedule, at_millis(5_010), refused(Deferral::LineGone));
        assert_eq!(run(&mut schedule, at(6)), [(at_millis(5_250), nudge(2, 1))]);
    }
}
