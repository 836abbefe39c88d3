//! Messages of tasks whose plan is not approved: they wait until it is (see
//! [`crate::requests::Gate`]). What belongs to a request passes, the answer to the plan above all.
//!
//! A queue without gates pays one failed open for this. For a holder that has a gate the usual
//! listing is of no use, since it would offer the gated messages again and again; its mailbox is
//! listed anew for each receive.

use std::collections::VecDeque;

use super::mailbox::Mailbox;
use super::place::{self, Held};
use super::waiting::{self, Candidate};
use super::{Settings, Spool};
use crate::durable::Dir;
use crate::env::{Delivery, Lease};
use crate::message::{ENVELOPE_BYTES_MAX, Envelope, MessageId, Name};
use crate::requests::{Gate, Gates, gated_task};
use crate::{Error, Result};

impl Spool {
    /// The gates, if there are any for this holder.
    pub(super) fn gates_of(&self, mailbox: &Mailbox, holder: &Name) -> Result<Option<Gates>> {
        // Most often there is none: look only, in the queue that is open anyway.
        if mailbox.queue.stat(crate::requests::GATES)?.is_none() {
            return Ok(None);
        }
        match Gates::open(self.queue_dir()?)? {
            Some(gates) if gates.has_any(holder)? => Ok(Some(gates)),
            _ => Ok(None),
        }
    }

    /// As [`Spool::receive`], for a holder that has gates.
    pub(super) fn receive_gated(
        &self,
        mailbox: &std::sync::Arc<Mailbox>,
        settings: &Settings,
        holder: &Name,
        gates: &Gates,
    ) -> Result<Option<Delivery>> {
        for candidate in self.candidates(mailbox)? {
            let (dir, file, id, epoch) = parts(mailbox, candidate);
            if closed(gates, dir, &file, holder)?.is_some() {
                continue;
            }
            let held = Held { id, holder: holder.clone(), epoch: epoch + 1 };
            if let Some(delivery) = self.claim(mailbox, settings, (dir, &file), held)? {
                return Ok(Some(delivery));
            }
        }
        Ok(None)
    }

    /// The gates that keep waiting messages of this mailbox from this holder, each once.
    ///
    /// # Errors
    /// The mailbox is unknown, or a gate cannot be read.
    pub fn gated(&self, mailbox: &Name, holder: &Name) -> Result<Vec<Gate>> {
        let mailbox = self.mailbox(mailbox)?;
        let Some(gates) = self.gates_of(&mailbox, holder)? else { return Ok(Vec::new()) };
        let mut found: Vec<Gate> = Vec::new();
        for candidate in self.candidates(&mailbox)? {
            let (dir, file, ..) = parts(&mailbox, candidate);
            if let Some(gate) = closed(&gates, dir, &file, holder)?
                && !found.contains(&gate)
            {
                found.push(gate);
            }
        }
        Ok(found)
    }

    /// As [`Spool::due_ids`], without the messages that a gate keeps from this holder.
    ///
    /// # Errors
    /// As for [`Spool::due_ids`], or a gate cannot be read.
    pub fn due_ids_for(&self, name: &Name, holder: &Name, limit: usize) -> Result<Vec<MessageId>> {
        let mailbox = self.mailbox(name)?;
        let Some(gates) = self.gates_of(&mailbox, holder)? else {
            return self.due_ids(name, limit);
        };
        let mut ids = Vec::new();
        for candidate in self.candidates(&mailbox)? {
            let (dir, file, id, _) = parts(&mailbox, candidate);
            if ids.len() < limit && closed(&gates, dir, &file, holder)?.is_none() {
                ids.push(id);
            }
        }
        Ok(ids)
    }

    /// The gate that keeps this lease's holder from its message; `None` if nothing does.
    ///
    /// # Errors
    /// As for [`Spool::due_ids_for`].
    pub fn gate_of(&self, lease: &Lease) -> Result<Option<Gate>> {
        let mailbox = self.mailbox(&lease.mailbox)?;
        self.gate_before(&mailbox, (&mailbox.cur, &Held::from(lease).file()), &lease.holder)
    }

    /// Refuses what a holder may not do while its task is gated.
    pub(super) fn pass_gate(&self, gate: Option<Gate>) -> Result<()> {
        gate.map_or(Ok(()), |gate| Err(Error::Gated(Box::new(gate))))
    }

    /// The gate between a holder and a message, which was found there.
    pub(super) fn gate_before(
        &self,
        mailbox: &Mailbox,
        (dir, file): (&Dir, &str),
        holder: &Name,
    ) -> Result<Option<Gate>> {
        match self.gates_of(mailbox, holder)? {
            None => Ok(None),
            Some(gates) => closed(&gates, dir, file, holder),
        }
    }

    /// What is due now, in the order of receiving.
    fn candidates(&self, mailbox: &Mailbox) -> Result<VecDeque<Candidate>> {
        let now = self.wall_millis();
        let mut front = waiting::list_front(&mailbox.front)?;
        front.retain(|f| f.not_before <= now);
        let new = waiting::list_new(&mailbox.new)?;
        Ok(front
            .into_iter()
            .rev()
            .map(Candidate::Front)
            .chain(new.into_ids().map(Candidate::New))
            .collect())
    }
}

/// Where a candidate lies, its id, and its deliveries so far.
fn parts(mailbox: &Mailbox, candidate: Candidate) -> (&Dir, String, MessageId, u64) {
    match candidate {
        Candidate::New(id) => (&mailbox.new, place::plain(&id), id, 0),
        Candidate::Front(front) => (&mailbox.front, front.file(), front.id.clone(), front.epoch),
    }
}

/// The closed gate of a message's task; `None` also for a message that is gone or cannot be read,
/// which receiving finds out.
pub(super) fn closed(gates: &Gates, dir: &Dir, file: &str, holder: &Name) -> Result<Option<Gate>> {
    let content = match dir.read(file, ENVELOPE_BYTES_MAX) {
        Ok(Some(content)) => content,
        Ok(None) | Err(Error::Malformed { .. } | Error::TooLarge { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let Ok(envelope) = Envelope::decode(&content, &dir.path().join(file)) else { return Ok(None) };
    let Some(task) = gated_task(&envelope) else { return Ok(None) };
    Ok(gates.find(task, holder)?.filter(Gate::is_closed))
}
