//! Moves whole mailboxes from one queue to another while both are in use: a directory to servers, and
//! back.
//!
//! | a message that is | is moved by | after a crash in between |
//! |---|---|---|
//! | waiting, delayed or not | set aside here, stored there with its delay, dropped here | is a dead letter here with that reason; the next run continues |
//! | a dead letter | stored there with its reason, dropped here | is in both queues; the next run drops it here |
//! | held | not moved: its holder settles it here | |
//! | settled | not moved: it stays here for its retention time | |
//!
//! So an unfinished message is in at least one of the queues at every moment. It is in both only
//! while it is set aside in the old one. Nothing remains that would prevent a later message with
//! the same id. Run the migration again for messages that senders still put into the old queue.
//! [`Moved::held`] counts messages still in work; run it again later.
//!
//! ```
//! use ensemble_core::message::{Envelope, Name};
//! use ensemble_nats::migrate::migrate;
//! use ensemble_core::spool::{Options, Spool};
//!
//! # let home = tempfile::tempdir()?;
//! let old = Spool::create(&home.path().join("old"), Options::default())?;
//! let new = Spool::create(&home.path().join("new"), Options::default())?;
//! let worker = Name::new("worker-1")?;
//! old.add_mailbox(&worker, &Default::default())?;
//! old.publish(&Envelope::new(worker.clone(), "count the lines of src/\n"))?;
//! assert_eq!(migrate(&old, &new)?.moved, 1);
//! assert_eq!(new.counts(&worker)?.queued, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use ensemble_core::broker::Broker;
use ensemble_core::message::Name;
use ensemble_core::spool::{Found, State};
use ensemble_core::{Error, Result};

/// Begins the reason of a message that is set aside on its way; the time it is due follows.
const ASIDE: &str = "migrating, due at ";

/// Result of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Moved {
    /// Number of mailboxes that are now in the new queue.
    pub mailboxes: u64,
    /// Number of waiting messages that are now in the new queue.
    pub moved: u64,
    /// Number of dead letters that are now in the new queue.
    pub dead: u64,
    /// Number of messages that consumers of the old queue still hold.
    pub held: u64,
}

/// Moves everything that is not held from one queue to the other.
///
/// # Errors
/// One of the queues failed; run it again.
pub fn migrate(from: &dyn Broker, to: &dyn Broker) -> Result<Moved> {
    let mut moved = Moved::default();
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
            match from.set_aside(&mailbox, &id, &format!("{ASIDE}{not_before}")) {
                // A consumer received it since the listing.
                Ok(()) | Err(Error::NoMessage { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        move_dead(from, to, &mailbox, &mut moved)?;
    }
    Ok(moved)
}

/// Dead letters, and among them what was set aside on its way.
fn move_dead(from: &dyn Broker, to: &dyn Broker, mailbox: &Name, moved: &mut Moved) -> Result<()> {
    for letter in from.dead_letters(mailbox)? {
        let envelope = match from.peek(mailbox, &letter.id) {
            Ok(envelope) => envelope.addressed_to(mailbox.clone()),
            // An unreadable message stays where a person can inspect it.
            Err(Error::Malformed { .. } | Error::TooLarge { .. } | Error::NoMessage { .. }) => {
                continue;
            }
            Err(error) => return Err(error),
        };
        match letter.reason.strip_prefix(ASIDE).and_then(|due| due.parse().ok()) {
            Some(due) => {
                to.restore_delayed(&envelope, due)?;
                moved.moved += 1;
            }
            None => {
                to.restore_dead(&envelope, &letter.reason)?;
                moved.dead += 1;
            }
        }
        from.drop_dead(mailbox, &letter.id)?;
    }
    Ok(())
}
