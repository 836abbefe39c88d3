//! Carries out the machine's effects.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Map, json};

use super::agent::{AgentProcess, ProcessMark, ProcessOrder};
use super::run::{SupervisorRun, is_registered};
use super::work::{HeldClaim, SupervisedWork, WorkFate, notes_of};
use super::{LOOK_EVERY, SupervisorServices};
use crate::board::prompt::{BoardRole, PromptBuilder};
use crate::board::{
    ActiveControl, BoardTask, ControlFile, NewAnomaly, State, TaskStatus, claimable, disagrees,
    is_fenced, last_coder, occurrences, reviewable, wake,
};
use crate::proto::supervise::{
    CONTENDED_WAIT, ControlGate, Event, SuperviseAnomaly, SupervisorLoss, WorkTrouble,
};
use crate::worktree::{MergeOutcome, is_not_allowed};
use ensemble_core::durable::{Durability, FileLock, jittered, write_document};
use ensemble_core::event_log::types;
use ensemble_core::{Error, Result};

/// Held by the supervisor whose planner runs.
const PLANNING_LOCK: &str = "locks/planning.lock";
/// Shortest interval between repairs, because each takes several runs of git.
const REPAIR_EVERY_MIN: Duration = Duration::from_secs(5);

impl SupervisorRun<'_> {
    fn gate(&mut self) -> Result<Option<Event>> {
        let found = self.board.controls()?;
        let Some(control) = ActiveControl::gate(&found) else { return Ok(None) };
        let gate = match control.file {
            ControlFile::Abort => ControlGate::Abort,
            ControlFile::Pause | ControlFile::Checkpoint => ControlGate::Closed,
        };
        if !self.machine.is_gated() {
            let (file, reason) = (control.file.name(), control.reason.clone());
            self.record(types::SUPERVISE_GATED, json!({ "file": file }));
            let since = control.since;
            self.queue_line(
                format!("{file} since {since}: no new work starts. {reason}").trim_end().to_owned(),
            );
        }
        Ok(Some(Event::Gated(gate)))
    }

    pub(super) fn claim_work(&mut self) -> Event {
        if let Some(trouble) = self.unwritten.block.take() {
            self.block(trouble);
            if self.unwritten.block.is_some() {
                return Event::Failed;
            }
        }
        let found = self.try_look();
        found.unwrap_or_else(|error| self.refused("look for work", &error))
    }

    fn try_look(&mut self) -> Result<Event> {
        if let Some(gated) = self.gate()? {
            return Ok(gated);
        }
        let Some(agent) = self.registered.clone() else {
            return Ok(Event::Fenced(SupervisorLoss::Registration));
        };
        let state = self.board.read()?;
        if !is_registered(&state, &agent) {
            self.registered = None;
            return Ok(Event::Fenced(SupervisorLoss::Registration));
        }
        let state = self.reconcile(state)?;
        let found = match self.order.role {
            BoardRole::Planner => self.plan()?,
            BoardRole::Coder => {
                self.claim(&agent, state, |state, id| claimable(state, Some(id)), Self::take_task)?
            }
            BoardRole::CodeReviewer => {
                let state = self.merge(state)?;
                if let Some(gated) = self.gate()? {
                    return Ok(gated);
                }
                self.claim(
                    &agent,
                    state,
                    |state, id| reviewable(state, Some(id)),
                    Self::take_review,
                )?
            }
        };
        let Some(work) = found else {
            self.repair_now_and_then();
            return Ok(Event::Nothing);
        };
        let task = work.task().cloned();
        let is_new = match &work {
            SupervisedWork::Plan { occurrences, .. } => {
                let is_new = *occurrences != self.called;
                self.called.clone_from(occurrences);
                is_new
            }
            SupervisedWork::Task(_) | SupervisedWork::Review(_) => task != self.lock.record.task,
        };
        self.work = Some(work);
        self.lock.record.task = task;
        Ok(Event::Claimed { is_new })
    }

    pub(super) fn repair(&mut self) {
        self.repaired = Some(self.now());
        let Some(worktrees) = self.worktrees else { return };
        match worktrees.recover(true) {
            Ok(found) => {
                let left = found.into_iter().filter(|it| !it.repaired && !it.is_note);
                let left: BTreeSet<String> =
                    left.map(|it| format!("{}: {}", it.path, it.problem)).collect();
                let new: Vec<String> = left.difference(&self.unrepaired).cloned().collect();
                new.into_iter().for_each(|line| self.queue_line(line));
                self.unrepaired = left;
            }
            Err(error) => self.failed("repair worktrees", &error),
        }
    }

    fn repair_now_and_then(&mut self) {
        let pause = self.order.pace.poll.max(REPAIR_EVERY_MIN);
        if self.repaired.is_none_or(|last| self.now() >= last + pause) {
            self.repair();
        }
    }

    /// Makes the agent's entry on the board say what its tasks say, if its agent has left it behind.
    fn reconcile(&mut self, state: State) -> Result<State> {
        if !disagrees(&state, &self.order.id) {
            return Ok(state);
        }
        let mut locked = self.board.lock()?;
        locked.reconcile_agent(&self.order.id)?;
        locked.commit()
    }

    fn refused(&mut self, what: &str, error: &Error) -> Event {
        match error {
            Error::Locked { .. } => {
                return Event::Contended { wait: jittered(CONTENDED_WAIT.1).max(CONTENDED_WAIT.0) };
            }
            error if is_fenced(error) => {
                let state = self.board.read().ok();
                let agent = self.registered.clone();
                if let (Some(state), Some(agent)) = (state, agent)
                    && !is_registered(&state, &agent)
                {
                    self.registered = None;
                    return Event::Fenced(SupervisorLoss::Registration);
                }
            }
            _ => {}
        }
        self.failed(what, error);
        Event::Failed
    }

    /// Merges approved work of all reviewers. Returns the board's content afterwards.
    fn merge(&mut self, state: State) -> Result<State> {
        let Some(worktrees) = self.worktrees else { return Ok(state) };
        // Without a remote, another host merges what was made there.
        let is_due = |task: &&BoardTask| {
            task.status == TaskStatus::Approved && !worktrees.is_kept_elsewhere(task)
        };
        let approved: Vec<&BoardTask> = state.tasks.iter().filter(is_due).collect();
        if approved.is_empty() {
            return Ok(state);
        }
        for task in approved {
            // A merge may take long, so check between two merges whether to stop.
            if self.gate()?.is_some() {
                break;
            }
            self.keep_alive();
            if worktrees.has_tests() {
                self.expect_long(&format!("merge {}", task.id));
            }
            match worktrees.merge_now(&task.id) {
                Ok(MergeOutcome::Done { .. }) => self.queue_line(format!("merged `{}`", task.id)),
                Ok(MergeOutcome::Failed { reason }) => {
                    self.queue_line(format!("`{}` cannot be merged: {reason}", task.id));
                }
                // Another process is merging, and continues with the other tasks.
                Err(Error::Locked { .. }) => break,
                Err(error) => {
                    let now = self.board.read()?;
                    let is_left =
                        now.task(&task.id).is_some_and(|now| now.status == TaskStatus::Approved);
                    if is_left {
                        self.failed(&format!("merge `{}`", task.id), &error);
                    }
                }
            }
        }
        self.expect_no_more();
        self.board.read()
    }

    fn plan(&mut self) -> Result<Option<SupervisedWork>> {
        let state = self.board.read()?;
        let mut calls = wake(&state);
        calls.extend(self.plans_to_review());
        let occurrences = occurrences(&state, &calls);
        self.answered.retain(|answered| occurrences.contains(answered));
        if occurrences.is_subset(&self.answered) {
            return Ok(None);
        }
        let lock = FileLock::try_acquire(&self.directory.join(PLANNING_LOCK))?;
        Ok(lock.map(|lock| SupervisedWork::Plan { calls, occurrences, _lock: lock }))
    }

    pub(super) fn check(&mut self) -> Event {
        let checked = self.try_check();
        checked.unwrap_or_else(|error| self.refused("check the board", &error))
    }

    fn try_check(&mut self) -> Result<Event> {
        if let Some(gated) = self.gate()? {
            return Ok(gated);
        }
        let state = self.board.read()?;
        let is_ours = self.registered.as_ref().is_some_and(|agent| is_registered(&state, agent));
        if !is_ours {
            self.registered = None;
            return Ok(Event::Fenced(SupervisorLoss::Registration));
        }
        match self.work.as_ref().map(|work| work.fate(&state)) {
            Some(WorkFate::Held) => Ok(self.check_plan()?.unwrap_or(Event::Open)),
            Some(WorkFate::Finished | WorkFate::ByHand | WorkFate::Lost) | None => {
                self.work = None;
                Ok(Event::Fenced(SupervisorLoss::Work))
            }
        }
    }

    pub(super) fn spawn(&mut self) -> Event {
        let spawned = self.try_spawn();
        self.start_failure = spawned.as_ref().err().map(ToString::to_string);
        match spawned {
            Ok(true) => Event::Spawned,
            Ok(false) => {
                self.work = None;
                Event::Fenced(SupervisorLoss::Work)
            }
            Err(error) if is_fenced(&error) => {
                self.seen = None;
                Event::SpawnFailed
            }
            Err(error) => {
                self.failed("start the agent", &error);
                // A full disk or a lock says nothing about the agent.
                if error.is_transient() { Event::Failed } else { Event::SpawnFailed }
            }
        }
    }

    /// Starts the agent; returns `false` if its task was given up instead.
    fn try_spawn(&mut self) -> Result<bool> {
        let state = self.begin_again()?;
        let Some(work) = &self.work else { return Ok(false) };
        if work.fate(&state) != WorkFate::Held {
            return Ok(false);
        }
        let path = work.claim().map(|claim| &claim.path);
        let uncommitted = self.worktrees.zip(path).map(|(it, path)| it.uncommitted(path));
        let prompts = PromptBuilder::of(self.board)
            .with_plan(self.plan_of_prompt()?)
            .with_uncommitted(uncommitted.transpose()?.unwrap_or_default());
        let brief = match work {
            SupervisedWork::Task(claim) => prompts.coder(&state, &claim.id)?,
            SupervisedWork::Review(claim) => prompts.reviewer(&state, &claim.id)?,
            SupervisedWork::Plan { calls, .. } => prompts.planner(&state, &self.order.id, calls)?,
        };
        let env = self.environment(work);
        let directory = path.map_or_else(
            || self.board.project().to_owned(),
            |worktree| self.board.project_in(worktree),
        );
        let mark = ProcessMark::new()?;
        let before = (self.footprint(&state), notes_of(&state, work.task()));
        let plan_before = self.last_plan();
        // Record the mark before an agent with it runs.
        (self.lock.record.mark_sha256, self.lock.record.agent) = (Some(mark.digest()), None);
        self.lock.record.loops = self.machine.loops;
        self.lock.write()?;
        if let Some(heartbeat) = &mut self.heartbeat {
            heartbeat.fresh(self.board);
        }
        let mail = self.take_mail();
        let prompt = brief.text + &mail.section;
        let file = self.lock.prompt_path();
        let started = write_document(&file, prompt.as_bytes(), Durability::Process);
        let started = started.and_then(|()| {
            AgentProcess::start(&ProcessOrder {
                command: &self.order.command,
                directory: &directory,
                env,
                prompt: &prompt,
                prompt_file: &file,
                mark: &mark,
            })
        });
        self.end_mail(mail, started.is_ok());
        let running = started?;
        (self.before, self.exit_reason) = (before, None);
        self.desk.plan_before = plan_before;
        self.finished = None;
        let (pid, started) = running.process();
        self.lock.record.agent = Some((pid, started));
        self.agent = Some(running);
        let (task, epoch) = (self.held_task(), self.held_epoch());
        self.record(types::SUPERVISE_SPAWNED, json!({ "task": task, "epoch": epoch, "pid": pid }));
        let what = task.map_or_else(|| "the plan".to_owned(), |task| format!("`{task}`"));
        self.queue_line(format!("agent started for {what} (pid {pid})"));
        self.unwritten.process = true;
        self.record_process();
        Ok(true)
    }

    /// Records the process of the agent that was started. A disk that is full now must not hide that the agent
    /// runs: a second one would be started beside it. Its mark is recorded already, by which the next supervisor
    /// finds it; the process is recorded as soon as that is possible.
    pub(super) fn record_process(&mut self) {
        if !self.unwritten.process {
            return;
        }
        let written = self.lock.write();
        self.unwritten.process = written.is_err();
        if let Err(error) = written {
            self.failed("record the agent's process", &error);
        }
    }

    /// Counts a further agent at the same claim; the claim counted the first one.
    fn begin_again(&mut self) -> Result<State> {
        let number = self.held_epoch();
        let is_first = number.is_none() || self.counted != number;
        self.counted = number;
        let (Some(registered), false) = (&self.registered, is_first) else {
            return self.board.read();
        };
        let mut locked = self.board.lock()?;
        locked.fresh_agent(registered)?;
        if let Some(SupervisedWork::Task(HeldClaim { id, holder, .. })) = &self.work {
            locked.iterate(id, holder)?;
        }
        locked.commit()
    }

    /// Ends the agent; returns only when none of its processes is left.
    pub(super) fn terminate(&mut self, surroundings: &mut dyn SupervisorServices) -> Event {
        while let Some(agent) = &mut self.agent {
            match agent.end() {
                Ok(ended) => {
                    self.agent = None;
                    self.record(types::SUPERVISE_TERMINATED, json!({ "processes": ended }));
                    let why = self.ended_because.take();
                    let why = why.map_or_else(String::new, |why| format!(": {why}"));
                    self.queue_line(format!("the agent was ended{why}"));
                }
                Err(error) => {
                    self.failed("end the agent", &error);
                    surroundings.rest(LOOK_EVERY);
                }
            }
        }
        self.finished = None;
        Event::Terminated
    }

    pub(super) fn record_anomaly(&mut self, anomaly: SuperviseAnomaly) -> Option<Event> {
        let task = self.held_task().or(self.lock.record.task.as_ref());
        let about = task.map_or_else(String::new, |task| format!(" at `{task}`"));
        // The pattern names no task, so that the same trouble at several tasks is seen as one.
        let (count, pattern) = match anomaly {
            SuperviseAnomaly::Crashed { ending, count } => (count, &*ending.to_string()),
            SuperviseAnomaly::Hung { count } => (count, "no sign of life until the lease ran out"),
            SuperviseAnomaly::NotStarted { count } => (count, "the agent cannot be started"),
            SuperviseAnomaly::Unfinished { count } => (count, "exit 0 with unfinished work"),
            SuperviseAnomaly::NoNotes { count } => (count, "exit 42 without hand-over notes"),
        };
        let mut details = Map::new();
        details.insert("count".to_owned(), json!(count));
        details.insert("error_pattern".to_owned(), json!(pattern));
        let task = task.cloned();
        if let Some(reason) = self.exit_reason.take().filter(|reason| !reason.is_empty()) {
            details.insert("reason".to_owned(), json!(reason));
        }
        self.queue_line(format!("anomaly: {pattern}{about} ({count} in a row)"));
        let (kind, reporter) = ("retry_loop".to_owned(), self.order.id.to_string());
        let noted = self.board.lock().and_then(|mut locked| {
            // A task that was removed from the board cannot be named there.
            let task = task.filter(|task| locked.state().task(task).is_some());
            locked.count_loop(&NewAnomaly { kind, task, reporter, details })?;
            locked.commit()
        });
        if let Err(error) = noted {
            self.failed("note an anomaly", &error);
        }
        None
    }

    /// Blocks the task at which agents fail. If that fails, [`SupervisorRun::claim_work`] tries again before it looks
    /// for other work: the claim would be renewed forever, and no agent would work.
    pub(super) fn block(&mut self, trouble: WorkTrouble) -> Option<Event> {
        let held = match &self.work {
            Some(SupervisedWork::Task(claim)) => {
                Some((claim.id.clone(), Some(claim.holder.clone())))
            }
            // An agent that hung has lost its task, which is free now.
            None => self.lock.record.task.clone().map(|id| (id, None)),
            Some(_) => None,
        };
        let (id, holder) = held?;
        let why = self.start_failure.as_ref().map_or_else(String::new, |why| format!(": {why}"));
        let reason = format!("{trouble}{why}");
        let question = format!(
            "What stops agents at `{id}`? {reason}; see the anomalies of `{}`.",
            self.order.id
        );
        let blocked = self.board.lock().and_then(|mut locked| {
            let is_free = |task: &BoardTask| {
                task.status.is_claimable() && last_coder(task).as_ref() == Some(&self.order.id)
            };
            if holder.is_none() && !locked.state().task(&id).is_some_and(is_free) {
                return locked.commit();
            }
            locked.block(&id, holder.as_ref(), &reason, &[question])?;
            locked.commit()
        });
        match blocked.map(drop) {
            Err(error) if !is_fenced(&error) && !is_not_allowed(&error) => {
                self.unwritten.block = Some(trouble);
                self.failed(&format!("block `{id}`"), &error);
            }
            Ok(()) | Err(_) => {
                self.report_block(&id, &reason);
                self.work = None;
            }
        }
        None
    }
}

/// Changes to be written once that is possible.
#[derive(Debug, Default)]
pub(super) struct UnwrittenChanges {
    /// The process of the running agent; only its mark is recorded.
    process: bool,
    /// The block of the claimed task.
    block: Option<WorkTrouble>,
}
