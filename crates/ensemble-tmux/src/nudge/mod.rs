//! When the agent of one mailbox is nudged (seed 002, P0-1: "notify at once, poll if that fails").
//!
//! ```text
//! state       event / time                    -> state        effects
//! Unbound     Bound, mail waits               -> InFlight     Nudge            (leading edge: 0 ms)
//! Unbound     Bound, nothing waits            -> Quiet
//! Quiet       LineLeft                      -> InFlight     Withdraw
//! Quiet       Mail waits                      -> InFlight     Nudge
//! Quiet       Mail waits, < 250 ms after one  -> Due
//! Due         the pause is over               -> InFlight     Nudge
//! InFlight    Sent                            -> Told
//! InFlight    Sent, mailbox drained since     -> Quiet
//! InFlight    withdrawn, or not ours alone    -> Quiet        (a nudge, if mail has come since)
//! InFlight    TextOnly, Refused               -> Deferred     Record Deferred  (if mail waits and the reason is new)
//! InFlight    refused for good                -> Unbound      Record Deferred
//! InFlight    no outcome for 15 s             -> Deferred     Record Deferred
//! Deferred    Sent, late                      -> Told
//! Deferred    backoff over, PaneChanged       -> InFlight     Nudge; Submit if our text is left there, Withdraw if drained
//! Deferred    our line is gone or changed     -> InFlight     Nudge (after the same backoff, under the guard)
//! any bound   Parked until a limit's end      -> same         (nothing is tried before that)
//! any bound   Limited, without an end         -> same         (probed after 1, 2, 4, 8, 15, 15 … min)
//! Told        60, 120, 240 s unread           -> InFlight     Nudge
//! Told        240 s unread after the fourth   -> Unanswered   Record Unanswered
//! Told        LineLeft, 3 s after it was sent -> InFlight     Nudge            (which presses Enter behind the line)
//! Told        a ladder sets the pace          -> same         (nothing is repeated by itself)
//! Told, Unanswered  Prompt, the pace is over  -> InFlight     Nudge
//! Told, Unanswered  Prompt, before that       -> Due if it must be, or same
//! any other   Prompt                          -> same         (a line is under way, or none is due)
//! Told        some taken                      -> Told         (alive: the count begins again, 2 s after the last)
//! Told        all taken, new mail came        -> InFlight     Nudge
//! Unanswered  some taken                      -> Told
//! any bound   drained                         -> Quiet        (Deferred, if our text is left there)
//! any         Unbound                         -> Unbound
//! any         Bound to another pane           -> as from Unbound
//! ```
//!
//! The mailbox is the truth and a nudge is only a hint, so nothing here has to be exact. A missing nudge costs one
//! [`NUDGE_REPEAT`], and an extra one costs a line on a screen. What must never happen is a flood. So the first
//! message into an empty mailbox is announced at once, and that line covers all that follow until the agent has read
//! everything or a minute has passed. [`NUDGES_MAX`] is the hard limit: no more lines than that are submitted until
//! the agent receives a message.
//!
//! *Silence.* An agent that reads nothing is nudged four times in seven minutes, then left alone and reported once. A
//! multiplexer that never answers counts as a refusal after [`OUTCOME_PATIENCE`]. *A crash* of the watcher loses only
//! this machine: the next one finds the mail waiting and nudges at once.
//!
//! *One pace.* The [ladder](ensemble_core::proto::ack) of a task has its own times. While one runs
//! for this mailbox ([`Event::Laddered`]), its prompts take the place of the repetitions here,
//! under the same rules. There is one line at a time, deferred where the pane refuses it, and at
//! least [`WantedLine::pace`] after the last line.
//!
//! *A usage limit* that says when it ends is waited out. After [`Event::Parked`] nothing is typed before that time,
//! or for [`PARK_MAX`] if that is shorter; then the pane is treated like any other. Whether a limit without a known
//! end has passed can only be found out by trying. So a line is submitted while the limit still shows
//! ([`NudgeOccasion::Probe`]), [`PROBE_MIN`] after it was met and then at intervals that double up to [`PROBE_MAX`].
//! These lines do not count as unanswered.
//!
//! *Half a nudge.* [`NudgeOutcome::TextOnly`](ensemble_core::pane::NudgeOutcome::TextOnly) leaves our line in the
//! composer. Typing it again would duplicate it, and the guard would treat it as a draft. So the next attempt is an
//! [`Effect::Submit`], which presses Enter only if the composer still contains that line and nothing else. If a
//! person has sent, changed or deleted the line ([`Deferral::Draft`], [`Deferral::LineGone`]), the next attempt is a
//! nudge again. If the mail has been received in the meantime, the attempt is an [`Effect::Withdraw`], which deletes
//! the line, but only if the composer contains nothing else. Otherwise a person's next words would be appended to it.
//! A line that shows up later ([`Event::LineLeft`]) or was left by an earlier watcher is withdrawn in the same way.
//! While its mail waits, it is submitted again instead, since a program that is redrawing may swallow an Enter. The
//! guard's `draft` defers every attempt until that person is done. Only submitted lines count for [`NUDGES_MAX`]. The
//! pause between two attempts is [`RETRY_BUSY_MAX`] at most while a turn runs, and [`RETRY_PERSON_MAX`] while a
//! person types. So an idle agent with an empty composer and unread mail is nudged within [`RETRY_MAX`], no matter
//! what happened before, unless it was nudged already and that pause has not passed.

