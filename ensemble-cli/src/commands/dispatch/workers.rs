use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::time::{Duration, Instant};

use ensemble_app::diagnostics::say;
use ensemble_app::failure::failed;
use ensemble_app::queue::ProjectQueue;
use ensemble_app::worker::{TargetAgent, agent_pane, assigner, resting};
use ensemble_core::driver::{LadderFile, LadderHost as _, ReadyOutcome};
use ensemble_core::event_log::Recorder;
use ensemble_core::message::Name;
use ensemble_core::spool::Spool;
use ensemble_core::{Error, Result};
use ensemble_project::ladder_host::ForegroundHost;
use ensemble_project::troubles::NO_WORKER;
use ensemble_project::{Project, members, panes};
use ensemble_team::admission::TaskAct;
use ensemble_team::driver::{AvailableWorker, WorkerPool};
use ensemble_team::roster::State as Doing;
use ensemble_team::silence::SilentPeer;

use super::DISPATCH;
use crate::context::{Context, Failure};

/// Agents that get tasks only if an instruction names them.
const NO_WORKERS: [&str; 3] = [DISPATCH, "conductor", "operator"];
/// How workers' mailboxes begin, in a team without a roster and without panes.
const WORKER_PREFIX: &str = "worker";
const NO_WORKER_INTERVAL: Duration = Duration::from_secs(60);
/// For how long a worker that was not ready is not asked again.
const NOT_READY_PAUSE: Duration = Duration::from_secs(30);

pub(super) struct DispatchTeam<'a> {
    pub(super) context: &'a Context,
    pub(super) project: &'a Project,
    pub(super) spool: &'a Spool,
    pub(super) queue: &'a ProjectQueue,
    pub(super) recorder: &'a dyn Recorder,
    pub(super) ladders: ForegroundHost,
    pub(super) not_ready: RefCell<HashMap<Name, Instant>>,
    /// Whether there was a worker when that was last noted, and when.
    pub(super) noted: Cell<Option<(bool, Instant)>>,
}

impl DispatchTeam<'_> {
    /// All workers: those of the roster; in a team without one the agents in panes, or the mailboxes whose
    /// names begin with `worker`.
    fn all(&self) -> Result<Vec<AvailableWorker>> {
        let (members, _) = self.project.roster().entries()?;
        let is_worker = |role: &Name| role.as_str().starts_with(WORKER_PREFIX);
        let listed: Vec<AvailableWorker> = members
            .iter()
            .filter(|member| member.is_present() && is_worker(&member.role))
            .map(|member| AvailableWorker::new(member.name.clone(), member.mailbox.clone()))
            .collect();
        if !listed.is_empty() {
            return Ok(listed);
        }
        let is_free = |name: &Name| !NO_WORKERS.contains(&name.as_str());
        let is_member = |name: &Name| members.iter().any(|member| member.name == *name);
        let (entries, _) = panes::read_all(&self.project.panes())?;
        let bound: Vec<AvailableWorker> = entries
            .into_iter()
            .filter(|entry| is_free(&entry.agent) && !is_member(&entry.agent))
            .map(|entry| AvailableWorker::new(entry.agent, entry.mailbox))
            .collect();
        if !bound.is_empty() {
            return Ok(bound);
        }
        let names = self.queue.mailboxes()?.into_iter().filter(is_worker);
        Ok(names.map(|name| AvailableWorker::new(name.clone(), name)).collect())
    }

    /// Notes whether there is a worker, for those who look at the team; that there is none is said here, too.
    fn note_workers(&self, has_some: bool) {
        let noted = self.noted.get();
        let is_due = noted.is_none_or(|(had_some, at)| {
            had_some != has_some || (!has_some && at.elapsed() >= NO_WORKER_INTERVAL)
        });
        if !is_due {
            return;
        }
        let state = &self.project.state;
        match has_some {
            true => SilentPeer::Workers.end_silence(state),
            false => SilentPeer::Workers.record_silence(state, DISPATCH, NO_WORKER[0]),
        }
        if !has_some && noted.is_none_or(|(had_some, _)| had_some) {
            say(&NO_WORKER.join(": "));
        }
        self.noted.set(Some((has_some, Instant::now())));
    }

    fn is_paused(&self, worker: &Name) -> bool {
        let not_ready = self.not_ready.borrow();
        not_ready.get(worker).is_some_and(|at| at.elapsed() < NOT_READY_PAUSE)
    }

    fn ask_worker(&self, worker: &Name) -> Result<ReadyOutcome> {
        let failed = |failure: Failure| failed(&"no ping", &failure);
        let mut found = TargetAgent::find(self.context, worker).map_err(failed)?;
        let waiter = found.waiter(self.context).map_err(failed)?;
        let store = self.queue.request_store();
        let mut assigner =
            assigner(self.context, self.spool, store, self.recorder).map_err(failed)?;
        let (by, times) = (assigner.actor.clone(), assigner.readiness);
        let elsewhere = found.elsewhere(self.queue, by, &times);
        assigner.elsewhere = elsewhere.as_ref().map(|ask| ask as _);
        let mut pane = found.openable_pane(self.context).map_err(failed)?;
        assigner.ping(worker, agent_pane(&mut pane), &mut resting(&waiter))
    }
}

impl WorkerPool for DispatchTeam<'_> {
    fn workers(&self) -> Result<Vec<AvailableWorker>> {
        let seen = members::last_observed(&self.project.watch_status());
        let is_away = |worker: &Name| {
            let state = seen.iter().find(|it| it.agent == *worker).map(|it| it.state);
            matches!(state, Some(Doing::Working | Doing::Blocked | Doing::Limited | Doing::Gone))
        };
        let mut all = self.all()?;
        self.note_workers(!all.is_empty());
        all.retain(|it| !self.is_paused(&it.worker) && !is_away(&it.worker));
        Ok(all)
    }

    fn may_begin(&self, task: &str, worker: &Name) -> Result<()> {
        self.project.doorkeeper().check(TaskAct::TakeUp, task, worker)
    }

    fn is_ready(&self, worker: &Name) -> Result<bool> {
        // One that an instruction names is asked as seldom as the others.
        if self.is_paused(worker) {
            return Ok(false);
        }
        let state = &self.project.state;
        let why = match self.ask_worker(worker) {
            Ok(ReadyOutcome::Ready { .. }) => {
                SilentPeer::Workers.end_silence(state);
                return Ok(true);
            }
            Ok(ReadyOutcome::NotReady(failure)) => failure.observation.to_string(),
            Err(error @ Error::Locked { .. }) => return Err(error),
            Err(error) if error.is_server_away() => return Err(error),
            // The others work on.
            Err(error) => error.to_string(),
        };
        say(&format!("{worker} is not ready: {why}"));
        SilentPeer::Workers.record_silence(state, worker.as_str(), &why);
        self.not_ready.borrow_mut().insert(worker.clone(), Instant::now());
        Ok(false)
    }

    fn is_elsewhere(&self, worker: &Name) -> Result<bool> {
        if self.queue.directory().is_some() {
            return Ok(false);
        }
        // The roster remembers those that have ended.
        let is_here = panes::find(&self.project.panes(), worker)?.is_some()
            || self.project.roster().get(worker)?.is_some();
        Ok(!is_here)
    }

    fn handed_out(&self, mailbox: &Name) -> Result<()> {
        self.ladders.may_run(mailbox, true).map(drop)
    }

    fn given_up(&self, mailbox: &Name) -> Result<Vec<LadderFile>> {
        self.ladders.given_up(mailbox)
    }
}
