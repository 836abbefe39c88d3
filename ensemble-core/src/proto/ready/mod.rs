//! Whether a worker is ready, asked before every assignment (seed 000).
//!
//! ```text
//! state         event / time                     -> state          effects
//! Idle          Started                          -> Waiting 1      SendPing 1
//! Waiting n     SendFailed n                     -> Waiting n      (the reason is kept)
//! Waiting n     5 s                              -> Inspecting n   Inspect n
//! Inspecting n  Inspected, no program, n < 3     -> Opening n      SendOpen n
//! Inspecting n  Inspected otherwise, n < 3       -> Pausing n      Record Retry
//! Inspecting 3  Inspected                        -> Failed         Failed
//! Inspecting n  nothing for 6 s                  -> as Inspected with an error
//! Opening n     OpenDone; nothing for 6 s        -> Pausing n      Record Retry
//! Pausing n     5 s                              -> Waiting n + 1  SendPing n + 1
//! n of these    Pong, this worker, attempt n     -> Ready          Ready
//! n of these    any other Pong                   -> same           Record StrayPong
//! Ready, Failed everything                       -> same
//! ```
//!
//! A ping costs a line on a screen, and an assignment to a worker that is not there costs hours. So
//! nothing is assigned without a pong that names this worker and this attempt. After every timeout,
//! including the last, the window is inspected, and every retry records what was seen. With a
//! worker that never answers this waits 3 × 5 s for pongs and 2 × 5 s between them. That is 25 s,
//! plus the time of the inspections.
//!
//! *Silence* of the worker is the subject. Silence of the driver that should inspect or open is
//! bounded by [`ACTION_PATIENCE`] and counts as a failed inspection or launch. *A crash* of the
//! controller loses the handshake, and the next one begins at attempt 1. A pong to the old attempt
//! 1 could answer it, so the transport discards old pongs before [`Event::Started`].
//!
//! What the seed leaves open is decided so:
//! - The pong of attempt n counts until ping n + 1 is sent, also while inspecting: it proves more
//!   than a look does. After that it is stale.
//! - A busy worker that answers is ready; one that does not is a `no_pong_timeout`.
//! - If a ping could not be typed, its answer is waited for anyway: pings are also sent as files, and the seed's
//!   times apply.
//! - The open command is sent at most once an attempt, and not after the third, where no ping
//!   would follow. It is sent only if the program is known to be missing, never on doubt.
//! - One controller at a time: two handshakes with one worker are kept apart by the worker's lock,
//!   not here.
//! - How a pong travels is the driver's choice: a call, a file, or a line on the screen where the
//!   profile allows it ([`PongToken::on_screen`]).

use std::collections::VecDeque;
use std::time::Duration;

use serde::Serialize;

use super::Machine;
use crate::env::Monotonic;
use crate::message::Name;
use crate::pane::Deferral;

mod failure;
#[cfg(test)]
mod tests;
mod token;

pub use failure::{
    ErrorType, OBSERVATION_CHARS_MAX, ReadinessFailure, ReadyObstacle, WindowDiagnosis, Workspace,
};
pub use token::{Ping, PongToken};

/// How long a matching pong is waited for.
pub const PONG_WAIT: Duration = Duration::from_secs(5);
/// How long to wait after the diagnosis, or the open command, before the next ping.
pub const RETRY_DELAY: Duration = Duration::from_secs(5);
/// How many pings are sent.
pub const ATTEMPTS_MAX: u8 = 3;
/// The highest number of attempts that can be configured.
pub const ATTEMPTS_LIMIT: u8 = 99;
/// How long an inspection or an open command may take: an exchange with a multiplexer that is
/// given five seconds, and one to spare.
pub const ACTION_PATIENCE: Duration = Duration::from_secs(6);

const _: () = assert!(ATTEMPTS_MAX <= ATTEMPTS_LIMIT);
const _: () = assert!(
    PONG_WAIT.as_secs() * ATTEMPTS_MAX as u64 + RETRY_DELAY.as_secs() * (ATTEMPTS_MAX as u64 - 1)
        == 25
);

/// The times of the handshake, and whether it is always needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PingTimes {
    pub pong_wait: Duration,
    pub retry_delay: Duration,
    /// How many pings are sent: 1 to [`ATTEMPTS_LIMIT`].
    pub attempts_max: u8,
    /// Whether only a pong counts, and no other proof that the worker is idle.
    pub needs_pong: bool,
}

