//! Any number of deliveries side by side, in one thread (seed 002, P0-3).

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use super::delivery::{DeliveryContext, TaskDelivery};
use super::{DeliveryOrder, Ended};
use crate::Result;
use crate::agent::AgentPane;
use crate::env::{Clock, Monotonic};
use crate::event_log::Recorder;
use crate::message::Name;
use crate::proto::ack::Phase;
use crate::spool::Spool;

/// Tells the deliveries of one manager apart; [`Assignment`](crate::Assignment) has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryId(u64);

/// Delivers tasks and climbs the ladder with those that are not acked.
///
/// The ack of a task is its message leaving the mailbox's `new/` or `front/`; an `ack/<task>.ack`
/// file becomes that through the watcher. Call [`AckDriver::deliver`] for each task and then, in a
/// loop: [`AckDriver::handle_mail`] when something may have been received,
/// [`AckDriver::handle_timeout`] at [`AckDriver::poll_timeout`], and [`AckDriver::poll_ended`] until
/// it is empty. A call types at most one line for each delivery that is due, and waits for no agent.
/// The delay before Enter is a deadline like any other. A delivery ends when no line of it is left
/// half-typed.
pub struct AckDriver<'a> {
    world: DeliveryContext<'a>,
    deliveries: BTreeMap<DeliveryId, TaskDelivery<'a>>,
    delivered: u64,
    ended: VecDeque<(DeliveryId, Ended)>,
}

impl AckDriver<'static> {
    /// A manager without deliveries. It owns what it works with, so it can be a field beside the queue, and
    /// move to a thread or an async task. Its clock and recorder are those of the queue.
    ///
    /// `actor` delivers: it is named in the log and in escalations, and is the sender of a task that names none.
    pub fn new(spool: Arc<Spool>, actor: Name) -> Self {
        Self::with(DeliveryContext::owning(spool, actor))
    }
}

impl<'a> AckDriver<'a> {
    /// As [`AckDriver::new`], for a caller that has all of this on its stack.
    pub const fn borrowing(
        spool: &'a Spool,
        clock: &'a (dyn Clock + Send + Sync),
        recorder: &'a dyn Recorder,
        actor: Name,
    ) -> Self {
        Self::with(DeliveryContext::borrowing(spool, clock, recorder, actor))
    }

    const fn with(world: DeliveryContext<'a>) -> Self {
        Self { world, deliveries: BTreeMap::new(), delivered: 0, ended: VecDeque::new() }
    }

    /// Publishes a task and begins to wait for its ack. `pane` is where the worker runs; without
    /// one nothing is typed and the phases only pass.
    pub fn deliver(
        &mut self,
        order: DeliveryOrder,
        pane: Option<Box<dyn AgentPane + 'a>>,
    ) -> Result<DeliveryId> {
        let delivery = TaskDelivery::begin(&self.world, order, pane)?;
        self.delivered += 1;
        let id = DeliveryId(self.delivered);
        self.deliveries.insert(id, delivery);
        Ok(id)
    }

    /// Nudges a worker now, besides its ladder: where no watcher does.
    pub fn nudge(&mut self, id: DeliveryId) {
        if let Some(delivery) = self.deliveries.get_mut(&id) {
            delivery.nudge(&self.world);
        }
    }

    /// Checks whether the messages of `mailbox` were received; of all mailboxes for `None`.
    pub fn handle_mail(&mut self, mailbox: Option<&Name>) -> Result<()> {
        let mailbox = mailbox.cloned();
        self.each(|delivery, world| {
            match mailbox.as_ref().is_none_or(|name| name == delivery.mailbox()) {
                true => delivery.check_ack(world),
                false => Ok(None),
            }
        })
    }

    pub fn handle_timeout(&mut self) -> Result<()> {
        self.each(TaskDelivery::handle_timeout)
    }

    /// When to call [`AckDriver::handle_timeout`] at the latest; `None` for never.
    pub fn poll_timeout(&self) -> Option<Monotonic> {
        self.deliveries.values().filter_map(TaskDelivery::poll_timeout).min()
    }

    /// A delivery that has ended. An escalated one is tracked until [`AckDriver::forget`], so that
    /// a late ack is still recorded.
    pub fn poll_ended(&mut self) -> Option<(DeliveryId, Ended)> {
        let (id, ended) = self.ended.pop_front()?;
        if !matches!(ended, Ended::Escalated { .. }) {
            self.deliveries.remove(&id);
        }
        Some((id, ended))
    }

    /// The phase that a delivery is in, or `None` if it is no longer tracked.
    pub fn phase(&self, id: DeliveryId) -> Option<Phase> {
        self.deliveries.get(&id).map(TaskDelivery::phase)
    }

    pub fn forget(&mut self, id: DeliveryId) {
        self.deliveries.remove(&id);
    }

    fn each(
        &mut self,
        mut step: impl FnMut(&mut TaskDelivery<'a>, &DeliveryContext<'a>) -> Result<Option<Ended>>,
    ) -> Result<()> {
        let mut failed = None;
        for (id, delivery) in &mut self.deliveries {
            match step(delivery, &self.world) {
                Ok(Some(ended)) => self.ended.push_back((*id, ended)),
                Ok(None) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

impl fmt::Debug for AckDriver<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AckDriver")
            .field("actor", &self.world.actor)
            .field("deliveries", &self.deliveries.keys())
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}
