//! The shutdown of one agent (seed 004: "the teammate decides whether to approve, finish and
//! exit").
//!
//! ```text
//! state        event / time                        -> state        effects
//! New          Begin, with consent                 -> Finishing    Look
//! New          Begin, by force                     -> Ending 0     Sweep(Terminate)
//! Finishing    Seen(Busy)                          -> Finishing    Look, after 1 s
//! Finishing    Seen(Idle), Seen(Gone); grace over  -> Ending 0     Sweep(Terminate)
//! Ending n     Found(0)                            -> Closing      Close
//! Ending n     Found(more)                         -> Waiting n
//! Waiting n    Exited; 5 s (n = 0), 2 s (n > 0)    -> Ending n+1   Sweep(Kill)
//! Waiting 5    Exited; 2 s                         -> Closing      Close       (survivors are reported)
//! Closing      Done(Close)                         -> Returning    Return
//! Returning    Done(Return)                        -> Recording    Record
//! Recording    Done(Record)                        -> Ended        Ended
//! the last four  Failed, of their own step         -> the same     that step again, after 1, 2, 4 … 30 s
//! any          anything else                       -> the same
//! ```
//!
//! The decision was made before: the agent approved, or it was silent and the kind's policy is
//! force. This machine ensures that the agent *has ended*. Such protocols typically fail with
//! agents that approve and keep running, abandoned panes, daemons that outlive their pane, and
//! unread mail. So every end is verified: the processes have ended when a search finds none, not
//! when a signal was sent.
//!
//! *Silence.* A worker that approved has [`GRACE`] to finish, then it is ended. A process that
//! survives [`KILL_ROUNDS`] searches (it hangs in the kernel) is reported and left. Its leases are
//! fenced by their epochs, and the record of its release counts it.
//!
//! *A crash.* Every step can be repeated. A process that finds the decision later starts from the
//! beginning, and steps that were done before find nothing. The roster's `shutdown` and the record
//! of the release come last.

use std::collections::VecDeque;
use std::time::Duration;

use ensemble_core::env::Monotonic;
use ensemble_core::proto::Machine;
use ensemble_tmux::reaper::Signal;

#[cfg(test)]
mod tests;

/// Default time for a worker that approved to finish its work.
pub const GRACE: Duration = Duration::from_secs(60);
/// Interval at which a finishing worker is observed.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long terminated processes may take to end.
pub const TERMINATE_WAIT: Duration = Duration::from_secs(5);
/// How long killed processes may take before the next search.
pub const KILL_WAIT: Duration = Duration::from_secs(2);
/// Most searches that kill.
pub const KILL_ROUNDS: u32 = 5;
/// First wait before a failed step is retried; doubles up to [`RETRY_MAX`].
pub const RETRY_MIN: Duration = Duration::from_secs(1);
/// Longest wait before a failed step is retried.
pub const RETRY_MAX: Duration = Duration::from_secs(30);

