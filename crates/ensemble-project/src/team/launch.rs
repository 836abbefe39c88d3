//! Brings up one agent.

use ensemble_team::roster::{Member, MemberState, RosterError};
use std::io::Read as _;

use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::event_log::types;
use ensemble_core::message::{Digest, Name};
use ensemble_core::spool::Settings;
use ensemble_core::{Error, Result};
use ensemble_tmux::reaper::{self, PASS_VARIABLE};
use ensemble_tmux::terminal::hosted;
use ensemble_tmux::tmux::{Binding, PaneSigns, TmuxServer, WindowOrder};
use serde_json::json;

use super::place::AgentPlace;
use super::{AGENT_VARIABLES, AgentPlan, GENERATION_VARIABLE, ProjectTeam};
use crate::panes::{self, PaneEntry};
use crate::project::QUEUE_VARIABLE;

/// Bytes of a pass: 128 bits.
const PASS_BYTES: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HowBrought {
    /// It ran already and stayed unchanged.
    Running,
    /// It was started in a new window.
    Started,
    /// It was started again in its pane, in which its program had ended.
    Restarted,
    /// It ran already and is recorded now: the process that started it was killed before the
    /// record.
    Adopted,
    Joined,
    /// It is being shut down; no action.
    Leaving,
    /// Its pane is not the team's, and it is gone; no action is possible.
    Lost,
}

/// Everything an agent is started with, in a pane or in a person's terminal.
#[derive(Clone, Debug)]
pub struct LaunchOrder {
    /// The command, as `sh -c` takes it.
    pub command: String,
    pub env: Vec<(String, String)>,
    pub generation: u64,
}

#[derive(Clone, Debug)]
pub struct LaunchedAgent {
    pub member: Member,
    pub how: HowBrought,
}

