//! An agent's pane for a handshake or an assignment, which may find that the agent's program has ended.
//!
//! | the agent | what is seen | what opens it |
//! |---|---|---|
//! | was started by the team | its pane's process has ended | what `ensemble up NAME` does: a new generation, in the same pane |
//! | was started by the team | a shell at its prompt | its command with hooks, typed; the shell has the agent's environment |
//! | any other | either | its profile's command |
//!
//! A crash behind the start leaves what a killed `up` leaves. The next one finds the pane by its mark.

use std::path::Path;
use std::sync::Arc;

use ensemble_core::Result;
use ensemble_core::agent::{AgentDiagnosis, AgentPane, ProgramSettings, TypedLine, TypingStep};
use ensemble_core::env::Pane;
use ensemble_core::event_log::Recorder;
use ensemble_core::message::{Name, shell_quoted};
use ensemble_core::pane::{Deferral, Key, NudgeOutcome, NudgeText, PaneState};
use ensemble_core::spool::Spool;
use ensemble_team::roster::{Member, MemberOrigin, RosterError};
use ensemble_tmux::terminal::BoundPane;

use super::{AgentPlan, HowBrought, ProjectTeam};
use crate::panes::{self, PaneEntry};
use crate::project::Project;

/// Who opens a program again, and for which project.
#[derive(Clone)]
pub struct PaneOpener {
    pub project: Project,
    pub recorder: Arc<dyn Recorder>,
    /// The agent or person for whom it is started.
    pub actor: Name,
}

/// The pane of an agent, in which the agent's program can be opened again.
pub struct MemberPane<'p> {
    opener: PaneOpener,
    entry: &'p mut PaneEntry,
    pane: &'p mut BoundPane,
    program: ProgramSettings,
}

impl<'p> MemberPane<'p> {
    /// The agent of `entry` in its pane.
    pub fn new(opener: PaneOpener, entry: &'p mut PaneEntry, pane: &'p mut BoundPane) -> Self {
        let mut program = pane.profile().program().clone();
        // A fault of the plan is reported only if the program has to be opened.
        if let Ok(Some(plan)) = opener.plan_of(&entry.agent) {
            program.open = plan.command;
        }
        Self { opener, entry, pane, program }
    }

    /// Starts the agent as `ensemble up NAME` does, and follows it.
    fn relaunch(&mut self, plan: &AgentPlan) -> Result<NudgeOutcome> {
        let brought = self.opener.with_team(|team| {
            let _alone = team.lock()?;
            team.bring_up(plan)
        })?;
        let entry = PaneEntry::of(&brought.member);
        let is_up = !matches!(brought.how, HowBrought::Leaving | HowBrought::Lost);
        let Some(entry) = entry.filter(|_| is_up) else {
            return Ok(NudgeOutcome::Refused { deferral: Deferral::PaneDead });
        };
        let profile = Arc::clone(self.pane.profile());
        *self.pane = self.opener.project.open_pane(&entry, profile)?;
        *self.entry = entry;
        Ok(NudgeOutcome::Sent)
    }

    /// Remembers where the agent runs now: a pane that was bound and has no member may have another process.
    fn store_binding(&mut self) -> Result<()> {
        if self.entry.binding == *self.pane.binding() {
            return Ok(());
        }
        self.entry.binding = self.pane.binding().clone();
        panes::write(&self.opener.project.panes(), self.entry)
    }
}

impl PaneOpener {
    /// What `ensemble up` would start for this agent; `None` if the team has not started it.
    fn plan_of(&self, agent: &Name) -> Result<Option<AgentPlan>> {
        let is_started = |it: &Member| it.is_present() && it.came() == MemberOrigin::Started;
        let Some(member) = self.project.roster().get(agent)?.filter(is_started) else {
            return Ok(None);
        };
        let plan = match self.project.config.agents.get(agent) {
            Some(agent) => AgentPlan::configured(
                &self.project,
                &self.project.profiles()?,
                &member.name,
                agent,
            )?,
            None => AgentPlan::recorded(&self.project, &member),
        };
        Ok(Some(plan).filter(|plan| plan.command.is_some()))
    }

