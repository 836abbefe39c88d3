//! A delivery that was published by another process, and whose ladder is kept in a file.
//!
//! ```text
//! step                                               a crash behind it leaves
//! the file says the next phase                       the phase without its keys
//! keys are pressed                                   the same
//! the file names the next attempt's message          a message to publish: the next process does
//! the message before is set aside, the next stored   the same: both change nothing the second time
//! the file says what the conductor is told           an escalation to write: the next process does
//! reports/escalation-<task>.yaml                     the same, in the same bytes, which are one version
//! the record, the file says `escalated`              the record twice, at worst
//! ```

use super::delivery::{DeliveryContext, DeliveryOrder, Ended, TaskDelivery, message_id};
use super::ladder_file::{LadderFile, LadderState};
use super::ladders::LadderPrompt;
use super::{Notice, escalation};
use crate::agent::AgentPane;
use crate::broker::Broker;
use crate::error::allow_gone;
use crate::event_log::types;
use crate::mail::SUPERSEDED;
use crate::message::{MessageId, Name, yaml};
use crate::proto::Machine as _;
use crate::proto::ack::{Effect, Event, Ladder};
use crate::{Error, Result};

pub(super) struct StoredLadder {
    pub(super) name: String,
    pub(super) file: LadderFile,
    written: Option<LadderFile>,
    /// Whether the message's id is that of an attempt, so that a reset replaces it by the next one.
    pub(super) is_numbered: bool,
}

impl<'a> TaskDelivery<'a> {
    /// Begins a ladder that waited, or continues with one that was begun.
    pub(super) fn adopt(
        world: &DeliveryContext<'_>,
        (name, file): (String, LadderFile),
        order: DeliveryOrder,
        pane: Option<Box<dyn AgentPane + 'a>>,
    ) -> Result<Self> {
        let now = world.clock.monotonic();
        let (task, attempt) = (file.task.clone(), file.attempt);
        let ladder = if file.state == LadderState::Behind {
            let mut ladder = Ladder::new(task, attempt, order.config);
            ladder.handle(now, Event::Started);
            // The message is in its mailbox already.
            let first = ladder.poll_effect();
            debug_assert_eq!(first, Some(Effect::Deliver { attempt }));
            ladder
        } else {
            Ladder::resume(task, attempt, order.config, now, file.saved(&*world.clock))
        };
        let published = order.envelope.attempt.unwrap_or(1);
        let is_numbered = order.envelope.id == message_id(&file.task, published);
        let mut this = Self {
            ack_before: file.ack_before.clone(),
            epoch_before: file.epoch,
            ..Self::new(order, ladder, pane, file.message.clone())
        };
        this.kept = Some(StoredLadder { name, file, written: None, is_numbered });
        if is_numbered && message_id(&this.order.task, attempt) != this.order.envelope.id {
            this.message = this.order.envelope.id.clone();
            this.deliver_again(world, attempt);
        }
        this.save_ladder(world)?;
        Ok(this)
    }

    /// Writes the file if it says something else now.
    pub(super) fn save_ladder(&mut self, world: &DeliveryContext<'_>) -> Result<()> {
        let (Some(kept), Some(durable)) = (&mut self.kept, &world.durable) else { return Ok(()) };
        if !self.ladder.is_over() {
            kept.file.update(&self.ladder, &*world.clock);
            kept.file.message = self.message.clone();
        }
        if kept.written.as_ref() != Some(&kept.file) {
            durable.store.write(&kept.name, &kept.file)?;
            kept.written = Some(kept.file.clone());
        }
        Ok(())
    }

    /// After a reset: the worker has forgotten the task, so it is delivered again, and a message of the previous attempt
    /// that still waits is withdrawn. A worker that has the task took it after the reset, whose Enter is not pressed for one that has it
    /// already: it knows the task, and is not given it a second time.
    pub(super) fn deliver_again(&mut self, world: &DeliveryContext<'_>, attempt: u32) {
        // A message under an id of its sender's choice waits on: its sender knows it by that id.
        if self.kept.as_ref().is_some_and(|kept| !kept.is_numbered) {
            return;
        }
        let now = world.clock.monotonic();
        if self.is_answered(world) || self.has_answered(world) {
            return self.ladder.handle(now, self.ack());
        }
        let (before, next) = (self.message.clone(), message_id(&self.order.task, attempt));
        self.replace_message(world, &before, &next);
        let reason = format!("{SUPERSEDED}{next}");
        match world.queue().set_aside(self.mailbox(), &before, &reason) {
            Ok(()) => {}
            // It was received in the meantime.
            Err(Error::NoMessage { .. }) => {
                self.message = before;
                if self.is_answered(world) {
                    self.ladder.handle(now, self.ack());
                    return self.message_replaced(world);
                }
            }
            Err(error) => self.trouble = Some(error.to_string()),
        }
        self.epoch_before = 0;
        if let Err(error) = self.publish(world, attempt) {
            self.trouble = Some(error.to_string());
            self.ladder.handle(now, Event::Undeliverable);
        }
        self.message_replaced(world);
    }

