//! Delays and limits of a supervisor.

use std::time::Duration;

use super::vocabulary::{ProgramEnding, SuperviseAnomaly};

/// Delay before a fresh agent after a hand-over (exit 42).
pub const HAND_OVER_DELAY: Duration = Duration::from_secs(2);
/// Delay before a fresh agent after any other exit with unfinished work.
pub const RESTART_DELAY: Duration = Duration::from_secs(5);
/// Delay before a fresh planner after one that left DRAFT tasks.
pub const DRAFT_POLL: Duration = Duration::from_secs(30);
/// Poll interval of the board without events, for coders and reviewers.
pub const WORK_POLL: Duration = Duration::from_secs(30);
/// Poll interval of the board without events, for planners.
pub const PLANNER_POLL: Duration = Duration::from_secs(60);
/// Poll interval of the control files while one exists.
pub const GATE_POLL: Duration = Duration::from_secs(5);
pub const CLAIM_TRIES_MAX: u32 = 3;
/// Shortest and longest wait between two tries.
pub const CONTENDED_WAIT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));
/// Most consecutive crashes of agents at a task without progress.
pub const CRASHES_MAX: u32 = 5;
/// Most consecutive agents that end without progress, with any exit status.
pub const SPINS_MAX: u32 = 10;

/// Most tries to take the agent off a board that does not answer. Then observers of its lease do it.
pub const FAREWELLS_MAX: u32 = 5;

const _: () = assert!(CRASHES_MAX < SPINS_MAX);
const _: () = assert!(HAND_OVER_DELAY.as_secs() < RESTART_DELAY.as_secs());
const _: () = assert!(CONTENDED_WAIT.0.as_secs() < CONTENDED_WAIT.1.as_secs());
const _: () = assert!(WORK_POLL.as_secs() > RESTART_DELAY.as_secs());

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SupervisePace {
    pub hand_over: Duration,
    /// Delay after any other exit with unfinished work, and after a failed action.
    pub restart: Duration,
    pub poll: Duration,
    pub gate: Duration,
    pub crashes_max: u32,
    /// Most consecutive agents without progress.
    pub spins_max: u32,
    /// How long to wait for work before ending; `None` for no limit.
    pub patience: Option<Duration>,
    /// Whether its work can be blocked: a coder's task can, a review or a plan cannot.
    pub can_block: bool,
}

impl SupervisePace {
    /// The seed's values for a coder.
    pub const fn coder() -> Self {
        Self {
            hand_over: HAND_OVER_DELAY,
            restart: RESTART_DELAY,
            poll: WORK_POLL,
            gate: GATE_POLL,
            crashes_max: CRASHES_MAX,
            spins_max: SPINS_MAX,
            patience: None,
            can_block: true,
        }
    }

    pub const fn reviewer() -> Self {
        Self { can_block: false, ..Self::coder() }
    }

    pub const fn planner() -> Self {
        Self { can_block: false, poll: PLANNER_POLL, ..Self::coder() }
    }
}

/// Why the work is not tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkTrouble {
    Crashes(u32),
    /// Agents did nothing until their lease ran out.
    Hangs(u32),
    /// Agents ended without any progress.
    Spins(u32),
}

impl std::fmt::Display for WorkTrouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Crashes(count) => write!(f, "{count} agents crashed at it without progress"),
            Self::Hangs(count) => {
                write!(f, "{count} agents hung at it until their lease ran out, without progress")
            }
            Self::Spins(count) => write!(f, "{count} agents ended at it without progress"),
        }
    }
}

/// Counts unsuccessful agents, one after another at the same work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FailureCounts {
    /// Crashes since the last progress; a hang is one.
    pub crashes: u32,
    #[serde(default)]
    pub hangs: u32,
    /// Agents since the last progress.
    pub spins: u32,
}

impl FailureCounts {
    pub(super) fn crashed(&mut self, ending: ProgramEnding) -> SuperviseAnomaly {
        self.crashes += 1;
        self.spins += 1;
        SuperviseAnomaly::Crashed { ending, count: self.crashes }
    }

    pub(super) fn hung(&mut self) -> SuperviseAnomaly {
        self.crashes += 1;
        self.hangs += 1;
        self.spins += 1;
        SuperviseAnomaly::Hung { count: self.crashes }
    }

    pub(super) fn not_started(&mut self) -> SuperviseAnomaly {
        self.crashes += 1;
        self.spins += 1;
        SuperviseAnomaly::NotStarted { count: self.crashes }
    }

    pub(super) const fn spun(&mut self) -> u32 {
        self.spins += 1;
        self.spins
    }

    pub(super) const fn trouble(self, pace: &SupervisePace) -> Option<WorkTrouble> {
        if self.crashes >= pace.crashes_max && self.hangs == self.crashes {
            Some(WorkTrouble::Hangs(self.hangs))
        } else if self.crashes >= pace.crashes_max {
            Some(WorkTrouble::Crashes(self.crashes))
        } else if self.spins >= pace.spins_max {
            Some(WorkTrouble::Spins(self.spins))
        } else {
            None
        }
    }
}
