//! Code that the verbs share which start agents: `up`, `agent start`, `agent restart`, `join`, `adopt` and the
//! wrappers.

use std::collections::BTreeSet;
use std::time::Duration;

use ensemble_core::Error;
use ensemble_core::message::{Name, shell_quoted};
use ensemble_core::spool::Spool;
use ensemble_project::team::{AgentPlan, ProjectTeam, session_of};
use ensemble_project::{AgentConfig, Project};
use ensemble_team::roster::{Member, MemberOrigin, MemberState};
use ensemble_tmux::tmux::{PaneSigns, TmuxServer};

use crate::diagnostics::say;
use crate::exit_code::VerbExit;
use crate::failure::{Failure, Outcome};
use crate::mail::conversation::ensure_person;
use crate::overview::unknown_agent;
use crate::queue::{OpeningPurpose, access_for};
use crate::{App, watcher_start};

/// How long a start waits for servers that do not answer.
const SERVER_PATIENCE: Duration = Duration::from_secs(2);
/// Exit code of a shell that does not find a program.
const COMMAND_NOT_FOUND: i32 = 127;
/// The same of one that it may not execute.
const NOT_EXECUTABLE: i32 = 126;

/// The agents that are to be up: those that are named, or all that are configured or recorded
/// as up.
pub fn plans_of(project: &Project, named: &[Name]) -> Outcome<Vec<AgentPlan>> {
    let profiles = project.profiles()?;
    let (members, errors) = project.roster().entries()?;
    let mut plans = Vec::new();
    for (name, agent) in &project.config.agents {
        if named.is_empty() || named.contains(name) {
            // Whether it runs already is not known, which keeps no other from starting.
            if let (false, Err(error)) = (errors.is_empty(), project.roster().get(name)) {
                if named.is_empty() {
                    say(&format!("warning: {name} is not started: {error}"));
                    continue;
                }
                return Err(error.into());
            }
            let plan = AgentPlan::configured(project, &profiles, name, agent);
            plans.push(plan.map_err(|error| explained(project, agent, error))?);
        }
    }
    let is_configured = |name: &Name| project.config.agents.contains_key(name);
    // Who was started outside of the team's session can only be started there again.
    let is_elsewhere =
        |member: &Member| member.is_supervised_alone() || member.came() == MemberOrigin::Wrapped;
    let is_ours = |member: &&Member| !is_configured(&member.name) && !is_elsewhere(member);
    for member in members.iter().filter(is_ours) {
        let is_meant = match named.is_empty() {
            true => match member.state {
                MemberState::Up | MemberState::Leaving => true,
                MemberState::Shutdown => member.ended.as_ref().is_some_and(|e| e.returns),
            },
            false => named.contains(&member.name),
        };
        if is_meant {
            plans.push(AgentPlan::recorded(project, member));
        }
    }
    let known = |name: &&Name| plans.iter().any(|plan| plan.name == **name);
    match named.iter().find(|name| !known(name)) {
        None => Ok(plans),
        Some(name) => {
            let known = project.config.agents.keys().chain(members.iter().map(|it| &it.name));
            Err(unknown_agent(name, known).with_hint(
                "it is neither in ensemble.yaml nor in the roster: `ensemble agent start` starts one",
            ))
        }
    }
}

/// A directory that is missing is usually a git worktree that has not been made yet.
fn explained(project: &Project, agent: &AgentConfig, error: Error) -> Failure {
    let missing = agent.directory.as_ref().filter(|it| !project.root().join(it).exists());
    let in_git = project.root().ancestors().any(|directory| directory.join(".git").exists());
    match missing {
        Some(directory) if in_git => {
            let directory = shell_quoted(directory);
            let hint = format!("make a worktree there: `git worktree add {directory}`");
            Failure::from(error).with_hint(hint)
        }
        Some(_) => Failure::from(error).with_hint("make the directory, or name another one"),
        None => error.into(),
    }
}

/// The team, to bring agents into it; refused on servers that are too old to keep its mail.
pub fn open<'a>(app: &'a App, spool: &'a Spool) -> Outcome<ProjectTeam<'a>> {
    require_servers(app)?;
    open_running(app, spool)
}