    /// The attempt that the message carries: after a reset, a worker may have taken that of the attempt before.
    pub(super) fn carried_attempt(&self) -> u32 {
        let attempt = self.ladder.attempt();
        let before = attempt.saturating_sub(1);
        if self.message == message_id(&self.order.task, before) { before } else { attempt }
    }

    /// The next attempt's message is about to replace this one.
    pub(super) fn replace_message(
        &mut self,
        world: &DeliveryContext<'_>,
        before: &MessageId,
        next: &MessageId,
    ) {
        let Some(kept) = &mut self.kept else { return };
        (kept.file.epoch, kept.file.replaced) = (0, Some(before.clone()));
        self.message = next.clone();
        // If the disk is full, publishing the message fails as well, and that error is reported.
        let _ = self.save_ladder(world);
    }

    /// The next attempt's message is stored.
    pub(super) fn message_replaced(&mut self, world: &DeliveryContext<'_>) {
        if let Some(kept) = &mut self.kept {
            kept.file.replaced = None;
            kept.file.ack_before.clone_from(&self.ack_before);
        }
        let _ = self.save_ladder(world);
    }

    pub(super) fn escalate(
        &mut self,
        world: &DeliveryContext<'_>,
        notice: Notice,
    ) -> Result<Ended> {
        let written = match (&mut self.kept, &world.durable) {
            (Some(kept), Some(durable)) => {
                kept.file.decide(&notice);
                durable.store.write(&kept.name, &kept.file)
            }
            _ => Ok(()),
        };
        let (root, durability) = (world.spool.root(), world.spool.durability());
        let file = match written.and_then(|()| notice.file(root, durability)) {
            Ok(file) => file,
            Err(error) => {
                // Decided, and to be tried again.
                self.notice = Some(notice);
                return Err(error);
            }
        };
        let mut data = serde_json::to_value(&notice).unwrap_or_default();
        data["file"] = file.as_str().into();
        self.record(world, types::ESCALATION, data);
        if let (Some(kept), Some(durable)) = (&mut self.kept, &world.durable) {
            kept.file.state = LadderState::Escalated;
            // If it is not written, the next process writes the same file again.
            let _ = durable.store.write(&kept.name, &kept.file);
        }
        Ok(Ended::Escalated { notice, file })
    }

    /// Has the line typed by the part of the process that types; `false` if there is none.
    pub(super) fn prompt(&self, world: &DeliveryContext<'_>) -> bool {
        let Some(durable) = &world.durable else { return false };
        durable.host.prompt(LadderPrompt {
            mailbox: self.mailbox().clone(),
            message: self.message.clone(),
            phase: self.ladder.phase(),
            phase_timeout: self.order.config.phase_timeout,
        })
    }
}

/// Writes an escalation that an earlier process has decided.
pub(super) fn finish_escalation(
    world: &DeliveryContext<'_>,
    name: &str,
    file: &mut LadderFile,
) -> Result<()> {
    let (Some(text), Some(durable)) = (file.escalation.clone(), &world.durable) else {
        return Ok(());
    };
    let (root, durability) = (world.spool.root(), world.spool.durability());
    let path = escalation::put(root, &file.task, &text, durability)?;
    let mut data: serde_json::Value = yaml::parse(&text, &root.join(&path)).unwrap_or_default();
    data["file"] = path.into();
    data["worker_id"] = file.worker.as_str().into();
    world.recorder.record(types::ESCALATION, world.actor.as_str(), data);
    file.state = LadderState::Escalated;
    durable.store.write(name, file)
}

/// Takes a waiting message back, since the next attempt replaces it.
pub(super) fn superseding(
    queue: &dyn Broker,
    mailbox: &Name,
    before: &MessageId,
    next: &MessageId,
) -> Result<()> {
    // It may have been received in the meantime.
    allow_gone(queue.set_aside(mailbox, before, &format!("{SUPERSEDED}{next}"))).map(drop)
}
