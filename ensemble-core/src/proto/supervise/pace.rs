//! How long a supervisor waits, and how often it tries.

use std::time::Duration;

use super::vocabulary::{Anomaly, Ending};

/// A fresh agent after a hand-over (exit 42).
pub const HAND_OVER_DELAY: Duration = Duration::from_secs(2);
/// A fresh agent after any other exit that left its work unfinished.
pub const RESTART_DELAY: Duration = Duration::from_secs(5);
/// A fresh planner after one that left DRAFT tasks.
pub const DRAFT_POLL: Duration = Duration::from_secs(30);
/// A look at the board without an event: coders and reviewers.
pub const WORK_POLL: Duration = Duration::from_secs(30);
/// A look at the board without an event: planners.
pub const PLANNER_POLL: Duration = Duration::from_secs(60);
/// A look at the control files while one is there.
pub const GATE_POLL: Duration = Duration::from_secs(5);
/// How often a claim is tried in a row against others.
pub const CLAIM_TRIES_MAX: u32 = 3;
/// The shortest and the longest wait between two tries.
pub const CONTENDED_WAIT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));
/// How many agents in a row may crash at a task without progress.
pub const CRASHES_MAX: u32 = 5;
/// How many agents in a row may end without progress, whatever they say.
pub const SPINS_MAX: u32 = 10;

const _: () = assert!(CRASHES_MAX < SPINS_MAX);
const _: () = assert!(HAND_OVER_DELAY.as_secs() < RESTART_DELAY.as_secs());
const _: () = assert!(CONTENDED_WAIT.0.as_secs() < CONTENDED_WAIT.1.as_secs());
const _: () = assert!(WORK_POLL.as_secs() > RESTART_DELAY.as_secs());

/// How fast and how patient a supervisor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pace {
    /// After exit 42.
    pub hand_over: Duration,
    /// After any other exit that left work unfinished, and after what failed.
    pub restart: Duration,
    /// After exit 0 of a planner that left DRAFT tasks.
    pub drafts: Duration,
    /// Between two looks at the board.
    pub poll: Duration,
    /// Between two looks at the control files.
    pub gate: Duration,
    /// Crashes in a row.
    pub crashes_max: u32,
    /// Agents in a row of which nothing came.
    pub spins_max: u32,
    /// How long to wait for work before it ends; `None` for ever.
    pub patience: Option<Duration>,
    /// Whether what it holds can be blocked: a coder's task can, a review or a plan cannot.
    pub can_block: bool,
}

impl Pace {
    /// The seed's, for a coder.
    #[must_use]
    pub const fn coder() -> Self {
        Self {
            hand_over: HAND_OVER_DELAY,
            restart: RESTART_DELAY,
            drafts: DRAFT_POLL,
            poll: WORK_POLL,
            gate: GATE_POLL,
            crashes_max: CRASHES_MAX,
            spins_max: SPINS_MAX,
            patience: None,
            can_block: true,
        }
    }

    /// The seed's, for a code reviewer.
    #[must_use]
    pub const fn reviewer() -> Self {
        Self { can_block: false, ..Self::coder() }
    }

    /// The seed's, for a planner.
    #[must_use]
    pub const fn planner() -> Self {
        Self { can_block: false, poll: PLANNER_POLL, ..Self::coder() }
    }
}

/// What went wrong so often that it is not tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trouble {
    /// Agents crashed.
    Crashes(u32),
    /// Agents ended without any progress.
    Spins(u32),
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Crashes(count) => write!(f, "{count} agents crashed at it without progress"),
            Self::Spins(count) => write!(f, "{count} agents ended at it without progress"),
        }
    }
}

/// Counts what comes of agents, one after another at the same work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Loops {
    /// Crashes since the last progress.
    pub crashes: u32,
    /// Agents since the last progress.
    pub spins: u32,
}

impl Loops {
    pub(super) fn crashed(&mut self, ending: Ending) -> Anomaly {
        self.crashes += 1;
        self.spins += 1;
        Anomaly::Crashed { ending, count: self.crashes }
    }

    pub(super) fn not_started(&mut self) -> Anomaly {
        self.crashes += 1;
        self.spins += 1;
        Anomaly::NotStarted { count: self.crashes }
    }

    pub(super) const fn spun(&mut self) -> u32 {
        self.spins += 1;
        self.spins
    }

    /// What is too much, if anything is.
    pub(super) const fn trouble(self, pace: &Pace) -> Option<Trouble> {
        if self.crashes >= pace.crashes_max {
            Some(Trouble::Crashes(self.crashes))
        } else if self.spins >= pace.spins_max {
            Some(Trouble::Spins(self.spins))
        } else {
            None
        }
    }
}
