//! What agents themselves tell to programs: better than any reading of a screen.
//!
//! A report is a hint like the screen is one: if the source is missing, slow, malformed or speaks
//! of another process, there is no report and the screen decides. Nothing here writes anything.

mod claude;
mod opencode;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::profile::{AgentState, MachineSource, Profile};

pub use opencode::HTTP_LIMIT;

/// An agent's own word about its state.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// What it says it is doing.
    pub state: AgentState,
    /// In its own words: `busy`, `permission prompt` …
    pub detail: String,
}

/// Where the sources are. The default knows none; nothing is read from the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    claude_sessions: Option<PathBuf>,
    opencode: Option<SocketAddr>,
}

impl Places {
    /// Claude Code's session files below the home directory of the user who runs it.
    #[must_use]
    pub fn in_home(home: &Path) -> Self {
        Self { claude_sessions: Some(home.join(".claude/sessions")), opencode: None }
    }

    /// The address of the OpenCode server in the pane, as `opencode --port` was told. Others than
    /// loopback addresses are never asked.
    #[must_use]
    pub const fn with_opencode(mut self, address: SocketAddr) -> Self {
        self.opencode = Some(address);
        self
    }
}

/// Asks the source that the profile names about the agent in a pane whose first process is `pid`.
/// Takes at most [`HTTP_LIMIT`], and microseconds where it reads a file.
///
/// ```
/// use ensemble_core::provider::Profiles;
/// use ensemble_core::provider::machine::{self, Places};
/// let claude = Profiles::embedded()?.get("claude")?;
/// assert_eq!(machine::report(&claude, std::process::id(), &Places::default()), None);
/// # Ok::<(), ensemble_core::Error>(())
/// ```
#[must_use]
pub fn report(profile: &Profile, pid: u32, places: &Places) -> Option<Report> {
    match profile.machine_source()? {
        MachineSource::ClaudeSessions => claude::report(places.claude_sessions.as_deref()?, pid),
        MachineSource::OpencodeHttp => opencode::report(places.opencode?),
    }
}