impl Default for PingTimes {
    /// Seed 000: 5 s, 5 s, 3.
    fn default() -> Self {
        let (pong_wait, retry_delay, attempts_max) = (PONG_WAIT, RETRY_DELAY, ATTEMPTS_MAX);
        Self { pong_wait, retry_delay, attempts_max, needs_pong: false }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A caller wants to assign.
    Started,
    Pong(PongToken),
    SendFailed {
        attempt: u8,
        deferral: Deferral,
    },
    Inspected {
        attempt: u8,
        /// The diagnosis, or why there is none.
        diagnosis: Result<WindowDiagnosis, String>,
    },
    /// The open command was sent, or could not be.
    OpenDone {
        attempt: u8,
        /// Whether it was sent.
        ok: bool,
    },
}

/// The actions that the driver must perform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send this ping; report only a failure.
    SendPing(Ping),
    /// Look at the window and report [`Event::Inspected`].
    Inspect {
        attempt: u8,
    },
    /// Send the provider's open command and report [`Event::OpenDone`].
    SendOpen {
        attempt: u8,
    },
    /// The worker is ready: assign.
    Ready {
        /// Attempt of the answered ping.
        attempt: u8,
    },
    /// The worker is not ready: do not assign.
    Failed(ReadinessFailure),
    Record(HandshakeRecord),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum HandshakeRecord {
    /// There was no pong and another ping will be sent.
    Retry {
        attempt: u8,
        /// The verdict of the inspection.
        error_type: ErrorType,
        /// What was seen: one line.
        observation: String,
        /// Whether the open command was sent in this attempt.
        open_command_sent: bool,
    },
    /// A pong of another worker or attempt was ignored.
    StrayPong { worker: Name, attempt: u8 },
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Waiting { until: Monotonic },
    Inspecting { until: Monotonic },
    Opening { until: Monotonic, error_type: ErrorType, observation: String },
    Pausing { until: Monotonic },
    Ready,
    Failed,
}

/// Begins the observation of an attempt whose ping was not typed, before the reason and a semicolon.
pub const NOT_TYPED: &str = "ping not typed: ";

#[derive(Clone, Debug)]
pub struct Handshake {
    worker: Name,
    config: PingTimes,
    state: State,
    attempt: u8,
    /// An open command was sent in some attempt.
    opened: bool,
    /// An open command was asked for in some attempt.
    open_tried: bool,
    /// Why the ping of this attempt was not typed.
    unsent: Option<Deferral>,
    sent: Vec<Monotonic>,
    /// The last pong that was too late.
    late: Option<String>,
    effects: VecDeque<Effect>,
}

impl Handshake {
    pub const fn new(worker: Name, config: PingTimes) -> Self {
        Self {
            worker,
            config,
            state: State::Idle,
            attempt: 0,
            opened: false,
            open_tried: false,
            unsent: None,
            sent: Vec::new(),
            late: None,
            effects: VecDeque::new(),
        }
    }

    /// Which attempt is under way, from 1; 0 before the first.
    pub const fn attempt(&self) -> u8 {
        self.attempt
    }

    fn ping(&mut self, now: Monotonic) -> State {
        self.attempt = self.attempt.saturating_add(1);
        self.unsent = None;
        self.sent.push(now);
        let ping = Ping { worker: self.worker.clone(), attempt: self.attempt };
        self.effects.push_back(Effect::SendPing(ping));
        State::Waiting { until: now + self.config.pong_wait }
    }

    /// The new state if this is the pong that is waited for.
    fn pong(&mut self, now: Monotonic, pong: PongToken) -> Option<State> {
        let PongToken { worker, attempt } = pong;
        if worker == self.worker && attempt == self.attempt {
            self.effects.push_back(Effect::Ready { attempt });
            return Some(State::Ready);
        }
        let sent = self.sent.get(usize::from(attempt).wrapping_sub(1));
        if let Some(sent) = sent.filter(|_| worker == self.worker) {
            let took = now.since(*sent).as_secs();
            let late = format!("answered ping {attempt} after {took} s (set `readiness.wait`); ");
            self.late = Some(late);
        }
        self.effects.push_back(Effect::Record(HandshakeRecord::StrayPong { worker, attempt }));
        None
    }

    fn inspect(&mut self, now: Monotonic) -> State {
        self.effects.push_back(Effect::Inspect { attempt: self.attempt });
        State::Inspecting { until: now + ACTION_PATIENCE }
    }

    fn inspected(&mut self, now: Monotonic, inspection: Result<WindowDiagnosis, String>) -> State {
        if self.attempt >= self.config.attempts_max {
            return self.fail(&inspection);
        }
        let error_type = ErrorType::classify(&inspection, self.open_tried);
        let closed = inspection.as_ref().is_ok_and(|seen| seen.workspace == Workspace::Closed);
        if closed {
            self.open_tried = true;
            self.effects.push_back(Effect::SendOpen { attempt: self.attempt });
            let observation = self.observation(&inspection);
            return State::Opening { until: now + ACTION_PATIENCE, error_type, observation };
        }
        self.pause(now, error_type, self.observation(&inspection), false)
    }