impl ProjectTeam<'_> {
    /// Makes sure that an agent runs, has its mailbox, and is notified of its mail. Leaves a
    /// running agent unchanged. Hold [`ProjectTeam::lock`] in the meantime; the session must have been started.
    ///
    /// The mailbox cannot be made, the roster cannot be changed, or tmux refused. Completed work
    /// stays; repeating the call finishes it.
    pub fn bring_up(&self, plan: &AgentPlan) -> Result<LaunchedAgent> {
        plan.check()?;
        self.add_mailbox(plan)?;
        let recorded = self.roster().get(&plan.name)?;
        if let Some(member) = recorded.clone().filter(|m| m.state == MemberState::Leaving) {
            return Ok(LaunchedAgent { member, how: HowBrought::Leaving });
        }
        let place = self.place_of(&plan.name, recorded.as_ref())?;
        match (place, recorded) {
            (AgentPlace::Bound(_), Some(member)) if member.is_present() => {
                self.write_binding(&member)?;
                Ok(LaunchedAgent { member, how: HowBrought::Running })
            }
            (AgentPlace::Bound(binding), _) => {
                self.settle_in(plan, binding, None, HowBrought::Adopted)
            }
            (AgentPlace::Marked(pane), _) => {
                let binding = self.server.bind(&pane.id)?;
                let generation = pane.member.map(|(_, generation)| generation);
                self.settle_in(plan, binding, generation, HowBrought::Adopted)
            }
            (_, recorded) if plan.command.is_none() => match (&plan.pane, recorded) {
                (Some(pane), recorded) if self.is_of_another(plan, pane)? => {
                    let member = recorded.unwrap_or_else(|| not_recorded(plan));
                    Ok(LaunchedAgent { member, how: HowBrought::Lost })
                }
                (Some(pane), _) => {
                    let binding = match pane.parse() {
                        Ok(address) => {
                            hosted::bind_address(&address, &|name| std::env::var(name).ok())?
                        }
                        Err(_) => self.server_of_panes().bind(pane)?,
                    };
                    self.join(plan, &binding)
                }
                (None, Some(member)) => Ok(LaunchedAgent { member, how: HowBrought::Lost }),
                (None, None) => Err(Error::Malformed {
                    path: crate::project::CONFIG_FILE.into(),
                    field: format!("agents.{}", plan.name),
                    detail: "has neither a command nor a pane".to_owned(),
                }),
            },
            (AgentPlace::Ended(pane), _) => self.start(plan, Some(&pane.id)),
            (AgentPlace::Nowhere, _) => self.start(plan, None),
        }
    }

    /// Adopts an existing pane for an agent; refused while another agent has it. Hold [`ProjectTeam::lock`].
    pub fn join(&self, plan: &AgentPlan, binding: &Binding) -> Result<LaunchedAgent> {
        let has_pane = |it: &Member| it.binding.as_ref() == Some(binding) && it.is_present();
        let owner = self.roster().entries()?.0.into_iter().find(has_pane);
        if let Some(owner) = owner.as_ref().filter(|it| it.name != plan.name) {
            let (pane, owner) = (binding.id.clone(), owner.name.clone());
            return Err(RosterError::PaneTaken { pane, owner }.into());
        }
        self.add_mailbox(plan)?;
        match owner {
            Some(member) => {
                self.write_binding(&member)?;
                Ok(LaunchedAgent { member, how: HowBrought::Running })
            }
            None => {
                let joined = AgentPlan { command: None, ..plan.clone() };
                let member = self.begin_generation(&joined, None, Some(binding))?;
                self.finish(member, HowBrought::Joined)
            }
        }
    }

    /// Starts the agent: in `pane`, whose process has ended, or in a new window.
    fn start(&self, plan: &AgentPlan, pane: Option<&str>) -> Result<LaunchedAgent> {
        let launch = self.prepare_launch(plan, plan, &[])?;
        let order = WindowOrder {
            team: &self.mark,
            member: &plan.name,
            generation: launch.generation,
            command: &launch.command,
            directory: &plan.directory,
            env: &launch.env,
        };
        let (id, how) = match pane {
            Some(id) => {
                self.server.refill(id, &order)?;
                (id.to_owned(), HowBrought::Restarted)
            }
            None => {
                let session = self.session_required()?;
                (self.server.open_window(&session, &order)?, HowBrought::Started)
            }
        };
        let binding = self.server.bind(&id)?;
        self.settle_in(plan, binding, Some(launch.generation), how)
    }

    /// Prepares the start of an agent, wherever it will run: ends what its earlier generation has left, records the next
    /// one with the digest of its pass, and adds hooks to the command. `said` are arguments of a person; `recorded`
    /// is what the roster keeps of the plan.
    pub(super) fn prepare_launch(
        &self,
        plan: &AgentPlan,
        recorded: &AgentPlan,
        said: &[String],
    ) -> Result<LaunchOrder> {
        self.end_remains(&plan.name, self.roster().get(&plan.name)?.as_ref())?;
        let pass = new_pass()?;
        let member = self.begin_generation(recorded, Some(Digest::of(pass.as_bytes())), None)?;
        let (command, env) = self.hooked_line(plan, said)?;
        let own = self.own_variables(&plan.name, pass, member.generation);
        let env = env.into_iter().chain(plan.env.clone()).chain(own).collect();
        Ok(LaunchOrder { command, env, generation: member.generation })
    }

    fn own_variables(
        &self,
        name: &Name,
        pass: String,
        generation: u64,
    ) -> impl Iterator<Item = (String, String)> {
        let queue = self.project.queue.display().to_string();
        let own = [
            (QUEUE_VARIABLE, queue),
            (AGENT_VARIABLES[0], name.to_string()),
            (AGENT_VARIABLES[1], name.to_string()),
            (PASS_VARIABLE, pass),
            (GENERATION_VARIABLE, generation.to_string()),
        ];
        own.into_iter().map(|(name, value)| (name.to_owned(), value))
    }

    fn begin_generation(
        &self,
        plan: &AgentPlan,
        pass: Option<Digest>,
        binding: Option<&Binding>,
    ) -> Result<Member> {
        self.claim_name(&plan.name)?;
        let since = SystemClock.wall();
        let changed = self.roster().change(&plan.name, |current| {
            let mut member = plan.member_since(since);
            member.directory = plan.command.is_some().then(|| plan.directory.clone());
            member.generation = current.map_or(0, |current| current.generation) + 1;
            member.pass_sha256 = pass;
            member.binding = binding.cloned();
            Ok(Some(member))
        })?;
        Ok(changed.ok_or_else(|| vanished(plan))?)
    }

    /// Records the agent's pane. A `generation` missing from the roster belongs to a process whose
    /// record is lost; its pass is then read from the process itself.
    fn settle_in(
        &self,
        plan: &AgentPlan,
        binding: Binding,
        generation: Option<u64>,
        how: HowBrought,
    ) -> Result<LaunchedAgent> {
        let since = SystemClock.wall();
        let given = reaper::pass_of(binding.pid);
        let changed = self.roster().change(&plan.name, |current| {
            let mut member = current.unwrap_or_else(|| plan.member_since(since));
            let is_known = generation.is_none_or(|generation| generation == member.generation);
            if !is_known || member.pass_sha256.is_none() {
                member.pass_sha256 = given.or(member.pass_sha256);
            }
            member.generation = member.generation.max(generation.unwrap_or(0));
            if member.state != MemberState::Up {
                (member.state, member.since, member.ended) = (MemberState::Up, since, None);
            }
            member.binding = Some(binding);
            Ok(Some(member))
        })?;
        self.finish(changed.ok_or_else(|| vanished(plan))?, how)
    }

    pub(super) fn finish(&self, member: Member, how: HowBrought) -> Result<LaunchedAgent> {
        self.write_binding(&member)?;
        let pane = member.binding.as_ref().map(|binding| &binding.id);
        let pid = member.binding.as_ref().map(|binding| binding.pid);
        let data = json!({
            "agent": member.name, "role": member.role, "provider": member.provider,
            "generation": member.generation, "how": how, "pane": pane, "pid": pid,
        });
        self.recorder.record(types::AGENT_UP, self.actor.as_str(), data);
        Ok(LaunchedAgent { member, how })
    }

    /// Writes the member's pane where the watcher reads it.
    fn write_binding(&self, member: &Member) -> Result<()> {
        let Some(entry) = PaneEntry::of(member) else { return Ok(()) };
        // A damaged entry is replaced, since it is only a copy.
        match panes::find(&self.project.panes(), &member.name) {
            Ok(Some(found)) if found == entry => Ok(()),
            _ => panes::write(&self.project.panes(), &entry),
        }
    }

    pub(super) fn add_mailbox(&self, plan: &AgentPlan) -> Result<()> {
        match self.spool.add_mailbox(&plan.mailbox, &Settings::default()) {
            Err(Error::MailboxExists { existing }) if existing == plan.mailbox.as_str() => Ok(()),
            other => other,
        }
    }

    /// Whether the pane of the configuration is gone, or its id is now that of one of our panes. A tmux server
    /// that was started again gives the same ids to other panes.
    fn is_of_another(&self, plan: &AgentPlan, pane: &str) -> Result<bool> {
        // An exact name of a pane is left to tmux.
        if !pane.starts_with('%') {
            return Ok(false);
        }
        let signs = self.server_of_panes().pane_signs(pane)?;
        let is_foreign = |signs: &PaneSigns| {
            signs.is_sidecar || signs.member.as_ref().is_some_and(|(name, _)| *name != plan.name)
        };
        Ok(signs.is_none_or(|signs| is_foreign(&signs)))
    }

    /// The server of existing panes: the configured one, or the caller's by default.
    fn server_of_panes(&self) -> TmuxServer {
        let around =
            || std::env::var("TMUX").ok().and_then(|tmux| TmuxServer::from_variable(&tmux));
        match self.project.config.team.socket {
            Some(_) => self.server.clone(),
            None => around().unwrap_or_else(|| self.server.clone()),
        }
    }
}

/// The member of a plan that was never carried out.
fn not_recorded(plan: &AgentPlan) -> Member {
    Member::new(plan.name.clone(), plan.role.clone(), plan.provider.clone(), SystemClock.wall())
}

/// Another process removed the member during the change.
fn vanished(plan: &AgentPlan) -> RosterError {
    RosterError::Unknown { agent: plan.name.clone() }
}

/// Returns 128 random bits, in hexadecimal. Uses the system's random source: the pass must not be
/// guessable.
fn new_pass() -> Result<String> {
    const SOURCE: &str = "/dev/urandom";
    let mut bytes = [0; PASS_BYTES];
    std::fs::File::open(SOURCE)
        .and_then(|mut source| source.read_exact(&mut bytes))
        .map_err(|error| Error::io("read", SOURCE, error))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
