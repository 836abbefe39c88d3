//! The calls by which a holder finishes with a message: settle, release, extend. Each is refused once the lease has
//! ended, because the file then has another name.

use std::sync::PoisonError;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::dead::read_side_file;
use super::gated::refusal;
use super::mailbox::OpenMailbox;
use super::place::{self, FrontFile, HeldFile};
use super::{Admission, Spool, State, lease_lost};
use crate::durable::{Dir, Durability, MoveOutcome};
use crate::env::Lease;
use crate::error::allow_unreadable;
use crate::event_log::types;
use crate::mail;
use crate::message::period::read_seconds;
use crate::message::{ENVELOPE_BYTES_MAX, Envelope, Name};
use crate::{Error, Result};

/// The largest side file of a lease, in bytes.
const EXTENSION_BYTES_MAX: usize = 1024;

/// How many deliveries of a finished message are looked for side files.
const DELIVERIES_FORGOTTEN: u64 = 16;

/// The side file of a lease that was extended. A new `sequence` is the sign of life; observers
/// measure `lease_seconds` from when they saw it change, on their own clocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LeaseExtension {
    pub(super) sequence: u64,
    #[serde(deserialize_with = "read_seconds")]
    pub(super) lease_seconds: u64,
    /// The holder, once this delivery has ended (see `former`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) holder: Option<Name>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct HandBack<'a> {
    /// When it can be received again, from now.
    pub(super) delay: Duration,
    /// For the event log, and for the reason of a dead letter.
    pub(super) why: &'a str,
    pub(super) patience: Duration,
    /// Whether this delivery counts as one of the message's attempts.
    pub(super) is_attempt: bool,
}

/// # Settle, release, extend
impl Spool {
    /// Says that the work is done: `cur/` to `done/` (S3 to S4).
    pub fn settle(&self, lease: &Lease) -> Result<()> {
        self.settle_batch(std::slice::from_ref(lease))?.pop().unwrap_or(Ok(()))
    }

    /// Says that the work of several messages is done, each as [`Spool::settle`] does; one outcome for each
    /// lease, in their order. At [`Durability::Power`] neighbours in one mailbox share a sync.
    ///
    /// # Errors
    /// A mailbox is unknown or the disk failed. Those before it are settled; so may be those of its
    /// mailbox, which a second try finds out.
    pub fn settle_batch(&self, leases: &[Lease]) -> Result<Vec<Result<()>>> {
        let mut outcomes = Vec::with_capacity(leases.len());
        let are_alike = |a: &Lease, b: &Lease| a.mailbox == b.mailbox && a.holder == b.holder;
        for alike in leases.chunk_by(are_alike) {
            self.settle_alike(alike, &mut outcomes)?;
        }
        Ok(outcomes)
    }

    fn settle_alike(&self, leases: &[Lease], outcomes: &mut Vec<Result<()>>) -> Result<()> {
        let Some(Lease { mailbox: name, holder, .. }) = leases.first() else { return Ok(()) };
        // A held message is settled where it is held, wherever that was moved to since.
        let known = self.known_mailbox(name);
        let is_known = known.is_some();
        let mut mailbox = known.map_or_else(|| self.mailbox(name), Ok)?;
        let admission = self.admission_of(&mailbox, holder)?;
        let first = outcomes.len();
        let mut moved = Vec::new();
        for lease in leases {
            let mut outcome = self.move_settled(&mailbox, lease, admission);
            if is_known && matches!(outcome, Err(Error::LeaseLost { .. })) && !mailbox.is_current()
            {
                mailbox = self.mailbox(name)?;
                outcome = self.move_settled(&mailbox, lease, admission);
            }
            if matches!(outcome, Ok(MoveOutcome::Done)) && self.is_power() {
                moved.push(place::plain(&lease.id));
            }
            outcomes.push(outcome.map(drop));
        }
        self.sync_moved(&mailbox, &mailbox.done, &moved)?;
        for (lease, _) in leases.iter().zip(&outcomes[first..]).filter(|(_, done)| done.is_ok()) {
            forget_deliveries(&mailbox, &HeldFile::from(lease));
            mail::record_held(self.recorder(), types::MESSAGE_SETTLED, lease);
        }
        Ok(())
    }

