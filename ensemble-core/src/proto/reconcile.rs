//! When to list the directories. Events are hints, a listing is the source of truth, and a silently
//! dead event source is detected.
//!
//! ```text
//! state     event / time               -> state     effects
//! Starting  SourceUp                   -> Native    Scan
//! Starting  SourceFailed               -> Polling   Degraded, Scan
//! Native    Overflow                   -> Native    Scan
//! Native    PathsReplaced              -> Starting  Rewatch
//! Native    SourceFailed               -> Polling   Degraded, Scan
//! Native    scan interval over         -> Native    Scan, RingCanary
//! Native    CanarySeen                 -> Native
//! Native    canary overdue             -> Starting  SourceDead, Rewatch
//! Polling   polling interval over      -> Polling   Scan
//! Polling   retry interval over        -> Starting  Rewatch
//! Polling   PathsReplaced              -> Starting  Rewatch
//! Polling   SourceUp                   -> Native    Recovered, Scan
//! any       path check interval over   -> same      CheckPaths
//! ```
//!
//! The order "watch, then scan" loses no file: the scan finds files that arrived before the watch,
//! and events report later ones. `CheckPaths` finds changes without events: a directory that was
//! moved away, or a mount on top of it. The canary is a file that the watcher itself writes. If its
//! event does not come back, the event thread is dead. After a crash the state is `Starting`, which
//! scans.

use std::collections::VecDeque;
use std::time::Duration;

use super::Machine;
use crate::env::Monotonic;

/// Interval of full scans without an event (seed 002: 30 seconds).
pub const SCAN_INTERVAL: Duration = Duration::from_secs(30);
/// Longest interval of scans while there are no events at all: nothing else finds files then.
pub const POLLING_INTERVAL: Duration = Duration::from_secs(2);
/// Interval at which the watched paths are compared with the open directories.
pub const PATH_CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// How long the canary's event may take. It is generous: a burst of events may precede it.
pub const CANARY_PATIENCE: Duration = Duration::from_secs(10);
/// Interval at which the event source is retried while polling.
pub const RETRY_INTERVAL: Duration = Duration::from_secs(60);

const _: () = assert!(CANARY_PATIENCE.as_secs() < SCAN_INTERVAL.as_secs());
const _: () = assert!(PATH_CHECK_INTERVAL.as_secs() < SCAN_INTERVAL.as_secs());
const _: () = assert!(SCAN_INTERVAL.as_secs() <= RETRY_INTERVAL.as_secs());

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// All directories are watched.
    SourceUp,
    /// The directories cannot be watched, or no longer.
    SourceFailed { why: String },
    /// The source has lost events.
    Overflow,
    /// A watched path now leads to another directory, appeared or vanished.
    PathsReplaced,
    /// The canary's event came back.
    CanarySeen,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Watch all directories again and answer `SourceUp` or `SourceFailed`.
    Rewatch,
    Scan,
    /// Compare the watched paths with the open directories; answer `PathsReplaced` if they differ.
    CheckPaths,
    /// Write the canary file.
    RingCanary,
    /// Record that only polling finds files from now on.
    Degraded {
        why: String,
    },
    /// Record that the source no longer delivers events.
    SourceDead,
    /// Record that events work again.
    Recovered,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Starting { was_polling: bool },
    Native { next_scan: Monotonic, canary_due: Option<Monotonic> },
    Polling { next_scan: Monotonic, retry_at: Monotonic },
}

/// The way in which files are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WatchMode {
    Starting,
    /// By events, with a scan as a safety net.
    Native,
    /// By scans alone.
    Polling,
}

#[derive(Clone, Debug)]
pub struct Reconcile {
    scan_interval: Duration,
    state: State,
    next_check: Option<Monotonic>,
    /// Why it polls, as last reported.
    why: Option<String>,
    effects: VecDeque<Effect>,
}

impl Reconcile {
    /// A watcher that is about to start; its first effect is [`Effect::Rewatch`].
    pub fn new(scan_interval: Duration) -> Self {
        Self {
            scan_interval,
            state: State::Starting { was_polling: false },
            next_check: None,
            why: None,
            effects: VecDeque::from([Effect::Rewatch]),
        }
    }

