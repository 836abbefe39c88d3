//! A look at the whole team, wherever its mail is.

use ensemble_core::message::{Name, nearest};
use ensemble_project::Project;
use ensemble_project::attention::AwayServers;
use ensemble_project::overview::{AgentOverview, Overview, OverviewSource, StateSource};
use ensemble_project::panes::read_all;
use ensemble_project::rows::RosterRow;
use ensemble_team::holdings::tasks;
use serde_json::{Value, json};

use crate::App;
use crate::diagnostics::say;
use crate::failure::{Failure, Outcome};
use crate::queue::{OpeningPurpose, ProjectQueue};

/// How `status`, `team` and the live view look at agents: all of them alike, and now, so that they agree.
pub const FRESH: StateSource = StateSource::Panes;

pub fn gather(app: &App, evidence: StateSource) -> Outcome<Overview> {
    observe_team(app, &open(app)?, evidence)
}

pub enum OpenedQueue {
    Queue(ProjectQueue),
    Away(AwayServers),
}

impl OpenedQueue {
    pub fn source(&self) -> OverviewSource<'_> {
        match self {
            Self::Away(away) => OverviewSource::Away(away),
            Self::Queue(queue) => match queue.directory() {
                Some(spool) => OverviewSource::Here(spool),
                None => OverviewSource::Remote(queue.request_store()),
            },
        }
    }
}

/// As [`gather`], with a queue that is open already: it knows its mailboxes.
pub fn observe_team(app: &App, queue: &OpenedQueue, evidence: StateSource) -> Outcome<Overview> {
    let mut overview = Overview::gather_once(app.project()?, queue.source(), evidence);
    if let Some(person) = asking_person(app)? {
        overview.keep_needs_of(&person);
    }
    for warning in &overview.warnings {
        say(&format!("warning: {warning}"));
    }
    Ok(overview)
}

/// The person who asks, if the team has several.
pub fn asking_person(app: &App) -> Outcome<Option<Name>> {
    let project = app.project()?;
    let actor = (project.people().len() > 1).then(|| app.actor()).transpose()?;
    Ok(actor.filter(|actor| project.is_person(actor)))
}

/// The queue, or why the servers that have it cannot be asked: the panes are here while they are away.
pub fn open(app: &App) -> Outcome<OpenedQueue> {
    or_away(app, ProjectQueue::open_for(app, OpeningPurpose::Look))
}

/// As [`open`], for looks again and again.
pub fn open_to_watch(app: &App) -> Outcome<OpenedQueue> {
    or_away(app, ProjectQueue::open_for(app, OpeningPurpose::Watch))
}

fn or_away(app: &App, opened: Outcome<ProjectQueue>) -> Outcome<OpenedQueue> {
    let opened = opened.and_then(|queue| {
        queue.overlook()?;
        Ok(queue)
    });
    match opened {
        Err(failure) if app.project()?.is_shared()? => {
            Ok(OpenedQueue::Away(AwayServers::because(failure.text())))
        }
        other => other.map(OpenedQueue::Queue),
    }
}

/// An agent that does not exist, with the one that may be meant.
pub fn unknown_agent<'n>(name: &Name, known: impl Iterator<Item = &'n Name>) -> Failure {
    let meant = ask_if_meant(name.as_str(), known.map(Name::as_str));
    Failure::nothing(format!("there is no agent `{name}`{meant}"))
}

/// An agent without a pane on this host: what starts it, or the one that may be meant.
pub fn agent_without_pane(project: &Project, name: &Name) -> Failure {
    let (members, _) = project.roster().entries().unwrap_or_default();
    let (panes, _) = read_all(&project.panes()).unwrap_or_default();
    let help = match members.iter().find(|member| member.name == *name) {
        Some(member) if member.is_present() => format!("`ensemble team {name}` shows how it runs"),
        Some(member) => RosterRow::of(member.clone()).again(project),
        None if project.config.agents.contains_key(name) => format!("`ensemble up {name}`"),
        None => {
            let known = project.config.agents.keys().chain(members.iter().map(|it| &it.name));
            let known = known.chain(panes.iter().map(|it| &it.agent)).map(Name::as_str);
            let meant = ask_if_meant(name.as_str(), known);
            return Failure::nothing(format!("no agent `{name}` has a pane here{meant}"))
                .with_hint("`ensemble team` lists the agents");
        }
    };
    Failure::nothing(format!("{name} has no pane here")).with_hint(help)
}

/// The end of a sentence about an unknown name: the one that may be meant.
pub fn ask_if_meant<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> String {
    let near = nearest(name, known.filter(|known| *known != name)).first().copied();
    near.map_or_else(String::new, |meant| format!(": did you mean {meant}?"))
}

/// The agents with what does not change by itself, as the watcher sees them.
pub fn list_agents(app: &App) -> Outcome<Vec<(Name, Value)>> {
    let overview = gather(app, StateSource::Watcher)?;
    let project = app.project()?;
    let row =
        |agent: &AgentOverview| (agent.row.member.name.clone(), describe_agent(project, agent));
    Ok(overview.agents.iter().map(row).collect())
}

/// An agent as JSON, without values that change by themselves, such as ages.
pub fn describe_agent(project: &Project, agent: &AgentOverview) -> Value {
    let AgentOverview { row, presence, since, holds, unread, .. } = agent;
    let member = &row.member;
    let binding = member.binding.as_ref();
    json!({
        "agent": member.name, "role": member.role, "provider": member.provider,
        "state": presence.state, "since": since, "why": presence.why,
        "tasks": tasks(holds), "holds": holds, "mailbox": member.mailbox, "unread": unread, "overdue": agent.is_overdue(),
        "recorded": member.state, "generation": member.generation, "ended": member.ended,
        "pane": binding.map(|b| &b.id), "pid": binding.map(|b| b.pid),
        "came": row.came, "host": row.host(), "way_in": row.way_in(project),
        "supervisor": member.supervisor.map(|supervisor| supervisor.pid),
    })
}