use std::collections::VecDeque;
use std::time::Duration;

use ensemble_core::env::Monotonic;
use ensemble_core::pane::Deferral;
use ensemble_core::proto::Machine;
use ensemble_core::proto::ack::PARK_MAX;

#[cfg(test)]
mod flood;
#[cfg(test)]
mod gap;
mod outcome;
mod pace;
mod prompt;
#[cfg(test)]
mod tests;
mod vocabulary;
mod withdraw;

pub use pace::{
    LimitProbe, NUDGE_FOLLOW, NUDGE_INTERVAL_MIN, NUDGE_REPEAT, NUDGE_REPEAT_MAX, NUDGES_MAX,
    OUTCOME_PATIENCE, PROBE_MAX, PROBE_MIN, RETRY_BUSY_MAX, RETRY_MAX, RETRY_MIN, RETRY_PERSON_MAX,
};
pub use vocabulary::{
    Effect, Event, NudgeOccasion, NudgePhase, NudgeRecord, NudgeStatus, WantedLine,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unbound,
    Quiet,
    Due {
        at: Monotonic,
    },
    InFlight {
        until: Monotonic,
        backoff: Duration,
    },
    /// `late`: the outcome of the last attempt is still missing.
    Deferred {
        at: Monotonic,
        since: Monotonic,
        backoff: Duration,
        late: bool,
    },
    Told {
        repeat_at: Monotonic,
    },
    Unanswered,
}

/// The machine of one mailbox; see the table at the top of this page.
#[derive(Clone, Debug)]
pub struct NudgeSchedule {
    state: State,
    waiting: u64,
    /// Lines submitted since a message was last taken.
    nudges: u32,
    /// The last attempt's number.
    attempt: u64,
    binding: Option<u64>,
    /// The attempt whose line is in the composer, unsubmitted.
    typed: Option<u64>,
    /// The composer shows an unsent line that no attempt of this machine knows.
    is_line_seen: bool,
    /// The current attempt withdraws a line.
    is_withdrawing: bool,
    /// When the limit ends that the agent has met.
    parked: Option<Monotonic>,
    /// The limit without an end that the agent has met.
    probe: Option<LimitProbe>,
    /// The attempt under way has met it.
    is_limited: bool,
    last_try: Option<Monotonic>,
    deferral: Option<Deferral>,
    /// A ladder sets the pace.
    is_laddered: bool,
    /// The ladder asked for the line that is due.
    is_prompted: bool,
    effects: VecDeque<Effect>,
}

impl Default for NudgeSchedule {
    fn default() -> Self {
        Self::new()
    }
}

impl NudgeSchedule {
    /// A mailbox without mail and without a pane.
    pub const fn new() -> Self {
        Self {
            state: State::Unbound,
            waiting: 0,
            nudges: 0,
            attempt: 0,
            binding: None,
            typed: None,
            is_line_seen: false,
            is_withdrawing: false,
            parked: None,
            probe: None,
            is_limited: false,
            last_try: None,
            deferral: None,
            is_laddered: false,
            is_prompted: false,
            effects: VecDeque::new(),
        }
    }

