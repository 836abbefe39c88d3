//! A ladder that another process continues with.
//!
//! ```text
//! what was saved                          -> the ladder goes on with
//! a phase, less than its time ago         -> the rest of its time
//! a phase whose time passed unattended    -> the whole phase again, without its keys
//! a wait for a worker                     -> the wait: it is looked at now, and not given up for one more phase
//! anything, in an earlier boot            -> phase 0 (the caller passes `Saved::default()`)
//! ```
//!
//! So the time without a process that runs the ladder never costs a worker a rung. Before each further phase a
//! process has watched the present one until it timed out, or inspected the worker. No key and no delivery is
//! repeated: the file is written before the keys are pressed, and a crash in between loses them.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Ladder, LadderSettings, PHASES, Phase, State, WorkerActivity};
use crate::env::Monotonic;

/// The state of a running ladder that a file stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedLadder {
    pub phase: Phase,
    pub waits_for: Option<WorkerActivity>,
    /// How long ago the phase began.
    pub in_phase: Duration,
    /// How long ago the ladder began.
    pub waited: Duration,
}

impl Default for SavedLadder {
    /// A ladder that has just begun.
    fn default() -> Self {
        Self {
            phase: Phase::Deliver,
            waits_for: None,
            in_phase: Duration::ZERO,
            waited: Duration::ZERO,
        }
    }
}

impl SavedLadder {
    pub const fn new(
        phase: Phase,
        waits_for: Option<WorkerActivity>,
        in_phase: Duration,
        waited: Duration,
    ) -> Self {
        Self { phase, waits_for, in_phase, waited }
    }
}

impl Ladder {
    /// A ladder that was begun by another process. Its task was delivered, so nothing is asked for now.
    pub fn resume(
        task: impl Into<String>,
        attempt: u32,
        config: LadderSettings,
        now: Monotonic,
        saved: SavedLadder,
    ) -> Self {
        let before = now.as_duration();
        let started = Monotonic::from_duration(before.saturating_sub(saved.waited));
        let whole = config.phase_timeout;
        let ceiling = started + whole * PHASES + config.wait_max;
        let (state, since) = match saved.waits_for {
            Some(worker) => {
                let since = Monotonic::from_duration(before.saturating_sub(saved.in_phase));
                (State::Waiting { worker, look_at: now }, since)
            }
            None if saved.in_phase < whole => {
                let since = Monotonic::from_duration(before.saturating_sub(saved.in_phase));
                (State::Phase { until: now + (whole - saved.in_phase) }, since)
            }
            None => (State::Phase { until: now + whole }, now),
        };
        Self {
            task: task.into(),
            attempt,
            config,
            state,
            phase: saved.phase,
            since,
            started,
            ceiling: ceiling.max(now + whole),
            effects: VecDeque::new(),
        }
    }

    /// The state that a file must store so that another process can continue.
    pub fn saved(&self, now: Monotonic) -> SavedLadder {
        SavedLadder {
            phase: self.phase,
            waits_for: self.waits_for(),
            in_phase: now.since(self.since),
            waited: now.since(self.started),
        }
    }

    pub const fn phase_began(&self) -> Monotonic {
        self.since
    }

    pub const fn began(&self) -> Monotonic {
        self.started
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Effect, Event, PHASE_TIMEOUT};
    use super::*;
    use crate::proto::Machine as _;
    use crate::proto::testing::{at, drain};

    fn resumed(saved: SavedLadder) -> Ladder {
        Ladder::resume("t", 1, LadderSettings::generic(), at(10_000), saved)
    }

    #[test]
    fn a_phase_goes_on_for_the_rest_of_its_time() {
        let part = Duration::from_secs(20);
        let mut ladder = resumed(SavedLadder::new(Phase::Nudge, None, part, part + PHASE_TIMEOUT));
        assert_eq!(drain(&mut ladder), [], "nothing is repeated");
        assert_eq!(ladder.poll_timeout(), Some(at(10_040)));
        assert_eq!(ladder.saved(at(10_000)).in_phase, part);
    }

