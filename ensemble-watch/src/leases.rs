//! Messages whose holders have fallen silent return to their mailboxes.
//!
//! The observer is [`MailboxLeases`] of `ensemble-core`. Its observations are kept in
//! `.ensemble/leases/observed.json`, so a restarted watcher does not give every holder a new lease.

use std::collections::BTreeSet;
use std::path::Path;

use ensemble_core::broker::{Broker, returned};
use ensemble_core::env::SystemClock;
use ensemble_core::event_log::Recorder;
use ensemble_core::leases::MailboxLeases;
use ensemble_core::message::{MessagePurpose, Name};
use ensemble_core::spool::State;
use ensemble_core::{Error, Result};
use ensemble_project::status::ACTOR;

/// The type of the notice that warns a sender: its message is about to be delivered for the last time.
const LAST_ATTEMPT_TYPE: &str = "mail.last_attempt";
/// How many messages of a mailbox are checked for their last attempt.
const CHECKED_MAX: usize = 1_000;

/// Continues where an observer of this boot with the same state directory has stopped.
pub(crate) fn open(state: &Path) -> MailboxLeases {
    let directory = state.join("leases");
    // Without it nothing is remembered across a restart, which only lengthens leases.
    let _ = ensemble_core::durable::make_directory(&directory);
    MailboxLeases::remembered(ACTOR, &SystemClock, &directory.join("observed.json"))
}

/// Checks the leases of all mailboxes and returns expired messages. Returns the mailboxes that got mail back.
pub(crate) fn expire_leases(
    leases: &mut MailboxLeases,
    broker: &dyn Broker,
    recorder: &dyn Recorder,
) -> Result<Vec<Name>> {
    let returned = leases.scan_mailboxes(&SystemClock, broker, &broker.mailboxes()?, recorder)?;
    if let Some(error) = leases.take_trouble() {
        tracing::warn!(%error, "cannot take back all leases");
    }
    for mailbox in returned.iter().collect::<BTreeSet<_>>() {
        if let Err(error) = warn_senders(broker, mailbox) {
            tracing::warn!(%error, %mailbox, "cannot warn the senders of last attempts");
        }
    }
    Ok(returned)
}

/// Warns the senders of messages whose next delivery is the last one, before they become dead letters. The notice's id
/// follows from the message and the delivery, so a second warning stores nothing.
fn warn_senders(broker: &dyn Broker, mailbox: &Name) -> Result<()> {
    let attempts_max = broker.settings(mailbox)?.attempts_max;
    for found in broker.unfinished(mailbox, CHECKED_MAX)? {
        let State::Queued { epoch, .. } = found.state else { continue };
        // With one attempt alone, nothing comes before the last one.
        let before = || broker.attempts_before(mailbox, &found.id);
        if epoch + 1 < attempts_max || epoch == before()? || epoch + 1 != attempts_max + before()? {
            continue;
        }
        let Ok(envelope) = broker.peek(mailbox, &found.id) else { continue };
        if envelope.purpose() == MessagePurpose::Notice {
            continue;
        }
        let reason = format!(
            "{mailbox} was given it {epoch} times and has not settled it: after the next delivery it is a dead letter"
        );
        let mut notice = returned(broker, mailbox, &envelope, &reason)?;
        if notice.to == *mailbox {
            continue;
        }
        notice.kind = Name::new(LAST_ATTEMPT_TYPE)?;
        match broker.publish(&notice) {
            Ok(_) | Err(Error::Conflict { .. }) => {}
            Err(error) if error.is_undeliverable() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use ensemble_core::message::{Envelope, MessageId};
    use ensemble_core::spool::{AgentAddresses, Quota, Spool, SpoolOptions};

    use super::*;

    #[test]
    fn a_sender_learns_of_the_last_attempt_once_and_before_it() {
        let home = tempfile::tempdir().unwrap();
        let quota = Some(Quota { messages: 1, ..Quota::default() });
        let [worker, lead, pool] = ["worker", "lead", "pool"].map(|name| Name::new(name).unwrap());
        let (itself, read) = (worker.clone(), pool.clone());
        let addresses: AgentAddresses =
            Arc::new(move |name: &Name| if *name == itself { name.clone() } else { read.clone() });
        let addresses = Some(addresses);
        let options = SpoolOptions { quota, addresses, ..SpoolOptions::default() };
        let spool = Spool::create(&home.path().join("queue"), options).unwrap();
        for mailbox in [&worker, &pool] {
            spool.add_mailbox(mailbox, &Default::default()).unwrap();
        }
        let asked = Envelope::new(worker.clone(), "do it").from(lead.clone());
        let slow = MessageId::new("slow").unwrap();
        spool.publish(&asked.with_id(slow.clone())).unwrap();
        let deliver = |times| {
            for _ in 0..times {
                let given = spool.receive(&worker, &worker).unwrap().unwrap();
                spool.release(&given.lease, Duration::ZERO).unwrap();
                warn_senders(&spool, &worker).unwrap();
                warn_senders(&spool, &worker).unwrap();
            }
            spool.counts(&pool).unwrap().queued
        };
        assert_eq!((deliver(3), deliver(1)), (0, 1));
        assert!(spool.dead_letters(&worker).unwrap().is_empty(), "one delivery is left");
        let notice = spool.receive(&pool, &lead).unwrap().unwrap().envelope;
        assert_eq!(notice.kind.as_str(), LAST_ATTEMPT_TYPE);
        assert_eq!(notice.causation_id.as_deref(), Some("slow"));
        assert!(notice.body.contains("was given it 4 times and has not settled it"));
        deliver(1);
        spool.redrive(&worker, &slow).unwrap();
        assert_eq!((deliver(3), deliver(1)), (0, 1), "it has all its attempts again");
        deliver(1);
        spool.publish(&Envelope::new(worker.clone(), "and this").from(lead.clone())).unwrap();
        assert_eq!(deliver(4), 1, "there is no room for its notice, which is not an error");
        let mut foreign = Envelope::new(worker.clone(), "and this").from(lead);
        foreign.project = Some(worker.clone());
        let notice = returned(&spool, &worker, &foreign, "slow").unwrap();
        assert_eq!(notice.to, pool, "the conductor reads it");
    }
}
