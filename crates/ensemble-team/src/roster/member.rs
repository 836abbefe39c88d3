//! One agent, as described by its file in the roster.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::place::RecordedPlace;
use ensemble_core::message::{Digest, Name, Timestamp, yaml};
use ensemble_core::{Error, Result};
use ensemble_tmux::provider::process;
use ensemble_tmux::tmux::Binding;

/// The newest format of a roster file that this reads, and the one that it writes.
pub const ROSTER_VERSION: u32 = 1;

/// An agent of the team, as recorded. Its present activity is not here: [`presence`](super::presence) derives that
/// from evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    #[serde(default = "newest")]
    pub version: u32,
    pub name: Name,
    /// Its role: `conductor`, `dispatch`, `worker`, `planner`, `coder`, `code-reviewer` or any other word.
    pub role: Name,
    /// Which program it is; names a profile.
    pub provider: String,
    pub mailbox: Name,
    /// What was started in its pane; absent if the pane existed before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
    /// What was added to its environment, besides what every agent gets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// How often it was spawned or joined. A process that acts for an older generation is too late.
    #[serde(default)]
    pub generation: u64,
    /// The digest of the pass that it was given; absent if it was not spawned by us.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pass_sha256: Option<Digest>,
    /// The pane it runs in; absent while there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<Binding>,
    /// The supervisor that speaks for it; absent while none runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supervisor: Option<SupervisorProcess>,
    pub state: MemberState,
    pub since: Timestamp,
    /// How it ended; only in [`MemberState::Shutdown`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<MemberEnd>,
    /// Directory in which the file was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) place: Option<RecordedPlace>,
}

/// The process of a supervisor: together, pid and start name it beyond doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SupervisorProcess {
    pub pid: u32,
    /// Start of that process, in clock ticks since boot; absent if the system does not reveal it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemberState {
    /// It belongs to the team and should run.
    Up,
    Leaving,
    /// It has ended, and should have.
    Shutdown,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberEnd {
    pub at: Timestamp,
    pub how: EndCause,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Name>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<Name>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// It went with its team, and comes back with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub returns: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndCause {
    Approved,
    /// It was ended without its word.
    Forced,
    /// The agent ended by itself.
    Exited,
    /// The agent was found missing.
    Gone,
}

impl Member {
    /// A member that is up and has no pane yet, in its generation 0.
    pub fn new(name: Name, role: Name, provider: impl Into<String>, since: Timestamp) -> Self {
        Self {
            version: ROSTER_VERSION,
            mailbox: name.clone(),
            name,
            role,
            provider: provider.into(),
            command: None,
            directory: None,
            env: BTreeMap::new(),
            generation: 0,
            pass_sha256: None,
            binding: None,
            supervisor: None,
            state: MemberState::Up,
            since,
            ended: None,
            place: None,
        }
    }

    /// A member as it is in a copy of its project: what runs, runs for the original.
    fn without_processes(mut self, original: &Path) -> Self {
        let was_present = self.is_present();
        (self.binding, self.supervisor, self.pass_sha256) = (None, None, None);
        if was_present {
            let reason = format!("its project is a copy, and it runs for {}", original.display());
            let ended = MemberEnd::new(self.since, EndCause::Gone);
            let returns = self.command.is_some();
            self.ended = Some(MemberEnd { reason: Some(reason), returns, ..ended });
            self.state = MemberState::Shutdown;
        }
        self
    }

    /// Whether it belongs to the team: it is up, or still being shut down.
    pub fn is_present(&self) -> bool {
        self.state != MemberState::Shutdown
    }

    /// Whether a supervisor outside of the team's panes has brought it: there is nothing else of it.
    pub const fn is_supervised_alone(&self) -> bool {
        self.command.is_none() && self.binding.is_none() && self.supervisor.is_some()
    }

    pub fn came(&self) -> MemberOrigin {
        match (&self.command, &self.binding, &self.supervisor) {
            (Some(_), _, _) => MemberOrigin::Started,
            (None, Some(binding), _) if binding.is_terminal() => MemberOrigin::Wrapped,
            (None, Some(_), _) => MemberOrigin::Joined,
            (None, None, Some(_)) => MemberOrigin::Supervised,
            (None, None, None) => MemberOrigin::Recorded,
        }
    }

    pub(super) fn parse(content: &[u8], name: &Name, path: &Path) -> Result<Self> {
        let mut member: Self = yaml::parse(yaml::decode_text(content, path)?, path)?;
        if member.version > ROSTER_VERSION {
            let detail = format!(
                "is {}, this program reads up to {ROSTER_VERSION}: use a newer one",
                member.version
            );
            return Err(Error::malformed(path, "version", detail));
        }
        if member.name != *name {
            let detail = format!("is `{}`, the file is named for `{name}`", member.name);
            return Err(Error::malformed(path, "name", detail));
        }
        let place = member.place.take();
        let original =
            place.as_ref().zip(path.parent()).and_then(|(place, dir)| place.original_of(dir));
        Ok(match original {
            Some(original) => member.without_processes(original),
            None => member,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MemberOrigin {
    /// By `up` or `spawn`, which started its command.
    Started,
    /// By `join`: its pane existed before.
    Joined,
    /// By a wrapper such as `ensemble claude`, which started it in a person's terminal.
    Wrapped,
    /// By a supervisor outside of the team's panes.
    Supervised,
    /// It is on the blackboard and has no file in the roster.
    Registered,
    /// Its mailbox is on the servers, and no agent of this host reads it.
    Remote,
    /// It has neither pane nor process: it was shut down, or an embedder has written it.
    Recorded,
}

impl SupervisorProcess {
    pub fn current() -> Self {
        let pid = std::process::id();
        Self { pid, started: process::start_time(pid) }
    }

    pub fn lives(&self) -> bool {
        process::is_running(self.pid, self.started)
    }
}

impl MemberEnd {
    pub const fn new(at: Timestamp, how: EndCause) -> Self {
        Self { at, how, by: None, request_id: None, reason: None, exit_code: None, returns: false }
    }
}

impl EndCause {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::Forced => "forced",
            Self::Exited => "exited",
            Self::Gone => "gone",
        }
    }
}

const fn newest() -> u32 {
    ROSTER_VERSION
}