    #[test]
    fn a_phase_that_passed_unattended_is_waited_for_once_more() {
        let long = Duration::from_secs(3_600);
        let mut ladder = resumed(SavedLadder::new(Phase::LeaveInputMode, None, long, long));
        assert_eq!(drain(&mut ladder), []);
        assert_eq!(ladder.poll_timeout(), Some(at(10_060)));
        ladder.handle_timeout(at(10_060));
        assert_eq!(drain(&mut ladder), [Effect::Inspect]);
    }

    #[test]
    fn a_worker_that_was_waited_for_is_told_gently() {
        let long = Duration::from_secs(7_200);
        let saved = SavedLadder::new(Phase::LeaveInputMode, Some(WorkerActivity::Busy), long, long);
        let mut ladder = resumed(saved);
        ladder.handle_timeout(at(10_000));
        assert_eq!(drain(&mut ladder), [Effect::Inspect], "looked at before it is given up");
        ladder.handle(at(10_000), Event::Seen(WorkerActivity::Idle));
        assert_eq!((ladder.phase(), drain(&mut ladder).pop()), (Phase::Nudge, Some(Effect::Nudge)));
    }

    #[test]
    fn words_and_numbers_come_back() {
        for number in 0..=3 {
            assert_eq!(Phase::of_number(number).map(Phase::number), Some(number));
        }
        assert_eq!(Phase::of_number(4), None);
        for word in ["unknown", "idle", "busy", "asking", "limited", "human_occupied", "crashed"] {
            assert_eq!(WorkerActivity::of_word(word).map(WorkerActivity::word), Some(word));
        }
        assert_eq!(WorkerActivity::of_word("asleep"), None);
    }

    proptest! {
        /// A ladder may lose its process at any time, and stay without one for any time. Each
        /// rung is at least one watched phase after the rung before, and the end comes once.
        #[test]
        fn kills_never_hurry_a_ladder(
            kills in prop::collection::vec((1..100_u64, 0..1_000_u64), 0..40),
        ) {
            let mut ladder = Ladder::new("t", 1, LadderSettings::generic());
            ladder.handle(at(0), Event::Started);
            drain(&mut ladder);
            let (mut now, mut rungs, mut ends) = (0, Vec::new(), 0);
            let mut kills = kills.into_iter();
            while !ladder.is_over() {
                let (alive, away) = kills.next().unwrap_or((1_000_000, 0));
                let until = now + alive;
                while let Some(due) = ladder.poll_timeout().filter(|due| *due <= at(until)) {
                    now = now.max(due.as_duration().as_secs());
                    ladder.handle_timeout(at(now));
                    if drain(&mut ladder).contains(&Effect::Inspect) {
                        ladder.handle(at(now), Event::Seen(WorkerActivity::Idle));
                    }
                    let effects = drain(&mut ladder);
                    rungs.extend(effects.contains(&Effect::Nudge).then_some(now));
                    ends += effects.iter().filter(|e| matches!(e, Effect::Escalate(_))).count();
                }
                if ladder.is_over() {
                    break;
                }
                let saved = ladder.saved(at(until));
                now = until + away;
                let in_phase = saved.in_phase + Duration::from_secs(away);
                let waited = saved.waited + Duration::from_secs(away);
                let saved = SavedLadder { in_phase, waited, ..saved };
                ladder = Ladder::resume("t", 1, LadderSettings::generic(), at(now), saved);
            }
            prop_assert_eq!((rungs.len(), ends), (3, 1));
            let apart = |pair: &[u64]| pair[1] - pair[0] >= PHASE_TIMEOUT.as_secs();
            prop_assert!(rungs[0] >= 60 && rungs.windows(2).all(apart), "{:?}", rungs);
        }
    }
}
