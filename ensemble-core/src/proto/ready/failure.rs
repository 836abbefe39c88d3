//! What a window looked like, and the structured failure of seed 000.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::message::{Name, is_deceiving};

pub const OBSERVATION_CHARS_MAX: usize = 200;

/// The answers to the seed's checklist, from an inspection of the worker's window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WindowDiagnosis {
    pub session_alive: bool,
    /// Is the provider's program running in it?
    pub workspace: Workspace,
    /// The obstacle that keeps it from answering, if it is visible.
    pub obstacle: Option<ReadyObstacle>,
    pub observation: String,
}

/// Whether the provider's program (`codex`, `claude`, `opencode`, …) is what runs in the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Workspace {
    /// The program runs.
    Open,
    /// A shell is, or nothing.
    Closed,
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadyObstacle {
    Busy,
    /// It asks for a permission or for trust.
    Permission,
    /// It wants to be logged in, or its key is refused.
    Login,
    /// It waits for a usage limit to pass.
    Limited,
    /// A person has typed something and not sent it.
    Draft,
    Crashed,
}

/// The canonical error types.
///
/// | at the last time-out | type |
/// |---|---|
/// | the window could not be inspected, the session is dead, or the program is unknown | `unknown_worker_state` |
/// | no program, and an open command had been sent or was refused | `provider_launch_failed` |
/// | no program, and none had been sent: it was running until then | `workspace_not_open` |
/// | the program crashed | `provider_launch_failed` |
/// | the program runs; busy, asking, logged out or silent: the observation says which | `no_pong_timeout` |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorType {
    NoPongTimeout,
    WorkspaceNotOpen,
    ProviderLaunchFailed,
    UnknownWorkerState,
}

impl ErrorType {
    pub const fn word(self) -> &'static str {
        match self {
            Self::NoPongTimeout => "no_pong_timeout",
            Self::WorkspaceNotOpen => "workspace_not_open",
            Self::ProviderLaunchFailed => "provider_launch_failed",
            Self::UnknownWorkerState => "unknown_worker_state",
        }
    }

    pub(super) const fn classify(
        inspection: &Result<WindowDiagnosis, String>,
        opened: bool,
    ) -> Self {
        let Ok(diagnosis) = inspection else { return Self::UnknownWorkerState };
        match (diagnosis.workspace, diagnosis.obstacle, diagnosis.session_alive) {
            (Workspace::Open | Workspace::Closed | Workspace::Unknown, _, false)
            | (Workspace::Unknown, _, true) => Self::UnknownWorkerState,
            (Workspace::Open, Some(ReadyObstacle::Crashed), true) => Self::ProviderLaunchFailed,
            (Workspace::Open, _, true) => Self::NoPongTimeout,
            (Workspace::Closed, _, true) if opened => Self::ProviderLaunchFailed,
            (Workspace::Closed, Some(ReadyObstacle::Crashed), true) => Self::ProviderLaunchFailed,
            (Workspace::Closed, _, true) => Self::WorkspaceNotOpen,
        }
    }
}

/// Why nothing was assigned. Displayed as the seed's block, without a line end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadinessFailure {
    #[serde(rename = "worker-id")]
    pub worker: Name,
    pub attempt: u8,
    pub error_type: ErrorType,
    /// Whether the window could be inspected at the last time-out.
    pub window_inspected: bool,
    /// Whether the provider's open command was sent in any attempt.
    pub open_command_sent: bool,
    /// What was seen: one line, without control characters.
    pub observation: String,
}

impl ReadinessFailure {
    /// A failure about which nothing was seen yet.
    pub const fn new(worker: Name, attempt: u8, error_type: ErrorType) -> Self {
        Self {
            worker,
            attempt,
            error_type,
            window_inspected: false,
            open_command_sent: false,
            observation: String::new(),
        }
    }

    /// What was seen; made one line without control characters.
    pub fn observed(mut self, observation: &str) -> Self {
        self.observation = one_line(observation);
        self
    }
}

impl fmt::Display for ReadinessFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "[Assign Readiness Error]")?;
        writeln!(f, "worker-id: {}", self.worker)?;
        writeln!(f, "attempt: {}", self.attempt)?;
        writeln!(f, "error_type: {}", self.error_type.word())?;
        writeln!(f, "window_inspected: {}", self.window_inspected)?;
        writeln!(f, "open_command_sent: {}", self.open_command_sent)?;
        writeln!(f, "observation: {}", self.observation)?;
        write!(f, "action: assign_stopped")
    }
}

impl std::error::Error for ReadinessFailure {}

/// Screens are written by strangers. A character that could begin a new line, move a cursor or turn
/// the direction of writing becomes a blank. Runs of blanks become one.
pub(super) fn one_line(text: &str) -> String {
    let harmless = |c: char| if is_deceiving(c) { ' ' } else { c };
    let text: String = text.chars().map(harmless).collect();
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(OBSERVATION_CHARS_MAX).collect()
}
