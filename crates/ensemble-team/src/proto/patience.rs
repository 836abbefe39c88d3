//! How long a role waits for a notification before it polls (seed 002, time-outs).
//!
//! ```text
//! state      event / time             -> state      effects
//! Idle       Started                  -> Waiting
//! Waiting    Told                     -> Waiting    (the wait starts again)
//! Waiting    patience over, polls     -> Polling    PatienceEnded, Poll
//! Waiting    patience over, no polls  -> Over       PatienceEnded
//! Polling    interval over            -> Polling    Poll
//! Polling    Told                     -> Waiting
//! Over       Told                     -> Waiting
//! any        Finished                 -> Idle
//! ```
//!
//! Dispatch waits three minutes for reports and then polls every 30 seconds. Conductor waits 30
//! minutes for the summary and then gives up. Notification is the normal way: this machine only
//! limits how long a lost notification can go undetected.

use std::collections::VecDeque;
use std::time::Duration;

use ensemble_core::env::Monotonic;
use ensemble_core::proto::Machine;

/// How long Dispatch waits for reports before it polls.
pub const DISPATCH_PATIENCE: Duration = Duration::from_secs(3 * 60);
pub const DISPATCH_POLL_INTERVAL: Duration = Duration::from_secs(30);
/// How long Conductor waits for the completion summary.
pub const CONDUCTOR_PATIENCE: Duration = Duration::from_secs(30 * 60);

const _: () = assert!(DISPATCH_POLL_INTERVAL.as_secs() < DISPATCH_PATIENCE.as_secs());
const _: () = assert!(DISPATCH_PATIENCE.as_secs() < CONDUCTOR_PATIENCE.as_secs());

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitLimits {
    pub patience: Duration,
    /// Interval of polling after that; `None` to give up.
    pub poll_interval: Option<Duration>,
}

impl WaitLimits {
    /// Seed 002: three minutes, then every 30 seconds.
    pub const fn dispatch() -> Self {
        Self { patience: DISPATCH_PATIENCE, poll_interval: Some(DISPATCH_POLL_INTERVAL) }
    }

    /// Seed 002: a notification, or 30 minutes.
    pub const fn conductor() -> Self {
        Self { patience: CONDUCTOR_PATIENCE, poll_interval: None }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The role has handed out work and begins to wait.
    Started,
    /// Something that the role waits for has arrived.
    Told,
    /// Everything that the role waits for has arrived.
    Finished,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    PatienceEnded,
    Poll,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Waiting { until: Monotonic },
    Polling { next: Monotonic, interval: Duration },
    Over,
}

#[derive(Clone, Debug)]
pub struct RolePatience {
    limits: WaitLimits,
    state: State,
    effects: VecDeque<Effect>,
}

impl RolePatience {
    pub const fn new(limits: WaitLimits) -> Self {
        Self { limits, state: State::Idle, effects: VecDeque::new() }
    }

    /// Whether no notification came in time, and none has come since.
    pub const fn has_ended(&self) -> bool {
        match self.state {
            State::Polling { .. } | State::Over => true,
            State::Idle | State::Waiting { .. } => false,
        }
    }

    fn wait_from(&self, now: Monotonic) -> State {
        State::Waiting { until: now + self.limits.patience }
    }
}

impl Machine for RolePatience {
    type Event = Event;
    type Effect = Effect;

    fn handle(&mut self, now: Monotonic, event: Event) {
        self.state = match (self.state, event) {
            (State::Idle, Event::Started) => self.wait_from(now),
            (State::Waiting { .. } | State::Polling { .. } | State::Over, Event::Told) => {
                self.wait_from(now)
            }
            (_, Event::Finished) => State::Idle,
            (late, Event::Started | Event::Told) => late,
        };
    }

    fn handle_timeout(&mut self, now: Monotonic) {
        match self.state {
            State::Waiting { until } if now >= until => {
                self.effects.push_back(Effect::PatienceEnded);
                self.state = match self.limits.poll_interval {
                    Some(interval) => {
                        self.effects.push_back(Effect::Poll);
                        State::Polling { next: now + interval, interval }
                    }
                    None => State::Over,
                };
            }
            State::Polling { next, interval } if now >= next => {
                self.effects.push_back(Effect::Poll);
                self.state = State::Polling { next: now + interval, interval };
            }
            State::Idle | State::Waiting { .. } | State::Polling { .. } | State::Over => {}
        }
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    fn poll_timeout(&self) -> Option<Monotonic> {
        match self.state {
            State::Waiting { until } => Some(until),
            State::Polling { next, .. } => Some(next),
            State::Idle | State::Over => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ensemble_core::proto::testing::{at, drain};

    #[test]
    fn every_pair_of_state_and_event() {
        let states = [
            State::Idle,
            State::Waiting { until: at(9) },
            State::Polling { next: at(9), interval: Duration::from_secs(1) },
            State::Over,
        ];
        let wait = State::Waiting { until: at(180) };
        let table = [
            [wait, State::Idle, State::Idle],
            [states[1], wait, State::Idle],
            [states[2], wait, State::Idle],
            [State::Over, wait, State::Idle],
        ];
        let events = [Event::Started, Event::Told, Event::Finished];
        for (state, row) in states.into_iter().zip(table) {
            for (event, expected) in events.into_iter().zip(row) {
                let mut machine = RolePatience::new(WaitLimits::dispatch());
                machine.state = state;
                machine.handle(at(0), event);
                assert_eq!(machine.state, expected, "{state:?} {event:?}");
                assert_eq!(drain(&mut machine), []);
            }
        }
    }
}