    pub const fn mode(&self) -> WatchMode {
        match self.state {
            State::Starting { .. } => WatchMode::Starting,
            State::Native { .. } => WatchMode::Native,
            State::Polling { .. } => WatchMode::Polling,
        }
    }

    fn start_native(&mut self, now: Monotonic, was_polling: bool) -> State {
        if was_polling {
            self.effects.push_back(Effect::Recovered);
        }
        self.why = None;
        self.effects.push_back(Effect::Scan);
        State::Native { next_scan: now + self.scan_interval, canary_due: None }
    }

    /// Reports why, unless a retry has only failed for the same reason again.
    fn start_polling(&mut self, now: Monotonic, why: String) -> State {
        if self.why.as_ref() != Some(&why) {
            self.why = Some(why.clone());
            self.effects.push_back(Effect::Degraded { why });
        }
        self.effects.push_back(Effect::Scan);
        State::Polling { next_scan: self.next_poll(now), retry_at: now + RETRY_INTERVAL }
    }

    fn next_poll(&self, now: Monotonic) -> Monotonic {
        now + self.scan_interval.min(POLLING_INTERVAL)
    }

    fn rewatch(&mut self, was_polling: bool) -> State {
        self.effects.push_back(Effect::Rewatch);
        State::Starting { was_polling }
    }
}

impl Machine for Reconcile {
    type Event = Event;
    type Effect = Effect;

    fn handle(&mut self, now: Monotonic, event: Event) {
        if self.next_check.is_none() {
            self.next_check = Some(now + PATH_CHECK_INTERVAL);
        }
        self.state = match (self.state, event) {
            (State::Starting { was_polling }, Event::SourceUp) => {
                self.start_native(now, was_polling)
            }
            (State::Polling { .. }, Event::SourceUp) => self.start_native(now, true),
            (State::Starting { .. } | State::Native { .. }, Event::SourceFailed { why }) => {
                self.start_polling(now, why)
            }
            (State::Native { .. }, Event::Overflow) => {
                self.effects.push_back(Effect::Scan);
                self.state
            }
            (State::Native { .. }, Event::PathsReplaced) => self.rewatch(false),
            (State::Polling { .. }, Event::PathsReplaced) => self.rewatch(true),
            (State::Native { next_scan, .. }, Event::CanarySeen) => {
                State::Native { next_scan, canary_due: None }
            }
            (
                State::Starting { .. },
                Event::Overflow | Event::PathsReplaced | Event::CanarySeen,
            )
            | (State::Native { .. }, Event::SourceUp)
            | (
                State::Polling { .. },
                Event::SourceFailed { .. } | Event::Overflow | Event::CanarySeen,
            ) => self.state,
        };
    }

