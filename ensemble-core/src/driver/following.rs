//! Waiting for the ladder of an assigned task, whichever process runs it.
//!
//! ```text
//! a watcher runs      it runs the ladder; this process reads its file and the mailbox
//! none runs           this process runs the ladder, under the lock of the mailbox
//! this process ends   the file stays; the next watcher goes on
//! ```

use std::time::Duration;

use super::adopted::superseding;
use super::delivery::{DeliveryContext, TaskDelivery, dead_reason, message_id};
use super::shared::SharedRef;
use super::{
    DeliveryOrder, Ended, LadderFile, LadderHost, LadderState, LadderStore, Ladders, Notice,
    TaskAssigner, file_name,
};
use crate::env::Monotonic;
use crate::event_log::types;
use crate::mail::SUPERSEDED;
use crate::message::{MessageId, Name};
use crate::proto::ack::Phase;
use crate::spool::State;
use crate::{Error, Result};

/// The longest rest between two looks.
const LOOK_INTERVAL_MAX: Duration = Duration::from_secs(1);

pub(super) struct PublishedTask {
    task: String,
    worker: Name,
    mailbox: Name,
    pub(super) message: MessageId,
    pub(super) attempt: u32,
    phase: Phase,
    /// How often the message had been received before.
    epoch: u64,
    deadline: Option<Monotonic>,
}

impl PublishedTask {
    fn acked(&self) -> Ended {
        let (phase, attempt, message) = (self.phase, self.attempt, self.message.clone());
        Ended::Acked { phase, attempt, message }
    }

    fn abandoned(&self) -> Ended {
        let (phase, attempt, message) = (self.phase, self.attempt, self.message.clone());
        Ended::Abandoned { phase, attempt, message }
    }
}

