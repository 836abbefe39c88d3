//! Escalates a task that is not acked (seed 002, P0-3).
//!
//! ```text
//! state      event / time                            -> state      effects
//! Idle       Started                                 -> Phase 0    Deliver
//! Phase n    60 s                                    -> Looking    Inspect
//! Looking    Idle, n + 1 <= 3                        -> Phase n+1  1: Nudge
//!                                                                  2: LeaveInputMode, Nudge
//!                                                                  3: ResetContext, Deliver, Nudge
//! Looking    Idle, after phase 3                     -> Escalated  Escalate
//! Looking    Unknown; nothing for 6 s                -> as Idle, but phases 2 and 3 press nothing
//!                                                       unless the profile says they may
//! Looking    Busy, Asking, Limited, HumanOccupied    -> Waiting    Record Waiting
//! Looking    Crashed; Busy and the like past the ceiling -> Escalated  Escalate
//! Waiting    10 s, or the known end of a limit       -> Waiting    Inspect
//! Waiting    Busy, Asking, Limited, HumanOccupied    -> Waiting    Record Waiting, if it is another
//! Waiting    Idle, Unknown before a known end        -> Waiting               (parked until then)
//! Waiting    Idle, Unknown                           -> Phase 1    Nudge     (alive: gentlest rung)
//! Waiting    Crashed; the ceiling is reached         -> Escalated  Escalate
//! any open   Ack of this task and attempt            -> Acked      Acked
//! any open   any other Ack                           -> same       Record StaleAck
//! any open   Undeliverable                           -> Escalated  Escalate
//! any open   Expired                                 -> Expired
//! Escalated  Ack of this task and attempt            -> Acked      Record LateAck
//! ```
//!
//! The seed's ladder recovers workers that hang: nudge, leave the input mode, reset, call the
//! conductor, a minute each. The danger is a worker that is not hung but working: Escape interrupts
//! it, and `/clear` destroys its context. So the worker is inspected before each rung, and no key
//! is pressed while it is known to be working, asking, rate limited or used by a person. The ladder
//! waits instead, and nudges it once it is free again. An hour of waiting costs less than a minute
//! of the conductor, so only the ceiling ([`WAIT_MAX`]) ends the wait.
//!
//! Acks bind to the task and the attempt. The attempt is the delivery's epoch, and resetting the
//! context increments it. So an ack that crossed the reset is ignored: the worker has forgotten the
//! task and must ack the new attempt.
//!
//! *Silence* is the subject: 4 × 60 s, then the conductor, exactly once. *A crash* of the ladder's
//! process loses nothing: [`SavedLadder`] is kept in a file, and [`Ladder::resume`] continues with
//! it. If the end of a rate limit is known, the ladder waits for it even beyond the ceiling, for at
//! most [`PARK_MAX`], and even if the worker appears free earlier: its screen may just have been
//! cleared, and a line submitted then would only run into the limit again.

use std::collections::VecDeque;
use std::time::Duration;

use super::Machine;
use crate::env::Monotonic;

mod saved;
#[cfg(test)]
mod tests;
mod vocabulary;

pub use saved::SavedLadder;
pub use vocabulary::{
    Effect, EscalationReason, Event, LadderEscalation, LadderRecord, Phase, WorkerActivity,
};

/// How long each phase waits for the ack.
pub const PHASE_TIMEOUT: Duration = Duration::from_secs(60);
/// The most time that waiting for a worker that may not be pressed can add to the ladder.
pub const WAIT_MAX: Duration = Duration::from_secs(30 * 60);
/// How long a limit whose end is known is waited for, counted from the start.
pub const PARK_MAX: Duration = Duration::from_secs(6 * 60 * 60);
/// How often a worker is inspected while the ladder waits for it.
pub const INSPECT_INTERVAL: Duration = Duration::from_secs(10);
/// How long a look may take: an exchange with a multiplexer that is given five seconds, and one to spare.
pub const INSPECT_PATIENCE: Duration = Duration::from_secs(6);

const PHASES: u32 = 4;

const _: () = assert!(PHASE_TIMEOUT.as_secs() * PHASES as u64 == 240);
const _: () = assert!(PHASE_TIMEOUT.as_secs() * (PHASES as u64) < WAIT_MAX.as_secs());
const _: () = assert!(INSPECT_PATIENCE.as_secs() < INSPECT_INTERVAL.as_secs());
const _: () = assert!(INSPECT_INTERVAL.as_secs() < PHASE_TIMEOUT.as_secs());
const _: () = assert!(WAIT_MAX.as_secs() < PARK_MAX.as_secs());

/// The times of a ladder, and what its worker's profile allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LadderSettings {
    pub phase_timeout: Duration,
    pub wait_max: Duration,
    /// Whether phases 2 and 3 press keys even if the worker's state is unknown. The profile
    /// `generic` does: it has the seed's ladder and cannot detect the state.
    pub press_unknown: bool,
    /// The last phase before the conductor is notified.
    pub phase_last: Phase,
}

