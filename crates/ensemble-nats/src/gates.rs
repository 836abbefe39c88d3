//! The plan gate for receiving and settling: an agent whose plan for a task is not approved cannot
//! take the task.
//!
//! Only for a message that names a task is the gate read, from the leader. An agent may submit its
//! plan with one program and receive with another; the message must not overtake the plan.

use std::collections::HashMap;
use std::path::Path;

use super::NatsTransport;
use ensemble_core::env::Lease;
use ensemble_core::message::{Envelope, MessageId, Name};
use ensemble_core::requests::{
    GatedTask, PlanGate, RequestStore as _, UndecidedRequest, asked_request, gated_task,
};
use ensemble_core::spool::{begins_work, refusal_to_begin};
use ensemble_core::{Error, Result};

pub(super) struct HolderGates<'a> {
    queue: &'a NatsTransport,
    holder: &'a Name,
    known: HashMap<String, Option<PlanGate>>,
    /// Whether the holder may begin nothing, and whether it may not begin some tasks, once that was asked.
    stopped: Option<(bool, bool)>,
    is_done: bool,
}

impl<'a> HolderGates<'a> {
    pub(super) const fn holder(&self) -> &'a Name {
        self.holder
    }

    /// For work that is done: nothing keeps the holder from beginning it, and each closed gate from handing it in.
    pub(super) fn of_done_work(self) -> Self {
        Self { stopped: Some((false, false)), is_done: true, ..self }
    }

    /// Whether the holder may not receive a message, for its plan or because it may not begin it.
    pub(super) fn refuse(&mut self, id: &MessageId, content: &[u8]) -> Result<bool> {
        if let Some(standstill) = &self.queue.standstill {
            let (from_all, from_some) = match self.stopped {
                Some(stopped) => stopped,
                None => *self.stopped.insert(self.queue.stops(self.holder)?),
            };
            let begins =
                || Envelope::decode(content, Path::new(id.as_str())).ok().filter(begins_work);
            if (from_all || from_some)
                && let Some(envelope) = begins()
                && (from_all
                    || standstill
                        .refusal_of_task(self.holder, envelope.task_id.as_deref())?
                        .is_some())
            {
                return Ok(true);
            }
        }
        Ok(self.keeping_back(id, content)?.is_some())
    }

    pub(super) fn refusal(&mut self, id: &MessageId, content: &[u8]) -> Result<Option<Error>> {
        if !self.refuse(id, content)? {
            return Ok(None);
        }
        let envelope = Envelope::decode(content, Path::new(id.as_str()));
        if let (Ok(envelope), Some(standstill)) = (envelope, &self.queue.standstill)
            && let Some(refusal) =
                refusal_to_begin(&**standstill, self.holder, &envelope, Some(self.queue))?
        {
            return Ok(Some(refusal));
        }
        Ok(self.keeping_back(id, content)?.map(|gate| GatedTask(Box::new(gate.clone())).into()))
    }

    /// The plan gate that keeps the holder from a message; `None` also for a message that cannot be read,
    /// which the receive reports.
    pub(super) fn keeping_back(
        &mut self,
        id: &MessageId,
        content: &[u8],
    ) -> Result<Option<&PlanGate>> {
        let is_done = self.is_done;
        Ok(self.closed(id, content)?.filter(|gate| is_done || gate.keeps_back()))
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
    /// Whether a holder may begin nothing now, and whether it may not begin some tasks.
    fn stops(&self, holder: &Name) -> Result<(bool, bool)> {
        let Some(standstill) = &self.standstill else { return Ok((false, false)) };
        Ok((standstill.refusal(holder, Some(self))?.is_some(), standstill.refuses_tasks()?))
    }

    pub(super) fn gates_of<'a>(&'a self, holder: &'a Name) -> HolderGates<'a> {
        HolderGates { queue: self, holder, known: HashMap::new(), stopped: None, is_done: false }
    }

    pub(super) fn closed_gate(
        &self,
        id: &MessageId,
        content: &[u8],
        holder: &Name,
    ) -> Result<Option<PlanGate>> {
        Ok(self.gates_of(holder).closed(id, content)?.cloned())
    }

    /// Refuses that a message is settled while its task is gated, or its question is undecided.
    pub(super) fn may_settle(&self, lease: &Lease, content: &[u8]) -> Result<()> {
        if let Some(request) = asked_request(&lease.id)
            && self.files(&request)?.is_some_and(|files| files.decision.is_none())
        {
            return Err(UndecidedRequest { request }.into());
        }
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
    pub fn due_ids_for(
        &self,
        mailbox: &Name,
        holder: &Name,
        limit: usize,
    ) -> Result<Vec<MessageId>> {
        if !self.may_have_gates(holder) && self.stops(holder)? == (false, false) {
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
