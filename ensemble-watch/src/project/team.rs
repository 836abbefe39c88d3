//! What `ensemble.yaml` says of the team.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ensemble_core::broker::UnreadMail;
use ensemble_core::message::Name;
use ensemble_core::provider::ServerConfig;
use ensemble_core::roster::Outsiders;
use serde::{Deserialize, Serialize};

/// `team` in `ensemble.yaml`: where the team runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct TeamConfig {
    /// What the team is called (default: the name of the project's directory).
    pub name: Option<String>,
    /// The tmux session it runs in (default: the team's name).
    pub session: Option<String>,
    /// The socket of its tmux server (default: `.ensemble/tmux.sock`, a server of its own).
    pub socket: Option<PathBuf>,
    /// The configuration that its tmux server reads when it starts (default: the user's own).
    pub tmux_config: Option<PathBuf>,
    /// How wide panes are while nobody is attached, in cells (default 200).
    pub columns: Option<u16>,
    /// How high panes are while nobody is attached, in cells (default 50).
    pub lines: Option<u16>,
}

/// An agent in `ensemble.yaml`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct AgentConfig {
    /// What it is there for: `conductor`, `dispatch`, `worker`, `planner`, `coder`,
    /// `code-reviewer` or any other word (default: its own name if that is one of these, else
    /// `worker`).
    pub role: Option<Name>,
    /// Which program it is: `shell`, `claude`, `codex` … (default `shell`).
    pub provider: Option<String>,
    /// What `ensemble up` starts, as `sh -c` takes it (default: what the provider's profile opens).
    pub command: Option<String>,
    /// Where it is started, below the project (default: the project's directory).
    pub directory: Option<PathBuf>,
    /// A pane that exists already and is adopted instead of starting anything: `%3`, or
    /// `=session:window.0`.
    pub pane: Option<String>,
    /// The mailbox whose mail it is told of (default: its own name).
    pub mailbox: Option<Name>,
    /// What is added to its environment.
    pub env: BTreeMap<String, String>,
    /// The number of the user it runs as (`id -u`), if it has one of its own: what is written in its
    /// name by another user is refused.
    pub user: Option<u32>,
    /// Where its program tells its state to others, if that has a server (docs/providers.md).
    pub server: ServerConfig,
    /// How it is shut down.
    pub shutdown: ShutdownConfig,
}

/// `shutdown` of an agent in `ensemble.yaml`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct ShutdownConfig {
    /// What becomes of its unread mail (default `return`).
    pub mail: Option<UnreadMail>,
    /// How long it may take to finish once it has agreed, in seconds.
    pub grace_seconds: Option<u64>,
    /// How long it may take to answer, in seconds.
    pub deadline_seconds: Option<u64>,
}

/// `identity` in `ensemble.yaml`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct IdentityConfig {
    /// Whether somebody outside of every agent's pane may act under the name of an agent that is
    /// up (default `refuse`).
    pub outsiders: Option<Outsiders>,
}

/// The roles that have meaning; an agent of such a name has that role unless it says another.
const ROLES: [&str; 6] = ["conductor", "dispatch", "worker", "planner", "coder", "code-reviewer"];

impl AgentConfig {
    /// The role of the agent of this name.
    #[must_use]
    pub fn role_of(&self, name: &Name) -> Name {
        let by_name = || match ROLES.contains(&name.as_str()) {
            true => Some(name.clone()),
            false => Name::new("worker").ok(),
        };
        // `worker` is a name, so there always is one.
        self.role.clone().or_else(by_name).unwrap_or_else(|| name.clone())
    }
}

impl TeamConfig {
    pub(super) fn or(self, fallback: Self) -> Self {
        Self {
            name: self.name.or(fallback.name),
            session: self.session.or(fallback.session),
            socket: self.socket.or(fallback.socket),
            tmux_config: self.tmux_config.or(fallback.tmux_config),
            columns: self.columns.or(fallback.columns),
            lines: self.lines.or(fallback.lines),
        }
    }
}