impl Default for LadderSettings {
    /// Seed 002's times, and no key without evidence.
    fn default() -> Self {
        Self {
            phase_timeout: PHASE_TIMEOUT,
            wait_max: WAIT_MAX,
            press_unknown: false,
            phase_last: Phase::ResetContext,
        }
    }
}

impl LadderSettings {
    /// Seed 002 to the letter: keys are pressed even if the worker's state is unknown.
    pub fn generic() -> Self {
        Self { press_unknown: true, ..Self::default() }
    }
}

/// When a worker is inspected again while the ladder waits for it: a phase that is shorter than the interval has one
/// look.
fn look_at(now: Monotonic, worker: WorkerActivity, phase_timeout: Duration) -> Monotonic {
    let next = now + INSPECT_INTERVAL.min(phase_timeout);
    match worker {
        WorkerActivity::Limited { until: Some(until) } if until > now => next.min(until),
        _ => next,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Phase {
        until: Monotonic,
    },
    /// The phase has ended; what the worker is doing decides.
    Looking {
        until: Monotonic,
    },
    /// The worker may not be pressed.
    Waiting {
        worker: WorkerActivity,
        look_at: Monotonic,
    },
    Acked,
    Escalated,
    Expired,
}

#[derive(Clone, Debug)]
pub struct Ladder {
    task: String,
    attempt: u32,
    config: LadderSettings,
    state: State,
    phase: Phase,
    since: Monotonic,
    started: Monotonic,
    /// When waiting ends; later than the phases need.
    ceiling: Monotonic,
    effects: VecDeque<Effect>,
}

impl Ladder {
    pub fn new(task: impl Into<String>, attempt: u32, config: LadderSettings) -> Self {
        Self {
            task: task.into(),
            attempt,
            config,
            state: State::Idle,
            phase: Phase::Deliver,
            since: Monotonic::ZERO,
            started: Monotonic::ZERO,
            ceiling: Monotonic::ZERO,
            effects: VecDeque::new(),
        }
    }

    /// The phase that is running, or was the last.
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// The attempt that an ack must name now.
    pub const fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The worker's activity, while the ladder waits for it.
    pub const fn waits_for(&self) -> Option<WorkerActivity> {
        if let State::Waiting { worker, .. } = self.state { Some(worker) } else { None }
    }

    pub const fn is_over(&self) -> bool {
        matches!(self.state, State::Acked | State::Escalated | State::Expired)
    }

    fn start(&mut self, now: Monotonic) -> State {
        (self.started, self.since) = (now, now);
        self.ceiling = now + self.config.phase_timeout * PHASES + self.config.wait_max;
        self.effects.push_back(Effect::Deliver { attempt: self.attempt });
        State::Phase { until: now + self.config.phase_timeout }
    }

    /// Enters a phase: with its keys, or without.
    fn enter(&mut self, now: Monotonic, phase: Phase, press: bool) -> State {
        (self.phase, self.since) = (phase, now);
        if !press {
            self.record(LadderRecord::Skipped { phase });
            return State::Phase { until: now + self.config.phase_timeout };
        }
        self.record(LadderRecord::Entered { phase });
        match phase {
            Phase::Deliver | Phase::Nudge => {}
            Phase::LeaveInputMode => self.effects.push_back(Effect::LeaveInputMode),
            Phase::ResetContext => {
                self.attempt = self.attempt.saturating_add(1);
                self.effects.push_back(Effect::ResetContext);
                self.effects.push_back(Effect::Deliver { attempt: self.attempt });
            }
        }
        self.effects.push_back(Effect::Nudge);
        State::Phase { until: now + self.config.phase_timeout }
    }

    /// The phase has timed out and the worker has been inspected.
    fn climb(&mut self, now: Monotonic, worker: WorkerActivity) -> State {
        let known = match worker {
            WorkerActivity::Idle => true,
            WorkerActivity::Unknown => self.config.press_unknown,
            WorkerActivity::Crashed => return self.escalate(now, EscalationReason::Crashed),
            WorkerActivity::Busy
            | WorkerActivity::Asking
            | WorkerActivity::Limited { .. }
            | WorkerActivity::HumanOccupied => {
                return self.wait(now, worker);
            }
        };
        match self.phase.next().filter(|phase| *phase <= self.config.phase_last) {
            Some(phase) => self.enter(now, phase, known || phase == Phase::Nudge),
            None => self.escalate(now, EscalationReason::Unanswered),
        }
    }

    fn wait(&mut self, now: Monotonic, worker: WorkerActivity) -> State {
        if let WorkerActivity::Limited { until: Some(until) } = worker {
            let parked = until.min(self.started + PARK_MAX) + self.config.phase_timeout;
            self.ceiling = self.ceiling.max(parked);
        }
        if now >= self.ceiling {
            return self.escalate(now, EscalationReason::NotPressable(worker));
        }
        if self.waits_for().map(WorkerActivity::word) != Some(worker.word()) {
            self.record(LadderRecord::Waiting { worker });
        }
        State::Waiting { worker, look_at: look_at(now, worker, self.config.phase_timeout) }
    }

    /// The worker was inspected while the ladder waits for it.
    fn waited(&mut self, now: Monotonic, worker: WorkerActivity) -> State {
        match worker {
            WorkerActivity::Idle | WorkerActivity::Unknown => match self.waits_for() {
                Some(limited @ WorkerActivity::Limited { until: Some(until) }) if now < until => {
                    State::Waiting {
                        worker: limited,
                        look_at: look_at(now, limited, self.config.phase_timeout),
                    }
                }
                Some(_) | None => self.enter(now, Phase::Nudge, true),
            },
            WorkerActivity::Crashed => self.escalate(now, EscalationReason::Crashed),
            WorkerActivity::Busy
            | WorkerActivity::Asking
            | WorkerActivity::Limited { .. }
            | WorkerActivity::HumanOccupied => self.wait(now, worker),
        }
    }

    fn escalate(&mut self, now: Monotonic, reason: EscalationReason) -> State {
        self.effects.push_back(Effect::Escalate(LadderEscalation {
            task: self.task.clone(),
            attempt: self.attempt,
            phase: self.phase,
            reason,
            waited: now.since(self.started),
        }));
        State::Escalated
    }

    /// Whether an ack is for this task and attempt; if not, that is recorded.
    fn counts(&mut self, task: String, attempt: u32) -> bool {
        let counts = task == self.task && attempt == self.attempt;
        if !counts {
            self.record(LadderRecord::StaleAck { task, attempt });
        }
        counts
    }

    fn acked(&mut self) -> State {
        self.effects.push_back(Effect::Acked { phase: self.phase });
        State::Acked
    }

    fn record(&mut self, record: LadderRecord) {
        self.effects.push_back(Effect::Record(record));
    }
}

impl Machine for Ladder {
    type Event = Event;
    type Effect = Effect;

    fn handle(&mut self, now: Monotonic, event: Event) {
        self.state = match (self.state, event) {
            (State::Idle, Event::Started) => self.start(now),
            (
                State::Phase { .. } | State::Looking { .. } | State::Waiting { .. },
                Event::Ack { task, attempt },
            ) => {
                if self.counts(task, attempt) {
                    self.acked()
                } else {
                    self.state
                }
            }
            (State::Escalated, Event::Ack { task, attempt }) => {
                if self.counts(task, attempt) {
                    self.record(LadderRecord::LateAck);
                    State::Acked
                } else {
                    State::Escalated
                }
            }
            (State::Looking { .. }, Event::Seen(worker)) => self.climb(now, worker),
            (State::Waiting { .. }, Event::Seen(worker)) => self.waited(now, worker),
            (
                State::Phase { .. } | State::Looking { .. } | State::Waiting { .. },
                Event::Undeliverable,
            ) => self.escalate(now, EscalationReason::Undeliverable),
            (
                State::Idle | State::Phase { .. } | State::Looking { .. } | State::Waiting { .. },
                Event::Expired,
            ) => State::Expired,
            (State::Idle, Event::Ack { .. } | Event::Seen(_) | Event::Undeliverable)
            | (State::Phase { .. }, Event::Started | Event::Seen(_))
            | (State::Looking { .. } | State::Waiting { .. }, Event::Started)
            | (
                State::Escalated,
                Event::Started | Event::Seen(_) | Event::Undeliverable | Event::Expired,
            )
            | (
                State::Acked | State::Expired,
                Event::Started
                | Event::Ack { .. }
                | Event::Seen(_)
                | Event::Undeliverable
                | Event::Expired,
            ) => self.state,
        };
    }

    fn handle_timeout(&mut self, now: Monotonic) {
        self.state = match self.state {
            State::Phase { until } if now >= until => {
                self.effects.push_back(Effect::Inspect);
                State::Looking { until: now + INSPECT_PATIENCE }
            }
            State::Looking { until } if now >= until => self.climb(now, WorkerActivity::Unknown),
            State::Waiting { worker, .. } if now >= self.ceiling => {
                self.escalate(now, EscalationReason::NotPressable(worker))
            }
            State::Waiting { worker, look_at } if now >= look_at => {
                self.effects.push_back(Effect::Inspect);
                State::Waiting {
                    worker,
                    look_at: self::look_at(now, worker, self.config.phase_timeout),
                }
            }
            State::Idle
            | State::Phase { .. }
            | State::Looking { .. }
            | State::Waiting { .. }
            | State::Acked
            | State::Escalated
            | State::Expired => self.state,
        };
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    fn poll_timeout(&self) -> Option<Monotonic> {
        match self.state {
            State::Phase { until } | State::Looking { until } => Some(until),
            State::Waiting { look_at, .. } => Some(look_at.min(self.ceiling)),
            State::Idle | State::Acked | State::Escalated | State::Expired => None,
        }
    }
}
