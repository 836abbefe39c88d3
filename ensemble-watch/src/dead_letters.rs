//! Tasks that died in the queue: their senders are notified, whichever process gave them up.
//!
//! | a dead letter | is told to |
//! |---|---|
//! | of the type `task`, with a task | its sender, as `mail.returned`; without a mailbox of that name to the conductor, as soon as one of them has one |
//! | replaced by a later attempt, or settled before | none: the work continues, or is done |
//! | of another type | none |
//!
//! *A crash* between the notice and the note beside the letter stores the same notice again, which changes
//! nothing. A worker in shell buries a message by `mv`, so the watcher lists the letters of each mailbox whose
//! directory has changed.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use ensemble_core::broker::{Broker, returned};
use ensemble_core::env::Monotonic;
use ensemble_core::mailboxes::visit_all_mailboxes;
use ensemble_core::message::{Envelope, Name};
use ensemble_core::spool::{DeadLetter, Spool};
use ensemble_core::{Error, Result};

/// Who is told when the sender has no mailbox.
const CONDUCTOR: &str = "conductor";
/// The longest time between two looks.
const INTERVAL_MAX: Duration = Duration::from_secs(30);

pub(crate) struct DeadLetters {
    next: Monotonic,
    interval: Duration,
    /// When the directory of a mailbox's dead letters had changed at the last look that told all of them.
    seen: HashMap<Name, SystemTime>,
}

impl DeadLetters {
    pub(crate) fn new(now: Monotonic, poll_interval: Duration) -> Self {
        Self { next: now, interval: poll_interval.min(INTERVAL_MAX), seen: HashMap::new() }
    }

    pub(crate) const fn next_timeout(&self) -> Monotonic {
        self.next
    }

    /// Tells of all letters that were not told, if it is time for a look.
    pub(crate) fn drive(&mut self, now: Monotonic, spool: &Spool) {
        if now < self.next {
            return;
        }
        self.next = now + self.interval;
        let mailboxes = match spool.mailboxes() {
            Ok(mailboxes) => mailboxes,
            Err(error) => {
                tracing::warn!(%error, "cannot list the mailboxes for dead letters");
                return;
            }
        };
        for mailbox in mailboxes {
            let place = spool.root().join("mailbox").join(mailbox.as_str()).join("dead");
            let changed = std::fs::metadata(place).and_then(|data| data.modified()).ok();
            if changed.is_some() && self.seen.get(&mailbox) == changed.as_ref() {
                continue;
            }
            match tell_all(spool, &mailbox) {
                Ok(true) => self.seen.extend(changed.map(|changed| (mailbox, changed))),
                // Looked at again: a mailbox to tell may be added later.
                Ok(false) => {}
                // Tried again at the next look, as after a full disk.
                Err(error) => tracing::warn!(%error, %mailbox, "cannot report dead letters"),
            }
        }
    }
}

/// Tells of all letters in a team's mailboxes that were not told.
pub(crate) fn tell_senders(queue: &dyn Broker) -> Result<()> {
    visit_all_mailboxes(queue.mailboxes()?, |mailbox| tell_all(queue, mailbox).map(drop))
}

/// Whether each letter is told now.
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

/// Whether there was a mailbox to tell.
fn notify_sender(queue: &dyn Broker, letter: &DeadLetter, envelope: &Envelope) -> Result<bool> {
    let notice = returned(&letter.mailbox, envelope, &letter.reason)?;
    for to in [envelope.from.clone(), Name::new(CONDUCTOR)?] {
        let mut addressed = notice.clone();
        addressed.to = to;
        match queue.publish(&addressed) {
            Ok(_) => return Ok(true),
            Err(Error::NoMailbox { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}
