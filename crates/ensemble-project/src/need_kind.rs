//! The kinds of needs, as `attention` reports them and `notify` in `ensemble.yaml` names them.

use serde::Serialize;

/// Kind of a need; the worst comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NeedKind {
    Answered,
    #[serde(rename = "servers")]
    Away,
    Watcher,
    Blocked,
    Gone,
    Decision,
    Escalation,
    Standstill,
    Unreadable,
    Step,
    DeadLetter,
    Budget,
    Undelivered,
    Paused,
    Limited,
}

impl NeedKind {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Away => "servers",
            Self::Watcher => "watcher",
            Self::Blocked => "blocked",
            Self::Gone => "gone",
            Self::Decision => "decision",
            Self::Escalation => "escalation",
            Self::Standstill => "standstill",
            Self::Unreadable => "unreadable",
            Self::Step => "step",
            Self::DeadLetter => "dead letter",
            Self::Budget => "budget",
            Self::Undelivered => "undelivered",
            Self::Paused => "paused",
            Self::Limited => "limited",
        }
    }

    /// Whether work waits until a person acts.
    pub const fn is_urgent(self) -> bool {
        !matches!(self, Self::Paused | Self::Limited)
    }
}