pub fn open_running<'a>(app: &'a App, spool: &'a Spool) -> Outcome<ProjectTeam<'a>> {
    let project = app.project()?;
    project.ensure_state()?;
    for person in project.people() {
        ensure_person(spool, &person)?;
    }
    let _ = ensemble_project::registry::note_project(project);
    let actor = app.actor()?;
    let team = ProjectTeam::new(project, spool, app.recorder()?, actor)?;
    // Without knowing where it is, this program cannot be named in a hook.
    Ok(match std::env::current_exe() {
        Ok(program) => team.with_command(program),
        Err(_) => team,
    })
}

/// Refuses to start anything while a program of one of these agents cannot be found.
pub fn require_programs(team: &ProjectTeam<'_>, plans: &[AgentPlan]) -> Outcome {
    let mut missing: Vec<(String, &Name)> = Vec::new();
    for plan in plans {
        missing.extend(team.missing_program(plan)?.map(|program| (program, &plan.name)));
    }
    refuse_missing(&missing)
}

/// Refuses a start on servers that are too old. Servers that cannot be asked keep no agent from its start.
fn require_servers(app: &App) -> Outcome {
    let project = app.project()?;
    if !project.is_shared()? {
        return Ok(());
    }
    let mut access = access_for(app, project, OpeningPurpose::Begin);
    access.patience_max = Some(SERVER_PATIENCE);
    let Ok(queue) = project.open(access) else { return Ok(()) };
    Ok(queue.team_link().map_or(Ok(()), |servers| servers.server_version().map(drop))?)
}

/// The same before agents are ended that are to be started again.
pub fn require_programs_again(plans: &[AgentPlan]) -> Outcome {
    let missing = |plan| Some((AgentPlan::unknown_program(plan)?.to_owned(), &plan.name));
    refuse_missing(&plans.iter().filter_map(missing).collect::<Vec<_>>())
}

fn refuse_missing(missing: &[(String, &Name)]) -> Outcome {
    let Some((program, agent)) = missing.first() else { return Ok(()) };
    let hint = format!(
        "{agent} runs it: install {program}, or give its path in the agent's command; no agent was \
         started"
    );
    let said: BTreeSet<String> =
        missing.iter().map(|(program, _)| format!("{program}: command not found")).collect();
    let said: Vec<String> = said.into_iter().collect();
    Err(Failure::new(VerbExit::MissingProgram, said.join("; ")).with_hint(hint))
}

/// The session, with the watcher in its first window.
pub struct StartedSession {
    pub name: String,
    pub socket: String,
    pub started: bool,
    /// The watcher is to come up in the session's first window.
    pub watcher_started: bool,
}

impl StartedSession {
    pub fn start(app: &App, team: &ProjectTeam<'_>) -> Outcome<Self> {
        let project = app.project()?;
        // A watcher that runs already stays; the window then follows the event log.
        let runs =
            watcher_start::watcher_runs(project) && !watcher_start::is_outdated(project, team)?;
        let command = watcher_start::window_command(project, runs)?;
        let started = team.start_session(&command)?;
        if !runs && !started {
            team.restart_sidecar(&command)?;
        }
        let session = team.session()?;
        Ok(Self {
            name: session.map_or_else(|| session_of(project), |session| session.name),
            socket: team.server().socket().display().to_string(),
            started,
            watcher_started: !runs,
        })
    }

    /// Returns when the watcher runs, so that agents are notified of the next message. Says if it has to poll.
    pub fn await_watcher(&self, app: &App) -> Outcome {
        if !self.watcher_started {
            return Ok(());
        }
        watcher_start::await_report(app.project()?);
        Ok(())
    }
}

pub fn ended(member: &Member) -> Outcome<Option<PaneSigns>> {
    let binding = member.binding.as_ref().filter(|binding| binding.is_in_tmux());
    let Some(binding) = binding else { return Ok(None) };
    let signs = TmuxServer::brief(binding.socket.clone()).pane_signs(&binding.id)?;
    Ok(signs.filter(|signs| signs.dead))
}

/// How an agent ended that was just started.
pub fn ended_at_once(member: &Member, status: Option<i32>) -> String {
    let code = status.map_or_else(String::new, |status| format!(" (exit {status})"));
    let why = match (status, &member.command) {
        (Some(COMMAND_NOT_FOUND), Some(command)) => {
            format!(": command not found while running `{command}`")
        }
        (Some(NOT_EXECUTABLE), Some(command)) => {
            format!(": no program that may be executed, while running `{command}`")
        }
        _ => String::new(),
    };
    format!("{} has ended at once{code}{why}", member.name)
}
