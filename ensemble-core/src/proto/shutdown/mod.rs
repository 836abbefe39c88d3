//! How one agent leaves (seed 004: "the teammate decides whether to approve, finish and exit").
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
//! Waiting 5    Exited; 2 s                         -> Closing      Close       (survivors are told of)
//! Closing      Done(Close)                         -> Returning    Return
//! Returning    Done(Return)                        -> Recording    Record
//! Recording    Done(Record)                        -> Ended        Ended
//! the last four  Failed, of their own step         -> the same     that step again, after 1, 2, 4 … 30 s
//! any          anything else                       -> the same
//! ```
//!
//! Whether the agent goes was decided before: it has approved, or it was silent and the kind's
//! policy is force. This machine sees to it that it *has gone*: agents that approved their shutdown
//! and went on running, panes left behind, daemons that outlive their pane and mail that nobody
//! reads any more are how such protocols usually end. So nothing is believed that was not looked
//! at: the processes have gone when a search for them finds none, not when a signal was sent.
//!
//! *Silence.* A worker that approved has [`GRACE`] to finish, then it is ended. A process that
//! survives [`KILL_ROUNDS`] searches (it hangs in the kernel) is reported and left: its leases are
//! fenced by their epochs, and the record of its release counts it.
//!
//! *A crash.* Every step can be done twice, and the order is such that whoever finds the decision
//! again begins from the start and meets what is done already as "nothing found": the roster's
//! `shutdown` and the record of the release come last.
//!
//! ```
//! use ensemble_core::env::Monotonic;
//! use ensemble_core::proto::Machine;
//! use ensemble_core::proto::shutdown::{Consent, Effect, Event, Shutdown, Signal};
//!
//! let now = Monotonic::ZERO;
//! let mut shutdown = Shutdown::default();
//! shutdown.handle(now, Event::Begin(Consent::Forced));
//! assert_eq!(shutdown.poll_effect(), Some(Effect::Sweep(Signal::Terminate)));
//! shutdown.handle(now, Event::Found(0)); // it had gone already
//! assert_eq!(shutdown.poll_effect(), Some(Effect::Close));
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use super::Machine;
use crate::env::Monotonic;

#[cfg(test)]
mod tests;

/// How long a worker that approved has to finish what it does, unless configured.
pub const GRACE: Duration = Duration::from_secs(60);
/// How often a finishing worker is looked at.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long what was asked to end may take.
pub const TERMINATE_WAIT: Duration = Duration::from_secs(5);
/// How long what was killed may take before it is searched for again.
pub const KILL_WAIT: Duration = Duration::from_secs(2);
/// How many searches that kill there are, at most.
pub const KILL_ROUNDS: u32 = 5;
/// How soon a step that failed is tried again; doubles up to [`RETRY_MAX`].
pub const RETRY_MIN: Duration = Duration::from_secs(1);
/// The longest wait before a step that failed is tried again.
pub const RETRY_MAX: Duration = Duration::from_secs(30);

const _: () = assert!(LOOK_EVERY.as_secs() < GRACE.as_secs());
const _: () = assert!(RETRY_MIN.as_secs() < RETRY_MAX.as_secs());

/// Whether the worker agreed to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Consent {
    /// It did, and may finish what it does.
    Approved,
    /// It was not asked, or was silent: it is ended at once.
    Forced,
}

/// What a worker is seen to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Worker {
    /// Its program has ended.
    Gone,
    /// It waits for input and holds nothing.
    Idle,
    /// It works, asks, or nobody can tell.
    Busy,
}

/// How processes are told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Signal {
    /// `SIGHUP` and `SIGTERM`: what a closed terminal sends, and a request to end.
    Terminate,
    /// `SIGKILL`.
    Kill,
}

/// A step that may fail and is then done again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// The search for its processes.
    Sweep,
    /// Closing its pane.
    Close,
    /// Giving back what it holds and what it has not read.
    Return,
    /// Writing down that it has gone.
    Record,
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It is to go.
    Begin(Consent),
    /// What the worker was seen to do.
    Seen(Worker),
    /// How many processes the last sweep found, before its signal.
    Found(usize),
    /// All that the last sweep found have ended.
    Exited,
    /// A step is done.
    Done(Step),
    /// A step failed.
    Failed(Step),
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Look what the worker does, and report [`Event::Seen`].
    Look,
    /// Search all that belongs to the worker, signal it, and report [`Event::Found`].
    Sweep(Signal),
    /// Close its pane, if it is there.
    Close,
    /// Give back the leases it holds and the mail it has not read.
    Return,
    /// Write into the roster that it has gone, and record its release.
    Record {
        /// Processes that could not be ended.
        survivors: usize,
    },
    /// It has gone. Exactly once.
    Ended {
        /// Processes that could not be ended.
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

/// The machine of one agent's leaving; see the table at the top of this page.
#[derive(Clone, Debug)]
pub struct Shutdown {
    grace: Duration,
    state: State,
    survivors: usize,
    retry: Option<(Monotonic, Effect)>,
    backoff: Duration,
    effects: VecDeque<Effect>,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self::new(GRACE)
    }
}

