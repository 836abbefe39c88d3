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
use ensemble_core::message::{Digest, Name};
use ensemble_team::roster::{Ended, How, Member, MemberState, RosterError};
use ensemble_tmux::tmux::Binding;
use serde_json::json;

use super::hooks::Hooked;
use super::{Plan, Team, socket_at};
use crate::panes;

/// What a wrapper starts its agent with.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Prepared {
    /// Arguments before those of the person.
    pub arguments: Vec<String>,
    /// Variables of its environment.
    pub env: Vec<(String, String)>,
    /// The path of the wrapper's socket.
    pub socket: PathBuf,
    /// The generation of the agent.
    pub generation: u64,
}

impl Team<'_> {
    /// Records the agent that is about to be started, with these arguments of the person. Hold [`Team::lock`] until
    /// [`Team::enter_wrapped`].
    ///
    /// # Errors
    /// The mailbox or the roster cannot be written, or a process of an earlier generation does not end.
    pub fn prepare_wrapped(&self, plan: &Plan, said: &[String]) -> Result<Prepared> {
        plan.check()?;
        self.add_mailbox(plan)?;
        self.end_remains(&plan.name, self.roster().get(&plan.name)?.as_ref())?;
        let pass = super::launch::new_pass()?;
        let digest = Digest::of(pass.as_bytes());
        let plan = Plan { command: None, ..plan.clone() };
        let member = self.begin_generation(&plan, Some(digest), None)?;
        let profile = self.project.profiles()?.get(&plan.provider)?;
        let hooked = self.hooked(&profile, said, &plan.env)?;
        let Hooked { arguments, env } = hooked.unwrap_or_default();
        let own = self.own_variables(&plan.name, pass, member.generation);
        let env = env.into_iter().chain(plan.env.clone()).chain(own).collect();
        let socket = socket_at(self.project, &format!("{}.terminal", plan.name))?;
        Ok(Prepared { arguments, env, socket, generation: member.generation })
    }

    /// Records where the agent runs.
    ///
    /// # Errors
    /// The roster cannot be written, or has another generation by now.
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
    ///
    /// # Errors
    /// The roster cannot be written.
    pub fn leave_wrapped(&self, name: &Name, generation: u64, code: Option<i32>) -> Result<()> {
        let at = SystemClock.wall();
        let mut has_left = false;
        self.roster().change(name, |current| {
            let is_its = |it: &Member| it.generation == generation && it.state == MemberState::Up;
            let Some(mut member) = current.filter(is_its) else { return Ok(None) };
            let mut ended = Ended::new(at, How::Exited);
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
