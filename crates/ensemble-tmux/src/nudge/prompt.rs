//! Lines that the ladder of a task asks for.

use super::{NudgeSchedule, RETRY_MIN, State, WantedLine};
use ensemble_core::env::Monotonic;

impl NudgeSchedule {
    /// Whether repetitions wait for the ladder. A limit without a known end is probed anyway.
    pub(super) const fn is_paced(&self) -> bool {
        self.is_laddered && self.probe.is_none()
    }

    pub(super) const fn paced(&mut self, state: State, is_laddered: bool) -> State {
        self.is_laddered = is_laddered;
        state
    }

    /// The ladder wants a line: it comes at once, or when the pace allows it, or the last line stands
    /// for it.
    pub(super) fn prompted(&mut self, now: Monotonic, state: State, prompt: WantedLine) -> State {
        match state {
            State::Unbound
            | State::Quiet
            | State::Due { .. }
            | State::InFlight { .. }
            | State::Deferred { .. } => return state,
            State::Told { .. } | State::Unanswered => {}
        }
        if self.waiting == 0 || self.probe.is_some() {
            return state;
        }
        let earliest = self.last_try.map_or(now, |last| last + prompt.pace);
        if now < earliest && !prompt.must {
            return state;
        }
        self.is_prompted = true;
        if now < earliest { State::Due { at: earliest } } else { self.launch(now, RETRY_MIN) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Effect, Event, NudgeOccasion, NudgePhase};
    use super::*;
    use ensemble_core::pane::NudgeOutcome;
    use ensemble_core::proto::Machine as _;
    use ensemble_core::proto::testing::{at, at_millis, drain};

    const PHASE: Duration = Duration::from_secs(60);
    const SECOND: Duration = Duration::from_secs(1);

    /// An agent that was notified of one message at 0 s, under a ladder.
    fn told() -> NudgeSchedule {
        let mut schedule = NudgeSchedule::new();
        schedule.handle(at(0), Event::Bound { binding: 1 });
        schedule.handle(at(0), Event::Mail { waiting: 1, taken: 0 });
        drain(&mut schedule);
        schedule.handle(at(0), Event::Outcome { attempt: 1, outcome: NudgeOutcome::Sent });
        schedule.handle(at(0), Event::Laddered(true));
        schedule
    }

    fn line(attempt: u64) -> Effect {
        Effect::Nudge { attempt, waiting: 1, occasion: NudgeOccasion::News }
    }

    #[test]
    fn under_a_ladder_only_the_ladder_repeats() {
        let mut schedule = told();
        assert_eq!(schedule.poll_timeout(), None);
        schedule.handle_timeout(at(600));
        assert_eq!(drain(&mut schedule), []);
        for (number, seconds) in [(2, 660), (3, 720), (4, 780), (5, 840), (6, 900)] {
            schedule.handle(at(seconds), Event::Prompt(WantedLine::new(PHASE / 2, false)));
            assert_eq!(drain(&mut schedule), [line(number)], "no count bounds a ladder");
            let outcome = NudgeOutcome::Sent;
            schedule.handle(at(seconds), Event::Outcome { attempt: number, outcome });
        }
        schedule.handle(at(901), Event::Laddered(false));
        schedule.handle_timeout(at(2_000));
        assert!(matches!(drain(&mut schedule)[..], [Effect::Record(_)]), "told often enough");
    }

    #[test]
    fn a_line_that_was_just_typed_stands_for_a_prompt() {
        let mut schedule = told();
        schedule.handle(at(29), Event::Prompt(WantedLine::new(PHASE / 2, false)));
        assert_eq!((drain(&mut schedule), schedule.poll_timeout()), (vec![], None));
        schedule.handle(at(30), Event::Prompt(WantedLine::new(PHASE / 2, false)));
        assert_eq!(drain(&mut schedule), [line(2)]);
    }

    #[test]
    fn a_line_that_must_be_typed_keeps_its_distance() {
        let mut schedule = told();
        schedule.handle(at_millis(400), Event::Prompt(WantedLine::new(SECOND, true)));
        assert_eq!(drain(&mut schedule), []);
        assert_eq!(schedule.poll_timeout(), Some(at(1)));
        schedule.handle_timeout(at(1));
        assert_eq!(drain(&mut schedule), [line(2)]);
        schedule.handle(at(1), Event::Prompt(WantedLine::new(SECOND, true)));
        assert_eq!(schedule.status().phase, NudgePhase::InFlight, "one line at a time");
        assert_eq!(drain(&mut schedule), []);
    }

    #[test]
    fn without_mail_there_is_nothing_to_prompt() {
        let mut schedule = told();
        schedule.handle(at(5), Event::Mail { waiting: 0, taken: 1 });
        schedule.handle(at(90), Event::Prompt(WantedLine::new(SECOND, true)));
        assert_eq!((drain(&mut schedule), schedule.poll_timeout()), (vec![], None));
    }
}
