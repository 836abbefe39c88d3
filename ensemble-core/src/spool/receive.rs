//! Receive: `new/` or `front/` to `cur/` (S2 to S3). The rename is the ack: of any number of
//! consumers that try for a message, in any number of processes, exactly one succeeds.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, PoisonError};

use super::backlog::Backlog;
use super::gated::parts;
use super::mailbox::OpenMailbox;
use super::place::{self, FrontFile, HeldFile};
use super::{Settings, Spool};
use crate::durable::{Dir, MoveOutcome};
use crate::env::Delivery;
use crate::event_log::types;
use crate::mail;
use crate::message::{ENVELOPE_BYTES_MAX, Envelope, MessageId, Name, canonical};
use crate::{Error, Result};

/// # Receive
impl Spool {
    /// Takes the next due message for `holder`: urgent ones first, then the oldest. Messages that
    /// cannot be read or have expired are dead-lettered on the way; those that the
    /// [`Admission`](super::Admission) refuses to `holder` are passed over.
    ///
    /// Never waits for a message; several consumers may share a mailbox.
    pub fn receive(&self, mailbox: &Name, holder: &Name) -> Result<Option<Delivery>> {
        Ok(self.receive_batch(mailbox, holder, 1)?.pop())
    }

    /// Receives up to `limit` due messages for `holder`, each as [`Spool::receive`] does, in that order. Three things
    /// are looked up once for the whole batch: that the mailbox is where it was, its settings, and whether there are
    /// gates.
    ///
    /// Each has its own lease, and all of these run from now: receive no more than the holder can finish before they
    /// expire.
    ///
    /// # Errors
    /// As for [`Spool::receive`], if nothing was taken before; otherwise what was received is returned.
    pub fn receive_batch(
        &self,
        mailbox: &Name,
        holder: &Name,
        limit: usize,
    ) -> Result<Vec<Delivery>> {
        self.receive_some(mailbox, holder, limit, &[])
    }

    /// As [`Spool::receive_batch`], by a consumer that found nothing before the files of these names landed in `new/`.
    pub(super) fn receive_some(
        &self,
        mailbox: &Name,
        holder: &Name,
        limit: usize,
        landed: &[String],
    ) -> Result<Vec<Delivery>> {
        let mailbox = self.mailbox(mailbox)?;
        let settings = mailbox.settings()?;
        let admission = self.admission_of(&mailbox, holder)?;
        if !landed.is_empty() {
            mailbox.lock_waiting().expect_landed(&mailbox.new, landed)?;
        }
        let mut taken = Vec::new();
        while taken.len() < limit {
            let next = match admission {
                Some(admission) => self.receive_gated(&mailbox, &settings, holder, admission),
                None => self.receive_next(&mailbox, &settings, holder),
            };
            match next {
                Ok(Some(delivery)) => taken.push(delivery),
                Err(error) if taken.is_empty() => return Err(error),
                // Return what was claimed so far; the next call reports the error.
                Ok(None) | Err(_) => break,
            }
        }
        Ok(taken)
    }

    /// As [`Spool::receive`], for a holder that the admission does not concern.
    fn receive_next(
        &self,
        mailbox: &Arc<OpenMailbox>,
        settings: &Settings,
        holder: &Name,
    ) -> Result<Option<Delivery>> {
        let backlog = Backlog { home: &mailbox.home, tmp: &mailbox.tmp, modes: self.options.modes };
        let shares = self.options.share_backlog;
        loop {
            let candidate = {
                let mut waiting = mailbox.lock_waiting();
                let is_due = |message: &FrontFile| self.is_due(&mailbox.front, message);
                waiting.next(&mailbox.new, &mailbox.front, backlog, shares, &is_due)?
            };
            let Some(candidate) = candidate else { return Ok(None) };
            let (dir, file, id, epoch) = parts(mailbox, candidate);
            let held = HeldFile { id, holder: holder.clone(), epoch: epoch + 1 };
            if let Some(delivery) = self.claim(mailbox, settings, (dir, &file), held)? {
                return Ok(Some(delivery));
            }
        }
    }

    /// Takes one particular waiting message for `holder`; `None` if it does not wait any more.
    pub fn receive_id(
        &self,
        mailbox: &Name,
        id: &MessageId,
        holder: &Name,
    ) -> Result<Option<Delivery>> {
        self.take_waiting(mailbox, id, holder, false)
    }

    /// As [`Spool::receive_id`], to settle work that is done: it is enough that the holder may settle it.
    pub fn receive_done(
        &self,
        mailbox: &Name,
        id: &MessageId,
        holder: &Name,
    ) -> Result<Option<Delivery>> {
        self.take_waiting(mailbox, id, holder, true)
    }

