//! Alarms: each condition that a person or a planner should know of is told once (seed 001's
//! siblings, whose watcher repeats most of them every ten seconds).
//!
//! ```text
//! a condition  event / time                              -> state     effects
//! absent       Seen, without grace                       -> Raised    Raise
//! absent       Seen                                      -> Waiting   (for its grace, from now)
//! absent       Told                                      -> Raised    (by an observer before this one)
//! Waiting      Seen, its grace is over                   -> Raised    Raise
//! Waiting      Seen                                      -> Waiting
//! Waiting      Told                                      -> Raised
//! Raised       Seen, Told                                -> Raised
//! Waiting      LookDone without having been seen         -> absent
//! Raised       LookDone without having been seen         -> absent    Forget
//! Waiting      its grace is over                         -> Waiting   Look      (again every LOOK_REPEAT, also after Blind)
//! any          Blind                                     -> same      (what was seen at this look counts as seen)
//! ```
//!
//! A key says which condition it is *and* which occurrence of it: a task that is blocked a second
//! time has another key, and is told of again. What an occurrence is is the caller's matter
//! (`board::alarms`).
//!
//! A condition counts for its grace only as long as the observer has itself seen it, on its own
//! monotonic clock. The time that an observer was away counts, if the condition was there before and
//! is there after: its key would be another one if it had been gone in between.
//!
//! *Blind*: an observer that cannot look (a board that does not parse) says so instead of LookDone,
//! and nothing is forgotten. *A crash* loses what was Waiting, which begins anew; what was Raised the
//! caller keeps, and says Told for each before its first look. *A crash* between Raise and keeping
//! that raises again: the caller's message must have an id that follows from the key. *Out of order,
//! doubled*: nothing happens.
//!
//! ```
//! use std::time::Duration;
//! use ensemble_core::env::Monotonic;
//! use ensemble_core::proto::Machine;
//! use ensemble_core::proto::alarm::{AlarmWatch, Effect, Event};
//!
//! let grace = Duration::from_secs(30);
//! let mut watch = AlarmWatch::new();
//! watch.handle(Monotonic::ZERO, Event::Seen { key: "orphaned task-1", grace });
//! watch.handle(Monotonic::ZERO, Event::LookDone);
//! assert_eq!(watch.poll_timeout(), Some(Monotonic::ZERO + grace));
//! watch.handle_timeout(Monotonic::ZERO + grace);
//! assert_eq!(watch.poll_effect(), Some(Effect::Look));
//! watch.handle(Monotonic::ZERO + grace, Event::Seen { key: "orphaned task-1", grace });
//! assert_eq!(watch.poll_effect(), Some(Effect::Raise { key: "orphaned task-1" }));
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::Machine;
use crate::env::Monotonic;

#[cfg(test)]
mod tests;

/// How soon an unanswered [`Effect::Look`] is repeated.
pub const LOOK_REPEAT: Duration = Duration::from_secs(5);

/// What the observer sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<K> {
    /// A condition is there.
    Seen {
        /// Which occurrence of which.
        key: K,
        /// How long it may be there before anybody is told.
        grace: Duration,
    },
    /// An observer before this one has told of it.
    Told {
        /// Which occurrence of which.
        key: K,
    },
    /// All conditions that are there have been seen.
    LookDone,
    /// It could not look at all of them.
    Blind,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect<K> {
    /// Look at all conditions and report them, ending with [`Event::LookDone`].
    Look,
    /// Tell of it, and keep that.
    Raise {
        /// Which occurrence of which.
        key: K,
    },
    /// It is over: it need not be kept any more.
    Forget {
        /// Which occurrence of which.
        key: K,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting { until: Monotonic },
    Raised,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Occurrence {
    state: State,
    /// Since the last look ended.
    is_seen: bool,
}

/// The machine of one observer; see the table at the top of this page.
#[derive(Clone, Debug)]
pub struct AlarmWatch<K> {
    occurrences: BTreeMap<K, Occurrence>,
    /// When a look was last asked for that has not ended yet.
    asked: Option<Monotonic>,
    effects: VecDeque<Effect<K>>,
}

impl<K: Ord + Clone> Default for AlarmWatch<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Ord + Clone> AlarmWatch<K> {
    /// An observer that has seen nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { occurrences: BTreeMap::new(), asked: None, effects: VecDeque::new() }
    }

    /// What was told and is not over.
    pub fn raised(&self) -> impl Iterator<Item = &K> {
        let is_raised = |occurrence: &Occurrence| match occurrence.state {
            State::Raised => true,
            State::Waiting { .. } => false,
        };
        self.occurrences.iter().filter(move |(_, o)| is_raised(o)).map(|(key, _)| key)
    }

    fn seen(&mut self, now: Monotonic, key: K, grace: Duration) {
        let before = self.occurrences.get(&key).map(|occurrence| occurrence.state);
        let until = match before {
            None => now + grace,
            Some(State::Waiting { until }) => until,
            Some(State::Raised) => {
                self.put(key, State::Raised);
                return;
            }
        };
        if now < until {
            self.put(key, State::Waiting { until });
        } else {
            self.effects.push_back(Effect::Raise { key: key.clone() });
            self.put(key, State::Raised);
        }
    }

    fn put(&mut self, key: K, state: State) {
        self.occurrences.insert(key, Occurrence { state, is_seen: true });
    }

    fn look_done(&mut self) {
        let effects = &mut self.effects;
        self.occurrences.retain(|key, occurrence| {
            match (occurrence.is_seen, occurrence.state) {
                (true, State::Waiting { .. } | State::Raised) => {}
                (false, State::Waiting { .. }) => return false,
                (false, State::Raised) => {
                    effects.push_back(Effect::Forget { key: key.clone() });
                    return false;
                }
            }
            occurrence.is_seen = false;
            true
        });
        self.asked = None;
    }

    /// When the first grace is over.
    fn due(&self) -> Option<Monotonic> {
        let until = |occurrence: &Occurrence| match occurrence.state {
            State::Waiting { until } => Some(until),
            State::Raised => None,
        };
        self.occurrences.values().filter_map(until).min()
    }
}

impl<K: Ord + Clone> Machine for AlarmWatch<K> {
    type Event = Event<K>;
    type Effect = Effect<K>;

    fn handle(&mut self, now: Monotonic, event: Event<K>) {
        match event {
            Event::Seen { key, grace } => self.seen(now, key, grace),
            // It is forgotten by the next look that does not see it.
            Event::Told { key } => {
                let is_seen = self.occurrences.get(&key).is_some_and(|o| o.is_seen);
                self.occurrences.insert(key, Occurrence { state: State::Raised, is_seen });
            }
            Event::LookDone => self.look_done(),
            // Tried again, but not at once.
            Event::Blind => self.asked = Some(now),
        }
    }

    fn handle_timeout(&mut self, now: Monotonic) {
        if self.poll_timeout().is_some_and(|due| now >= due) {
            self.asked = Some(now);
            self.effects.push_back(Effect::Look);
        }
    }

    fn poll_effect(&mut self) -> Option<Effect<K>> {
        self.effects.pop_front()
    }

    fn poll_timeout(&self) -> Option<Monotonic> {
        let due = self.due()?;
        Some(self.asked.map_or(due, |asked| due.max(asked + LOOK_REPEAT)))
    }
}
