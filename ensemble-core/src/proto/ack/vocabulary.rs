//! The events, effects and saved state of a [`Ladder`](super::Ladder).

use std::time::Duration;

use serde::Serialize;

use crate::env::Monotonic;

/// A rung of the ladder, which [`AckManager`](crate::AckManager) climbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// 0: the task is delivered and nothing else; a healthy worker acks at once.
    Deliver,
    /// 1: the worker is nudged.
    Nudge,
    /// 2: the worker is helped out of an input mode and nudged.
    LeaveInputMode,
    /// 3: the worker's context is reset, the task delivered again, and the worker nudged.
    ResetContext,
}

impl Phase {
    /// Its number in the event log of an [`AckManager`](crate::AckManager), 0 to 3.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }
}

#[cfg_attr(not(feature = "internals"), doc(hidden))]
impl Phase {
    /// The phase of this number; `None` beyond the last.
    #[must_use]
    pub const fn of_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Deliver),
            1 => Some(Self::Nudge),
            2 => Some(Self::LeaveInputMode),
            3 => Some(Self::ResetContext),
            _ => None,
        }
    }

    /// The next rung; after the last comes the conductor.
    #[must_use]
    pub const fn next(self) -> Option<Self> {
        match self {
            Self::Deliver => Some(Self::Nudge),
            Self::Nudge => Some(Self::LeaveInputMode),
            Self::LeaveInputMode => Some(Self::ResetContext),
            Self::ResetContext => None,
        }
    }
}

/// What a worker appears to be doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WorkerActivity {
    /// The state of the worker cannot be read.
    #[default]
    Unknown,
    Idle,
    Busy,
    /// It asks a person something: a permission, trust, a login.
    Asking,
    /// It waits for a usage limit to pass.
    Limited {
        until: Option<Monotonic>,
    },
    /// A person is at it: something is typed and not sent, or scrolled back.
    HumanOccupied,
    Crashed,
}

impl WorkerActivity {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Idle => "idle",
            Self::Busy => "busy",
            Self::Asking => "asking",
            Self::Limited { .. } => "limited",
            Self::HumanOccupied => "human_occupied",
            Self::Crashed => "crashed",
        }
    }

    /// Parses a word. A limit is restored without the time it ends, which the next inspection
    /// finds.
    pub fn of_word(word: &str) -> Option<Self> {
        let all = [
            Self::Unknown,
            Self::Idle,
            Self::Busy,
            Self::Asking,
            Self::Limited { until: None },
            Self::HumanOccupied,
            Self::Crashed,
        ];
        all.into_iter().find(|state| state.word() == word)
    }

    /// Whether it may be pressed: it is not known to be working, asking, limited, used by a
    /// person, or gone.
    pub const fn is_pressable(self) -> bool {
        matches!(self, Self::Idle | Self::Unknown)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The task is to be delivered.
    Started,
    Ack {
        task: String,
        attempt: u32,
    },
    /// The worker was inspected, on request or not.
    Seen(WorkerActivity),
    Undeliverable,
    /// The task has expired or was withdrawn.
    Expired,
}

/// The actions that the driver must perform. Everything that presses keys is done under the pane's own guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Publish the task; report only [`Event::Undeliverable`].
    Deliver {
        /// The attempt, which acks must name.
        attempt: u32,
    },
    /// Look at the worker and report [`Event::Seen`].
    Inspect,
    Nudge,
    /// Press what the worker's profile says for leaving an input mode.
    LeaveInputMode,
    /// Do what the worker's profile says for resetting the context.
    ResetContext,
    /// The task was acked; the ladder has ended.
    Acked {
        phase: Phase,
    },
    /// Notify the conductor. Happens exactly once; the ladder has ended.
    Escalate(LadderEscalation),
    Record(LadderRecord),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LadderEscalation {
    pub task: String,
    pub attempt: u32,
    /// The highest phase that was reached.
    pub phase: Phase,
    pub reason: EscalationReason,
    /// For how long the ack was waited for.
    pub waited: Duration,
}

/// Why a conductor is notified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EscalationReason {
    /// All phases have ended without an ack.
    Unanswered,
    /// The worker could not be pressed for too long.
    NotPressable(WorkerActivity),
    Crashed,
    Undeliverable,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LadderRecord {
    /// A phase has begun.
    Entered { phase: Phase },
    /// A phase has begun without its keys, since nothing proves them harmless.
    Skipped { phase: Phase },
    /// The next phase waits for the worker. Once for every change of the reason.
    Waiting { worker: WorkerActivity },
    /// An ack for another task or attempt was ignored.
    StaleAck { task: String, attempt: u32 },
    /// The ack came after the conductor was notified.
    LateAck,
}
