//! The team in `ensemble.yaml`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ensemble_core::broker::UnreadMail;
use ensemble_core::message::{ConfigDuration, Name, ReservedName};
use ensemble_core::{Error, Result};
use ensemble_team::authority::Authority;
use ensemble_team::roster::OutsiderPolicy;
use ensemble_tmux::provider::ServerConfig;
use serde::{Deserialize, Serialize};

/// `team` in `ensemble.yaml`: the tmux session of the team.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct TeamConfig {
    /// The team's name (default: the name of the project's directory).
    pub name: Option<String>,
    /// The team's tmux session (default: the team's name).
    pub session: Option<String>,
    /// The socket of its tmux server (default: `.ensemble/tmux.sock`, its own server).
    #[serde(deserialize_with = "super::paths::read")]
    pub socket: Option<PathBuf>,
    /// The configuration file that its tmux server reads at its start (default: the user's own).
    #[serde(deserialize_with = "super::paths::read")]
    pub tmux_config: Option<PathBuf>,
    /// Width of panes while no client is attached, in cells (default 200).
    pub columns: Option<u16>,
    /// Height of panes while no client is attached, in cells (default 50).
    pub lines: Option<u16>,
}

super::sections::fill_absent!(TeamConfig: name, session, socket, tmux_config, columns, lines);

/// An agent in `ensemble.yaml`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct AgentConfig {
    /// Role of the agent: `conductor`, `dispatch`, `worker`, `planner`, `coder`, `code-reviewer` or any other word
    /// (default: its own name if that is one of these, otherwise `worker`).
    pub role: Option<Name>,
    /// Provider of the agent: `shell`, `claude`, `codex` … (default `shell`).
    pub provider: Option<String>,
    /// Command that `ensemble up` starts, as `sh -c` takes it (default: the command of the
    /// provider's profile).
    pub command: Option<String>,
    /// Start directory, relative to the project (default: the project's directory).
    #[serde(deserialize_with = "super::paths::read")]
    pub directory: Option<PathBuf>,
    /// An existing pane to adopt instead of starting a program: `%3`, `=session:window.0`, `zellij:SESSION/PANE` or
    /// `herdr:PANE`.
    pub pane: Option<String>,
    /// The mailbox that the agent reads, alone or with others (default: the one of its name).
    pub mailbox: Option<Name>,
    /// Variables added to its environment.
    pub env: BTreeMap<String, String>,
    /// User id of the agent (`id -u`), if it has its own: files written in its name by another user
    /// are refused.
    pub user: Option<u32>,
    /// Server to which the agent's program reports its state, if it has one (docs/reference/providers.md).
    pub server: ServerConfig,
    /// Whether the watcher starts it when mail waits for it and it is not running (default `false`).
    pub start_on_mail: bool,
    /// How often a day its mail may start it (default 10).
    pub mail_starts_max: Option<u32>,
    /// Settings of its shutdown.
    pub shutdown: ShutdownConfig,
}

/// `shutdown` of an agent in `ensemble.yaml`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ShutdownConfig {
    /// Treatment of its unread mail (default `return`).
    pub mail: Option<UnreadMail>,
    /// Time it may take to finish after it has agreed.
    pub grace: Option<ConfigDuration>,
    /// Time it may take to answer.
    pub deadline: Option<ConfigDuration>,
}

/// `identity` in `ensemble.yaml`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct IdentityConfig {
    /// Whether a process outside of every agent's pane may act under the name of a running agent
    /// (default `refuse`).
    pub outsiders: Option<OutsiderPolicy>,
}

super::sections::fill_absent!(IdentityConfig: outsiders);

/// Roles with a meaning; an agent with such a name has that role by default.
const ROLES: [&str; 6] = ["conductor", "dispatch", "worker", "planner", "coder", "code-reviewer"];

/// Refuses names that differ only in case: their mailboxes would be one on some file systems.
pub(super) fn refuse_twins(agents: &BTreeMap<Name, AgentConfig>, path: &Path) -> Result<()> {
    let mut seen: BTreeMap<String, &Name> = BTreeMap::new();
    for agent in agents.keys() {
        if let Some(twin) = seen.insert(agent.as_str().to_ascii_lowercase(), agent) {
            let detail = format!("differs only in case from `{twin}`: give it another name");
            return Err(Error::malformed(path, format!("agents.{agent}"), detail));
        }
    }
    Ok(())
}

impl AgentConfig {
    pub(super) fn check_names(&self, agent: &Name, people: &[Name], path: &Path) -> Result<()> {
        for (field, name) in [("", Some(agent)), (".mailbox", self.mailbox.as_ref())] {
            let Some(name) = name else { continue };
            let fault = match people.contains(name) {
                true => Some(format!("`{name}` is one of the `people` who run the team")),
                false => ReservedName::refuse_agent(name).err().map(|it| it.to_string()),
            };
            if let Some(detail) = fault {
                return Err(Error::malformed(path, format!("agents.{agent}{field}"), detail));
            }
        }
        Ok(())
    }

    pub fn role_of(&self, name: &Name) -> Name {
        let by_name = || match ROLES.contains(&name.as_str()) {
            true => Some(name.clone()),
            false => Name::new("worker").ok(),
        };
        // `worker` is a valid name, so a role always exists.
        self.role.clone().or_else(by_name).unwrap_or_else(|| name.clone())
    }
}

/// The rules of the project, and for each act that it does not name those of the user.
pub(super) fn authority(own: Authority, fallback: Authority) -> Authority {
    Authority {
        down: own.down.or(fallback.down),
        shutdown: own.shutdown.or(fallback.shutdown),
        abort: own.abort.or(fallback.abort),
        resume: own.resume.or(fallback.resume),
    }
}