    fn opened(&mut self, now: Monotonic, seen: ErrorType, observation: String, ok: bool) -> State {
        self.opened |= ok;
        let error_type = if ok { seen } else { ErrorType::ProviderLaunchFailed };
        self.pause(now, error_type, observation, ok)
    }

    fn pause(
        &mut self,
        now: Monotonic,
        error_type: ErrorType,
        observation: String,
        open_command_sent: bool,
    ) -> State {
        let attempt = self.attempt;
        let retry = HandshakeRecord::Retry { attempt, error_type, observation, open_command_sent };
        self.effects.push_back(Effect::Record(retry));
        State::Pausing { until: now + self.config.retry_delay }
    }

    fn fail(&mut self, inspection: &Result<WindowDiagnosis, String>) -> State {
        let error_type = ErrorType::classify(inspection, self.open_tried);
        self.effects.push_back(Effect::Failed(ReadinessFailure {
            worker: self.worker.clone(),
            attempt: self.attempt,
            error_type,
            window_inspected: inspection.is_ok(),
            open_command_sent: self.opened,
            observation: failure::one_line(&self.observation(inspection)),
        }));
        State::Failed
    }

    fn observation(&self, inspection: &Result<WindowDiagnosis, String>) -> String {
        let seen = match inspection {
            Ok(diagnosis) => diagnosis.observation.clone(),
            Err(reason) => format!("window not inspected: {reason}"),
        };
        let unsent = self.unsent.as_ref().map(|why| format!("{NOT_TYPED}{why}; "));
        failure::one_line(&(self.late.clone().or(unsent).unwrap_or_default() + &seen))
    }
}

impl Machine for Handshake {
    type Event = Event;
    type Effect = Effect;

    fn handle(&mut self, now: Monotonic, event: Event) {
        let state = std::mem::replace(&mut self.state, State::Idle);
        let current = self.attempt;
        self.state = match (state, event) {
            (State::Idle, Event::Started) => self.ping(now),
            (
                state @ (State::Waiting { .. }
                | State::Inspecting { .. }
                | State::Opening { .. }
                | State::Pausing { .. }),
                Event::Pong(pong),
            ) => self.pong(now, pong).unwrap_or(state),
            (state @ State::Waiting { .. }, Event::SendFailed { attempt, deferral }) => {
                if attempt == current {
                    self.unsent = Some(deferral);
                }
                state
            }
            (State::Inspecting { .. }, Event::Inspected { attempt, diagnosis })
                if attempt == current =>
            {
                self.inspected(now, diagnosis)
            }
            (State::Opening { error_type, observation, .. }, Event::OpenDone { attempt, ok })
                if attempt == current =>
            {
                self.opened(now, error_type, observation, ok)
            }
            (
                state @ State::Idle,
                Event::Pong(_)
                | Event::SendFailed { .. }
                | Event::Inspected { .. }
                | Event::OpenDone { .. },
            )
            | (
                state @ State::Waiting { .. },
                Event::Started | Event::Inspected { .. } | Event::OpenDone { .. },
            )
            | (
                state @ (State::Inspecting { .. } | State::Opening { .. } | State::Pausing { .. }),
                Event::Started
                | Event::SendFailed { .. }
                | Event::Inspected { .. }
                | Event::OpenDone { .. },
            )
            | (
                state @ (State::Ready | State::Failed),
                Event::Started
                | Event::Pong(_)
                | Event::SendFailed { .. }
                | Event::Inspected { .. }
                | Event::OpenDone { .. },
            ) => state,
        };
    }

    fn handle_timeout(&mut self, now: Monotonic) {
        if self.poll_timeout().is_none_or(|due| now < due) {
            return;
        }
        self.state = match std::mem::replace(&mut self.state, State::Idle) {
            State::Waiting { .. } => self.inspect(now),
            State::Inspecting { .. } => self.inspected(now, Err("no answer in 6 s".to_owned())),
            State::Opening { error_type, observation, .. } => {
                self.opened(now, error_type, observation, false)
            }
            State::Pausing { .. } => self.ping(now),
            state @ (State::Idle | State::Ready | State::Failed) => state,
        };
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    fn poll_timeout(&self) -> Option<Monotonic> {
        match self.state {
            State::Waiting { until }
            | State::Inspecting { until }
            | State::Opening { until, .. }
            | State::Pausing { until } => Some(until),
            State::Idle | State::Ready | State::Failed => None,
        }
    }
}