    fn take_waiting(
        &self,
        mailbox: &Name,
        id: &MessageId,
        holder: &Name,
        is_done: bool,
    ) -> Result<Option<Delivery>> {
        let mailbox = self.mailbox(mailbox)?;
        let settings = mailbox.settings()?;
        let Some(location) = mailbox.locate(id)? else { return Ok(None) };
        let Some(epoch) = location.deliveries_of_waiting() else { return Ok(None) };
        let held = HeldFile { id: id.clone(), holder: holder.clone(), epoch: epoch + 1 };
        let (dir, file) = mailbox.file_at(id, &location);
        self.admit(&mailbox, (dir, &file), holder, is_done)?;
        self.claim(&mailbox, &settings, (dir, &file), held)
    }

    pub(super) fn claim(
        &self,
        mailbox: &Arc<OpenMailbox>,
        settings: &Settings,
        from: (&Dir, &str),
        held: HeldFile,
    ) -> Result<Option<Delivery>> {
        let file = held.file();
        let moved = from.0.move_new(from.1, &mailbox.cur, &file)?;
        {
            let mut waiting = mailbox.lock_waiting();
            if moved == MoveOutcome::Done { waiting.won_race() } else { waiting.lost_race() }
        }
        match moved {
            MoveOutcome::Gone if from.0.stat(from.1)?.is_some() => {
                // No consumer has taken it: its target directory is gone. Open that again.
                let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
                open.remove(&mailbox.name);
                Err(Error::io("move to", mailbox.cur.path().join(file), ErrorKind::NotFound))
            }
            MoveOutcome::Gone => Ok(None),
            MoveOutcome::Exists => {
                self.set_aside_double(mailbox, from, &held)?;
                Ok(None)
            }
            MoveOutcome::Done => self.load(mailbox, settings, held, &file),
        }
    }

    fn load(
        &self,
        mailbox: &Arc<OpenMailbox>,
        settings: &Settings,
        held: HeldFile,
        file: &str,
    ) -> Result<Option<Delivery>> {
        let read = match mailbox.cur.read_with_stat(file, ENVELOPE_BYTES_MAX) {
            // This process was stopped after it took the message, and its lease has expired.
            Ok(None) => return Ok(None),
            Ok(Some(read)) => Ok(read),
            Err(error) => Err(error),
        };
        let read = read.and_then(|(stat, content)| {
            let plain = place::plain(&held.id);
            // The whole path only matters to an error, and is only made for one.
            let path = || mailbox.new.path().join(&plain);
            let envelope = Envelope::decode(&content, Path::new(&plain))
                .or_else(|_| Envelope::decode(&content, &path()))?;
            match self.refuse_owner(&envelope.from, &stat)? {
                Some(detail) => Err(Error::malformed(path(), "from", detail)),
                None => Ok(envelope),
            }
        });
        match &read {
            Ok(_) => {}
            Err(Error::Malformed { .. } | Error::TooLarge { .. }) => {
                let content = mailbox.cur.read(file, ENVELOPE_BYTES_MAX);
                if content.is_ok_and(|it| it.is_some_and(|it| canonical::is_torn(&it))) {
                    self.set_aside_damaged(mailbox, &mailbox.cur, file, &held.id)?;
                    return Ok(None);
                }
            }
            Err(_) => return read.map(|_| None),
        }
        let path = || mailbox.new.path().join(place::plain(&held.id));
        let envelope = match mail::check_fit(read, &held.id, path, || self.now()) {
            Ok(envelope) => envelope,
            Err(reason) => {
                return match self.bury(mailbox, &held, &reason) {
                    Ok(()) | Err(Error::LeaseLost { .. }) => Ok(None),
                    Err(error) => Err(error),
                };
            }
        };
        let lease = held.lease(&mailbox.name);
        mail::record_held(self.recorder(), types::MESSAGE_ACKED, &lease);
        Ok(Some(Delivery::new(envelope, lease, settings.lease_duration())))
    }

    fn set_aside_double(
        &self,
        mailbox: &OpenMailbox,
        from: (&Dir, &str),
        held: &HeldFile,
    ) -> Result<()> {
        // Only a copy made by hand can be a duplicate: keep it in `dead/`, where it does no harm.
        let aside = place::double(&held.id);
        from.0.move_new(from.1, &mailbox.dead, &aside)?;
        let kept_as = format!("dead/{aside}");
        let data =
            serde_json::json!({ "id": held.id, "mailbox": mailbox.name, "kept_as": kept_as });
        self.record(types::MESSAGE_DOUBLE, &held.holder, data);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spool::SpoolOptions;

    /// As of a process that is stopped between its rename and the look at the message.
    #[test]
    fn a_message_that_was_taken_away_before_it_was_read_is_passed_over() {
        let home = tempfile::tempdir().unwrap();
        let spool = Spool::create(&home.path().join("queue"), SpoolOptions::default()).unwrap();
        let agent = Name::new("w1").unwrap();
        spool.add_mailbox(&agent, &Settings::default()).unwrap();
        let mailbox = spool.mailbox(&agent).unwrap();
        let id = Envelope::new(agent.clone(), "count").id;
        let held = HeldFile { id, holder: agent, epoch: 1 };
        let file = held.file();
        let loaded = spool.load(&mailbox, &Settings::default(), held, &file);
        assert!(matches!(loaded, Ok(None)), "{loaded:?}");
    }
}