    /// The rename, and nothing that makes it safe.
    fn move_settled(
        &self,
        mailbox: &OpenMailbox,
        lease: &Lease,
        admission: Option<&dyn Admission>,
    ) -> Result<MoveOutcome> {
        let held = HeldFile::from(lease);
        if let Some(admission) = &self.options.admission {
            admission.unfinished(&mailbox.queue, &held.id)?.map_or(Ok(()), Err)?;
        }
        if let Some(admission) = admission {
            let file = held.file();
            refusal(admission, mailbox, (&mailbox.cur, &file), &held.holder, true)?
                .map_or(Ok(()), Err)?;
        }
        let moved = mailbox.cur.move_new(&held.file(), &mailbox.done, &place::plain(&held.id))?;
        match moved {
            MoveOutcome::Gone => return Err(self.lost(mailbox, &held)),
            // Only a copy made by hand can be settled twice; the settled one stays.
            MoveOutcome::Exists => self.bury(mailbox, &held, mail::SETTLED_BEFORE)?,
            MoveOutcome::Done => {}
        }
        Ok(moved)
    }

    /// Gives a message back, to be received again after `delay`: `cur/` to `front/` (S3 to S2),
    /// or to the dead letters once it was delivered `attempts_max` times.
    pub fn release(&self, lease: &Lease, delay: Duration) -> Result<()> {
        let mailbox = self.mailbox(&lease.mailbox)?;
        self.give_back(&mailbox, &HeldFile::from(lease), self.hand_back(delay, "released"))
    }

    /// Releases a message whose guard was dropped. Tries the mailbox's lock only once: where another process
    /// holds it, the message stays held until its lease expires. A message that its holder did not look at
    /// (`is_read` is `false`) does not lose an attempt.
    pub(crate) fn release_dropped(
        &self,
        lease: &Lease,
        delay: Duration,
        is_read: bool,
        why: &str,
    ) -> Result<()> {
        let mailbox = self.mailbox(&lease.mailbox)?;
        let hand_back = HandBack { delay, why, patience: Duration::ZERO, is_attempt: is_read };
        self.give_back(&mailbox, &HeldFile::from(lease), hand_back)
    }

    /// Takes a message away from a holder that is known to have ended; `false` if the lease has ended. After
    /// `attempts_max` deliveries it becomes a dead letter, with this reason.
    pub fn take_back(&self, lease: &Lease, reason: &str) -> Result<bool> {
        let mailbox = self.mailbox(&lease.mailbox)?;
        let hand_back = self.hand_back(Duration::ZERO, reason);
        mail::unless_lost(self.give_back(&mailbox, &HeldFile::from(lease), hand_back))
    }

    /// Makes a lease run for `duration` from now: [`Error::Invalid`] for none, and for more than a day.
    pub fn extend(&self, lease: &Lease, duration: Duration) -> Result<()> {
        let lease_seconds = mail::lease_seconds(duration)?;
        let mailbox = self.mailbox(&lease.mailbox)?;
        let held = HeldFile::from(lease);
        if mailbox.cur.stat(&held.file())?.is_none() {
            return Err(self.lost(&mailbox, &held));
        }
        let sequence = read_extension(&mailbox.lease, &held)?.map_or(1, |e| e.sequence + 1);
        let next = LeaseExtension { sequence, lease_seconds, holder: None };
        let file = place::lease(&held.id, held.epoch);
        mailbox.write_page(&mailbox.lease, &file, &next, Durability::Process)?;
        if mailbox.cur.stat(&held.file())?.is_none() {
            mailbox.lease.remove(&file)?;
            return Err(self.lost(&mailbox, &held));
        }
        mail::record_extended(self.recorder(), lease, lease_seconds);
        Ok(())
    }