const _: () = assert!(LOOK_EVERY.as_secs() < GRACE.as_secs());
const _: () = assert!(RETRY_MIN.as_secs() < RETRY_MAX.as_secs());

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ShutdownConsent {
    /// The worker approved and may finish its work.
    Approved,
    /// The worker was not asked, or was silent: it is ended at once.
    Forced,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkerPresence {
    Gone,
    /// It waits for input and holds nothing.
    Idle,
    /// It works, asks a question, or its state is unknown.
    Busy,
}

/// A step that may fail and is then repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ShutdownStep {
    Sweep,
    Close,
    /// Releasing what it holds and returning its unread mail.
    Return,
    Record,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Begin(ShutdownConsent),
    Seen(WorkerPresence),
    /// Number of processes that the last sweep found, before its signal.
    Found(usize),
    /// All processes of the last sweep have ended.
    Exited,
    Done(ShutdownStep),
    Failed(ShutdownStep),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Observe the worker, and report [`Event::Seen`].
    Look,
    /// Find all processes of the worker, signal them, and report [`Event::Found`].
    Sweep(Signal),
    Close,
    /// Release the worker's leases and return its unread mail.
    Return,
    /// Write the worker's end to the roster, and record its release.
    Record {
        survivors: usize,
    },
    /// The worker has ended. Exactly once.
    Ended {
        survivors: usize,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    New,
    Finishing { until: Monotonic, look_at: Option<Monotonic> },
    Ending { round: u32 },
    Waiting { round: u32, found: usize, until: Monotonic },
    Closing,
    Returning,
    Recording,
    Ended,
}

#[derive(Clone, Debug)]
pub struct AgentShutdown {
    grace: Duration,
    state: State,
    survivors: usize,
    retry: Option<(Monotonic, Effect)>,
    backoff: Duration,
    effects: VecDeque<Effect>,
}

impl AgentShutdown {
    /// A worker that has `grace` to finish, if it approves.
    pub const fn new(grace: Duration) -> Self {
        Self {
            grace,
            state: State::New,
            survivors: 0,
            retry: None,
            backoff: RETRY_MIN,
            effects: VecDeque::new(),
        }
    }

    fn begin(&mut self, now: Monotonic, consent: ShutdownConsent) -> State {
        match consent {
            ShutdownConsent::Approved => {
                self.effects.push_back(Effect::Look);
                State::Finishing { until: now + self.grace, look_at: None }
            }
            ShutdownConsent::Forced => self.end(0),
        }
    }

    fn end(&mut self, round: u32) -> State {
        self.effects.push_back(sweep(round));
        State::Ending { round }
    }

    /// Continues after the processes of a sweep have ended, or have not in time.
    fn next_round(&mut self, round: u32, found: usize) -> State {
        if round < KILL_ROUNDS {
            return self.end(round + 1);
        }
        self.survivors = found;
        self.step(State::Closing, Effect::Close)
    }

    fn step(&mut self, state: State, effect: Effect) -> State {
        self.backoff = RETRY_MIN;
        self.effects.push_back(effect);
        state
    }

    const fn record(&self) -> Effect {
        Effect::Record { survivors: self.survivors }
    }

    /// The step that has failed, if it is the current one: a failure of another one is late.
    fn failed(&self, step: ShutdownStep) -> Option<Effect> {
        match (self.state, step) {
            (State::Ending { round }, ShutdownStep::Sweep) => Some(sweep(round)),
            (State::Closing, ShutdownStep::Close) => Some(Effect::Close),
            (State::Returning, ShutdownStep::Return) => Some(Effect::Return),
            (State::Recording, ShutdownStep::Record) => Some(self.record()),
            (
                _late,
                ShutdownStep::Sweep
                | ShutdownStep::Close
                | ShutdownStep::Return
                | ShutdownStep::Record,
            ) => None,
        }
    }
}

const fn sweep(round: u32) -> Effect {
    Effect::Sweep(if round == 0 { Signal::Terminate } else { Signal::Kill })
}

impl Machine for AgentShutdown {
    type Event = Event;
    type Effect = Effect;

    fn handle(&mut self, now: Monotonic, event: Event) {
        self.state = match (self.state, event) {
            (State::New, Event::Begin(consent)) => self.begin(now, consent),
            (State::Finishing { until, .. }, Event::Seen(WorkerPresence::Busy)) => {
                State::Finishing { until, look_at: Some(now + LOOK_EVERY) }
            }
            (State::Finishing { .. }, Event::Seen(WorkerPresence::Gone | WorkerPresence::Idle)) => {
                self.end(0)
            }
            (State::Ending { .. }, Event::Found(0)) => self.step(State::Closing, Effect::Close),
            (State::Ending { round }, Event::Found(found)) => {
                let wait = if round == 0 { TERMINATE_WAIT } else { KILL_WAIT };
                State::Waiting { round, found, until: now + wait }
            }
            (State::Waiting { round, found, .. }, Event::Exited) => self.next_round(round, found),
            (State::Closing, Event::Done(ShutdownStep::Close)) => {
                self.step(State::Returning, Effect::Return)
            }
            (State::Returning, Event::Done(ShutdownStep::Return)) => {
                self.step(State::Recording, self.record())
            }
            (State::Recording, Event::Done(ShutdownStep::Record)) => {
                self.step(State::Ended, Effect::Ended { survivors: self.survivors })
            }
            (state, Event::Failed(step)) => {
                if let Some(effect) = self.failed(step) {
                    self.retry = Some((now + self.backoff, effect));
                    self.backoff = (self.backoff * 2).min(RETRY_MAX);
                }
                state
            }
            // The table's last row.
            (
                same,
                Event::Begin(_) | Event::Seen(_) | Event::Found(_) | Event::Exited | Event::Done(_),
            ) => same,
        };
    }

    fn handle_timeout(&mut self, now: Monotonic) {
        if let Some((at, effect)) = self.retry
            && now >= at
        {
            self.retry = None;
            self.effects.push_back(effect);
        }
        match self.state {
            State::Finishing { until, .. } if now >= until => self.state = self.end(0),
            State::Finishing { until, look_at: Some(at) } if now >= at => {
                self.effects.push_back(Effect::Look);
                self.state = State::Finishing { until, look_at: None };
            }
            State::Waiting { round, found, until } if now >= until => {
                self.state = self.next_round(round, found);
            }
            State::New
            | State::Finishing { .. }
            | State::Ending { .. }
            | State::Waiting { .. }
            | State::Closing
            | State::Returning
            | State::Recording
            | State::Ended => {}
        }
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    fn poll_timeout(&self) -> Option<Monotonic> {
        let state = match self.state {
            State::Finishing { until, look_at } => Some(look_at.map_or(until, |at| at.min(until))),
            State::Waiting { until, .. } => Some(until),
            State::New
            | State::Ending { .. }
            | State::Closing
            | State::Returning
            | State::Recording
            | State::Ended => None,
        };
        let retry = self.retry.map(|(at, _)| at);
        state.into_iter().chain(retry).min()
    }
}
