//! One task on its way to one worker: what its ladder wants is done here (seed 002, P0-3).

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::Notice;
use super::ack_file::ack_signer;
use super::adopted::StoredLadder;
use super::agent::worker_state;
use super::keystrokes::{NextKeystroke, PendingKeystroke};
use super::ladder_file::LadderStore;
use super::ladders::LadderHost;
use super::shared::SharedRef;
use crate::Result;
use crate::agent::AgentPane;
use crate::broker::Broker;
use crate::durable::Dir;
use crate::env::{Clock, Monotonic};
use crate::event_log::{Recorder, types};
use crate::message::{Digest, Envelope, MessageId, Name};
use crate::pane::Deferral;
use crate::proto::Machine as _;
use crate::proto::ack::{
    Effect, Event, Ladder, LadderRecord, LadderSettings, PARK_MAX, Phase, WorkerActivity,
};
use crate::spool::{Spool, State};

/// How often a message that was not found is looked for again: one that moves can be missed.
const LOOKS_MAX: u32 = 5;

/// The largest `ack/` file that is read, in bytes.
const ACK_BYTES_MAX: usize = 64 * 1024;

#[derive(Debug)]
pub struct DeliveryOrder {
    /// Which task it is; acks bind to it and to the attempt.
    pub task: String,
    /// The agent whose ack is waited for.
    pub worker: Name,
    /// The message; its recipient is the worker's mailbox. Id, task and attempt are set here.
    pub envelope: Envelope,
    pub config: LadderSettings,
    /// How long to wait at most; after that the delivery is left alone, and the conductor is not notified.
    /// `None` for as long as the ladder takes.
    pub patience: Option<Duration>,
}

impl DeliveryOrder {
    /// An order with seed 002's times.
    pub fn new(task: impl Into<String>, worker: Name, envelope: Envelope) -> Self {
        Self {
            task: task.into(),
            worker,
            envelope,
            config: LadderSettings::default(),
            patience: None,
        }
    }

    pub const fn with_patience(mut self, patience: Option<Duration>) -> Self {
        self.patience = patience;
        self
    }

    pub const fn with_config(mut self, config: LadderSettings) -> Self {
        self.config = config;
        self
    }
}

/// The end of a delivery; [`AckManager`](crate::AckManager) has an example.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// The worker has it.
    Acked {
        /// In which phase of the ladder.
        phase: Phase,
        /// Attempt of the task.
        attempt: u32,
        /// The message of that attempt.
        message: MessageId,
    },
    /// The conductor was notified.
    Escalated {
        /// The notice that the conductor got.
        notice: Notice,
        /// The file, below the queue.
        file: String,
    },
    /// It had an expiry date, which has passed.
    Expired,
    /// [`DeliveryOrder::patience`] has passed. The message still waits in its mailbox.
    Abandoned {
        /// In which phase of the ladder.
        phase: Phase,
        /// Attempt of the task.
        attempt: u32,
        /// The message of that attempt.
        message: MessageId,
    },
}

/// The id of the message that carries an attempt at a task: `<task>.<attempt>`, or a digest in the
/// task's place where it is not a name. Publishing it twice stores it once.
///
/// ```
/// use ensemble_core::driver::message_id;
/// assert_eq!(message_id("task-001", 2).as_str(), "task-001.2");
/// assert!(message_id("über uns", 1).as_str().starts_with("t-"));
/// ```
pub fn message_id(task: &str, attempt: u32) -> MessageId {
    MessageId::new(format!("{task}.{attempt}")).unwrap_or_else(|_| {
        let digest = Digest::of(task.as_bytes()).short(40);
        MessageId::new(format!("t-{digest}.{attempt}"))
            .unwrap_or_else(|_| unreachable!("a digest and a number are a name"))
    })
}

