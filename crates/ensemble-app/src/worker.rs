//! The agent that a command pings, nudges or assigns work to: where it runs, and how to observe it.

use std::path::PathBuf;
use std::time::Duration;

use ensemble_core::agent::AgentPane;
use ensemble_core::driver::{ReadyOutcome, TaskAssigner};
use ensemble_core::env::SystemClock;
use ensemble_core::event_log::Recorder;
use ensemble_core::message::Name;
use ensemble_core::proto::ready;
use ensemble_core::requests::RequestStore;
use ensemble_core::spool::Spool;
use ensemble_core::watch::Waiter;
use ensemble_project::Project;
use ensemble_project::hosts::PingCall;
use ensemble_project::panes::{self, PaneEntry};
use ensemble_project::sessions::hook_evidence;
use ensemble_project::team::{MemberPane, PaneOpener};
use ensemble_tmux::terminal::BoundPane;

use crate::App;
use crate::failure::{Failure, Outcome};
use crate::interrupt::end_if_cancelled;
use crate::queue::ProjectQueue;
use crate::text::with_members;

/// An agent, with its pane if it is bound to one.
pub struct TargetAgent {
    pub name: Name,
    pub mailbox: Name,
    pub host: Option<Name>,
    bound: Option<(PaneEntry, BoundPane)>,
}

/// Refuses a person where an agent is meant.
pub fn refuse_person(project: &Project, name: &Name) -> Outcome {
    let is_agent =
        || project.roster().get(name).is_ok_and(|it| it.is_some_and(|it| it.is_present()));
    if !project.is_person(name) || is_agent() {
        return Ok(());
    }
    Err(Failure::refused(format!("`{name}` is a person, not an agent"))
        .with_hint(format!("`ensemble send --to {name} TEXT` writes to them")))
}

impl TargetAgent {
    /// Finds an agent by its name: bound to a pane, or the owner of a mailbox that is not a person's.
    pub fn find(app: &App, name: &Name) -> Outcome<Self> {
        let project = app.project()?;
        let Some(entry) = panes::find(&project.panes(), name)? else {
            let (queue, mailbox) = (ProjectQueue::open(app)?, project.mailbox_of(name));
            // A name without a mailbox is a typing mistake.
            queue.settings(&mailbox)?;
            let is_here = project.roster().get(name)?.is_some_and(|member| member.is_present());
            refuse_person(project, name)?;
            let host = if is_here { None } else { queue.host_of(project, name)? };
            return Ok(Self { name: name.clone(), mailbox, host, bound: None });
        };
        let profile = project.profiles()?.get(&entry.provider)?;
        let pane = project.open_pane(&entry, profile)?;
        let (name, mailbox) = (name.clone(), entry.mailbox.clone());
        Ok(Self { name, mailbox, host: None, bound: Some((entry, pane)) })
    }