impl Shutdown {
    /// A worker that has `grace` to finish, if it agrees.
    #[must_use]
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

    /// Whether it has gone.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    fn begin(&mut self, now: Monotonic, consent: Consent) -> State {
        match consent {
            Consent::Approved => {
                self.effects.push_back(Effect::Look);
                State::Finishing { until: now + self.grace, look_at: None }
            }
            Consent::Forced => self.end(0),
        }
    }

    fn end(&mut self, round: u32) -> State {
        let signal = if round == 0 { Signal::Terminate } else { Signal::Kill };
        self.effects.push_back(Effect::Sweep(signal));
        State::Ending { round }
    }

    /// After a sweep's victims have ended, or have not in time.
    fn next_round(&mut self, round: u32, found: usize) -> State {
        if round < KILL_ROUNDS {
            return self.end(round + 1);
        }
        self.survivors = found;
        self.step(Step::Close)
    }

    fn step(&mut self, step: Step) -> State {
        self.backoff = RETRY_MIN;
        let (state, effect) = match step {
            Step::Sweep => return self.end(0),
            Step::Close => (State::Closing, Effect::Close),
            Step::Return => (State::Returning, Effect::Return),
            Step::Record => (State::Recording, Effect::Record { survivors: self.survivors }),
        };
        self.effects.push_back(effect);
        state
    }

    fn retry(&mut self, now: Monotonic, effect: Effect) {
        self.retry = Some((now + self.backoff, effect));
        self.backoff = (self.backoff * 2).min(RETRY_MAX);
    }

    fn finished(&mut self) -> State {
        self.effects.push_back(Effect::Ended { survivors: self.survivors });
        State::Ended
    }

    /// Takes a failure; one of another step than the present one is late and means nothing.
    fn failed(&mut self, now: Monotonic, state: State, step: Step) {
        match (state, step) {
            (State::Ending { round }, Step::Sweep) => {
                let signal = if round == 0 { Signal::Terminate } else { Signal::Kill };
                self.retry(now, Effect::Sweep(signal));
            }
            (State::Closing, Step::Close) => self.retry(now, Effect::Close),
            (State::Returning, Step::Return) => self.retry(now, Effect::Return),
            (State::Recording, Step::Record) => {
                self.retry(now, Effect::Record { survivors: self.survivors });
            }
            (_late, Step::Sweep | Step::Close | Step::Return | Step::Record) => {}
        }
    }

    fn done(&mut self, state: State, step: Step) -> State {
        match (state, step) {
            (State::Closing, Step::Close) => self.step(Step::Return),
            (State::Returning, Step::Return) => self.step(Step::Record),
            (State::Recording, Step::Record) => self.finished(),
            (late, Step::Sweep | Step::Close | Step::Return | Step::Record) => late,
        }
    }
}

impl Machine for Shutdown {
    type Event = Event;
    type Effect = Effect;

    fn handle(&mut self, now: Monotonic, event: Event) {
        self.state = match (self.state, event) {
            (State::New, Event::Begin(consent)) => self.begin(now, consent),
            (State::Finishing { until, .. }, Event::Seen(Worker::Busy)) => {
                State::Finishing { until, look_at: Some(now + LOOK_EVERY) }
            }
            (State::Finishing { .. }, Event::Seen(Worker::Gone | Worker::Idle)) => self.end(0),
            (State::Ending { .. }, Event::Found(0)) => self.step(Step::Close),
            (State::Ending { round }, Event::Found(found)) => {
                let wait = if round == 0 { TERMINATE_WAIT } else { KILL_WAIT };
                State::Waiting { round, found, until: now + wait }
            }
            (State::Waiting { round, found, .. }, Event::Exited) => self.next_round(round, found),
            (state, Event::Done(step)) => self.done(state, step),
            (state, Event::Failed(step)) => {
                self.failed(now, state, step);
                state
            }
            // The table's last row.
            (same, Event::Begin(_) | Event::Seen(_) | Event::Found(_) | Event::Exited) => same,
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