    /// The state of the machine, for people.
    pub fn status(&self) -> NudgeStatus {
        let phase = match self.state {
            State::Unbound => NudgePhase::Unbound,
            State::Quiet => NudgePhase::Quiet,
            State::Due { .. } => NudgePhase::Due,
            State::InFlight { .. } => NudgePhase::InFlight,
            State::Deferred { .. } => NudgePhase::Deferred,
            State::Told { .. } => NudgePhase::Told,
            State::Unanswered => NudgePhase::Unanswered,
        };
        NudgeStatus {
            phase,
            waiting: self.waiting,
            nudges: self.nudges,
            deferral: self.deferral.clone(),
            next: self.poll_timeout(),
        }
    }

    fn count_waiting(&mut self, now: Monotonic, waiting: u64, taken: u64) -> State {
        let told_of = std::mem::replace(&mut self.waiting, waiting);
        let alive = taken > 0 || waiting < told_of;
        if alive {
            (self.nudges, self.probe) = (0, None);
        }
        match self.state {
            State::Unbound | State::InFlight { .. } => self.state,
            _ if waiting == 0 => self.drained(),
            State::Quiet => self.as_soon_as_allowed(now),
            State::Due { .. } | State::Deferred { .. } => self.state,
            State::Told { .. } | State::Unanswered if taken >= told_of && alive => {
                self.as_soon_as_allowed(now)
            }
            State::Told { .. } | State::Unanswered if alive => self.followed(now),
            State::Told { .. } | State::Unanswered => self.state,
        }
    }

    fn bind(&mut self, now: Monotonic, binding: u64) -> State {
        self.binding = Some(binding);
        self.forget_pane();
        self.nudges = 0;
        self.deferral = None;
        if self.waiting > 0 { self.as_soon_as_allowed(now) } else { State::Quiet }
    }

    fn unbind(&mut self) -> State {
        self.binding = None;
        self.forget_pane();
        State::Unbound
    }

    const fn forget_pane(&mut self) {
        (self.typed, self.is_line_seen) = (None, false);
        (self.parked, self.probe) = (None, None);
    }

    fn as_soon_as_allowed(&mut self, now: Monotonic) -> State {
        match self.last_try.map(|last| last + NUDGE_INTERVAL_MIN) {
            Some(at) if now < at => State::Due { at },
            Some(_) | None => self.launch(now, RETRY_MIN),
        }
    }

    /// Waits for the end of a limit, up to the longest wait for one.
    fn park(&mut self, now: Monotonic, until: Monotonic) -> State {
        if self.state == State::Unbound {
            return State::Unbound;
        }
        let until = until.min(now + PARK_MAX);
        self.parked = Some(until).filter(|until| *until > now);
        self.probe = None;
        match self.state {
            State::Deferred { at, since, backoff, late } => {
                State::Deferred { at: at.max(until), since, backoff, late }
            }
            State::Due { at } => State::Due { at: at.max(until) },
            State::Told { repeat_at } => State::Told { repeat_at: repeat_at.max(until) },
            State::Unbound | State::Quiet | State::InFlight { .. } | State::Unanswered => {
                self.state
            }
        }
    }

    /// The attempt under way has met a limit without an end.
    fn limited(&mut self, now: Monotonic) -> State {
        if self.state != State::Unbound {
            self.is_limited = true;
            self.probe.get_or_insert_with(|| LimitProbe::first(now));
        }
        self.state
    }

    /// The pane seems to take input again.
    fn changed(
        &mut self,
        now: Monotonic,
        since: Monotonic,
        backoff: Duration,
        late: bool,
    ) -> State {
        if self.parked_until(now).is_some() {
            self.state
        } else if now >= since + RETRY_MIN {
            self.launch(now, RETRY_MIN)
        } else {
            State::Deferred { at: since + RETRY_MIN, since, backoff, late }
        }
    }

    fn parked_until(&self, now: Monotonic) -> Option<Monotonic> {
        self.parked.filter(|until| now < *until)
    }

