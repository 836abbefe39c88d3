//! Assigning a task, as seeds 000 and 002 have it: ask, deliver, wait, escalate.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{
    DeliveryOrder, Ended, HookEvidence, LadderHost, PongBox, ReadinessCheck, ReadyOutcome,
};
use crate::Result;
use crate::agent::AgentPane;
use crate::durable::{FileLock, make_directory};
use crate::env::Clock;
use crate::event_log::Recorder;
use crate::message::{MessageId, Name};
use crate::proto::ready::{self, ReadinessFailure};
use crate::requests::{GatedTask, PlanGate, RequestStore};
use crate::spool::Spool;

#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum AssignOutcome {
    /// The worker did not answer, so nothing was published.
    NotReady(ReadinessFailure),
    Delivered {
        /// The ping that the worker has answered; 0 if it was seen to be idle.
        ready_attempt: u8,
        ended: Ended,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum HandedOver {
    NotReady(ReadinessFailure),
    /// The task is in the worker's mailbox, and its ladder is left to the watcher.
    Stored {
        ready_attempt: u8,
        message: MessageId,
        attempt: u32,
    },
}

pub type AskElsewhere<'a> = dyn Fn(&Name) -> Result<ReadyOutcome> + Sync + 'a;

/// Assigns tasks, one controller at a time for each worker.
pub struct TaskAssigner<'a> {
    /// The queue's directory, where the conductor's files are put.
    pub spool: &'a Spool,
    /// Where the mailboxes are: that directory, or servers.
    pub queue: &'a dyn RequestStore,
    pub clock: &'a (dyn Clock + Send + Sync),
    pub recorder: &'a dyn Recorder,
    pub actor: Name,
    /// The state directory, `.ensemble/`.
    pub state: PathBuf,
    /// The times of the handshake, and whether it is always needed.
    pub readiness: ready::PingTimes,
    /// Reads what the hooks of a worker prove from the state directory; with `None` every worker is asked by its
    /// pane.
    pub hook: Option<fn(&Path, &Name) -> HookEvidence>,
    /// Asks a worker that another host has; with `None` the worker is asked here.
    pub elsewhere: Option<&'a AskElsewhere<'a>>,
}

impl TaskAssigner<'_> {
    /// The right to ask and to assign; dropping it releases the lock. A second assigner does not wait for it: a
    /// worker that is being assigned a task is not free for another.
    pub fn lock(&self, worker: &Name) -> Result<FileLock> {
        let locks = self.state.join("locks");
        make_directory(&locks)?;
        FileLock::acquire(&locks.join(format!("assign-{worker}.lock")), Duration::ZERO)
    }

    /// Asks whether the worker is ready (seed 000).
    pub fn ping(
        &self,
        worker: &Name,
        mut pane: Option<&mut dyn AgentPane>,
        rest: &mut dyn FnMut(Duration) -> Result<()>,
    ) -> Result<ReadyOutcome> {
        prepare(&mut pane);
        let _lock = self.lock(worker)?;
        self.ask(worker, pane, rest)
    }

    /// Asks whether the worker is ready; if so publishes the task, and waits for the ack or the end
    /// of the ladder. While `is_watched` says that a watcher runs, the ladder is left to it.
    /// Otherwise `host` runs it, and a process that is started later continues with it. Never
    /// publishes without a proof: a pong, or the worker's own hooks.
    pub fn assign(
        &self,
        order: DeliveryOrder,
        mut pane: Option<&mut dyn AgentPane>,
        host: &dyn LadderHost,
        is_watched: &dyn Fn() -> bool,
        rest: &mut dyn FnMut(Duration) -> Result<()>,
    ) -> Result<AssignOutcome> {
        prepare(&mut pane);
        let _lock = self.lock(&order.worker)?;
        let ready_attempt = match self.begin(&order, pane, rest)? {
            ReadyOutcome::Ready { attempt } => attempt,
            ReadyOutcome::NotReady(failure) => return Ok(AssignOutcome::NotReady(failure)),
        };
        let told = self.publish(order, host)?;
        let ended = self.follow(told, host, is_watched, rest)?;
        Ok(AssignOutcome::Delivered { ready_attempt, ended })
    }

    /// Asks whether the worker is ready, and if so publishes the task. Its ladder is left to the watcher:
    /// nothing is waited for but the pong.
    pub fn hand_over(
        &self,
        order: DeliveryOrder,
        mut pane: Option<&mut dyn AgentPane>,
        host: &dyn LadderHost,
        rest: &mut dyn FnMut(Duration) -> Result<()>,
    ) -> Result<HandedOver> {
        prepare(&mut pane);
        let _lock = self.lock(&order.worker)?;
        let ready_attempt = match self.begin(&order, pane, rest)? {
            ReadyOutcome::Ready { attempt } => attempt,
            ReadyOutcome::NotReady(failure) => return Ok(HandedOver::NotReady(failure)),
        };
        let told = self.publish(order, host)?;
        let (message, attempt) = (told.message, told.attempt);
        Ok(HandedOver::Stored { ready_attempt, message, attempt })
    }

    /// All that comes before a task is published, under the lock of its worker.
    fn begin(
        &self,
        order: &DeliveryOrder,
        pane: Option<&mut dyn AgentPane>,
        rest: &mut dyn FnMut(Duration) -> Result<()>,
    ) -> Result<ReadyOutcome> {
        // Before the handshake: an unknown mailbox is a mistake of the caller.
        self.queue.broker().settings(&order.envelope.to)?;
        self.may_begin(&order.task, &order.worker)?;
        self.ask(&order.worker, pane, rest)
    }

    /// Whether the worker may begin the task: asked before it is pinged, by every door that hands out.
    pub fn may_begin(&self, task: &str, worker: &Name) -> Result<()> {
        match self.queue.gate(task, worker)?.filter(PlanGate::keeps_back) {
            Some(gate) => Err(GatedTask(Box::new(gate)).into()),
            None => Ok(()),
        }
    }

    fn ask(
        &self,
        worker: &Name,
        pane: Option<&mut dyn AgentPane>,
        rest: &mut dyn FnMut(Duration) -> Result<()>,
    ) -> Result<ReadyOutcome> {
        if let Some(elsewhere) = self.elsewhere {
            return elsewhere(worker);
        }
        let pongs = PongBox::open(self.state.join("ready"))?;
        let (worker, actor) = (worker.clone(), self.actor.clone());
        let readiness = ReadinessCheck::new(worker, pongs, self.clock, self.recorder, actor);
        let readiness = match self.hook {
            Some(evidence) => readiness.with_hook(move |worker| evidence(&self.state, worker)),
            None => readiness,
        };
        readiness.with_config(self.readiness).run(pane, rest)
    }
}

/// Starts what a look needs, such as a multiplexer's client, before the lock is taken.
fn prepare(pane: &mut Option<&mut dyn AgentPane>) {
    if let Some(pane) = pane {
        // If it fails, the handshake will find out and say so.
        let _ = pane.inspect();
    }
}
