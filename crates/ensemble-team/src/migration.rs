//! Moves whole mailboxes from one queue to another while both are in use: a directory to servers, and
//! back.
//!
//! | a message that is | is moved by | after a crash in between |
//! |---|---|---|
//! | waiting, delayed or not | set aside here, stored there with its delay, dropped here | is a dead letter here with that reason; the next run continues |
//! | a dead letter | stored there with its reason, dropped here | is in both queues; the next run drops it here |
//! | refused by the other queue: its id has other content there, in any state; it is too large; what it has attached is missing | not moved: it stays here as a dead letter that says why, and [`MigrationReport::kept`] lists it | the next run tries again |
//! | refused because its mailbox is full there | set aside here until a later run | is a dead letter here; the next run continues |
//! | held | not moved: its holder settles it here | |
//! | settled | not moved: it stays here for its retention time | |
//!
//! So an unfinished message is in at least one of the queues at every moment. It is in both only
//! while it is set aside in the old one. Nothing remains that would prevent a later message with
//! the same id. Run the migration again for messages that senders still put into the old queue.
//! [`MigrationReport::held`] counts messages still in work; run it again later.

use ensemble_core::broker::Broker;
use ensemble_core::mail::MIGRATING;
use ensemble_core::message::{MessageId, Name};
use ensemble_core::spool::{DeadLetter, Found, State};
use ensemble_core::transfer::{carry_attachment, concerns_message};
use ensemble_core::{Error, Result, allow_gone};

const NOT_MOVED: &str = "not moved: ";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MigrationReport {
    pub mailboxes: u64,
    /// Number of waiting messages that are now in the new queue.
    pub moved: u64,
    pub dead: u64,
    /// Number of messages that consumers of the old queue still hold.
    pub held: u64,
    /// Number of messages for which the new queue has no room at the moment. They are set aside in the old one.
    pub crowded: u64,
    /// Messages that the new queue refuses. They are dead letters of the old one.
    pub kept: Vec<KeptMessage>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptMessage {
    pub mailbox: Name,
    pub id: MessageId,
    pub reason: String,
}

/// Moves everything that is not held from one queue to the other.
///
/// # Errors
/// One of the queues failed; run it again.
pub fn migrate(from: &dyn Broker, to: &dyn Broker) -> Result<MigrationReport> {
    let mut moved = MigrationReport::default();
    for mailbox in from.mailboxes()? {
        match to.add_mailbox(&mailbox, &from.settings(&mailbox)?) {
            Ok(()) => moved.mailboxes += 1,
            Err(Error::MailboxExists { .. }) => {}
            Err(error) => return Err(error),
        }
        for Found { id, state, .. } in from.unfinished(&mailbox, usize::MAX)? {
            let State::Queued { not_before, .. } = state else {
                moved.held += 1;
                continue;
            };
            // A consumer may have received it since the listing.
            allow_gone(from.set_aside(&mailbox, &id, &format!("{MIGRATING}{not_before}")))?;
        }
        for letter in from.dead_letters(&mailbox)? {
            move_letter(from, to, &letter, &mut moved)?;
        }
    }
    Ok(moved)
}

/// Moves a dead letter, or a message that was set aside on its way.
fn move_letter(
    from: &dyn Broker,
    to: &dyn Broker,
    letter: &DeadLetter,
    moved: &mut MigrationReport,
) -> Result<()> {
    let (mailbox, id) = (&letter.mailbox, &letter.id);
    let due = letter.reason.strip_prefix(MIGRATING).and_then(|due| due.parse().ok());
    let restored = from.peek(mailbox, id).and_then(|envelope| {
        let envelope = envelope.addressed_to(mailbox.clone());
        carry_attachment(from, to, &envelope)?;
        match due {
            Some(due) => to.restore_delayed(&envelope, due),
            None => to.restore_dead(&envelope, &letter.reason),
        }
    });
    match restored {
        Ok(()) if due.is_some() => moved.moved += 1,
        Ok(()) => moved.dead += 1,
        // Another migration has moved it, or a person has dropped it.
        Err(Error::NoMessage { .. }) => return Ok(()),
        Err(Error::Full { .. } | Error::Quota { .. }) => {
            moved.crowded += 1;
            return Ok(());
        }
        Err(error) if concerns_message(&error) => {
            let reason = format!("{NOT_MOVED}{error}");
            if due.is_some() {
                from.restate_dead(mailbox, id, &reason)?;
            }
            moved.kept.push(KeptMessage { mailbox: mailbox.clone(), id: id.clone(), reason });
            return Ok(());
        }
        Err(error) => return Err(error),
    }
    allow_gone(from.drop_dead(mailbox, id)).map(drop)
}
