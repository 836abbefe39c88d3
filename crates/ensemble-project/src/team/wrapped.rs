//! Agents that a person starts in a terminal, through a wrapper.
//!
//! ```text
//! prepare   the next generation with its pass; its remains are ended; hooks and tools by arguments
//! enter     the terminal is written where all look for it
//! leave     the row is shut down (exited), unless another generation has it or it is leaving; its place is forgotten
//! ```
//!
//! A wrapper that is killed leaves its row as it was. The row's process has ended, so its name is free.

use std::path::PathBuf;

use ensemble_core::Result;
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::event_log::types;
use ensemble_core::message::Name;
use ensemble_team::roster::{EndCause, Member, MemberEnd, MemberState, RosterError};
use ensemble_tmux::tmux::Binding;
use serde_json::json;

use super::launch::LaunchOrder;
use super::{AgentPlan, ProjectTeam, socket_at};
use crate::panes;

/// Everything a wrapper starts its agent with.
#[derive(Clone, Debug)]
pub struct PreparedLaunch {
    pub launch: LaunchOrder,
    pub socket: PathBuf,
}

impl ProjectTeam<'_> {
    /// Records the agent that is about to be started, with these arguments of the person. Hold [`ProjectTeam::lock`] until
    /// [`ProjectTeam::enter_wrapped`].
    pub fn prepare_wrapped(&self, plan: &AgentPlan, said: &[String]) -> Result<PreparedLaunch> {
        plan.check()?;
        self.add_mailbox(plan)?;
        // Only the person can start it again, so the roster keeps no command for that.
        let recorded = AgentPlan { command: None, ..plan.clone() };
        let mut launch = self.prepare_launch(plan, &recorded, said)?;
        if is_plain(&launch.command) {
            // No shell is left above the agent.
            launch.command.insert_str(0, "exec ");
        }
        let socket = socket_at(self.project, &format!("{}.terminal", plan.name))?;
        Ok(PreparedLaunch { launch, socket })
    }

    pub fn enter_wrapped(&self, name: &Name, generation: u64, binding: Binding) -> Result<Member> {
        let changed = self.roster().change(name, |current| {
            let current = current.filter(|member| member.generation == generation);
            Ok(current.map(|mut member| {
                member.binding = Some(binding);
                member
            }))
        })?;
        let member = changed.ok_or_else(|| RosterError::Unknown { agent: name.clone() })?;
        Ok(self.finish(member, super::HowBrought::Started)?.member)
    }

    /// Records that the agent has ended, with this exit code where it is known.
    pub fn leave_wrapped(&self, name: &Name, generation: u64, code: Option<i32>) -> Result<()> {
        let at = SystemClock.wall();
        let mut has_left = false;
        self.roster().change(name, |current| {
            let is_its = |it: &Member| it.generation == generation && it.state == MemberState::Up;
            let Some(mut member) = current.filter(is_its) else { return Ok(None) };
            let mut ended = MemberEnd::new(at, EndCause::Exited);
            ended.exit_code = code;
            (member.state, member.since, member.ended) = (MemberState::Shutdown, at, Some(ended));
            (member.binding, member.pass_sha256) = (None, None);
            has_left = true;
            Ok(Some(member))
        })?;
        if has_left {
            panes::forget(&self.project.panes(), name)?;
            let data = json!({ "agent": name, "generation": generation, "exit_code": code });
            self.recorder.record(types::AGENT_LEFT, self.actor.as_str(), data);
        }
        Ok(())
    }
}

/// Whether a command is one program with its arguments, so that `exec` may precede it.
fn is_plain(command: &str) -> bool {
    let has_assignment = command.split_ascii_whitespace().next().is_none_or(|it| it.contains('='));
    let is_operator = |c: char| ";&|<>(){}$`\n".contains(c);
    !has_assignment && !command.starts_with("exec ") && !unquoted(command).any(is_operator)
}

fn unquoted(command: &str) -> impl Iterator<Item = char> {
    command.split('\'').step_by(2).flat_map(str::chars)
}

#[cfg(test)]
mod tests {
    use super::is_plain;

    #[test]
    fn exec_is_put_before_one_program_only() {
        for command in ["codex --no-daemon", "/opt/claude 'a; b' --x", "claude '$HOME'"] {
            assert!(is_plain(command), "{command}");
        }
        for command in
            ["claude; echo ended", "A=1 claude", "exec claude", "(claude)", "a $HOME", ""]
        {
            assert!(!is_plain(command), "{command}");
        }
    }
}
