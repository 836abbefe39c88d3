//! Tasks that are delivered until they are acked or escalated: the ladder of the broker, over the panes of
//! an embedder.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::mailbox::deadline_in;
use super::worker_pane::{DrivenPane, HeadlessPane};
use super::{CallbackResult, Draft, IntoName, Queue, WorkerPane};
use crate::Result;
use crate::driver::{AckDriver, DeliveryId, DeliveryOrder, Ended, TASK_TYPE};
use crate::message::{MessageId, Name};
use crate::proto::ack::LadderSettings;
use crate::spool::FileWait;
use crate::watch::{POLL_WITH_EVENTS, POLL_WITHOUT_EVENTS};

/// How many escalated deliveries are watched further, to record a late ack.
const ESCALATED_MAX: usize = 1_000;

/// Delivers tasks and follows up on those that are not acked, in four phases: deliver, nudge, leave an input mode and
/// nudge, reset and deliver again. After the last phase it writes `reports/escalation-<task>.yaml` and returns
/// [`Ended::Escalated`]; a [`Watcher`](super::Watcher) can route that file.
///
/// Receiving the task is its ack. A worker that is working, that asks a person something, or whose person is typing is
/// not pressed. Every step is recorded where [`QueueOptions::events`](super::QueueOptions::events) says. It starts no
/// thread: phases pass only during its calls.
///
/// ```
/// use std::time::Duration;
/// use ensemble_core::{AckManager, Ended, Queue};
///
/// # let home = tempfile::tempdir()?;
/// # let queue = Queue::open_or_create(home.path().join("queue"))?;
/// queue.mailbox("worker-1")?;
/// let ended = AckManager::new(&queue, "dispatch")?
///     .assign("worker-1", "count the lines of src/")
///     .notify(|hint| { println!("{hint}"); Ok(()) }) // or `pane`, for one with a screen
///     .phase_timeout(Duration::from_millis(10)) // a minute by default
///     .wait()?;
/// assert!(matches!(ended, Ended::Escalated { .. }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct AckManager {
    queue: Queue,
    actor: Name,
    pub(super) running: Arc<Mutex<RunningAcks>>,
    pub(super) wait: FileWait,
}

/// The data of one step. A step of a task may outlive the future that has begun it.
pub(super) struct RunningAcks {
    driver: AckDriver<'static>,
    workers: Vec<(DeliveryId, Name)>,
    ended: VecDeque<(DeliveryId, Ended)>,
    /// Deliveries that have ended, and are watched for a late ack.
    escalated: VecDeque<DeliveryId>,
}

impl RunningAcks {
    /// Looks at the mailboxes and lets time pass. Returns how long nothing is due.
    pub(super) fn advance(&mut self, queue: &Queue) -> Result<Duration> {
        self.driver.handle_mail(None)?;
        self.driver.handle_timeout()?;
        while let Some((id, ended)) = self.driver.poll_ended() {
            self.workers.retain(|(running, _)| *running != id);
            if matches!(ended, Ended::Escalated { .. }) {
                self.escalated.push_back(id);
            }
            self.ended.push_back((id, ended));
        }
        if self.escalated.len() > ESCALATED_MAX
            && let Some(oldest) = self.escalated.pop_front()
        {
            self.driver.forget(oldest);
        }
        let now = queue.spool().clock().monotonic();
        Ok(self.driver.poll_timeout().map_or(Duration::MAX, |at| at.since(now)))
    }

    /// Returns a delivery that has ended, and whether any is still running.
    pub(super) fn take_ended(&mut self) -> (Option<(DeliveryId, Ended)>, bool) {
        (self.ended.pop_front(), !self.workers.is_empty())
    }

    fn take_ended_of(&mut self, id: DeliveryId) -> Option<Ended> {
        let at = self.ended.iter().position(|(ended, _)| *ended == id)?;
        self.ended.remove(at).map(|(_, ended)| ended)
    }
}

