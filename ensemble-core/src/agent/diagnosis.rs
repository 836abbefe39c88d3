//! What an agent is doing, and how that was found out.

use serde::{Deserialize, Serialize};

use crate::message::Timestamp;
use crate::pane::Deferral;

/// The longest excerpt in an [`Evidence`], in characters.
const EXCERPT_CHARS_MAX: usize = 100;

/// What an agent appears to be doing; [`WorkerPane`](crate::WorkerPane) has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentState {
    /// Waiting for input, with nothing in its composer.
    Ready,
    /// Working.
    Busy,
    /// Asking for a permission.
    Permission,
    /// Asking whether the directory is trusted.
    Trust,
    /// Another dialog, menu or browser.
    Dialog,
    /// Not logged in.
    Login,
    /// Out of quota or rate-limited.
    RateLimited,
    /// Ended; a shell is in its place.
    Crashed,
    /// Waiting for input, with something typed and not sent.
    Draft,
    /// Not painted yet.
    Starting,
    /// None that the profile knows.
    Unknown,
}

#[cfg_attr(not(feature = "internals"), doc(hidden))]
impl AgentState {
    /// All states. A test that loops over them meets a new one.
    pub const ALL: [Self; 11] = [
        Self::Ready,
        Self::Busy,
        Self::Permission,
        Self::Trust,
        Self::Dialog,
        Self::Login,
        Self::RateLimited,
        Self::Crashed,
        Self::Draft,
        Self::Starting,
        Self::Unknown,
    ];

    /// The stable word for it, as in the event log of an [`AckManager`](crate::AckManager).
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Busy => "busy",
            Self::Permission => "permission",
            Self::Trust => "trust",
            Self::Dialog => "dialog",
            Self::Login => "login",
            Self::RateLimited => "rate_limited",
            Self::Crashed => "crashed",
            Self::Draft => "draft",
            Self::Starting => "starting",
            Self::Unknown => "unknown",
        }
    }
}

/// What an agent is doing, and how that was found out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AgentDiagnosis {
    pub state: AgentState,
    /// The source that decided the state.
    pub source: Source,
    /// The evidence, the decisive piece first.
    pub evidence: Vec<Evidence>,
    /// Why it should not be nudged now; `None` if it may be.
    pub deferral: Option<Deferral>,
    /// When a limit ends, in the agent's own words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resets_at: Option<String>,
    /// When the limit ends, if the screen says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limited_until: Option<Timestamp>,
}

impl AgentDiagnosis {
    /// An agent that reports its state itself, as an orchestrator's own process does. It may be nudged when it is
    /// ready.
    pub fn of(state: AgentState) -> Self {
        let deferral = (state != AgentState::Ready)
            .then(|| Deferral::NotReady { state: state.word().to_owned() });
        Self {
            state,
            source: Source::MachineReadable,
            evidence: Vec::new(),
            deferral,
            resets_at: None,
            limited_until: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The multiplexer's own knowledge of the pane.
    Pane,
    /// The name of the program in the foreground.
    Process,
    /// The title the program has set.
    Title,
    Screen,
    /// The agent's own interface for programs.
    MachineReadable,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evidence {
    pub source: Source,
    /// Its meaning, in the profile's words.
    pub what: String,
    /// An excerpt, at most a line.
    pub text: String,
}

impl Evidence {
    /// One thing that was seen; the excerpt is cut to a line's length.
    pub fn new(source: Source, what: &str, text: &str) -> Self {
        Self { source, what: what.to_owned(), text: excerpted(text) }
    }
}

/// A line of what was seen, without control characters and the sides of a frame, at most 100 characters long.
pub fn excerpted(text: &str) -> String {
    let is_frame = |c: char| c.is_whitespace() || ('\u{2500}'..='\u{257F}').contains(&c);
    text.trim_matches(is_frame)
        .chars()
        .filter(|c| !c.is_control())
        .take(EXCERPT_CHARS_MAX)
        .collect()
}
