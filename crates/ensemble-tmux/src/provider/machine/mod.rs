//! Asks agents for their state over their own interfaces, which is more reliable than reading a screen.
//!
//! A report is a hint, as the screen is. If the source is missing, slow or malformed, or describes another process,
//! there is no report and the screen decides; [`AgentAnswer`] has the reason. Nothing here writes anything.

mod claude;
mod http;
mod opencode;
mod place;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use super::process::variable;
use super::profile::{MachineSource, Profile};
use ensemble_core::agent::AgentState;

pub use opencode::HTTP_LIMIT;
pub use place::HttpPlace;

/// An agent's own word about its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentReport {
    pub state: AgentState,
    /// In its own words: `busy`, `permission prompt` …
    pub detail: String,
    /// When a limit ends, if it says so.
    pub resets_at: Option<String>,
}

impl AgentReport {
    pub(super) fn new(state: AgentState, detail: &str) -> Self {
        Self { state, detail: detail.to_owned(), resets_at: None }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentAnswer {
    /// Its profile names no source, or the source's place was not given.
    Nothing,
    Report {
        report: AgentReport,
        place: String,
    },
    Silence {
        place: String,
        why: String,
    },
}

impl AgentAnswer {
    pub const fn report(&self) -> Option<&AgentReport> {
        match self {
            Self::Report { report, .. } => Some(report),
            Self::Nothing | Self::Silence { .. } => None,
        }
    }
}

/// Where the sources are. The default knows none; nothing is read from the environment of this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourcePlaces {
    claude_sessions: Option<PathBuf>,
    opencode: OpencodePlace,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum OpencodePlace {
    #[default]
    Unasked,
    At(HttpPlace),
    /// Where its command line says, with this header `HttpAuthorization`.
    AsStarted(HttpAuthorization),
    Trouble(String),
}

/// Printed as nothing.
#[derive(Clone, Default, PartialEq, Eq)]
struct HttpAuthorization(Option<String>);

impl std::fmt::Debug for HttpAuthorization {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authorization")
    }
}

impl SourcePlaces {
    /// Claude Code's session files below the home directory of the user who runs it.
    pub fn in_home(home: &Path) -> Self {
        Self { claude_sessions: Some(home.join(".claude/sessions")), ..Self::default() }
    }

    /// Whether the Claude Code that runs in or below process `pid` says that it waits for a prompt.
    pub fn claude_rests(&self, pid: u32) -> bool {
        let report = self.claude_sessions_of(pid).and_then(|at| claude::report(&at, pid).ok());
        report.is_some_and(|report| report.state == AgentState::Ready)
    }

    /// The session files of the Claude Code in or below process `pid`, which may have been started with another home.
    fn claude_sessions_of(&self, pid: u32) -> Option<PathBuf> {
        let usual = self.claude_sessions.clone()?;
        let other = variable(pid, "CLAUDE_CONFIG_DIR").filter(|dir| !dir.is_empty());
        Some(other.map_or(usual, |dir| PathBuf::from(OsString::from_vec(dir)).join("sessions")))
    }

    /// The OpenCode server that the agent in the pane belongs to.
    pub fn with_opencode(mut self, place: HttpPlace) -> Self {
        self.opencode = OpencodePlace::At(place);
        self
    }

    /// The OpenCode in the pane is asked where its own command line says that it listens, on this
    /// machine only. It is asked as `user` with `password` if there is one.
    pub fn with_opencode_as_started(mut self, user: Option<&str>, password: Option<&str>) -> Self {
        let authorization = password.map(|password| place::basic(user, password));
        self.opencode = OpencodePlace::AsStarted(HttpAuthorization(authorization));
        self
    }

    /// OpenCode cannot be asked. The diagnosis shows `why`.
    pub fn without_opencode(mut self, why: String) -> Self {
        self.opencode = OpencodePlace::Trouble(why);
        self
    }
}

/// Asks the source that the profile names about the agent in a pane whose first process is `pid`.
/// Takes at most [`HTTP_LIMIT`], and microseconds where it reads a file.
pub fn ask(profile: &Profile, pid: u32, places: &SourcePlaces) -> AgentAnswer {
    match profile.machine_source() {
        None => AgentAnswer::Nothing,
        Some(MachineSource::ClaudeSessions) => match places.claude_sessions_of(pid) {
            None => AgentAnswer::Nothing,
            Some(sessions) => heard(sessions.display().to_string(), claude::report(&sessions, pid)),
        },
        Some(MachineSource::OpencodeHttp) => ask_opencode(profile, pid, &places.opencode),
    }
}

fn ask_opencode(profile: &Profile, pid: u32, opencode: &OpencodePlace) -> AgentAnswer {
    let found;
    let place = match opencode {
        OpencodePlace::Unasked => return AgentAnswer::Nothing,
        OpencodePlace::At(place) => place,
        OpencodePlace::AsStarted(HttpAuthorization(authorization)) => {
            let Some(address) = opencode::told_to_listen_at(profile, pid) else {
                let why = "it was not started with --port, and no address is configured";
                return heard("OpenCode's server".to_owned(), Err(why.to_owned()));
            };
            found = HttpPlace { authorization: authorization.clone(), ..HttpPlace::at(address) };
            &found
        }
        OpencodePlace::Trouble(why) => {
            return heard("OpenCode's server".to_owned(), Err(why.clone()));
        }
    };
    heard(format!("http://{}", place.address), opencode::report(place))
}

fn heard(place: String, answer: Result<AgentReport, String>) -> AgentAnswer {
    match answer {
        Ok(report) => AgentAnswer::Report { report, place },
        Err(why) => AgentAnswer::Silence { place, why },
    }
}