pub(super) struct DeliveryContext<'a> {
    /// Directory of the escalation files, and of the mailboxes unless [`DeliveryContext::elsewhere`] has them.
    pub(super) spool: SharedRef<'a, Spool>,
    /// Queue with the mailboxes, if it is another one.
    pub(super) elsewhere: Option<SharedRef<'a, dyn Broker>>,
    pub(super) clock: SharedRef<'a, dyn Clock + Send + Sync>,
    pub(super) recorder: SharedRef<'a, dyn Recorder>,
    pub(super) actor: Name,
    /// Where ladders are kept and by which means they are run, if they outlive this process.
    pub(super) durable: Option<DurableLadders<'a>>,
}

pub(super) struct DurableLadders<'a> {
    pub(super) store: LadderStore,
    pub(super) host: SharedRef<'a, dyn LadderHost + 'a>,
}

impl DeliveryContext<'static> {
    pub(super) fn owning(spool: Arc<Spool>, actor: Name) -> Self {
        let (clock, recorder) = (spool.options().clock.clone(), spool.options().recorder.clone());
        Self {
            spool: SharedRef::Owned(spool),
            elsewhere: None,
            clock: SharedRef::Owned(clock),
            recorder: SharedRef::Owned(recorder),
            actor,
            durable: None,
        }
    }
}

impl<'a> DeliveryContext<'a> {
    pub(super) const fn borrowing(
        spool: &'a Spool,
        clock: &'a (dyn Clock + Send + Sync),
        recorder: &'a dyn Recorder,
        actor: Name,
    ) -> Self {
        let (spool, elsewhere) = (SharedRef::Borrowed(spool), None);
        let (clock, recorder) = (SharedRef::Borrowed(clock), SharedRef::Borrowed(recorder));
        Self { spool, elsewhere, clock, recorder, actor, durable: None }
    }

    pub(super) fn queue(&self) -> &dyn Broker {
        match &self.elsewhere {
            Some(queue) => &**queue,
            None => &*self.spool,
        }
    }
}

pub(super) struct TaskDelivery<'a> {
    pub(super) order: DeliveryOrder,
    pub(super) ladder: Ladder,
    pub(super) pane: Option<Box<dyn AgentPane + 'a>>,
    pub(super) message: MessageId,
    /// The `ack/` file of the task as it was before this attempt was published.
    pub(super) ack_before: Option<String>,
    /// How often the message had been received before this delivery began.
    pub(super) epoch_before: u64,
    /// When a nudge that could not be typed is tried again, and why it could not be.
    pub(super) nudge: Option<(Monotonic, Deferral)>,
    /// What went wrong, for the conductor.
    pub(super) trouble: Option<String>,
    /// When it is left alone.
    pub(super) deadline: Option<Monotonic>,
    /// The message has expired, and that is still to be reported.
    pub(super) has_expired: bool,
    /// The file of the ladder, if it outlives this process.
    pub(super) kept: Option<StoredLadder>,
    /// The notice for the conductor, until it is written.
    pub(super) notice: Option<Notice>,
    /// A line whose Enter is due later, or keys of which the next is. The next effect waits for it.
    pub(super) half: Option<PendingKeystroke>,
}

/// The file by which a worker says that it has read a task: which version of it, and its content.
fn read_ack(spool: &Spool, task: &str) -> Result<Option<(String, Vec<u8>)>> {
    let Ok(task) = Name::new(task) else { return Ok(None) };
    let acks = Dir::open(&spool.root().join("ack"))?;
    let read = acks.read_with_stat(&format!("{task}.ack"), ACK_BYTES_MAX)?;
    Ok(read.map(|(stat, content)| {
        let version = format!("{:?} {} {}", stat.id, stat.bytes, stat.changed_ns);
        (version, content)
    }))
}

/// The version of a task's `ack/` file; `None` also for one that cannot be read.
pub(super) fn ack_version(spool: &Spool, task: &str) -> Option<String> {
    read_ack(spool, task).ok().flatten().map(|(version, _)| version)
}

