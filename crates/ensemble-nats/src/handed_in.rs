//! Messages of senders that may not write to a mailbox, because their credentials are limited.
//!
//! ```text
//! sender                                     a watcher that may write to the mailbox
//! ens.<team>.in.<from>.<mailbox>.<id>  --->  stored in the mailbox, once by id; removed here
//! ```
//!
//! A permission names the sender in the subject, so no client hands in under another name or changes what a mailbox
//! has. Each step can be repeated, and every watcher may do it: the id is stored once.
//!
//! | the message | consequence |
//! |---|---|
//! | is stored, or was stored before | it is removed here |
//! | meets a full mailbox, or its sender's quota | it waits here |
//! | is refused for good | it is a dead letter of the mailbox, under its id and its number here; its sender is notified |
//! | is not a message, or says another sender | it is a dead letter, too; its sender is not notified |

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::DeliverPolicy;
use bytes::Bytes;
use tokio::sync::Notify;

use super::record::MessageRecord;
use super::subject::TeamSubjects;
use super::versions::{ListedVersion, NOTHING};
use super::watch::{TeamNews, VersionListener};
use super::{NatsTransport, PutOutcome, lock};
use ensemble_core::broker::returned;
use ensemble_core::env::PublishOutcome;
use ensemble_core::mail::record_stored;
use ensemble_core::message::{Envelope, MessageId, MessagePurpose, Name};
use ensemble_core::transfer::{BridgeReport, concerns_message};
use ensemble_core::{Error, Result};

const PAGE_MAX: usize = 256;
/// Sender of the word that a message was refused.
const CARRIER: &str = "outbox";
/// Beginning of the id of a dead letter whose own id is none, or too long.
const UNNAMED: &str = "handed-in";

pub(super) struct HandedIn {
    mailboxes: Mutex<BTreeSet<Name>>,
    news: Arc<TeamNews>,
    anew: Arc<Notify>,
}

impl VersionListener for HandedIn {
    fn hear(&self, message: &async_nats::Message, _seq: u64, _at_millis: u64) -> bool {
        let mailbox = TeamSubjects::mailbox_in(&message.subject);
        let is_news = mailbox.is_some_and(|mailbox| lock(&self.mailboxes).insert(mailbox));
        self.news.ring();
        is_news
    }

    fn signals(&self) -> (Arc<Notify>, Arc<TeamNews>) {
        (Arc::clone(&self.anew), Arc::clone(&self.news))
    }
}

/// For the sender.
impl NatsTransport {
    pub(super) fn hand_in(&self, envelope: &Envelope) -> Result<PublishOutcome> {
        let subject = self.subjects.handed_in(&envelope.from, &envelope.to, &envelope.id);
        let payload = Bytes::from(envelope.encode()?);
        let wire = self.wire.clone();
        let handed = self.call("hand in a message", async move {
            let put = wire.create(&subject, 0, payload, HeaderMap::new()).await?;
            if put == PutOutcome::Stale { wire.read(&subject).await.map(Some) } else { Ok(None) }
        });
        match handed? {
            None => {
                record_stored(&*self.recorder, envelope);
                Ok(PublishOutcome::Stored)
            }
            Some(Some(waiting)) => Self::stored_before(envelope, &waiting),
            // A watcher has just taken it.
            Some(None) => Ok(PublishOutcome::AlreadyStored),
        }
    }
}

/// For watchers.
impl NatsTransport {
    pub fn follow_handed_in(&self) {
        let mut handed_in = lock(&self.handed_in);
        if handed_in.is_some() {
            return;
        }
        let made = Arc::new(HandedIn {
            mailboxes: Mutex::default(),
            news: Arc::clone(&self.news),
            anew: Arc::default(),
        });
        self.follow(&made, Arc::clone(&self.wire), self.subjects.all_handed_in(), true);
        *handed_in = Some(made);
    }

    pub fn handed_in_mailboxes(&self) -> Vec<Name> {
        let handed_in = lock(&self.handed_in).clone();
        handed_in.map_or_else(Vec::new, |known| lock(&known.mailboxes).iter().cloned().collect())
    }

    /// Stores the messages that were handed in for a mailbox.
    ///
    /// # Errors
    /// [`Error::Server`]. Messages that were not stored remain, and the next call continues.
    pub fn carry_handed_in(&self, mailbox: &Name) -> Result<BridgeReport> {
        let known = lock(&self.handed_in).clone();
        // Notifications from here on are kept.
        if let Some(known) = &known {
            lock(&known.mailboxes).remove(mailbox);
        }
        let carried = self.carry_all(mailbox);
        let is_over = matches!(&carried, Ok(carried) if carried.stuck.is_none());
        if let (Some(known), false) = (&known, is_over) {
            lock(&known.mailboxes).insert(mailbox.clone());
        }
        carried
    }