    pub(super) fn hand_back<'a>(&self, delay: Duration, why: &'a str) -> HandBack<'a> {
        HandBack { delay, why, patience: self.options.lock_patience, is_attempt: true }
    }

    pub(super) fn give_back(
        &self,
        mailbox: &OpenMailbox,
        held: &HeldFile,
        HandBack { delay, why, patience, is_attempt }: HandBack<'_>,
    ) -> Result<()> {
        let before = self.attempts_before(&mailbox.name, &held.id)?;
        let attempts_max = if is_attempt { mailbox.settings()?.attempts_max } else { u64::MAX };
        let attempts = held.epoch.saturating_sub(before);
        let due = mail::give_back(attempts, attempts_max, (delay, why), || self.now_millis());
        let not_before = match due {
            Ok(due) => due,
            Err(reason) => return self.bury_within(mailbox, held, &reason, patience),
        };
        let _gate = mailbox.pass_gate_backwards(patience)?;
        if !is_attempt {
            self.write_attempts_before(mailbox, held, before + 1)?;
        }
        let priority = self.priority_of(mailbox, held)?;
        match self.remember_holder(mailbox, held) {
            // A full disk must not keep the message from others: its former holder is then not known.
            Ok(()) | Err(Error::Io { .. }) => {}
            Err(error) => return Err(error),
        }
        let front = FrontFile { id: held.id.clone(), priority, epoch: held.epoch, not_before };
        if mailbox.cur.move_new(&held.file(), &mailbox.front, &front.file())? != MoveOutcome::Done {
            return Err(self.lost(mailbox, held));
        }
        if held.holder == mailbox.name {
            forget(mailbox, held, held.epoch);
        }
        let lease = held.clone().lease(&mailbox.name);
        mail::record_released(self.recorder(), &lease, (delay, why));
        Ok(())
    }

    fn priority_of(&self, mailbox: &OpenMailbox, held: &HeldFile) -> Result<u8> {
        let path = mailbox.new.path().join(place::plain(&held.id));
        match allow_unreadable(mailbox.cur.read(&held.file(), ENVELOPE_BYTES_MAX))? {
            Some(Some(content)) => Ok(Envelope::decode(&content, &path).map_or(0, |e| e.priority)),
            Some(None) => Err(self.lost(mailbox, held)),
            None => Ok(0),
        }
    }

    pub(super) fn lost(&self, mailbox: &OpenMailbox, held: &HeldFile) -> Error {
        let place = mailbox.locate(&held.id).ok().flatten();
        lease_lost(&held.clone().lease(&mailbox.name), place.as_ref().map(State::from).as_ref())
    }
}

/// The extension of a lease, if it was ever extended. A damaged side file counts as none: the
/// lease then runs for its mailbox's usual time.
pub(super) fn read_extension(leases: &Dir, held: &HeldFile) -> Result<Option<LeaseExtension>> {
    read_side_file(leases, &place::lease(&held.id, held.epoch), EXTENSION_BYTES_MAX)
}

/// Removes the side files of a message that is finished: of its last delivery, and of those before it that name
/// former holders.
pub(super) fn forget_deliveries(mailbox: &OpenMailbox, held: &HeldFile) {
    forget(mailbox, held, held.epoch.saturating_sub(DELIVERIES_FORGOTTEN - 1).max(1));
}

/// Removes the side files of these deliveries, if there can be any. The message has moved on already, so a
/// failure is not the caller's: the next sweep removes what is left.
fn forget(mailbox: &OpenMailbox, held: &HeldFile, first: u64) {
    let Ok(stamp) = mailbox.lease.changed_ns() else { return };
    let mut known = mailbox.extensions.lock().unwrap_or_else(PoisonError::into_inner);
    if known.holds(stamp) {
        return;
    }
    for epoch in first..=held.epoch {
        let _ = mailbox.lease.remove(&place::lease(&held.id, epoch));
    }
    let _ = known.learn(&mailbox.lease, stamp);
}
