//! Dispatch as a program: hands the tasks of an instruction to ready workers, and reports the batch once.
//!
//! ```text
//! step, under the lock of the batch                        a crash behind it leaves
//! 1  .ensemble/dispatch/<batch>.yaml says which worker     a choice: the next process publishes it
//! 2  the message <batch>.<task>.<attempt> is published     the same: this id is stored once
//! 3  the file says that it is stored                       a delivery, whose ladder is the watcher's
//! 4  a report, an end of the message or of the ladder      the same: it is read again, a mailed report by its id once
//!    a report here settles the message of its attempt      a settled message, which is left as it is
//! 5  the file says how the attempt ended                   everything done, or the next attempt
//! 6  the summary                                           driver::Batches: sent once
//! ```
//!
//! All that a process knows is in that file, in the mailboxes or in `reports/`, so a process that is killed is
//! simply started again. *Silence* of a worker is the business of the ladder, whose end is the end of the attempt.
//! Its message is withdrawn before another worker gets the task.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;

use self::each::{each_task, is_of_all};
use super::batches::{Batches, SummaryOutcome};
use super::collect::TaskBatch;
use super::ends::TaskEnds;
use super::task_reports::read_reports;
use crate::admission::is_refusal;
use crate::proto::dispatch::{
    ATTEMPTS_DEFAULT, ATTEMPTS_MAX, Event, Plan, State, TaskHandout, TaskPlan, TaskState, next_at,
    ready,
};
use ensemble_core::broker::{Broker, TaskEnd};
use ensemble_core::driver::{LadderFile, TASK_TYPE};
use ensemble_core::durable::{self, Dir, FileLock, FileStat};
use ensemble_core::env::{Clock, boot_id};
use ensemble_core::event_log::{Recorder, types};
use ensemble_core::message::fields::{agent_of_text, field_text, plain_field};
use ensemble_core::message::{
    ConfigDuration, Digest, Envelope, KnownSender, MessageId, Name, ReservedName, yaml,
};
use ensemble_core::spool::{self, Spool};
use ensemble_core::{Error, Result, allow_missing};
use ensemble_reports::contract::{
    self, Instruction, Status, TaskReport, WORKERS_MAX, WorkerTask, count_of,
};

mod each;
mod outcome;
mod summary;

