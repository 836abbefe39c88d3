//! The list of existing mailboxes.

use std::sync::PoisonError;

use rustix::io::Errno;

use super::MailboxError;
use super::mailbox::{SETTINGS_FILE, STATES};
use super::{Settings, Spool};
use crate::durable::Durability;
use crate::event_log::types;
use crate::message::{Name, ReservedName, nearest, yaml};
use crate::{Error, Result};

const NEAREST_NAMES_MAX: usize = 3;
const REMOVE_TRIES: usize = 10;

/// # Mailboxes
impl Spool {
    pub fn add_mailbox(&self, name: &Name, settings: &Settings) -> Result<()> {
        ReservedName::refuse_mailbox(name)?;
        let mailboxes = self.mailboxes_dir()?;
        let mut twins = self.twins.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(existing) = twins.find(&mailboxes, name)? {
            return Err(Error::MailboxExists { existing: existing.into() });
        }
        if let Some((field, detail)) = settings.fault() {
            return Err(Error::malformed(mailboxes.path().join(name.as_str()), field, detail));
        }
        let home = mailboxes.ensure_child(name.as_str(), self.options.modes)?;
        twins.note_added(&mailboxes, name);
        drop(twins);
        for state in STATES.into_iter().chain(["lease"]) {
            home.ensure_child(state, self.options.modes)?;
        }
        let power = self.options.durability;
        home.replace(
            SETTINGS_FILE,
            yaml::render(settings).as_bytes(),
            &self.queue_dir()?.ensure_child("tmp", self.options.modes)?,
            self.options.modes,
            power,
        )?;
        if power == Durability::Power {
            mailboxes.sync()?;
        }
        let data = serde_json::json!({ "mailbox": name, "settings": settings });
        self.record(types::MAILBOX_ADDED, name, data);
        Ok(())
    }

    pub fn settings(&self, name: &Name) -> Result<Settings> {
        self.mailbox(name)?.settings()
    }

    pub fn configure_mailbox(&self, name: &Name, settings: &Settings) -> Result<()> {
        let mailbox = self.mailbox(name)?;
        if let Some((field, detail)) = settings.fault() {
            return Err(Error::malformed(mailbox.home.path(), field, detail));
        }
        let durability = self.options.durability;
        mailbox.write_page(&mailbox.home, SETTINGS_FILE, settings, durability)?;
        let data = serde_json::json!({ "mailbox": name, "settings": settings });
        self.record(types::MAILBOX_CONFIGURED, name, data);
        Ok(())
    }

    /// Removes a mailbox with all that is settled and dead in it.
    ///
    /// # Errors
    /// Messages wait or are held in it and `force` is not set: nothing was removed.
    pub fn remove_mailbox(&self, name: &Name, force: bool) -> Result<()> {
        let counts = self.counts(name)?;
        let unfinished = counts.queued + counts.acked;
        if unfinished > 0 && !force {
            return Err(MailboxError::Unfinished { mailbox: name.clone(), unfinished }.into());
        }
        let home = self.mailboxes_dir()?.open_child(name.as_str())?;
        // Another process may make a file there in the meantime, such as the list of what waits.
        let removed = (1..REMOVE_TRIES)
            .map(|_| std::fs::remove_dir_all(home.path()))
            .find(|removed| !matches!(removed, Err(e) if Errno::from_io_error(e) == Some(Errno::NOTEMPTY)))
            .unwrap_or_else(|| std::fs::remove_dir_all(home.path()));
        removed.map_err(|e| Error::io("remove", home.path(), e))?;
        let data = serde_json::json!({ "mailbox": name, "unfinished": unfinished });
        self.record(types::MAILBOX_REMOVED, name, data);
        Ok(())
    }

    pub fn mailboxes(&self) -> Result<Vec<Name>> {
        let directories = self.mailboxes_dir()?.directories()?;
        let mut names: Vec<Name> =
            directories.into_iter().filter_map(|name| Name::new(name).ok()).collect();
        names.sort_unstable();
        Ok(names)
    }

    pub(super) fn no_mailbox(&self, name: &Name) -> Error {
        let nearest = nearest_names(name, self.mailboxes().unwrap_or_default());
        Error::NoMailbox { name: name.to_string(), nearest }
    }
}

/// The names that are most like `name`, best first.
pub fn nearest_names(name: &Name, others: Vec<Name>) -> Vec<String> {
    let near = nearest(name.as_str(), others.iter().map(Name::as_str));
    near.into_iter().take(NEAREST_NAMES_MAX).map(str::to_owned).collect()
}