    /// One that cannot be stored now holds up no other sender's, unless the mailbox is full.
    fn carry_all(&self, mailbox: &Name) -> Result<BridgeReport> {
        let (mut carried, mut start) = (BridgeReport::default(), 1);
        loop {
            let page = self.handed_in_from(mailbox, start)?;
            for message in &page {
                match self.take_in(mailbox, message) {
                    Ok(true) => carried.carried += 1,
                    Ok(false) => carried.buried += 1,
                    Err(error) if error.is_server_away() => return Err(error),
                    Err(error) => {
                        let is_full = matches!(error, Error::Full { .. });
                        carried.stuck = Some(error);
                        if is_full {
                            return Ok(carried);
                        }
                        continue;
                    }
                }
                let (wire, subject) = (self.wire.clone(), message.subject.clone());
                let seq = message.seq;
                self.call("remove a version", async move { wire.purge(&subject, seq).await })?;
            }
            match page.last() {
                Some(last) if page.len() == PAGE_MAX => start = last.seq + 1,
                _ => return Ok(carried),
            }
        }
    }

    /// The first messages for a mailbox from this number on.
    fn handed_in_from(&self, mailbox: &Name, start: u64) -> Result<Vec<ListedVersion>> {
        let (wire, pattern) = (self.wire.clone(), self.subjects.handed_in_for(mailbox));
        self.call("read what was handed in", async move {
            // Each subject has one version.
            let policy = DeliverPolicy::ByStartSequence { start_sequence: start };
            let read = wire.list_versions(&pattern, policy, false, PAGE_MAX).await;
            read.map_err(|error| wire.unheard("read what was handed in", &pattern, error))
        })
    }

    /// Stores one of them, or makes it a dead letter: `false`.
    fn take_in(&self, mailbox: &Name, message: &ListedVersion) -> Result<bool> {
        let id = TeamSubjects::id_in(&message.subject);
        let path = Path::new(&message.subject);
        let envelope = match Envelope::decode(&message.payload, path) {
            Ok(envelope) => envelope,
            Err(error) => return self.refuse(mailbox, message, &error.to_string()),
        };
        let sender = TeamSubjects::sender_in(&message.subject);
        if sender.as_ref() != Some(&envelope.from)
            || envelope.to != *mailbox
            || id.as_ref() != Some(&envelope.id)
        {
            let by = sender.map_or_else(String::new, |sender| sender.to_string());
            let reason = format!(
                "handed in by `{by}` as message {} of `{}` to `{}`",
                envelope.id, envelope.from, envelope.to
            );
            return self.refuse(mailbox, message, &reason);
        }
        let error = match self.store(&envelope) {
            Ok(_) => return Ok(true),
            Err(error) if concerns_message(&error) => error,
            Err(error) => return Err(error),
        };
        let reason = format!("not carried: {error}");
        // An automatic message is never answered automatically.
        if envelope.purpose() != MessagePurpose::Notice {
            let told = self.publish(&returned(self, &Name::new(CARRIER)?, &envelope, &reason)?);
            // A sender without a mailbox, such as a script, cannot be notified.
            if let Err(error) = told
                && error.is_server_away()
            {
                return Err(error);
            }
        }
        self.refuse(mailbox, message, &reason)
    }

    /// Makes a dead letter of what was handed in. A mailbox that does not exist has no
    /// dead letters: then the log has it alone.
    fn refuse(&self, mailbox: &Name, message: &ListedVersion, reason: &str) -> Result<bool> {
        let seq = message.seq;
        let id = TeamSubjects::id_in(&message.subject)
            .and_then(|id| MessageId::new(format!("{id}.{seq}")).ok())
            .map_or_else(|| MessageId::new(format!("{UNNAMED}.{seq}")), Ok)?;
        let record = MessageRecord::fresh(0).moved(self.dead_place(reason, None));
        match self.settings_of(mailbox) {
            Ok(_) => {
                let (wire, subject) = (self.wire.clone(), self.subjects.message(mailbox, &id));
                let payload = message.payload.clone();
                let put = async move { wire.put(subject, 0, record, payload, NOTHING).await };
                if self.call("store a message", put)?.0 == PutOutcome::Stale {
                    return Ok(false);
                }
            }
            Err(Error::NoMailbox { .. }) => {}
            Err(error) => return Err(error),
        }
        self.record_dead(mailbox, &id, (None, 0), reason);
        Ok(false)
    }
}
