//! The plan gate for receiving and settling: an agent whose plan for a task is not approved cannot
//! take the task.
//!
//! Only for a message that names a task is the gate read, from the leader. An agent may submit its
//! plan with one program and receive with another; the message must not overtake the plan.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use super::NatsTransport;
use ensemble_core::env::Lease;
use ensemble_core::message::{Envelope, MessageId, Name};
use ensemble_core::requests::{GatedTask, PlanGate, RequestStore as _, gated_task};
use ensemble_core::spool::{Standstill, begins_work};
use ensemble_core::{Error, Result};

/// The plan gates of one holder, each read once.
pub(super) struct HolderGates<'a> {
    queue: &'a NatsTransport,
    holder: &'a Name,
    known: HashMap<String, Option<PlanGate>>,
    /// Whether the holder may begin nothing, once that was asked.
    stopped: Option<bool>,
}

impl<'a> HolderGates<'a> {
    pub(super) const fn holder(&self) -> &'a Name {
        self.holder
    }

    /// Whether the holder may not receive a message, for its plan or because it may begin nothing.
    pub(super) fn refuse(&mut self, id: &MessageId, content: &[u8]) -> Result<bool> {
        if self.keeping_back(id, content)?.is_some() {
            return Ok(true);
        }
        let stopped = match self.stopped {
            Some(stopped) => stopped,
            None => *self.stopped.insert(self.queue.standstill(self.holder)?.is_some()),
        };
        let begins = || {
            let envelope = Envelope::decode(content, Path::new(id.as_str()));
            envelope.is_ok_and(|envelope| begins_work(&envelope))
        };
        Ok(stopped && begins())
    }

    /// The plan gate that keeps the holder from a message; `None` also for a message that cannot be read,
    /// which the receive reports.
    pub(super) fn keeping_back(
        &mut self,
        id: &MessageId,
        content: &[u8],
    ) -> Result<Option<&PlanGate>> {
        Ok(self.closed(id, content)?.filter(|gate| gate.keeps_back()))
    }

    /// The closed plan gate of a message's task; `None` also for a message that cannot be read.
    pub(super) fn closed(&mut self, id: &MessageId, content: &[u8]) -> Result<Option<&PlanGate>> {
        let Some(task) = task_of(id, content) else { return Ok(None) };
        if !self.known.contains_key(&task) {
            let gate = self.queue.gate(&task, self.holder)?.filter(PlanGate::is_closed);
            self.known.insert(task.clone(), gate);
        }
        Ok(self.known.get(&task).and_then(Option::as_ref))
    }
}

/// The task of a message for which there may be a plan gate.
fn task_of(id: &MessageId, content: &[u8]) -> Option<String> {
    // Without the word, or an escape that could hide it, there is no task and nothing to decode. A
    // content that is not text names no task.
    let text = std::str::from_utf8(content).ok()?;
    if !text.contains("task_id") && !content.contains(&b'\\') {
        return None;
    }
    let envelope = Envelope::decode(content, Path::new(id.as_str())).ok()?;
    gated_task(&envelope).map(str::to_owned)
}

impl NatsTransport {
    /// Why a holder may begin nothing now.
    pub(super) fn standstill(&self, holder: &Name) -> Result<Option<Error>> {
        let refusal = |standstill: &Arc<dyn Standstill>| standstill.refusal(holder, Some(self));
        self.standstill.as_ref().map_or(Ok(None), refusal)
    }

    pub(super) fn gates_of<'a>(&'a self, holder: &'a Name) -> HolderGates<'a> {
        HolderGates { queue: self, holder, known: HashMap::new(), stopped: None }
    }

    /// The plan gate that keeps a message from a holder.
    pub(super) fn closed_gate(
        &self,
        id: &MessageId,
        content: &[u8],
        holder: &Name,
    ) -> Result<Option<PlanGate>> {
        Ok(self.gates_of(holder).closed(id, content)?.cloned())
    }

    /// Refuses an action of a holder while its task is gated.
    pub(super) fn pass_gate(&self, lease: &Lease, content: &[u8]) -> Result<()> {
        match self.closed_gate(&lease.id, content, &lease.holder)? {
            None => Ok(()),
            Some(gate) => Err(GatedTask(Box::new(gate)).into()),
        }
    }

    /// The plan gates that keep waiting messages of a mailbox from a holder, each once.
    pub(super) fn gates_before(&self, mailbox: &Name, holder: &Name) -> Result<Vec<PlanGate>> {
        let mut found: Vec<PlanGate> = Vec::new();
        let mut gates = self.gates_of(holder);
        for (id, content) in self.due(mailbox)? {
            if let Some(gate) = gates.keeping_back(&id, &content)?
                && !found.contains(gate)
            {
                found.push(gate.clone());
            }
        }
        Ok(found)
    }

    /// As [`NatsTransport::due_ids`], without the messages that a plan gate keeps from this holder.
    ///
    /// # Errors
    /// [`Error::NoMailbox`] or [`Error::Server`].
    pub fn due_ids_for(
        &self,
        mailbox: &Name,
        holder: &Name,
        limit: usize,
    ) -> Result<Vec<MessageId>> {
        if !self.may_have_gates(holder) && self.standstill(holder)?.is_none() {
            return self.due_ids(mailbox, limit);
        }
        let (mut ids, mut gates) = (Vec::new(), self.gates_of(holder));
        for (id, content) in self.due(mailbox)? {
            if ids.len() < limit && !gates.refuse(&id, &content)? {
                ids.push(id);
            }
        }
        Ok(ids)
    }
}
