//! Which mailboxes there are: one subject each, with the settings.

use std::time::Instant;

use async_nats::HeaderMap;
use bytes::Bytes;

use super::{NatsTransport, Put, SETTINGS_AGE_MAX, Subjects, lock};
use crate::message::Name;
use crate::spool::{Settings, nearest_names};
use crate::{Error, Result};

impl NatsTransport {
    /// Creates a mailbox.
    ///
    /// # Errors
    /// [`Error::MailboxExists`] if there is one of that name or of one that differs only in case,
    /// or the settings are out of their limits.
    pub fn add_mailbox(&self, name: &Name, settings: &Settings) -> Result<()> {
        let same = |other: &Name| other.as_str().eq_ignore_ascii_case(name.as_str());
        if let Some(existing) = self.mailboxes()?.into_iter().find(same) {
            return Err(Error::MailboxExists { existing: existing.into() });
        }
        let subject = self.subjects.settings(name);
        if let Some((field, detail)) = settings.fault() {
            return Err(Error::malformed(subject, field, detail));
        }
        let content = Bytes::from(serde_json::to_vec(settings).unwrap_or_default());
        let wire = self.wire.clone();
        let expected = content.clone();
        let is_ours = self.call("add a mailbox", async move {
            match wire.compare_and_set(&subject, 0, HeaderMap::new(), content).await? {
                Some(Put::Done(_)) => Ok(true),
                Some(Put::Stale) => Ok(false),
                // An earlier try may have been ours; the same settings are as good as ours.
                None => Ok(wire.last(&subject).await?.is_some_and(|m| m.payload == expected)),
            }
        })?;
        if !is_ours {
            return Err(Error::MailboxExists { existing: name.to_string() });
        }
        lock(&self.settings).insert(name.clone(), (settings.clone(), Instant::now()));
        let data = serde_json::json!({ "mailbox": name, "settings": settings });
        self.recorder.record("mailbox.added", name.as_str(), data);
        Ok(())
    }

    /// All mailboxes by name.
    ///
    /// # Errors
    /// [`Error::Server`].
    pub fn mailboxes(&self) -> Result<Vec<Name>> {
        let (wire, pattern) = (self.wire.clone(), self.subjects.all_settings());
        let listed =
            self.call("list the mailboxes", async move { wire.list(&pattern).await })?;
        let mut names: Vec<Name> =
            listed.iter().filter_map(|found| Subjects::mailbox_in(found)).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// What is set for a mailbox; at most ten seconds old.
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
        let Some(found) = found else {
            let nearest = nearest_names(mailbox, self.mailboxes()?);
            return Err(Error::NoMailbox { name: mailbox.to_string(), nearest });
        };
        let settings: Settings = serde_json::from_slice(&found.payload)
            .map_err(|error| Error::malformed(subject, "settings", error.to_string()))?;
        lock(&self.settings).insert(mailbox.clone(), (settings.clone(), Instant::now()));
        Ok(settings)
    }
}