    /// How its host is asked whether it is ready, in the name of `by`; `None` if that is this host.
    pub fn elsewhere<'q>(
        &self,
        queue: &'q ProjectQueue,
        by: Name,
        times: &ready::PingTimes,
    ) -> Option<impl Fn(&Name) -> ensemble_core::Result<ReadyOutcome> + use<'q>> {
        let (host, call) = (self.host.clone()?, PingCall::new(self.name.clone(), by, times));
        Some(move |_: &Name| queue.ping_at(&host, &call))
    }

    pub fn pane(&mut self) -> Option<&mut BoundPane> {
        self.bound.as_mut().map(|(_, pane)| pane)
    }

    /// Its pane as the drivers take it, in which its program can be opened again.
    pub fn openable_pane(&mut self, app: &App) -> Outcome<Option<MemberPane<'_>>> {
        let Some((entry, pane)) = &mut self.bound else { return Ok(None) };
        let (project, recorder) = (app.project()?.clone(), app.recorder()?);
        let opener = PaneOpener { project, recorder, actor: app.actor()? };
        Ok(Some(MemberPane::new(opener, entry, pane)))
    }

    pub fn pane_required(&mut self) -> Outcome<&mut BoundPane> {
        let name = &self.name;
        let missing = match &self.host {
            Some(host) => Failure::nothing(format!("`{name}` runs on host {host}"))
                .with_hint("say it there: its watcher has its pane"),
            None => Failure::nothing(format!("no agent `{name}` is bound to a pane"))
                .with_hint("`ensemble mailbox bind` binds one"),
        };
        self.pane().ok_or(missing)
    }

    /// Wakes a command that waits for this worker: at a pong, or when a message of its mailbox
    /// moves.
    pub fn waiter(&self, app: &App) -> Outcome<Waiter> {
        let project = app.project()?;
        let ready = project.ready();
        // The directory must exist before it can be watched.
        ensemble_core::driver::PongBox::open(&ready)?;
        let home = project.queue.join("mailbox").join(self.mailbox.as_str());
        let states = ["new", "front", "cur", "done", "dead"].map(|state| home.join(state));
        let dirs: Vec<PathBuf> = states.into_iter().chain([ready]).collect();
        Ok(Waiter::new(&dirs))
    }
}

pub fn assigner<'a>(
    app: &App,
    spool: &'a Spool,
    queue: &'a dyn RequestStore,
    recorder: &'a dyn Recorder,
) -> Outcome<TaskAssigner<'a>> {
    let project = app.project()?;
    let actor = app.actor()?;
    Ok(TaskAssigner {
        spool,
        queue,
        clock: &SystemClock,
        recorder,
        actor,
        state: project.state.clone(),
        readiness: project.config.handshake(),
        hook: Some(hook_evidence),
        elsewhere: None,
    })
}

pub fn resting(waiter: &Waiter) -> impl FnMut(Duration) -> ensemble_core::Result<()> {
    |longest| {
        waiter.wait(longest);
        end_if_cancelled()
    }
}

pub fn agent_pane<'a>(pane: &'a mut Option<MemberPane<'_>>) -> Option<&'a mut dyn AgentPane> {
    pane.as_mut().map(|pane| pane as _)
}

/// What happened to a worker that is not ready, and the next command.
pub fn explain_not_ready(
    app: &App,
    failure: &ready::ReadinessFailure,
) -> Outcome<(String, String)> {
    let ready::ReadinessFailure { worker, attempt, .. } = failure;
    let times = if *attempt == 1 { "once".to_owned() } else { format!("{attempt} times") };
    let unsent = failure.observation.strip_prefix(ready::NOT_TYPED);
    let text = match unsent.and_then(|it| it.split_once("; ")) {
        Some((why, _)) => format!("{worker} is not ready: it could not be pinged: {why}"),
        None => format!("{worker} is not ready: pinged {times}, and no answer"),
    };
    let is_configured = app.project()?.config.agents.contains_key(worker);
    let hint = match failure.error_type {
        ready::ErrorType::WorkspaceNotOpen | ready::ErrorType::ProviderLaunchFailed
            if is_configured =>
        {
            format!("`ensemble up {worker}` starts it, then try again")
        }
        _ if failure.window_inspected => {
            format!("`ensemble agent inspect {worker}` shows its screen")
        }
        _ if app.project()?.roster().get(worker)?.is_some() => {
            format!("`ensemble team {worker}` shows what is known of it")
        }
        _ => "`ensemble team` lists the agents; a mailbox without one answers no ping".to_owned(),
    };
    Ok((text, hint))
}

/// Why a worker is not ready, with the fields of the structured failure.
pub fn not_ready_json(failure: &ready::ReadinessFailure) -> serde_json::Value {
    let object = serde_json::json!({ "worker": failure.worker, "ready": false });
    let mut object = with_members(object, failure);
    object["action"] = "assign_stopped".into();
    object
}