/// Why a message is a dead letter; empty if it is none.
pub(super) fn dead_reason(queue: &dyn Broker, mailbox: &Name, id: &MessageId) -> Result<String> {
    let letter = queue.dead_letters(mailbox)?.into_iter().find(|letter| letter.id == *id);
    Ok(letter.map(|letter| letter.reason).unwrap_or_default())
}

impl<'a> TaskDelivery<'a> {
    pub(super) const fn new(
        order: DeliveryOrder,
        ladder: Ladder,
        pane: Option<Box<dyn AgentPane + 'a>>,
        message: MessageId,
    ) -> Self {
        Self {
            order,
            ladder,
            pane,
            message,
            ack_before: None,
            epoch_before: 0,
            nudge: None,
            trouble: None,
            deadline: None,
            has_expired: false,
            kept: None,
            notice: None,
            half: None,
        }
    }

    /// Publishes the task and begins to wait.
    ///
    /// An attempt that was settled or has died has ended, so a new one begins. One that still waits
    /// or is held is continued. So a controller that was killed can simply be run again.
    pub(super) fn begin(
        world: &DeliveryContext<'_>,
        order: DeliveryOrder,
        pane: Option<Box<dyn AgentPane + 'a>>,
    ) -> Result<Self> {
        let mailbox = &order.envelope.to;
        let mut attempt = 1;
        let epoch_before = loop {
            match world.queue().state(mailbox, &message_id(&order.task, attempt))? {
                Some(State::Settled | State::Dead) => attempt += 1,
                Some(State::Queued { epoch, .. }) => break epoch,
                Some(State::Acked { .. }) | None => break 0,
            }
        };
        let message = message_id(&order.task, attempt);
        let ladder = Ladder::new(order.task.clone(), attempt, order.config);
        let now = world.clock.monotonic();
        let deadline = order.patience.map(|patience| now + patience);
        let mut this = Self { epoch_before, deadline, ..Self::new(order, ladder, pane, message) };
        this.publish(world, attempt)?;
        this.ladder.handle(now, Event::Started);
        // The first effect, the delivery, is done already.
        let first = this.ladder.poll_effect();
        debug_assert_eq!(first, Some(Effect::Deliver { attempt }));
        Ok(this)
    }

    pub(super) const fn mailbox(&self) -> &Name {
        &self.order.envelope.to
    }

    pub(super) const fn phase(&self) -> Phase {
        self.ladder.phase()
    }

    pub(super) fn poll_timeout(&self) -> Option<Monotonic> {
        let nudge = self.nudge.as_ref().map(|(at, _)| *at);
        let others = nudge.into_iter().chain(self.deadline).filter(|_| !self.ladder.is_over());
        let enter = self.half.as_ref().map(|half| half.at);
        self.ladder.poll_timeout().into_iter().chain(others).chain(enter).min()
    }

    /// Lets time pass; how it ended, if it did.
    pub(super) fn handle_timeout(&mut self, world: &DeliveryContext<'_>) -> Result<Option<Ended>> {
        let now = world.clock.monotonic();
        if let Some(half) = self.half.take_if(|half| now >= half.at) {
            self.go_on(world, half);
        }
        let is_open = self.half.is_none() && !self.ladder.is_over();
        if is_open && self.nudge.as_ref().is_some_and(|(at, _)| now >= *at) {
            self.nudge(world);
        }
        let is_open = self.half.is_none() && !self.ladder.is_over();
        if is_open && self.deadline.is_some_and(|at| now >= at) {
            let (phase, attempt) = (self.ladder.phase(), self.ladder.attempt());
            return Ok(Some(Ended::Abandoned { phase, attempt, message: self.message.clone() }));
        }
        self.ladder.handle_timeout(now);
        self.perform_all(world)
    }