impl TaskAssigner<'_> {
    fn store(&self) -> LadderStore {
        LadderStore::new(&self.state)
    }

    /// The ladder of a task. If another host runs it, it is known once it is escalated.
    fn ladder_of(
        &self,
        mailbox: &Name,
        task: &str,
        host: &dyn LadderHost,
    ) -> Result<Option<LadderFile>> {
        match self.store().of_task(mailbox, task)? {
            None => Ok(host.given_up(mailbox)?.into_iter().find(|file| file.task == task)),
            own => Ok(own),
        }
    }

    /// Stores the task. An attempt that waits and was given up is replaced by the next one.
    pub(super) fn publish(
        &self,
        order: DeliveryOrder,
        host: &dyn LadderHost,
    ) -> Result<PublishedTask> {
        let (task, worker) = (order.task.clone(), order.worker.clone());
        let mailbox = order.envelope.to.clone();
        if let Some(file) = self.ladder_of(&mailbox, &task, host)?
            && file.state == LadderState::Escalated
            && file.message == message_id(&task, file.attempt)
        {
            let next = message_id(&task, file.attempt.saturating_add(1));
            superseding(self.queue.broker(), &mailbox, &file.message, &next)?;
        }
        let deadline = order.patience.map(|patience| self.clock.monotonic() + patience);
        let actor = self.actor.clone();
        let mut world = DeliveryContext::borrowing(self.spool, self.clock, self.recorder, actor);
        world.elsewhere = Some(SharedRef::Borrowed(self.queue.broker()));
        let delivery = TaskDelivery::begin(&world, order, None)?;
        let (message, attempt) = (delivery.message.clone(), delivery.ladder.attempt());
        let (phase, epoch) = (Phase::Deliver, delivery.epoch_before);
        host.may_run(&mailbox, true)?;
        Ok(PublishedTask { task, worker, mailbox, message, attempt, phase, epoch, deadline })
    }

    pub(super) fn follow(
        &self,
        mut told: PublishedTask,
        host: &dyn LadderHost,
        is_watched: &dyn Fn() -> bool,
        rest: &mut dyn FnMut(Duration) -> Result<()>,
    ) -> Result<Ended> {
        let clocks = (self.clock, self.recorder);
        let mut ladders =
            Ladders::borrowing(self.spool, self.store(), host, clocks, self.actor.clone())
                .with_borrowed_queue(self.queue.broker());
        loop {
            if is_watched() {
                ladders.forget(&told.mailbox);
            } else {
                ladders.observe_mailbox(&told.mailbox)?;
                ladders.handle_timeout()?;
            }
            if let Some(ended) = self.ended(&mut told, host)? {
                if ladders.runs(&told.mailbox) {
                    ladders.observe_mailbox(&told.mailbox)?;
                }
                return Ok(ended);
            }
            let now = self.clock.monotonic();
            let left = |at: Monotonic| at.since(now);
            if told.deadline.is_some_and(|at| left(at).is_zero()) {
                return Ok(told.abandoned());
            }
            let due = ladders.poll_timeout().into_iter().chain(told.deadline).map(left).min();
            rest(due.unwrap_or(LOOK_INTERVAL_MAX).min(LOOK_INTERVAL_MAX))?;
        }
    }

    /// How the ladder has ended, by its file and by the message itself.
    fn ended(&self, told: &mut PublishedTask, host: &dyn LadderHost) -> Result<Option<Ended>> {
        let file = self.ladder_of(&told.mailbox, &told.task, host)?;
        let file = file.filter(|file| file.attempt >= told.attempt);
        if let Some(file) = &file {
            told.message.clone_from(&file.message);
            (told.attempt, told.epoch) = (file.attempt, file.epoch);
            told.phase = Phase::of_number(file.phase).unwrap_or(told.phase);
            match file.state {
                LadderState::Acked => return Ok(Some(told.acked())),
                LadderState::Escalated => {
                    let notice = file.escalation.as_deref().and_then(Notice::of_text);
                    let path = format!("reports/{}", file_name(&told.task));
                    return Ok(notice.map(|notice| Ended::Escalated { notice, file: path }));
                }
                LadderState::Behind | LadderState::Open | LadderState::Escalating => {}
            }
        }
        match self.queue.broker().state(&told.mailbox, &told.message)? {
            Some(State::Queued { epoch, .. }) if epoch <= told.epoch => Ok(None),
            Some(State::Queued { .. } | State::Acked { .. } | State::Settled) => {
                if file.is_none() {
                    // It was taken before the ladder began.
                    let data = serde_json::json!({
                        "attempt": told.attempt, "phase": told.phase.number(), "id": told.message,
                        "task_id": told.task, "worker_id": told.worker,
                    });
                    self.recorder.record(types::TASK_START, self.actor.as_str(), data);
                }
                Ok(Some(told.acked()))
            }
            Some(State::Dead) => self.died(told),
            None if file.is_some() => Ok(None),
            None => Err(Error::NoMessage {
                id: told.message.to_string(),
                place: format!("in mailbox `{}` any more", told.mailbox),
            }),
        }
    }

    fn died(&self, told: &mut PublishedTask) -> Result<Option<Ended>> {
        let reason = dead_reason(self.queue.broker(), &told.mailbox, &told.message)?;
        if reason == "expired" {
            return Ok(Some(Ended::Expired));
        }
        // The ladder is about to name the next attempt or to notify the conductor.
        if self.store().of_task(&told.mailbox, &told.task)?.is_some() {
            return Ok(None);
        }
        let Some(next) = reason.strip_prefix(SUPERSEDED) else {
            return Err(Error::NoMessage {
                id: told.message.to_string(),
                place: format!("waiting: it is a dead letter: {reason}"),
            });
        };
        // Another host runs the ladder, so no file names the next attempt. It may not be stored yet.
        let next = MessageId::new(next)?;
        if self.queue.broker().state(&told.mailbox, &next)?.is_some() {
            (told.message, told.epoch) = (next, 0);
            told.attempt += 1;
        }
        Ok(None)
    }
}
