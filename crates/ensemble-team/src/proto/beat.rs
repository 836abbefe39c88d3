//! Renewing one's own leases: the holder's side of [`ensemble_core::proto::lease`] (seed 001's lease maintenance).
//!
//! ```text
//! state     event / time                          -> state     effects
//! new                                             -> Held      Beat
//! Held      Beaten                                -> Held      (silent for 0 s)
//! Held      60 s since the last beat              -> Held      Beat            (a fifth of a short lease)
//! Held      its duration without a Beaten         -> Doubtful  StopWriting
//! Doubtful  Beaten                                -> Held      (the board still knows it)
//! Doubtful  60 s since the last beat              -> Doubtful  Beat
//! any       LongOperation                         -> same      Beat for 15 min, Record Extended
//! any       OperationDone                         -> same      Beat
//! any       Beaten, of an earlier beat            -> same
//! ```
//!
//! A beat changes a sequence number in a separate file, so it does not need the board's lock.
//! Observers ([`ensemble_core::proto::lease`]) read only that number. Times here come from a clock that counts
//! suspended time ([`Clock::boottime`](ensemble_core::env::Clock::boottime)). A holder that slept longer
//! than its lease knows on waking that it may have lost the lease. It stops writing and asks. That
//! only saves work; safety comes from the epoch in every write. Setting the wall clock has no
//! effect here.
//!
//! *Silence* (no Beaten, for example because the disk is full) makes the holder doubt. *A crash* of
//! the holder ends the beats, and the observers expire its leases.

use std::collections::VecDeque;
use std::time::Duration;

use ensemble_core::env::Monotonic;
use ensemble_core::proto::Machine;
use ensemble_core::proto::lease::HEARTBEAT;

/// Duration of a lease without a beat.
pub const LEASE_DURATION: Duration = Duration::from_secs(300);
/// Duration of a lease that was extended for a long operation.
pub const LONG_OPERATION: Duration = Duration::from_secs(900);

const _: () = assert!(LEASE_DURATION.as_secs() >= 3 * HEARTBEAT.as_secs());
/// Number of beats per lease, if the lease is shorter than usual.
const BEATS_A_LEASE: u32 = 5;

const _: () = assert!(LEASE_DURATION.as_secs() / BEATS_A_LEASE as u64 >= HEARTBEAT.as_secs());
const _: () = assert!(LONG_OPERATION.as_secs() > LEASE_DURATION.as_secs());

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Beaten {
        sequence: u64,
    },
    /// The holder will not be able to beat for a while.
    LongOperation {
        description: String,
    },
    /// The holder can beat again.
    OperationDone,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Beat {
        sequence: u64,
        /// How long the beat counts.
        duration: Duration,
    },
    /// Write nothing under the lease before asking the board.
    StopWriting,
    /// Write the seed's line to the log; see [`extended`].
    Record {
        /// `Extended lease for long operation: …`.
        line: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Held { beaten: Monotonic, duration: Duration },
    Doubtful,
}

#[derive(Clone, Debug)]
pub struct LeaseRenewal {
    usual: Duration,
    state: State,
    sequence: u64,
    /// When the last beat was requested, and its duration.
    asked: Monotonic,
    asked_duration: Duration,
    effects: VecDeque<Effect>,
}

/// The seed's line for the log.
pub fn extended(description: &str) -> String {
    format!("Extended lease for long operation: {description}")
}

impl LeaseRenewal {
    /// The holder of leases that begin now and last `duration`.
    pub fn new(now: Monotonic, duration: Duration) -> Self {
        let mut renewal = Self {
            usual: duration,
            state: State::Held { beaten: now, duration },
            sequence: 0,
            asked: now,
            asked_duration: duration,
            effects: VecDeque::new(),
        };
        renewal.beat(now, duration);
        renewal
    }

    fn interval(&self) -> Duration {
        HEARTBEAT.min(self.usual / BEATS_A_LEASE)
    }

    fn beat(&mut self, now: Monotonic, duration: Duration) {
        self.sequence += 1;
        (self.asked, self.asked_duration) = (now, duration);
        self.effects.push_back(Effect::Beat { sequence: self.sequence, duration });
    }

    fn end(&self) -> Option<Monotonic> {
        match self.state {
            State::Held { beaten, duration } => Some(beaten + duration),
            State::Doubtful => None,
        }
    }
}

impl Machine for LeaseRenewal {
    type Event = Event;
    type Effect = Effect;