    /// Checks whether the worker has received the message. Returns how the delivery ended, if it
    /// did.
    pub(super) fn check_ack(&mut self, world: &DeliveryContext<'_>) -> Result<Option<Ended>> {
        if self.half.as_ref().is_some_and(|half| half.then.is_reset()) {
            return Ok(None);
        }
        let event = match self.find(world)? {
            Some(State::Queued { epoch, .. }) if epoch <= self.epoch_before => {
                if !self.has_answered(world) {
                    return Ok(None);
                }
                self.ack()
            }
            // A message that was received and then released counts as acked, too.
            Some(State::Queued { .. } | State::Acked { .. } | State::Settled) => self.ack(),
            Some(State::Dead) => self.died(world)?,
            // A ladder that is kept ends with the removal of its message.
            None if self.kept.is_some() => return Ok(None),
            None => {
                self.trouble = Some("the message is not in the mailbox any more".to_owned());
                Event::Undeliverable
            }
        };
        self.ladder.handle(world.clock.monotonic(), event);
        // A worker that has answered is pressed no further.
        if self.ladder.is_over()
            && let Some(half) = self.half.take_if(|half| matches!(half.then, NextKeystroke::Key(_)))
        {
            self.go_on(world, half);
        }
        self.perform_all(world)
    }

    /// Whether an `ack/` file says that the worker has the task. The watcher receives the message
    /// for it. But a file that is written in place only counts there once it has been quiet for a
    /// while. A worker that has answered must not be pressed in the meantime.
    pub(super) fn has_answered(&self, world: &DeliveryContext<'_>) -> bool {
        let Ok(Some((version, content))) = read_ack(&world.spool, &self.order.task) else {
            return false;
        };
        if self.ack_before.as_ref() == Some(&version) {
            return false;
        }
        let Ok(mailboxes) = world.queue().mailboxes() else { return false };
        let signer = ack_signer(&content, &mailboxes);
        signer.is_none_or(|signer| *signer == self.order.worker)
    }

    pub(super) fn ack(&self) -> Event {
        Event::Ack { task: self.order.task.clone(), attempt: self.ladder.attempt() }
    }

    pub(super) fn find(&self, world: &DeliveryContext<'_>) -> Result<Option<State>> {
        for _ in 0..LOOKS_MAX {
            let state = world.queue().state(self.mailbox(), &self.message)?;
            if state.is_some() {
                return Ok(state);
            }
        }
        Ok(None)
    }

    fn died(&mut self, world: &DeliveryContext<'_>) -> Result<Event> {
        let reason = dead_reason(world.queue(), self.mailbox(), &self.message)?;
        if reason == "expired" {
            self.has_expired = !self.ladder.is_over();
            return Ok(Event::Expired);
        }
        self.trouble = Some(format!("it is a dead letter: {reason}"));
        Ok(Event::Undeliverable)
    }

    fn perform_all(&mut self, world: &DeliveryContext<'_>) -> Result<Option<Ended>> {
        if let Some(notice) = self.notice.take() {
            return self.escalate(world, notice).map(Some);
        }
        let mut ended = None;
        while self.half.is_none() {
            // Before any key is pressed, so that no later process presses it again.
            self.save_ladder(world)?;
            let Some(effect) = self.ladder.poll_effect() else { break };
            ended = self.perform(world, effect)?.or(ended);
        }
        if self.half.is_some() {
            return Ok(ended);
        }
        // The machine has no effect for it.
        let has_expired = std::mem::take(&mut self.has_expired);
        Ok(ended.or_else(|| has_expired.then_some(Ended::Expired)))
    }

