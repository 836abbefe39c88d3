//! The plan gate where messages are received and settled: whose plan for a task is not approved does
//! not take the task on.
//!
//! Only a message that names a task asks for its gate, and that is read from the leader: an agent that
//! has submitted its plan by one program and receives by another must not be quicker than its plan.

use std::collections::HashMap;
use std::path::Path;

use super::NatsTransport;
use crate::Result;
use crate::env::Lease;
use crate::message::{Envelope, MessageId, Name};
use crate::requests::{Gate, Gated, RequestStore as _, gated_task};

/// The gates of one holder, each asked for once.
pub(super) struct Gates<'a> {
    queue: &'a NatsTransport,
    holder: &'a Name,
    known: HashMap<String, Option<Gate>>,
}

impl<'a> Gates<'a> {
    /// Whose gates they are.
    pub(super) const fn holder(&self) -> &'a Name {
        self.holder
    }

    /// The closed gate of a message's task; `None` also for what cannot be read, which receiving finds
    /// out.
    pub(super) fn closed(&mut self, id: &MessageId, content: &[u8]) -> Result<Option<&Gate>> {
        let Some(task) = task_of(id, content) else { return Ok(None) };
        if !self.known.contains_key(&task) {
            let gate = self.queue.gate(&task, self.holder)?.filter(Gate::is_closed);
            self.known.insert(task.clone(), gate);
        }
        Ok(self.known.get(&task).and_then(Option::as_ref))
    }
}

/// The task of a message for which there may be a gate.
fn task_of(id: &MessageId, content: &[u8]) -> Option<String> {
    // Without the word or an escape in which it could hide there is none, and nothing to decode; what is no
    // text names no task.
    let text = std::str::from_utf8(content).ok()?;
    if !text.contains("task_id") && !content.contains(&b'\\') {
        return None;
    }
    let envelope = Envelope::decode(content, Path::new(id.as_str())).ok()?;
    gated_task(&envelope).map(str::to_owned)
}

impl NatsTransport {
    pub(super) fn gates_of<'a>(&'a self, holder: &'a Name) -> Gates<'a> {
        Gates { queue: self, holder, known: HashMap::new() }
    }

    /// The gate that keeps a holder from a message.
    pub(super) fn closed_gate(
        &self,
        id: &MessageId,
        content: &[u8],
        holder: &Name,
    ) -> Result<Option<Gate>> {
        Ok(self.gates_of(holder).closed(id, content)?.cloned())
    }

    /// Refuses what a holder may not do while its task is gated.
    pub(super) fn pass_gate(&self, lease: &Lease, content: &[u8]) -> Result<()> {
        match self.closed_gate(&lease.id, content, &lease.holder)? {
            None => Ok(()),
            Some(gate) => Err(Gated(Box::new(gate)).into()),
        }
    }

    /// The gates that keep waiting messages of a mailbox from a holder, each once.
    pub(super) fn gates_before(&self, mailbox: &Name, holder: &Name) -> Result<Vec<Gate>> {
        let mut found: Vec<Gate> = Vec::new();
        let mut gates = self.gates_of(holder);
        for (id, content) in self.due(mailbox)? {
            if let Some(gate) = gates.closed(&id, &content)?
                && !found.contains(gate)
            {
                found.push(gate.clone());
            }
        }
        Ok(found)
    }

    /// As [`NatsTransport::due_ids`], without the messages that a gate keeps from this holder.
    ///
    /// # Errors
    /// [`Error::NoMailbox`] or [`Error::Server`].
    pub fn due_ids_for(
        &self,
        mailbox: &Name,
        holder: &Name,
        limit: usize,
    ) -> Result<Vec<MessageId>> {
        if !self.may_have_gates(holder) {
            return self.due_ids(mailbox, limit);
        }
        let (mut ids, mut gates) = (Vec::new(), self.gates_of(holder));
        for (id, content) in self.due(mailbox)? {
            if ids.len() < limit && gates.closed(&id, &content)?.is_none() {
                ids.push(id);
            }
        }
        Ok(ids)
    }
}
