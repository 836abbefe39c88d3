//! Messages that the [`Admission`] refuses to a holder: they wait until it admits them.
//!
//! The usual listing would offer a refused message again and again. So the mailbox is listed again for each
//! receive by a holder that the admission concerns.

use std::collections::VecDeque;

use super::mailbox::OpenMailbox;
use super::place::{self, HeldFile};
use super::waiting::{self, Candidate};
use super::{Admission, Settings, Spool};
use crate::durable::Dir;
use crate::env::{Delivery, Lease};
use crate::error::allow_unreadable;
use crate::message::{ENVELOPE_BYTES_MAX, Envelope, MessageId, Name};
use crate::{Error, Result};

/// # Count for one holder
impl Spool {
    /// The admission, if it may refuse some message to this holder.
    pub(super) fn admission_of(
        &self,
        mailbox: &OpenMailbox,
        holder: &Name,
    ) -> Result<Option<&dyn Admission>> {
        match self.options.admission.as_deref() {
            Some(admission) if admission.concerns(&mailbox.queue, holder)? => Ok(Some(admission)),
            _ => Ok(None),
        }
    }

    /// As [`Spool::receive`], for a holder that the admission concerns.
    pub(super) fn receive_gated(
        &self,
        mailbox: &std::sync::Arc<OpenMailbox>,
        settings: &Settings,
        holder: &Name,
        admission: &dyn Admission,
    ) -> Result<Option<Delivery>> {
        for candidate in self.candidates(mailbox)? {
            let (dir, file, id, epoch) = parts(mailbox, candidate);
            if refusal(admission, mailbox, (dir, &file), holder, false)?.is_some() {
                continue;
            }
            let held = HeldFile { id, holder: holder.clone(), epoch: epoch + 1 };
            if let Some(delivery) = self.claim(mailbox, settings, (dir, &file), held)? {
                return Ok(Some(delivery));
            }
        }
        Ok(None)
    }

    /// The messages that could be received now but for the admission, in the order of receiving. A message that
    /// is gone or cannot be read is left out.
    pub(crate) fn due_envelopes(&self, mailbox: &Name) -> Result<Vec<Envelope>> {
        let mailbox = self.mailbox(mailbox)?;
        let mut found = Vec::new();
        for candidate in self.candidates(&mailbox)? {
            let (dir, file, ..) = parts(&mailbox, candidate);
            found.extend(read(dir, &file)?);
        }
        Ok(found)
    }

    /// The message of this lease; `None` if the lease has ended or the message cannot be read.
    pub(crate) fn held_envelope(&self, lease: &Lease) -> Result<Option<Envelope>> {
        read(&self.mailbox(&lease.mailbox)?.cur, &HeldFile::from(lease).file())
    }

    /// As [`Spool::due_ids`], without the messages that the admission refuses to this holder.
    pub fn due_ids_for(&self, name: &Name, holder: &Name, limit: usize) -> Result<Vec<MessageId>> {
        let mailbox = self.mailbox(name)?;
        let Some(admission) = self.admission_of(&mailbox, holder)? else {
            return self.due_ids(name, limit);
        };
        let mut ids = Vec::new();
        for candidate in self.candidates(&mailbox)? {
            let (dir, file, id, _) = parts(&mailbox, candidate);
            let refused = || refusal(admission, &mailbox, (dir, &file), holder, false);
            if ids.len() < limit && refused()?.is_none() {
                ids.push(id);
            }
        }
        Ok(ids)
    }

    /// Refuses a message that was found there, if the admission does: to be settled if its work is done.
    pub(super) fn admit(
        &self,
        mailbox: &OpenMailbox,
        (dir, file): (&Dir, &str),
        holder: &Name,
        is_done: bool,
    ) -> Result<()> {
        let Some(admission) = self.admission_of(mailbox, holder)? else { return Ok(()) };
        refusal(admission, mailbox, (dir, file), holder, is_done)?.map_or(Ok(()), Err)
    }

    /// The messages that are due now, in the order of receiving.
    fn candidates(&self, mailbox: &OpenMailbox) -> Result<VecDeque<Candidate>> {
        let mut front = waiting::list_front(&mailbox.front)?;
        front.retain(|message| self.is_due(&mailbox.front, message));
        let new = waiting::list_new(&mailbox.new)?.into_ids().map(Candidate::New);
        Ok(front.into_iter().rev().map(Candidate::Front).chain(new).collect())
    }
}

/// The directory and file of a candidate, its id, and how often it was delivered.
pub(super) fn parts(mailbox: &OpenMailbox, candidate: Candidate) -> (&Dir, String, MessageId, u64) {
    match candidate {
        Candidate::New(id) => (&mailbox.new, place::plain(&id), id, 0),
        Candidate::Front(front) => (&mailbox.front, front.file(), front.id, front.epoch),
    }
}

/// Why the admission refuses that the holder receives a message, or settles it if its work `is_done`; `None` also for
/// one that is gone or cannot be read, which receiving finds out.
pub(super) fn refusal(
    admission: &dyn Admission,
    mailbox: &OpenMailbox,
    (dir, file): (&Dir, &str),
    holder: &Name,
    is_done: bool,
) -> Result<Option<Error>> {
    let Some(envelope) = read(dir, file)? else { return Ok(None) };
    let ask = if is_done { Admission::refusal_to_settle } else { Admission::refusal };
    ask(admission, &mailbox.queue, holder, &envelope)
}

fn read(dir: &Dir, file: &str) -> Result<Option<Envelope>> {
    let content = allow_unreadable(dir.read(file, ENVELOPE_BYTES_MAX))?.flatten();
    Ok(content.and_then(|content| Envelope::decode(&content, &dir.path().join(file)).ok()))
}
