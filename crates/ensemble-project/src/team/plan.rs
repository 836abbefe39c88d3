//! The intended state of an agent: from the configuration, or from its record.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ensemble_core::message::{Name, ReservedName, Timestamp};
use ensemble_core::{Error, Result};
use ensemble_team::roster::Member;
use ensemble_tmux::provider::Profiles;

use crate::project::{AgentConfig, CONFIG_FILE, Project};

/// The default command, if neither the agent nor its profile has one: the user's shell.
const SHELL: &str = "exec \"${SHELL:-/bin/sh}\"";
/// Variables that only Ensemble sets.
const RESERVED: &str = "ENSEMBLE_";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentPlan {
    pub name: Name,
    pub role: Name,
    pub provider: String,
    pub mailbox: Name,
    /// The command to start; `None` for an agent with an existing pane.
    pub command: Option<String>,
    pub directory: PathBuf,
    pub env: BTreeMap<String, String>,
    /// The pane to adopt instead of starting a program.
    pub pane: Option<String>,
}

impl AgentPlan {
    pub fn configured(
        project: &Project,
        profiles: &Profiles,
        name: &Name,
        agent: &AgentConfig,
    ) -> Result<Self> {
        let provider = agent.provider.clone().unwrap_or_else(|| "shell".to_owned());
        let profile = profiles.get(&provider).map_err(|error| match error {
            Error::Malformed { path, detail, .. } => {
                Error::malformed(path, format!("agents.{name}.provider"), detail)
            }
            error => error,
        })?;
        let usual = || profile.open_command().unwrap_or(SHELL).to_owned();
        let command = match agent.pane {
            Some(_) => None,
            None => Some(agent.command.clone().unwrap_or_else(usual)),
        };
        let plan = Self {
            name: name.clone(),
            role: agent.role_of(name),
            provider,
            mailbox: agent.mailbox.clone().unwrap_or_else(|| name.clone()),
            command,
            directory: match &agent.directory {
                Some(directory) => project.root().join(directory),
                None => project.root().to_owned(),
            },
            env: agent.env.clone(),
            pane: agent.pane.clone(),
        };
        plan.check().map(|()| plan)
    }

    pub fn recorded(project: &Project, member: &Member) -> Self {
        Self {
            name: member.name.clone(),
            role: member.role.clone(),
            provider: member.provider.clone(),
            mailbox: member.mailbox.clone(),
            command: member.command.clone(),
            directory: member.directory.clone().unwrap_or_else(|| project.root().to_owned()),
            env: member.env.clone(),
            pane: None,
        }
    }

    pub(super) fn member_since(&self, since: Timestamp) -> Member {
        let mut member =
            Member::new(self.name.clone(), self.role.clone(), self.provider.clone(), since);
        member.mailbox = self.mailbox.clone();
        member.command = self.command.clone();
        member.directory = Some(self.directory.clone());
        member.env = self.env.clone();
        member
    }

    pub(super) fn check(&self) -> Result<()> {
        ReservedName::refuse_agent(&self.name)?;
        ReservedName::refuse_agent(&self.mailbox)?;
        let wrong = |field: &str, detail: String| {
            Err(Error::malformed(CONFIG_FILE, format!("agents.{}.{field}", self.name), detail))
        };
        if !self.directory.is_dir() {
            return wrong("directory", format!("{} is not a directory", self.directory.display()));
        }
        let controls = |text: &str| text.chars().any(char::is_control);
        if self.command.as_deref().is_some_and(controls) {
            return wrong("command", "has a line break: put the command into a script".to_owned());
        }
        if self.command.as_deref().is_some_and(|command| command.trim().is_empty()) {
            return wrong("command", "is empty: name a program, or leave it out".to_owned());
        }
        for (name, value) in &self.env {
            let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let is_name = name.chars().all(word) && !name.starts_with(|c: char| c.is_ascii_digit());
            if name.is_empty() || !is_name || name.starts_with(RESERVED) {
                let detail = format!(
                    "`{name}` cannot be set: use letters, digits and _, and not {RESERVED}…"
                );
                return wrong("env", detail);
            }
            if controls(value) {
                return wrong("env", format!("the value of `{name}` has a control character"));
            }
        }
        Ok(())
    }
}