impl AckManager {
    /// A manager without deliveries. `actor` delivers: it is the sender of the tasks, and named in the event log.
    ///
    /// # Errors
    /// The name is not valid.
    pub fn new(queue: &Queue, actor: impl IntoName) -> Result<Self> {
        let actor = actor.into_name()?;
        let driver = AckDriver::new(Arc::clone(queue.spool()), actor.clone());
        let running = RunningAcks {
            driver,
            workers: Vec::new(),
            ended: VecDeque::new(),
            escalated: VecDeque::new(),
        };
        let wait = queue.spool().wait_for_files([]);
        Ok(Self { queue: queue.clone(), actor, running: Arc::new(Mutex::new(running)), wait })
    }

    /// A task for a worker: text, or a [`Draft`] with its `task` id, priority and so on. Ends with
    /// [`start`](Assignment::start) or [`wait`](Assignment::wait). Assigning a task again that is unfinished continues it.
    pub fn assign(&mut self, worker: impl IntoName, task: impl Into<Draft>) -> Assignment<'_> {
        Assignment {
            worker: worker.into_name(),
            draft: task.into(),
            config: LadderSettings::default(),
            patience: None,
            pane: None,
            acks: self,
        }
    }

    /// Shows a hint now, in addition to those of the phases; [`Assignment`] has an example.
    pub fn nudge(&mut self, id: DeliveryId) {
        self.lock().driver.nudge(id);
    }

    /// Works until a delivery ends, for at most this long. `None` if none did, or none is running. [`Assignment`] has an
    /// example.
    ///
    /// # Errors
    /// A mailbox cannot be read, or an escalation not be written. It can be called again.
    pub fn next_ended(&mut self, longest: Duration) -> Result<Option<(DeliveryId, Ended)>> {
        let deadline = deadline_in(longest);
        loop {
            let nap = self.advance()?;
            let (ended, is_running) = self.lock().take_ended();
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if ended.is_some() || !is_running || left.is_some_and(|left| left.is_zero()) {
                return Ok(ended);
            }
            self.wait.sleep(left.map_or(nap, |left| left.min(nap)), None);
        }
    }

    fn advance(&self) -> Result<Duration> {
        Ok(self.lock().advance(&self.queue)?.min(self.longest_nap()))
    }

    /// The longest time between two looks: file events are only a hint.
    pub(super) fn longest_nap(&self) -> Duration {
        if self.wait.is_watched() { POLL_WITH_EVENTS } else { POLL_WITHOUT_EVENTS }
    }

    #[cfg(feature = "tokio")]
    pub(super) fn queue(&self) -> &Queue {
        &self.queue
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, RunningAcks> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches the mailboxes of all workers: a message that leaves one was acked.
    fn watch_workers(&mut self) {
        let root = self.queue.root();
        let acks = Some(root.join("ack")).filter(|acks| acks.is_dir());
        let workers: BTreeSet<Name> =
            self.lock().workers.iter().map(|(_, worker)| worker.clone()).collect();
        let home = |worker: &Name| root.join("mailbox").join(worker.as_str());
        let places = workers.iter().flat_map(|it| [home(it).join("new"), home(it).join("front")]);
        let places: Vec<PathBuf> = places.chain(acks).collect();
        self.wait = self.queue.spool().wait_for_files(places);
    }
}

impl fmt::Debug for AckManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AckManager").field("actor", &self.actor).finish_non_exhaustive()
    }
}

