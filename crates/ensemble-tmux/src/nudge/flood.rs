//! Any events in any order: one attempt at a time, and a bounded number of lines.

use proptest::prelude::*;

use super::tests::refused;
use super::*;
use ensemble_core::pane::NudgeOutcome;
use ensemble_core::proto::testing::{at, drain};

fn any_event() -> impl Strategy<Value = (u64, Event)> {
    let outcome = prop_oneof![
        4 => Just(NudgeOutcome::Sent),
        2 => Just(refused(Deferral::Busy)),
        1 => Just(NudgeOutcome::TextOnly { deferral: Deferral::Moved }),
        1 => Just(refused(Deferral::Draft)),
        1 => Just(refused(Deferral::LineGone)),
        1 => Just(refused(Deferral::PaneGone)),
    ];
    let event = prop_oneof![
        6 => (0..4_u64, 0..2_u64).prop_map(|(waiting, taken)| Event::Mail { waiting, taken }),
        6 => (0..3_u64, outcome).prop_map(|(attempt, outcome)| Event::Outcome { attempt, outcome }),
        1 => (1..3_u64).prop_map(|binding| Event::Bound { binding }),
        1 => Just(Event::Unbound),
        1 => Just(Event::PaneChanged),
        1 => (0..900_u64).prop_map(|seconds| Event::Parked { until: at(seconds) }),
        1 => Just(Event::Limited),
        1 => Just(Event::LineLeft),
    ];
    (0..90_000_u64, event)
}

proptest! {
    #[test]
    fn never_a_flood(events in prop::collection::vec(any_event(), 1..200)) {
        let mut schedule = NudgeSchedule::new();
        let mut now = at(0);
        let mut open = None;
        let mut lines = 0;
        schedule.handle(now, Event::Bound { binding: 1 });
        for (wait, mut event) in events {
            let until = now + Duration::from_millis(wait);
            while let Some(due) = schedule.poll_timeout().filter(|due| *due <= until) {
                now = due;
                if open.is_some_and(|(_, sent)| now >= sent + OUTCOME_PATIENCE) {
                    open = None;
                }
                schedule.handle_timeout(now);
                check(&mut schedule, now, &mut open, &mut lines)?;
            }
            now = until;
            match &mut event {
                Event::Mail { waiting, taken } if *taken > 0 || *waiting < schedule.waiting => lines = 0,
                Event::Bound { .. } | Event::Unbound => (open, lines) = (None, 0),
                Event::Outcome { attempt, .. } => {
                    // 0: the one under way; others are late or never asked for.
                    *attempt = schedule.attempt.wrapping_add(*attempt);
                    if *attempt == schedule.attempt {
                        open = None;
                    }
                }
                _ => {}
            }
            schedule.handle(now, event);
            check(&mut schedule, now, &mut open, &mut lines)?;
        }
    }
}

/// One attempt at a time, no more lines than allowed, a deadline whenever mail waits and is not
/// given up.
fn check(
    schedule: &mut NudgeSchedule,
    now: Monotonic,
    open: &mut Option<(u64, Monotonic)>,
    lines: &mut u32,
) -> Result<(), TestCaseError> {
    for effect in drain(schedule) {
        match effect {
            Effect::Nudge { attempt, .. }
            | Effect::Submit { attempt, .. }
            | Effect::Withdraw { attempt } => {
                prop_assert_eq!(*open, None, "two attempts at a time");
                *open = Some((attempt, now));
            }
            Effect::Record(NudgeRecord::Unanswered { nudges, .. }) => {
                prop_assert_eq!(nudges, NUDGES_MAX);
            }
            Effect::Record(NudgeRecord::Deferred { .. }) => {}
        }
    }
    *lines = (*lines).max(schedule.nudges);
    prop_assert!(*lines <= NUDGES_MAX);
    let asleep = matches!(schedule.state, State::Unbound | State::Quiet | State::Unanswered);
    prop_assert_eq!(asleep, schedule.poll_timeout().is_none());
    prop_assert!(schedule.state != State::Quiet || schedule.waiting == 0);
    Ok(())
}