const DIRECTORY: &str = "dispatch";
const FILE_BYTES_MAX: usize = 1024 * 1024;
/// How long processes may hold a lock that only look whether it is held.
pub(super) const LOOKERS_PATIENCE: Duration = Duration::from_secs(1);
/// How many messages of a worker are checked to see whether it is idle.
const LOOKED_AT_MAX: usize = 100;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DispatchFile {
    pub batch: Name,
    /// The boot by whose clock retries are delayed; in another one they are due at once.
    pub boot: String,
    /// By task, the last message whose report was counted, for workers on other hosts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub mailed: BTreeMap<String, MessageId>,
    /// When messages were seen to be settled that nothing has reported on, in milliseconds of the boot-time clock.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settled_ms: BTreeMap<MessageId, u64>,
    #[serde(flatten)]
    pub state: State,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AvailableWorker {
    pub worker: Name,
    pub mailbox: Name,
}

impl AvailableWorker {
    pub const fn new(worker: Name, mailbox: Name) -> Self {
        Self { worker, mailbox }
    }
}

pub trait WorkerPool {
    /// The workers that could have a task now, the best first. All of them may be asked for by name.
    fn workers(&self) -> Result<Vec<AvailableWorker>>;

    fn may_begin(&self, task: &str, worker: &Name) -> Result<()>;

    fn is_ready(&self, worker: &Name) -> Result<bool>;

    /// Whether the worker is on another host, so that its reports arrive only by mail, even after it exits.
    fn is_elsewhere(&self, worker: &Name) -> Result<bool> {
        let _ = worker;
        Ok(false)
    }

    /// Called when a task was stored in a mailbox. If other hosts see it, too, this host claims its ladder.
    fn handed_out(&self, mailbox: &Name) -> Result<()> {
        let _ = mailbox;
        Ok(())
    }

    /// The escalated ladders of a mailbox that another host runs.
    fn given_up(&self, mailbox: &Name) -> Result<Vec<LadderFile>> {
        let _ = mailbox;
        Ok(Vec::new())
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum BatchProgress {
    /// Tasks are waiting, or in the hands of workers.
    Open {
        over: usize,
        in_hands: usize,
        /// Why some tasks wait while others are worked on: what is wrong with their workers, or their reports.
        stuck: Vec<String>,
    },
    Told(Box<SummaryOutcome>),
}

/// One batch; see the module. Drop it to leave the batch to another process.
pub struct DispatchRun<'a> {
    /// The queue's directory, where reports are.
    pub spool: &'a Spool,
    /// Where the mailboxes are: that directory, or servers.
    pub queue: &'a dyn Broker,
    pub state_dir: PathBuf,
    pub batches: Batches,
    pub ends: TaskEnds,
    pub clock: &'a dyn Clock,
    pub recorder: &'a dyn Recorder,
    pub actor: KnownSender,
    pub hands: &'a dyn WorkerPool,
}

/// A batch with its state, under its lock.
struct OpenBatch<'a> {
    batch: &'a TaskBatch,
    instruction: &'a Instruction,
    plan: Plan,
    file: DispatchFile,
}

/// The batch's plan: its policy for each task is `worker: NAME` and `retry: {attempts: N, delay: SECONDS}`.
pub fn plan_of(instruction: &Instruction) -> Result<Plan> {
    let tasks = instruction.tasks.iter().map(policy).collect::<Result<Vec<_>>>()?;
    let workers = instruction.worker_count.unwrap_or(WORKERS_MAX);
    Ok(Plan::new(usize::try_from(workers).unwrap_or(1).max(1), tasks))
}

fn policy(task: &WorkerTask) -> Result<TaskPlan> {
    let wrong = |field: &str, detail: &str| {
        Error::malformed("instruction", format!("tasks: {}: {field}", task.id), detail)
    };
    let mut plan = TaskPlan::new(task.id.clone());
    plan.blocked_by.clone_from(&task.blocked_by);
    let is_worker = |field: &String| ["worker", "worker_id"].contains(&&*plain_field(field));
    if let Some((_, given)) = task.extra.iter().find(|(field, _)| is_worker(field)) {
        let named = field_text(&json!({ "worker": given }), &["worker"]);
        let worker = named.and_then(|name| agent_of_text(&name));
        let worker = worker.ok_or_else(|| wrong("worker", "is not a name"))?;
        ReservedName::refuse_agent(&worker).map_err(|it| wrong("worker", &it.to_string()))?;
        plan = plan.by(Some(worker));
    }
    let Some(retry) = task.extra.get("retry") else { return Ok(plan) };
    let attempts = match retry.get("attempts") {
        None => ATTEMPTS_DEFAULT.into(),
        Some(value) => count_of(value).ok_or_else(|| wrong("retry.attempts", "is not a number"))?,
    };
    if !(1..=u64::from(ATTEMPTS_MAX)).contains(&attempts) {
        return Err(wrong("retry.attempts", &format!("must be 1 to {ATTEMPTS_MAX}")));
    }
    let delay = match retry.get("delay") {
        None => Duration::ZERO,
        Some(value) => ConfigDuration::deserialize(value)
            .map_err(|error| wrong("retry.delay", &error.to_string()))?
            .into(),
    };
    Ok(plan.retried(u32::try_from(attempts).unwrap_or(ATTEMPTS_MAX), delay))
}

/// The id of the message that carries an attempt at a task of a batch. Publishing it twice stores it once.
pub fn task_message(batch: &Name, task: &str, attempt: u32) -> MessageId {
    MessageId::new(format!("{batch}.{task}.{attempt}")).unwrap_or_else(|_| {
        let digest = Digest::of_parts(&[batch.as_str().as_bytes(), task.as_bytes()]).short(40);
        MessageId::new(format!("b-{digest}.{attempt}"))
            .unwrap_or_else(|_| unreachable!("a digest and a number are a name"))
    })
}

/// The batches that were begun in a state directory, and on which no process works. Most have ended.
pub fn list_left_batches(state_dir: &Path) -> Result<Vec<Name>> {
    let directory = Dir::open(state_dir).and_then(|dir| dir.open_child(DIRECTORY));
    let files = allow_missing(directory)?.map_or_else(|| Ok(Vec::new()), |dir| dir.names())?;
    let batches = files.iter().filter_map(|file| Name::new(file.strip_suffix(".yaml")?).ok());
    let is_left =
        |batch: &Name| matches!(FileLock::is_held(&lock_path(state_dir, batch)), Ok(false));
    Ok(batches.filter(is_left).collect())
}

fn lock_path(state_dir: &Path, batch: &Name) -> PathBuf {
    state_dir.join("locks").join(format!("dispatch-{batch}.lock"))
}

impl DispatchRun<'_> {
    pub fn lock(&self, batch: &Name) -> Result<FileLock> {
        for dir in [self.state_dir.join("locks"), self.state_dir.join(DIRECTORY)] {
            durable::make_directory(&dir)?;
        }
        FileLock::acquire(&lock_path(&self.state_dir, batch), LOOKERS_PATIENCE)
    }

    /// One step of a batch, under its lock. Takes what has come in, hands out what is ready, and
    /// reports on the batch if it has ended.
    ///
    /// # Errors
    /// The queue or the state cannot be read or written. Nothing is lost: step again.
    pub fn step(&self, batch: &TaskBatch, instruction: &Instruction) -> Result<BatchProgress> {
        if let Some(summary) = self.batches.resume(&batch.id, &self.actor.name, self.recorder)? {
            return Ok(BatchProgress::Told(Box::new(SummaryOutcome::Before(summary))));
        }
        let mut open = self.open(batch, instruction)?;
        let mut stuck = self.take_in(&mut open)?;
        stuck.extend(self.hand_out(&mut open)?);
        let OpenBatch { plan, file, .. } = open;
        if file.state.is_over() {
            let summary = self.summary(batch, &plan, &file.state);
            let told =
                self.batches.announce(&batch.id, &summary, &self.actor.name, self.recorder)?;
            return Ok(BatchProgress::Told(Box::new(told)));
        }
        let over = file.state.tasks.values().filter(|task| task.is_over()).count();
        Ok(BatchProgress::Open { over, in_hands: file.state.hands().count(), stuck })
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.clock.boottime().as_duration().as_millis()).unwrap_or(u64::MAX)
    }

    fn open<'b>(
        &self,
        batch: &'b TaskBatch,
        instruction: &'b Instruction,
    ) -> Result<OpenBatch<'b>> {
        let plan = plan_of(instruction)?;
        let file = self.read(batch, &plan)?;
        Ok(OpenBatch { batch, instruction, plan, file })
    }

    fn read(&self, batch: &TaskBatch, plan: &Plan) -> Result<DispatchFile> {
        let dir = Dir::open(&self.state_dir.join(DIRECTORY))?;
        let name = format!("{}.yaml", batch.id);
        let fresh = || DispatchFile {
            batch: batch.id.clone(),
            boot: boot_id().to_owned(),
            mailed: BTreeMap::new(),
            settled_ms: BTreeMap::new(),
            state: State::new(plan),
        };
        let Some(content) = dir.read(&name, FILE_BYTES_MAX)? else {
            let file = fresh();
            self.write(&file)?;
            return Ok(file);
        };
        let path = dir.path().join(&name);
        let mut file: DispatchFile = yaml::parse(&String::from_utf8_lossy(&content), &path)?;
        if file.boot != boot_id() {
            boot_id().clone_into(&mut file.boot);
            file.settled_ms.clear();
            for task in file.state.tasks.values_mut() {
                if let TaskState::Waiting { not_before_ms, .. } = task {
                    *not_before_ms = 0;
                }
            }
        }
        Ok(file)
    }

    /// Changes the state, and the file before anything is done about it.
    fn change(&self, open: &mut OpenBatch<'_>, task: &str, event: Event) -> Result<()> {
        let OpenBatch { plan, file, .. } = open;
        let Ok(state) = next_at(plan, &file.state, task, event, self.now_ms()) else {
            // Late or doubled.
            return Ok(());
        };
        file.state = state;
        self.write(file)
    }

    fn write(&self, file: &DispatchFile) -> Result<()> {
        let text = yaml::render(file);
        durable::write_document(&self.path(&file.batch), text.as_bytes(), self.spool.durability())
    }

    fn path(&self, batch: &Name) -> PathBuf {
        self.state_dir.join(DIRECTORY).join(format!("{batch}.yaml"))
    }

    pub fn is_begun(&self, batch: &Name) -> bool {
        self.path(batch).exists()
    }

    /// Publishes what was chosen, and takes what has happened to what was given. Returns what fails at single tasks.
    fn take_in(&self, open: &mut OpenBatch<'_>) -> Result<Vec<String>> {
        let hands = open.file.state.hands();
        let hands: Vec<(String, TaskHandout)> =
            hands.map(|(task, hand)| (task.clone(), hand.clone())).collect();
        each_task(hands, |(task, hand)| {
            if matches!(open.file.state.tasks.get(&task), Some(TaskState::Chosen(_))) {
                self.publish(open, (&task, &hand))?;
            }
            match self.outcome(open, (&task, &hand))? {
                Some(event) => self.change(open, &task, event),
                None => Ok(()),
            }
        })
    }

    /// Settles the message of an attempt that was reported. The watcher does so, too, but the next attempt may replace
    /// the report before it has seen that.
    fn settle_attempt(&self, task: &str, hand: &TaskHandout, report: &FileStat) -> Result<()> {
        let mailbox = self.queue.mailbox_of(&hand.worker);
        let end = TaskEnd {
            task,
            author: &hand.worker,
            written_at: Some(TaskEnds::written_at(report)),
            attempt: Some(hand.attempt),
            only_in: Some(&mailbox),
        };
        match self.ends.settle_reported(self.queue, &end, self.recorder) {
            Err(Error::NoMailbox { .. }) => Ok(()),
            Err(error) if !is_refusal(&error) => Err(error),
            _ => Ok(()),
        }
    }

    fn publish(&self, open: &mut OpenBatch<'_>, (task, hand): (&str, &TaskHandout)) -> Result<()> {
        let batch = open.batch;
        let Some(order) = open.instruction.tasks.iter().find(|order| order.id == task) else {
            return Ok(());
        };
        let mailbox = self.queue.mailbox_of(&hand.worker);
        let id = task_message(&batch.id, task, hand.attempt);
        let envelope = Envelope::new(mailbox.clone(), contract::write(order))
            .with_id(id.clone())
            .with_kind(Name::new(TASK_TYPE)?)
            .with_task(task)
            .with_attempt(hand.attempt)
            .with_correlation(batch.id.as_str());
        match self.queue.publish(&self.actor.sign(envelope)) {
            Err(error @ Error::NoMailbox { .. }) => {
                let reason = error.to_string();
                return self.change(open, task, Event::Lost { reason });
            }
            published => published.map(drop)?,
        }
        self.hands.handed_out(&mailbox)?;
        self.recorder.record(
            types::WORKER_ASSIGN,
            self.actor.name.as_str(),
            json!({
                "task_id": task, "worker_id": hand.worker, "attempt": hand.attempt, "id": id,
                "mailbox": mailbox,
            }),
        );
        self.change(open, task, Event::Stored)
    }

    fn report(&self, task: &str) -> Result<Option<(FileStat, TaskReport)>> {
        let Ok(dir) = Dir::open(&self.spool.root().join("reports")) else { return Ok(None) };
        let reports = read_reports(&dir, task, &dir.names()?)?;
        Ok(reports.into_iter().next().map(|file| (file.stat, file.report)))
    }

    /// Gives what is ready to workers that are. Returns what fails at single tasks.
    fn hand_out(&self, open: &mut OpenBatch<'_>) -> Result<Vec<String>> {
        let tasks = ready(&open.plan, &open.file.state, self.now_ms());
        let tasks: Vec<String> = tasks.into_iter().map(str::to_owned).collect();
        let mut asked = Vec::new();
        each_task(tasks, |task| {
            let Some(worker) = self.choose(&open.plan, &open.file.state, &task, &mut asked)? else {
                return Ok(());
            };
            let report_before = self.report(&task)?.map(|(stat, _)| version_of(&stat));
            self.change(open, &task, Event::Chosen { worker, report_before })?;
            match open.file.state.tasks.get(&task).cloned() {
                Some(TaskState::Chosen(hand)) => self.publish(open, (&task, &hand)),
                _ => Ok(()),
            }
        })
    }

    /// A worker that is idle, may begin the task and has answered a ping. One that has not answered is not
    /// asked twice in one step.
    fn choose(
        &self,
        plan: &Plan,
        state: &State,
        task: &str,
        asked: &mut Vec<Name>,
    ) -> Result<Option<Name>> {
        let named = plan.tasks.iter().find(|it| it.id == task).and_then(|it| it.worker.clone());
        let is_named = named.is_some();
        let candidates = match named {
            Some(worker) => {
                let mailbox = self.queue.mailbox_of(&worker);
                vec![AvailableWorker::new(worker, mailbox)]
            }
            None => self.hands.workers()?,
        };
        for AvailableWorker { worker, mailbox } in candidates {
            let has_one = state.hands().any(|(_, hand)| hand.worker == worker);
            if has_one || asked.contains(&worker) {
                continue;
            }
            match self.is_idle(&mailbox) {
                Ok(true) => {}
                // The attempt fails, and its reason says why.
                Err(Error::NoMailbox { .. }) => return Ok(Some(worker)),
                Ok(false) => continue,
                Err(error) if is_of_all(&error) || is_named => return Err(error),
                // The others work on; `ensemble status` says what is wrong with this one.
                Err(_) => continue,
            }
            match self.hands.may_begin(task, &worker) {
                Ok(()) => {}
                Err(error) if is_refusal(&error) => continue,
                Err(error) => return Err(error),
            }
            asked.push(worker.clone());
            match self.hands.is_ready(&worker) {
                Ok(true) => return Ok(Some(worker)),
                Ok(false) | Err(Error::Locked { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Whether a worker holds nothing, and no task waits for it.
    fn is_idle(&self, mailbox: &Name) -> Result<bool> {
        self.queue.settings(mailbox)?;
        for found in self.queue.unfinished(mailbox, LOOKED_AT_MAX)? {
            if matches!(found.state, spool::State::Acked { .. }) {
                return Ok(false);
            }
            match self.queue.peek(mailbox, &found.id) {
                Ok(envelope) if envelope.kind.as_str() == TASK_TYPE => return Ok(false),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(true)
    }
}

fn event_of(report: TaskReport) -> Event {
    let is_success = report.status == Status::Success;
    Event::Reported { is_success, summary: report.failure_reason.or(report.summary) }
}

fn version_of(report: &FileStat) -> String {
    format!("{:?} {} {}", report.id, report.bytes, report.changed_ns)
}

/// Whether a report speaks of this attempt; one that names none speaks of the present one.
fn is_of(report: &TaskReport, attempt: u32) -> bool {
    report.attempt().is_none_or(|it| it == attempt)
}