/// A task that is being assigned; made by [`AckManager::assign`].
///
/// ```
/// use std::time::Duration;
/// use ensemble_core::{AckManager, Draft, Queue};
/// # let home = tempfile::tempdir()?;
/// # let queue = Queue::open_or_create(home.path().join("queue"))?;
/// let inbox = queue.mailbox("worker-1")?;
/// let mut acks = AckManager::new(&queue, "dispatch")?;
/// let id = acks
///     .assign("worker-1", Draft::new("count the lines of src/").task("task-7"))
///     .notify(|hint| { println!("{hint}"); Ok(()) }) // or `pane`, for one with a screen
///     .phase_timeout(Duration::from_secs(30))        // each phase
///     .busy_patience(Duration::from_secs(600))       // more for a worker that is busy
///     .patience(Duration::from_secs(3600))           // then it is left alone
///     .start()?;                                     // or `wait`, for one task
/// acks.nudge(id);
/// # inbox.try_recv()?.expect("the task").settle()?;
/// while let Some((id, ended)) = acks.next_ended(Duration::from_secs(60))? {
///     println!("{id:?}: {ended:?}");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "ends with `start` or `wait`"]
pub struct Assignment<'m> {
    acks: &'m mut AckManager,
    worker: Result<Name>,
    draft: Draft,
    config: LadderSettings,
    patience: Option<Duration>,
    pane: Option<Box<dyn WorkerPane>>,
}

impl Assignment<'_> {
    /// Where the worker runs: a [`WorkerPane`]. Without a pane nothing is typed, and the phases only pass.
    pub fn pane(mut self, pane: impl WorkerPane + 'static) -> Self {
        self.pane = Some(Box::new(pane));
        self
    }

    /// As [`pane`](Self::pane), for a worker without a screen: the closure passes the hints on, and no key is pressed.
    pub fn notify(self, nudge: impl FnMut(&str) -> CallbackResult + Send + 'static) -> Self {
        self.pane(HeadlessPane(nudge))
    }

    /// How long each phase waits for the ack; a minute by default.
    pub fn phase_timeout(mut self, time: Duration) -> Self {
        self.config.phase_timeout = time;
        self
    }

    /// The most time that a worker which may not be pressed, because it is working or needs a person, can add to the
    /// phases; half an hour by default.
    pub fn busy_patience(mut self, time: Duration) -> Self {
        self.config.wait_max = time;
        self
    }

    /// When the delivery is left alone, as [`Ended::Abandoned`], without an escalation. Never by default.
    pub fn patience(mut self, time: Duration) -> Self {
        self.patience = Some(time);
        self
    }

    /// Delivers the task. [`AckManager::next_ended`] follows it up.
    ///
    /// # Errors
    /// As for [`Queue::send`]; nothing is waited for then.
    pub fn start(self) -> Result<DeliveryId> {
        let Self { acks, worker, draft, config, patience, pane } = self;
        let worker = worker?;
        let draft = draft.without_delay()?.with_kind_unless_set(TASK_TYPE)?;
        let mut envelope = draft.into_envelope(&acks.queue, worker.clone(), Some(&acks.actor))?;
        let task = envelope.task_id.take().unwrap_or_else(|| MessageId::generate().to_string());
        let order = DeliveryOrder::new(task, worker.clone(), envelope);
        let order = order.with_config(config).with_patience(patience);
        let id = {
            let mut running = acks.lock();
            let pane = pane.map(|pane| Box::new(DrivenPane(pane)) as _);
            let id = running.driver.deliver(order, pane)?;
            running.workers.push((id, worker));
            id
        };
        acks.watch_workers();
        Ok(id)
    }

    /// As [`start`](Self::start), and waits until it is acked, escalated, expired or abandoned. The other deliveries of
    /// the manager continue.
    ///
    /// # Errors
    /// As for [`start`](Self::start) and [`AckManager::next_ended`].
    pub fn wait(self) -> Result<Ended> {
        let Self { acks, worker, draft, config, patience, pane } = self;
        let id = Assignment { acks: &mut *acks, worker, draft, config, patience, pane }.start()?;
        loop {
            let nap = acks.advance()?;
            if let Some(ended) = acks.lock().take_ended_of(id) {
                return Ok(ended);
            }
            acks.wait.sleep(nap, None);
        }
    }
}

impl fmt::Debug for Assignment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Assignment").field("worker", &self.worker).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
