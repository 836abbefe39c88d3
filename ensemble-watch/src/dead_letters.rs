//! Notifies the senders of tasks that became dead letters, no matter which process dead-lettered them.
//!
//! | a dead letter | notice to |
//! |---|---|
//! | of the type `task`, with a task | its sender, as `mail.returned`, or the conductor if the sender has no mailbox or no room; retried until one of them has |
//! | replaced by a later attempt, or settled before | none: the work continues, or is done |
//! | of another type | none |
//!
//! *A crash* between the notice and the note beside the letter stores the same notice again, which changes
//! nothing. A worker in shell buries a message by `mv`, so the watcher lists the letters of each mailbox whose
//! directory has changed.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use ensemble_core::Result;
use ensemble_core::broker::{Broker, returned};
use ensemble_core::env::Monotonic;
use ensemble_core::mailboxes::visit_all_mailboxes;
use ensemble_core::message::{Envelope, Name};
use ensemble_core::spool::{DeadLetter, Spool};

/// Who is notified if the sender cannot be.
const CONDUCTOR: &str = "conductor";
const INTERVAL_MAX: Duration = Duration::from_secs(30);

pub(crate) struct DeadLetters {
    next: Monotonic,
    interval: Duration,
    /// The time stamp of each mailbox's directory of dead letters, once the senders of all its letters are notified.
    seen: HashMap<Name, SystemTime>,
}

impl DeadLetters {
    pub(crate) fn new(now: Monotonic, poll_interval: Duration) -> Self {
        Self { next: now, interval: poll_interval.min(INTERVAL_MAX), seen: HashMap::new() }
    }

    pub(crate) const fn next_timeout(&self) -> Monotonic {
        self.next
    }

    pub(crate) fn drive(&mut self, now: Monotonic, spool: &Spool) {
        if now < self.next {
            return;
        }
        self.next = now + self.interval;
        let mailboxes = spool.mailboxes().inspect_err(
            |error| tracing::warn!(%error, "cannot list the mailboxes for dead letters"),
        );
        for mailbox in mailboxes.unwrap_or_default() {
            let place = spool.root().join("mailbox").join(mailbox.as_str()).join("dead");
            let changed = std::fs::metadata(place).and_then(|data| data.modified()).ok();
            if changed.is_some() && self.seen.get(&mailbox) == changed.as_ref() {
                continue;
            }
            match tell_all(spool, &mailbox) {
                Ok(true) => self.seen.extend(changed.map(|changed| (mailbox, changed))),
                // Tried again, because a mailbox for the notice may be added later.
                Ok(false) => {}
                // Tried again at the next look, as after a full disk.
                Err(error) => tracing::warn!(%error, %mailbox, "cannot report dead letters"),
            }
        }
    }
}

pub(crate) fn tell_senders(queue: &dyn Broker) -> Result<()> {
    visit_all_mailboxes(queue.mailboxes()?, |mailbox| tell_all(queue, mailbox).map(drop))
}

/// Returns whether all senders are notified now.
fn tell_all(queue: &dyn Broker, mailbox: &Name) -> Result<bool> {
    let mut is_all = true;
    for letter in queue.dead_letters(mailbox)? {
        if letter.is_told || letter.has_successor() {
            continue;
        }
        // It may be damaged, or gone by now.
        let Ok(envelope) = queue.peek(mailbox, &letter.id) else { continue };
        if envelope.handed_over_task().is_none() {
            continue;
        }
        if notify_sender(queue, &letter, &envelope)? {
            queue.note_told(&letter)?;
        } else {
            is_all = false;
        }
    }
    Ok(is_all)
}

/// Returns whether there was room for the notice.
fn notify_sender(queue: &dyn Broker, letter: &DeadLetter, envelope: &Envelope) -> Result<bool> {
    let notice = returned(queue, &letter.mailbox, envelope, &letter.reason)?;
    for to in [notice.to.clone(), queue.mailbox_of(&Name::new(CONDUCTOR)?)] {
        let mut addressed = notice.clone();
        addressed.to = to;
        match queue.publish(&addressed) {
            Ok(_) => return Ok(true),
            Err(error) if error.is_undeliverable() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}