    fn handle_timeout(&mut self, now: Monotonic) {
        if self.next_check.is_some_and(|at| now >= at) {
            self.next_check = Some(now + PATH_CHECK_INTERVAL);
            self.effects.push_back(Effect::CheckPaths);
        }
        self.state = match self.state {
            State::Native { canary_due: Some(due), .. } if now >= due => {
                self.effects.push_back(Effect::SourceDead);
                self.rewatch(false)
            }
            State::Native { next_scan, canary_due } if now >= next_scan => {
                self.effects.extend([Effect::Scan, Effect::RingCanary]);
                let canary_due = canary_due.or(Some(now + CANARY_PATIENCE));
                State::Native { next_scan: now + self.scan_interval, canary_due }
            }
            State::Polling { retry_at, .. } if now >= retry_at => self.rewatch(true),
            State::Polling { next_scan, retry_at } if now >= next_scan => {
                self.effects.push_back(Effect::Scan);
                State::Polling { next_scan: self.next_poll(now), retry_at }
            }
            early @ (State::Starting { .. } | State::Native { .. } | State::Polling { .. }) => {
                early
            }
        };
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    fn poll_timeout(&self) -> Option<Monotonic> {
        let own = match self.state {
            State::Starting { .. } => None,
            State::Native { next_scan, canary_due } => {
                Some(canary_due.map_or(next_scan, |due| due.min(next_scan)))
            }
            State::Polling { next_scan, retry_at } => Some(next_scan.min(retry_at)),
        };
        [own, self.next_check].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::testing::at;

    fn drain(machine: &mut Reconcile) -> Vec<Effect> {
        std::iter::from_fn(|| machine.poll_effect()).filter(|e| *e != Effect::CheckPaths).collect()
    }

    fn native() -> Reconcile {
        let mut machine = Reconcile::new(SCAN_INTERVAL);
        assert_eq!(drain(&mut machine), [Effect::Rewatch]);
        machine.handle(at(0), Event::SourceUp);
        assert_eq!(drain(&mut machine), [Effect::Scan]);
        machine
    }

    fn failed() -> Event {
        Event::SourceFailed { why: "no watches left".to_owned() }
    }

    #[test]
    fn watch_precedes_scan_and_scans_repeat_every_30_seconds() {
        let mut machine = native();
        machine.handle_timeout(at(29));
        assert_eq!(drain(&mut machine), []);
        machine.handle_timeout(at(30));
        assert_eq!(drain(&mut machine), [Effect::Scan, Effect::RingCanary]);
        machine.handle(at(31), Event::CanarySeen);
        machine.handle_timeout(at(59));
        assert_eq!(drain(&mut machine), []);
    }

    #[test]
    fn silently_dead_source_is_replaced() {
        let mut machine = native();
        machine.handle_timeout(at(30));
        drain(&mut machine);
        machine.handle_timeout(at(40));
        assert_eq!(drain(&mut machine), [Effect::SourceDead, Effect::Rewatch]);
        machine.handle(at(40), Event::SourceUp);
        assert_eq!(drain(&mut machine), [Effect::Scan]);
    }

    #[test]
    fn polling_continues_until_a_retry_succeeds() {
        let mut machine = native();
        machine.handle(at(5), failed());
        let why = "no watches left".to_owned();
        assert_eq!(drain(&mut machine), [Effect::Degraded { why }, Effect::Scan]);
        machine.handle_timeout(at(6));
        assert_eq!(drain(&mut machine), []);
        machine.handle_timeout(at(7));
        assert_eq!(drain(&mut machine), [Effect::Scan]);
        machine.handle_timeout(at(65));
        assert_eq!(drain(&mut machine), [Effect::Rewatch]);
        machine.handle(at(65), failed());
        assert_eq!(drain(&mut machine), [Effect::Scan], "told once");
        machine.handle_timeout(at(125));
        assert_eq!(drain(&mut machine), [Effect::Rewatch]);
        let why = "every user may write there".to_owned();
        machine.handle(at(125), Event::SourceFailed { why: why.clone() });
        assert_eq!(drain(&mut machine), [Effect::Degraded { why }, Effect::Scan]);
        machine.handle(at(126), Event::SourceUp);
        assert_eq!(drain(&mut machine), [Effect::Recovered, Effect::Scan]);
        assert_eq!(machine.mode(), WatchMode::Native);
    }

    #[test]
    fn paths_are_checked_every_two_seconds() {
        let mut machine = native();
        (1..=20).for_each(|second| machine.handle_timeout(at(second)));
        let checks = machine.effects.iter().filter(|effect| **effect == Effect::CheckPaths);
        assert_eq!(checks.count(), 10);
    }

    #[test]
    fn every_pair_of_state_and_event() {
        let starting = State::Starting { was_polling: false };
        let native = State::Native { next_scan: at(30), canary_due: Some(at(9)) };
        let fresh = State::Native { next_scan: at(30), canary_due: None };
        let polling = State::Polling { next_scan: at(2), retry_at: at(60) };
        let retrying = State::Starting { was_polling: true };
        let events =
            [Event::SourceUp, failed(), Event::Overflow, Event::PathsReplaced, Event::CanarySeen];
        let table = [
            (starting, [fresh, polling, starting, starting, starting]),
            (retrying, [fresh, polling, retrying, retrying, retrying]),
            (native, [native, polling, native, starting, fresh]),
            (polling, [fresh, polling, polling, retrying, polling]),
        ];
        for (state, row) in table {
            for (event, expected) in events.iter().zip(row) {
                let mut machine = Reconcile { state, ..Reconcile::new(SCAN_INTERVAL) };
                machine.handle(at(0), event.clone());
                assert_eq!(machine.state, expected, "{state:?} {event:?}");
            }
        }
    }
}