    fn launch(&mut self, now: Monotonic, backoff: Duration) -> State {
        if let Some(at) = self.parked_until(now) {
            return State::Due { at };
        }
        if self.waiting == 0 {
            return self.withdraw(now, backoff);
        }
        let is_prompted = std::mem::take(&mut self.is_prompted);
        if self.typed.is_none() && self.nudges >= NUDGES_MAX && !is_prompted && !self.is_laddered {
            return self.give_up();
        }
        let in_flight = self.begin_attempt(now, backoff);
        let (attempt, waiting) = (self.attempt, self.waiting);
        let occasion = match self.probe {
            Some(probe) if probe.is_due(now) => NudgeOccasion::Probe,
            Some(_) | None if self.nudges > 0 && !is_prompted && !self.is_line_seen => {
                NudgeOccasion::Again
            }
            Some(_) | None => NudgeOccasion::News,
        };
        self.effects.push_back(match self.typed {
            Some(typed) => Effect::Submit { attempt, typed },
            None => Effect::Nudge { attempt, waiting, occasion },
        });
        in_flight
    }

    fn begin_attempt(&mut self, now: Monotonic, backoff: Duration) -> State {
        self.attempt += 1;
        self.last_try = Some(now);
        (self.is_limited, self.is_withdrawing) = (false, false);
        State::InFlight { until: now + OUTCOME_PATIENCE, backoff }
    }

    fn give_up(&mut self) -> State {
        let (waiting, nudges) = (self.waiting, self.nudges);
        self.effects.push_back(Effect::Record(NudgeRecord::Unanswered { waiting, nudges }));
        State::Unanswered
    }
}

impl Machine for NudgeSchedule {
    type Event = Event;
    type Effect = Effect;

    fn handle(&mut self, now: Monotonic, event: Event) {
        self.state = match (self.state, event) {
            (_, Event::Mail { waiting, taken }) => self.count_waiting(now, waiting, taken),
            (state, Event::Bound { binding }) if self.binding == Some(binding) => state,
            (_, Event::Bound { binding }) => self.bind(now, binding),
            (_, Event::Unbound) => self.unbind(),
            (_, Event::Parked { until }) => self.park(now, until),
            (_, Event::Limited) => self.limited(now),
            (state, Event::LineLeft) => self.line_left(now, state),
            (state, Event::Laddered(is_laddered)) => self.paced(state, is_laddered),
            (state, Event::Prompt(prompt)) => self.prompted(now, state, prompt),
            (State::InFlight { backoff, .. }, Event::Outcome { attempt, outcome })
                if attempt == self.attempt =>
            {
                self.outcome(now, outcome, backoff)
            }
            (State::Deferred { since, backoff, late, .. }, Event::PaneChanged) => {
                self.changed(now, since, backoff, late)
            }
            (State::Deferred { backoff, late: true, .. }, Event::Outcome { attempt, outcome })
                if attempt == self.attempt =>
            {
                self.outcome(now, outcome, backoff)
            }
            // Of an attempt that has ended, or while nothing waits for the pane.
            (state, Event::Outcome { .. } | Event::PaneChanged) => state,
        };
    }

    fn handle_timeout(&mut self, now: Monotonic) {
        self.state = match self.state {
            State::Due { at } if now >= at => self.launch(now, RETRY_MIN),
            State::InFlight { until, backoff, .. } if now >= until => self.overdue(now, backoff),
            State::Deferred { at, backoff, .. } if now >= at => self.launch(now, backoff),
            State::Told { repeat_at } if now >= repeat_at && !self.is_paced() => {
                self.launch(now, RETRY_MIN)
            }
            State::Unbound
            | State::Quiet
            | State::Due { .. }
            | State::InFlight { .. }
            | State::Deferred { .. }
            | State::Told { .. }
            | State::Unanswered => self.state,
        };
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    fn poll_timeout(&self) -> Option<Monotonic> {
        match self.state {
            State::Due { at } | State::Deferred { at, .. } => Some(at),
            State::InFlight { until, .. } => Some(until),
            State::Told { repeat_at } if !self.is_paced() => Some(repeat_at),
            State::Told { .. } => None,
            State::Unbound | State::Quiet | State::Unanswered => None,
        }
    }
}
