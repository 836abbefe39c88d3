//! The registered mailboxes: one subject each, with the settings.

use std::time::Instant;

use async_nats::HeaderMap;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{NatsTransport, PutOutcome, SETTINGS_AGE_MAX, lock};
use ensemble_core::event_log::types;
use ensemble_core::message::{Name, ReservedName, describe_json_fault};
use ensemble_core::spool::{Settings, nearest_names};
use ensemble_core::{Error, Result};

#[derive(Debug, Serialize, Deserialize)]
struct RegisteredMailbox {
    mailbox: Name,
    settings: Settings,
}

impl NatsTransport {
    pub fn add_mailbox(&self, name: &Name, settings: &Settings) -> Result<()> {
        ReservedName::refuse_mailbox(name)?;
        let subject = self.subjects.settings(name);
        if let Some((field, detail)) = settings.fault() {
            return Err(Error::malformed(subject, field, detail));
        }
        let registered = RegisteredMailbox { mailbox: name.clone(), settings: settings.clone() };
        let content = Bytes::from(serde_json::to_vec(&registered).unwrap_or_default());
        let wire = self.wire.clone();
        let before = self.call("add a mailbox", async move {
            match wire.compare_and_set(&subject, 0, HeaderMap::new(), content.clone()).await? {
                Some(PutOutcome::Done(_)) => Ok(None),
                Some(PutOutcome::Stale) => wire.last(&subject).await,
                // An earlier try may have been this client's; equal settings are as good.
                None => Ok(wire.last(&subject).await?.filter(|m| m.payload != content)),
            }
        })?;
        if let Some(before) = before {
            let existing = serde_json::from_slice::<RegisteredMailbox>(&before.payload)
                .map_or_else(|_| name.clone(), |registered| registered.mailbox);
            return Err(Error::MailboxExists { existing: existing.into() });
        }
        lock(&self.settings).insert(name.clone(), (settings.clone(), Instant::now()));
        let data = serde_json::json!({ "mailbox": name, "settings": settings });
        self.recorder.record(types::MAILBOX_ADDED, name.as_str(), data);
        Ok(())
    }

    /// All mailboxes by name; after [`NatsTransport::follow_team`] those that the credentials may follow.
    pub fn mailboxes(&self) -> Result<Vec<Name>> {
        self.all_mailboxes().map(|all| self.only_open(all))
    }

    /// All mailboxes by name, also those that the credentials may not follow.
    pub fn all_mailboxes(&self) -> Result<Vec<Name>> {
        // Mailboxes are never removed, so the sequence of the last one shows whether there is a new
        // one. Every watcher asks every few seconds, and listing all mailboxes of a large team
        // would be expensive.
        let last = self.head("list the mailboxes", self.subjects.all_settings())?;
        if let Some((_, names)) = lock(&self.names).as_ref().filter(|(seq, _)| *seq == last) {
            return Ok(names.clone());
        }
        let (wire, pattern) = (self.wire.clone(), self.subjects.all_settings());
        let listed = self.call("list the mailboxes", async move { wire.list(&pattern).await })?;
        let mut names: Vec<Name> = listed
            .iter()
            .filter_map(|content| {
                serde_json::from_slice::<RegisteredMailbox>(&content.payload).ok()
            })
            .map(|registered| registered.mailbox)
            .collect();
        names.sort_unstable();
        *lock(&self.names) = Some((last, names.clone()));
        Ok(names)
    }

    /// Settings of a mailbox, at most ten seconds old.
    pub(super) fn settings_of(&self, mailbox: &Name) -> Result<Settings> {
        if let Some((settings, at)) = lock(&self.settings).get(mailbox)
            && at.elapsed() < SETTINGS_AGE_MAX
        {
            return Ok(settings.clone());
        }
        let (wire, subject) = (self.wire.clone(), self.subjects.settings(mailbox));
        let asked = subject.clone();
        let found =
            self.call("read the settings of a mailbox", async move { wire.last(&asked).await })?;
        let registered = found
            .map(|found| serde_json::from_slice::<RegisteredMailbox>(&found.payload))
            .transpose()
            .map_err(|error| Error::malformed(subject, "settings", describe_json_fault(&error)))?
            .filter(|registered| registered.mailbox == *mailbox);
        let Some(RegisteredMailbox { settings, .. }) = registered else {
            let nearest = nearest_names(mailbox, self.mailboxes()?);
            return Err(Error::NoMailbox { name: mailbox.to_string(), nearest });
        };
        lock(&self.settings).insert(mailbox.clone(), (settings.clone(), Instant::now()));
        Ok(settings)
    }
}
