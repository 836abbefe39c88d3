//! Whether a mailbox has a reader now, as every door that sends says it.
//!
//! | who reads the mailbox | said |
//! |---|---|
//! | an agent that is up, here or on another host, or a host that is silent | nothing |
//! | agents that were up, and that the running watcher sees gone, or whose processes have ended without one | that it is not running, and what starts it again |
//! | an agent of `ensemble.yaml` that was not started, or has left, with `start_on_mail` | that its mail starts it, or why not, such as PAUSE |
//! | agents that have left | that it has left, and what starts it again |
//! | no agent that is known | nothing: a program may read it |
//!
//! For a reader in another project, the text and its commands name that project.

use std::time::Duration;

use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::message::{Envelope, Name};
use ensemble_core::spool::refusal_to_begin;
use ensemble_project::hosts::{self, HostAgent, OtherHost};
use ensemble_project::mail_starts::{last_start, starts_left};
use ensemble_project::overview::WatcherView;
use ensemble_project::registry::project_name;
use ensemble_project::rows::RosterRow;
use ensemble_project::{Project, members};
use ensemble_team::admission::MailAdmission;
use ensemble_team::roster::{Member, State};

use crate::door_hints::name_queue;

/// How long a start takes, at most, until the agent is in the roster.
const START_TAKES: Duration = Duration::from_secs(10);

/// Why a message that `project` has stored waits for its reader; `None` if an agent reads it, or if that is not known.
pub fn absent_reader(project: &Project, message: &Envelope) -> Option<String> {
    let said = explain_absence(project, message)?;
    if message.project.is_none() {
        return Some(said);
    }
    let name = project_name(project).ok()?;
    Some(format!("in project {name}, {}", name_queue(&said, Some(&project.queue))))
}

fn explain_absence(project: &Project, message: &Envelope) -> Option<String> {
    let mailbox = &message.to;
    let (members, _) = project.roster().entries().ok()?;
    let gone = seen_gone(project);
    let mut readers: Vec<Member> =
        members.into_iter().filter(|it| it.mailbox == *mailbox).collect();
    let lives = |member: &Member| match &member.binding {
        Some(binding) => Some(binding.lives()),
        None => member.supervisor.map(|supervisor| supervisor.lives()),
    };
    // The watcher's last look may be older than the agent's start.
    let is_up = |member: &Member| {
        let may_be_gone = gone.as_ref().is_none_or(|gone| gone.contains(&member.name));
        member.is_present() && (!may_be_gone || lives(member).unwrap_or_else(|| gone.is_none()))
    };
    let others = hosts::others(&project.state);
    let elsewhere: Vec<(&OtherHost, &HostAgent)> = others
        .iter()
        .flat_map(|host| host.report.agents.iter().map(move |agent| (host, agent)))
        .filter(|(_, agent)| agent.mailbox == *mailbox)
        .collect();
    // Nothing is known of what a silent host does.
    let may_be_up = |(host, agent): &(&OtherHost, &HostAgent)| {
        host.silence().is_some() || agent.state != State::Gone
    };
    if readers.iter().any(is_up) || elsewhere.iter().any(may_be_up) {
        return None;
    }
    if let Some(said) = of_configured(project, message) {
        return Some(said);
    }
    if let Some(reader) = readers.pop() {
        let name = reader.name.clone();
        let how = if reader.is_present() { "is not running" } else { "has left" };
        let again = RosterRow::of(reader).again(project);
        return Some(format!("{name} {how}, and the message waits for it: {again}"));
    }
    let (host, agent) = elsewhere.first()?;
    let (name, place) = (&agent.name, host.place());
    Some(format!("{name} is not running on {place}, and the message waits for it"))
}

/// What happens to mail for an agent of `ensemble.yaml` that is not running and that its mail starts, or that was never
/// started.
fn of_configured(project: &Project, message: &Envelope) -> Option<String> {
    let config = &project.config.agents;
    let (name, agent) = config.iter().find(|(name, agent)| {
        *agent.mailbox.as_ref().unwrap_or(name) == message.to && agent.pane.is_none()
    })?;
    let absent = format!("{name} is not running");
    if !agent.start_on_mail {
        let is_new = matches!(project.roster().get(name), Ok(None));
        let hint =
            format!("{absent}, and the message waits for it: `ensemble up {name}` starts it");
        return is_new.then_some(hint);
    }
    let admission = MailAdmission::new(project.admissions());
    if let Ok(Some(obstacle)) = refusal_to_begin(&admission, name, message, None) {
        return Some(format!("{absent}, and its mail does not start it now: {obstacle}"));
    }
    let now = SystemClock.wall();
    // In this order: the watcher may start it for this message in between.
    let is_last = starts_left(project, name, agent, now) == 0;
    let is_starting = last_start(project, name, now).is_some_and(|ago| ago < START_TAKES);
    let is_used_up = is_last && !is_starting;
    Some(match (is_used_up, WatcherView::of(project).runs()) {
        (true, _) => format!(
            "{absent}, and its mail has started it as often as it may today ({}): `ensemble up {name}` starts it",
            agent.starts_max()
        ),
        (false, true) => format!("{absent}: the watcher starts it for this message"),
        (false, false) => {
            format!("{absent}: the next watcher starts it; `ensemble up {name}` does so now")
        }
    })
}

/// The agents that the running watcher sees gone. The observations of an earlier one may be out of date.
fn seen_gone(project: &Project) -> Option<Vec<Name>> {
    let watcher = WatcherView::of(project);
    (watcher.runs() && watcher.has_reported()).then(|| members::last_gone(&project.watch_status()))
}