    fn perform(&mut self, world: &DeliveryContext<'_>, effect: Effect) -> Result<Option<Ended>> {
        match effect {
            Effect::Deliver { attempt } => self.deliver_again(world, attempt),
            Effect::Inspect => {
                let worker = self.look_at_worker(&*world.clock);
                self.ladder.handle(world.clock.monotonic(), Event::Seen(worker));
            }
            // It may have been answered since this was asked for.
            Effect::Nudge if self.ladder.is_over() => {}
            Effect::Nudge => self.nudge(world),
            Effect::LeaveInputMode => self.press(world, Phase::LeaveInputMode),
            Effect::ResetContext => self.press(world, Phase::ResetContext),
            Effect::Acked { phase } => {
                let (attempt, message) = (self.carried_attempt(), self.message.clone());
                if let Some(kept) = &mut self.kept {
                    kept.file.attempt = attempt;
                }
                let data = json!({ "attempt": attempt, "phase": phase.number(), "id": message });
                self.record(world, types::TASK_START, data);
                return Ok(Some(Ended::Acked { phase, attempt, message }));
            }
            Effect::Escalate(escalation) => {
                let worker = self.order.worker.clone();
                let from = match &self.kept {
                    Some(kept) => kept.file.from.clone(),
                    None => world.actor.clone(),
                };
                let at = world.clock.wall();
                let mut notice = Notice::new(&escalation, worker, self.message.clone(), from, at);
                notice.detail.clone_from(&self.trouble);
                return self.escalate(world, notice).map(Some);
            }
            Effect::Record(record) => self.record_event(world, &record),
        }
        Ok(None)
    }

    fn record_event(&self, world: &DeliveryContext<'_>, record: &LadderRecord) {
        let (kind, data) = match record {
            LadderRecord::Entered { phase } => {
                (types::LADDER_PHASE, json!({ "phase": phase.number() }))
            }
            LadderRecord::Skipped { phase } => {
                (types::LADDER_SKIPPED, json!({ "phase": phase.number() }))
            }
            LadderRecord::Waiting { worker } => {
                (types::LADDER_WAITING, json!({ "worker_state": worker.word() }))
            }
            LadderRecord::StaleAck { attempt, .. } => {
                (types::LADDER_STALE_ACK, json!({ "attempt": attempt }))
            }
            LadderRecord::LateAck => {
                (types::LADDER_LATE_ACK, json!({ "attempt": self.ladder.attempt() }))
            }
        };
        self.record(world, kind, data);
    }

    pub(super) fn record(&self, world: &DeliveryContext<'_>, kind: &str, mut data: Value) {
        data["task_id"] = self.order.task.as_str().into();
        data["worker_id"] = self.order.worker.as_str().into();
        world.recorder.record(kind, world.actor.as_str(), data);
    }

    pub(super) fn publish(&mut self, world: &DeliveryContext<'_>, attempt: u32) -> Result<()> {
        self.message = message_id(&self.order.task, attempt);
        self.ack_before = ack_version(&world.spool, &self.order.task);
        let template = &self.order.envelope;
        let envelope = template
            .addressed_to(template.to.clone())
            .with_id(self.message.clone())
            .with_task(self.order.task.clone())
            .with_attempt(attempt);
        let envelope =
            if envelope.names_sender() { envelope } else { envelope.from(world.actor.clone()) };
        world.queue().publish(&envelope)?;
        let data = json!({ "attempt": attempt, "id": self.message, "mailbox": template.to });
        self.record(world, types::WORKER_ASSIGN, data);
        Ok(())
    }

    fn look_at_worker(&mut self, clock: &dyn Clock) -> WorkerActivity {
        let Some(pane) = &mut self.pane else { return WorkerActivity::Unknown };
        match pane.diagnose() {
            Ok(diagnosis) => {
                let limit_left = match diagnosis.limited_until {
                    Some(until) => Some(until.since(clock.wall())),
                    // If the end of the limit cannot be read, the ladder waits as long as it may.
                    None => diagnosis.resets_at.is_some().then_some(PARK_MAX),
                };
                worker_state(&diagnosis, clock.monotonic(), limit_left)
            }
            // The pane could not be observed, which says nothing of the worker.
            Err(_) => WorkerActivity::Unknown,
        }
    }
}
