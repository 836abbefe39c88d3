//! The events, effects and public phases of a [`NudgeSchedule`](super::NudgeSchedule).

use std::time::Duration;

use serde::Serialize;

#[cfg(doc)]
use super::{NUDGE_INTERVAL_MIN, NUDGES_MAX};
use ensemble_core::env::Monotonic;
use ensemble_core::pane::{Deferral, NudgeOutcome};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Mail {
        /// How many messages wait unread; 0 is a drained mailbox.
        waiting: u64,
        /// How many were received since the last look, if known. A smaller `waiting` counts as taken without it; it
        /// only matters where as many came as went.
        taken: u64,
    },
    /// The agent runs in a pane. Saying so twice with the same number changes nothing.
    Bound {
        /// Which binding this is; another pane is another number.
        binding: u64,
    },
    Unbound,
    /// The outcome of a [`Effect::Nudge`], [`Effect::Submit`] or [`Effect::Withdraw`].
    Outcome {
        /// The attempt it answers; other than the last one it is ignored.
        attempt: u64,
        outcome: NudgeOutcome,
    },
    /// The agent has met a usage limit: nothing is tried before that ends.
    Parked {
        until: Monotonic,
    },
    /// The current attempt has met a usage limit that does not say when it ends. Sent before the attempt's
    /// [`Event::Outcome`], even if the line could be submitted although an old limit shows.
    Limited,
    /// Whether the ladder of a task sets the pace: while it does, nothing is repeated by itself.
    Laddered(bool),
    /// The ladder wants a line now.
    Prompt(WantedLine),
    /// The composer of an idle agent shows our unsent line and nothing else.
    LineLeft,
    /// Something suggests that the pane takes input again (a hook, a new title, a closed dialog). A
    /// deferred nudge is tried now instead of after its backoff.
    PaneChanged,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedLine {
    /// The least time since the last line.
    pub pace: Duration,
    /// Whether a line that would be too early is typed later. Otherwise it is dropped, because the last line covers
    /// it.
    pub must: bool,
}

impl WantedLine {
    /// A line at least `pace` after the last one; `must` as for the field.
    pub const fn new(pace: Duration, must: bool) -> Self {
        Self { pace, must }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NudgeOccasion {
    /// The agent has not been notified of its mail yet.
    News,
    /// It was notified and has received nothing. Skipped if another process has just notified it.
    Again,
    /// It has met a usage limit without a known end, and the line finds out whether that has passed. It is typed
    /// although the limit still shows, if there is no other objection.
    Probe,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Type a hint that mail waits, and report the [`Event::Outcome`].
    Nudge { attempt: u64, waiting: u64, occasion: NudgeOccasion },
    /// Press Enter if exactly the line of an earlier attempt is in the composer, and report the [`Event::Outcome`]:
    /// `Refused` with [`Deferral::Draft`] if the composer contains anything else, with [`Deferral::LineGone`] if it
    /// is empty.
    Submit {
        attempt: u64,
        /// The attempt that typed the line.
        typed: u64,
    },
    /// Take our unsent line out of the composer, because no mail waits any more, and report the
    /// [`Event::Outcome`]: `Refused` with [`Deferral::LineGone`] once it is gone, with
    /// [`Deferral::Draft`] if anything else is in the composer, too.
    Withdraw { attempt: u64 },
    /// Write it to the event log.
    Record(NudgeRecord),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum NudgeRecord {
    /// The agent could not be notified. Once for every change of the reason.
    Deferred { deferral: Deferral, waiting: u64 },
    /// The agent was notified [`NUDGES_MAX`] times and took nothing. Once, until it takes something.
    Unanswered { waiting: u64, nudges: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NudgePhase {
    Unbound,
    Quiet,
    /// A nudge is due within [`NUDGE_INTERVAL_MIN`].
    Due,
    InFlight,
    /// A nudge was not possible and will be tried again.
    Deferred,
    Told,
    /// The agent was notified [`NUDGES_MAX`] times and took nothing.
    Unanswered,
}

impl NudgePhase {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Unbound => "unbound",
            Self::Quiet => "quiet",
            Self::Due => "due",
            Self::InFlight => "in_flight",
            Self::Deferred => "deferred",
            Self::Told => "told",
            Self::Unanswered => "unanswered",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NudgeStatus {
    pub phase: NudgePhase,
    pub waiting: u64,
    /// How many lines were submitted since the agent last took a message.
    pub nudges: u32,
    pub deferral: Option<Deferral>,
    pub next: Option<Monotonic>,
}