    /// Starts an agent of the configuration as `ensemble up NAME` does, with the team's session if there is none.
    pub fn start_agent(&self, agent: &Name) -> Result<HowBrought> {
        let unknown = || RosterError::Unknown { agent: agent.clone() };
        let config = self.project.config.agents.get(agent).ok_or_else(unknown)?;
        let plan = AgentPlan::configured(&self.project, &self.project.profiles()?, agent, config)?;
        self.with_team(|team| {
            let _alone = team.lock()?;
            if team.session()?.is_none() {
                // The watcher runs elsewhere; the first window follows the event log.
                let program = team.ensemble.as_deref().unwrap_or_else(|| Path::new("ensemble"));
                let (program, queue) = (shell_quoted(program), shell_quoted(&self.project.queue));
                team.start_session(&format!("exec {program} --queue {queue} log --follow"))?;
            }
            team.bring_up(&plan).map(|brought| brought.how)
        })
    }

    /// The line that is typed at the prompt of the agent's shell. A command that does not begin with the agent's
    /// program may be that very shell, so that the profile's own is typed in its place.
    fn line_of(&self, mut plan: AgentPlan, usual: String) -> Result<String> {
        self.with_team(|team| {
            if !team.begins_with_program(&plan)? {
                plan.command = Some(usual);
            }
            team.hooked_line(&plan, &[]).map(|(command, _)| command)
        })
    }

    fn with_team<T>(&self, act: impl FnOnce(&ProjectTeam<'_>) -> Result<T>) -> Result<T> {
        let (project, recorder) = (&self.project, Arc::clone(&self.recorder));
        let spool = Spool::open(&project.queue, project.spool_options(Arc::clone(&recorder)))?;
        let team = ProjectTeam::new(project, &spool, recorder, self.actor.clone())?;
        // The sidecar may be a separate program, beside the one that hooks run.
        let command = std::env::current_exe().map(|this| this.with_file_name("ensemble"));
        let team = match command {
            Ok(command) if command.is_file() => team.with_command(command),
            Ok(_) | Err(_) => team,
        };
        act(&team)
    }
}

impl Pane for MemberPane<'_> {
    fn inspect(&mut self) -> Result<PaneState> {
        self.pane.inspect()
    }
    fn nudge(&mut self, text: &NudgeText) -> Result<NudgeOutcome> {
        self.pane.nudge(text)
    }
    fn press(&mut self, key: Key) -> Result<NudgeOutcome> {
        self.pane.press(key)
    }
    fn open(&mut self, command: &str) -> Result<NudgeOutcome> {
        let Some(plan) = self.opener.plan_of(&self.entry.agent)? else {
            let opened = self.pane.open(command)?;
            self.store_binding()?;
            return Ok(opened);
        };
        let state = self.pane.inspect()?;
        if state.bound && state.dead {
            return self.relaunch(&plan);
        }
        match self.pane.profile().open_command().map(str::to_owned) {
            Some(usual) => self.pane.open(&self.opener.line_of(plan, usual)?),
            // A shell may be the agent itself.
            None => Ok(NudgeOutcome::Refused {
                deferral: Deferral::OtherProgram { command: state.command },
            }),
        }
    }
}

impl AgentPane for MemberPane<'_> {
    fn program(&self) -> &ProgramSettings {
        &self.program
    }
    fn diagnose(&mut self) -> Result<AgentDiagnosis> {
        AgentPane::diagnose(self.pane)
    }
    fn reset_context(&mut self) -> Result<NudgeOutcome> {
        self.pane.reset_context()
    }
    fn begin(&mut self, line: TypedLine<'_>) -> Result<TypingStep> {
        self.pane.begin(line)
    }
    fn finish(&mut self, withdraw: bool) -> Result<NudgeOutcome> {
        self.pane.finish(withdraw)
    }
    fn withdraw_ping(&mut self) -> Result<()> {
        self.pane.withdraw_ping()
    }
}
