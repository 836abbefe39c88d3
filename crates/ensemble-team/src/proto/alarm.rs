//! Alarms: people or planners are notified of each condition once (seed 001's siblings, whose
//! watcher repeats most of them every ten seconds).
//!
//! ```text
//! a condition  event / time                              -> state     effects
//! absent       Seen, without grace                       -> Raised    Raise
//! absent       Seen                                      -> Waiting   (for its grace, from now)
//! absent       Told                                      -> Raised    (an earlier observer raised it)
//! Waiting      Seen, its grace is over                   -> Raised    Raise
//! Waiting      Seen                                      -> Waiting
//! Waiting      Told                                      -> Raised
//! Raised       Seen, Told                                -> Raised
//! Waiting      LookDone without having been seen         -> absent
//! Raised       LookDone without having been seen         -> absent    Forget
//! Waiting      its grace is over                         -> Waiting   Look      (again every LOOK_REPEAT, also after Blind)
//! any          Blind                                     -> same      (conditions seen in this scan count as seen)
//! ```
//!
//! A key identifies a condition *and* its occurrence: a task that is blocked a second time has
//! another key and raises another alarm. The caller defines occurrences (`board::alarms`).
//!
//! A condition counts toward its grace only while the observer has itself seen it, on its own monotonic clock. The
//! time of an observer's absence counts if the condition was present before and after it, because an interruption
//! would have changed the key.
//!
//! *Blind*: an observer that cannot scan (the board does not parse) sends Blind instead of LookDone, and nothing is
//! forgotten. *A crash* loses Waiting conditions, which start again. The caller stores Raised conditions, and sends
//! `Told` for each before its first scan. *A crash* between Raise and storing it raises it again, so the caller's
//! message needs an id that is derived from the key. *Out of order, doubled*: nothing happens.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ensemble_core::env::Monotonic;
use ensemble_core::proto::Machine;

#[cfg(test)]
mod tests;

/// Interval at which an unanswered [`Effect::Look`] is repeated.
pub const LOOK_REPEAT: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<K> {
    Seen {
        key: K,
        /// How long the condition may last before it is raised.
        grace: Duration,
    },
    /// An earlier observer raised this condition.
    Told { key: K },
    /// All current conditions have been seen.
    LookDone,
    /// The observer could not see all conditions.
    Blind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect<K> {
    /// Scan all conditions and report them, ending with [`Event::LookDone`].
    Look,
    /// Notify people, and store that.
    Raise { key: K },
    /// The condition has ended: its stored record may be removed.
    Forget { key: K },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting { until: Monotonic },
    Raised,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AlarmOccurrence {
    state: State,
    /// Whether it was seen since the last scan ended.
    is_seen: bool,
}

#[derive(Clone, Debug)]
pub struct AlarmWatch<K> {
    occurrences: BTreeMap<K, AlarmOccurrence>,
    /// When the last unfinished scan was requested.
    asked: Option<Monotonic>,
    effects: VecDeque<Effect<K>>,
}

impl<K: Ord + Clone> Default for AlarmWatch<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Ord + Clone> AlarmWatch<K> {
    pub const fn new() -> Self {
        Self { occurrences: BTreeMap::new(), asked: None, effects: VecDeque::new() }
    }

    /// Conditions that were raised and are not over.
    pub fn raised(&self) -> impl Iterator<Item = &K> {
        self.occurrences.iter().filter(|(_, it)| it.state == State::Raised).map(|(key, _)| key)
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
        self.occurrences.insert(key, AlarmOccurrence { state, is_seen: true });
    }

    fn look_done(&mut self) {
        let effects = &mut self.effects;
        self.occurrences.retain(|key, occurrence| {
            let was_seen = std::mem::take(&mut occurrence.is_seen);
            if !was_seen && occurrence.state == State::Raised {
                effects.push_back(Effect::Forget { key: key.clone() });
            }
            was_seen
        });
        self.asked = None;
    }

    /// When the first grace has passed.
    fn due(&self) -> Option<Monotonic> {
        let until = |occurrence: &AlarmOccurrence| match occurrence.state {
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
            // The next scan that does not see it forgets it.
            Event::Told { key } => {
                let is_seen = self.occurrences.get(&key).is_some_and(|o| o.is_seen);
                self.occurrences.insert(key, AlarmOccurrence { state: State::Raised, is_seen });
            }
            Event::LookDone => self.look_done(),
            // Try again, but not at once.
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