    fn handle(&mut self, now: Monotonic, event: Event) {
        self.handle_timeout(now);
        match event {
            Event::Beaten { sequence } if sequence == self.sequence => {
                // Count from the request of the beat: an observer cannot have seen it earlier.
                self.state = State::Held { beaten: self.asked, duration: self.asked_duration };
            }
            Event::Beaten { .. } => {}
            Event::LongOperation { description } => {
                self.beat(now, LONG_OPERATION.max(self.usual));
                self.effects.push_back(Effect::Record { line: extended(&description) });
            }
            Event::OperationDone => self.beat(now, self.usual),
        }
    }

    fn handle_timeout(&mut self, now: Monotonic) {
        if self.end().is_some_and(|end| now >= end) {
            self.state = State::Doubtful;
            self.effects.push_back(Effect::StopWriting);
        }
        if now >= self.asked + self.interval() {
            // The usual beat does not shorten the lease of a long operation.
            let left = (self.asked + self.asked_duration).since(now);
            self.beat(now, self.usual.max(left));
        }
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    fn poll_timeout(&self) -> Option<Monotonic> {
        let beat = self.asked + self.interval();
        Some(self.end().map_or(beat, |end| end.min(beat)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::testing::{variant, wake};
    use ensemble_core::proto::testing::{at, drain, pairs, run};

    fn held() -> LeaseRenewal {
        held_for(LEASE_DURATION)
    }

    fn held_for(duration: Duration) -> LeaseRenewal {
        let mut beat = LeaseRenewal::new(at(0), duration);
        drain(&mut beat);
        beat.handle(at(0), Event::Beaten { sequence: 1 });
        beat
    }

    const fn beat_of(sequence: u64) -> Effect {
        Effect::Beat { sequence, duration: LEASE_DURATION }
    }

    #[test]
    fn every_pair_of_state_and_event() {
        let mut doubtful = held();
        wake(&mut doubtful, at(300));
        let states = [("held", held()), ("doubtful", doubtful)];
        let events = [
            ("Beaten", Event::Beaten { sequence: 2 }),
            ("Beaten old", Event::Beaten { sequence: 0 }),
            ("Long", Event::LongOperation { description: "tests".to_owned() }),
            ("Done", Event::OperationDone),
        ];
        let table = pairs(&states, &events, |state, event| {
            let mut beat = state.clone();
            let now = if beat.sequence > 1 { at(301) } else { at(1) };
            beat.handle(now, event.clone());
            let mut said = variant(&beat.state);
            for effect in drain(&mut beat) {
                said.push_str(match effect {
                    Effect::Beat { duration, .. } if duration == LONG_OPERATION => "+long",
                    Effect::Beat { .. } => "+beat",
                    Effect::StopWriting => "+stop",
                    Effect::Record { .. } => "+record",
                });
            }
            said
        });
        let expected = "
            held              doubtful
Beaten      Held              Held
Beaten old  Held              Doubtful
Long        Held+long+record  Doubtful+long+record
Done        Held+beat         Doubtful+beat
";
        assert_eq!(table, expected);
    }

    #[test]
    fn beats_come_every_minute_and_extend_for_long_operations() {
        let mut beat = held();
        let beats = [(at(60), beat_of(2)), (at(120), beat_of(3))];
        assert_eq!(run(&mut beat, at(125)), beats);
        beat.handle(at(130), Event::Beaten { sequence: 3 });
        beat.handle(at(130), Event::LongOperation { description: "make test".to_owned() });
        let line = "Extended lease for long operation: make test".to_owned();
        let long = Effect::Beat { sequence: 4, duration: LONG_OPERATION };
        assert_eq!(drain(&mut beat), [long, Effect::Record { line }]);
        beat.handle(at(130), Event::Beaten { sequence: 4 });
        // No beat comes for fourteen minutes, and the lease survives.
        beat.handle_timeout(at(130 + 14 * 60));
        assert!(matches!(beat.state, State::Held { .. }));
        assert_eq!(drain(&mut beat), [beat_of(5)]);
        beat.handle_timeout(at(130 + 15 * 60));
        assert!(!matches!(beat.state, State::Held { .. }));
    }

    #[test]
    fn holder_that_slept_past_its_lease_asks_before_writing() {
        let mut beat = held();
        beat.handle_timeout(at(3_600));
        assert!(!matches!(beat.state, State::Held { .. }));
        assert_eq!(drain(&mut beat), [Effect::StopWriting, beat_of(2)]);
        beat.handle(at(3_601), Event::Beaten { sequence: 2 });
        assert!(matches!(beat.state, State::Held { .. }));
    }

    #[test]
    fn short_lease_is_renewed_by_five_beats() {
        assert_eq!(held_for(Duration::from_secs(10)).poll_timeout(), Some(at(2)));
    }
}
