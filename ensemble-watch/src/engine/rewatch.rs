//! Which directories the watcher hears of.

use std::path::PathBuf;

use ensemble_core::env::Monotonic;
use ensemble_core::message::Name;

use super::{CANARY_DIRECTORY, Engine};
use crate::alarms;
use crate::boxes::Boxes;
use crate::doorbell::{Doorbell, Ring};
use crate::steps;

/// What the loop listens with.
pub(crate) struct Ears<'a> {
    /// Missing while nothing can be watched.
    pub(crate) doorbell: Option<&'a mut Doorbell>,
    /// Where only what concerns boards and steps is heard.
    quiet: &'a [PathBuf],
}

impl Ears<'_> {
    /// For whoever has nothing to listen to.
    #[cfg(test)]
    pub(crate) const fn deaf() -> Self {
        Self { doorbell: None, quiet: &[] }
    }

    /// The watcher's own status lies beside the board: it would wake itself for ever.
    pub(crate) fn is_noise(&self, ring: &Ring) -> bool {
        match ring {
            Ring::Landed { dir, name, .. } => {
                self.quiet.contains(dir) && !alarms::rings(name) && !steps::rings(name)
            }
            Ring::Left { dir } => self.quiet.contains(dir),
            Ring::Overflow | Ring::Replaced { .. } | Ring::Failed { .. } => false,
        }
    }
}

impl Engine {
    pub(crate) fn ears(&mut self) -> Ears<'_> {
        Ears { doorbell: self.doorbell.as_mut(), quiet: &self.quiet }
    }

    /// Watches everything anew, before anything is listed.
    pub(super) fn rewatch(&mut self, now: Monotonic) -> Result<(), String> {
        self.doorbell = None;
        self.mailbox_dirs.clear();
        self.boxes = Some(
            Boxes::open(&self.project.queue, self.project.config.report_bytes_max())
                .map_err(|e| e.to_string())?,
        );
        let mut doorbell = Doorbell::new()?;
        self.quiet = alarms::places(&self.project);
        // Without them the regular look finds what has changed.
        for place in self.quiet.iter().filter(|place| place.is_dir()) {
            let _ = doorbell.watch(place);
        }
        for dir in self.boxes.iter().flat_map(Boxes::dirs) {
            doorbell.watch(dir)?;
        }
        for dir in [
            self.project.queue.join("mailbox"),
            self.project.panes(),
            self.project.state.join(CANARY_DIRECTORY),
        ] {
            doorbell.watch(&dir)?;
        }
        self.requests.rewatch(&mut doorbell)?;
        self.steps.rewatch(&mut doorbell);
        self.doorbell = Some(doorbell);
        self.rebind(now);
        let mailboxes = self.spool.mailboxes().map_err(|e| e.to_string())?;
        mailboxes.iter().try_for_each(|mailbox| self.watch_mailbox(mailbox))?;
        self.boxes.as_ref().and_then(Boxes::refused).map_or(Ok(()), |why| Err(why.to_owned()))
    }

    pub(super) fn watch_mailbox_of(&mut self, name: &str) {
        if let Ok(mailbox) = Name::new(name) {
            // If it cannot be watched, the regular scan finds its mail.
            let _ = self.watch_mailbox(&mailbox);
            self.rung.insert(mailbox);
        }
    }

    /// A mailbox whose directories were still being made when it was noticed.
    pub(super) fn watch_what_is_missing(&mut self) {
        let new =
            |mailbox: &Name| self.project.queue.join("mailbox").join(mailbox.as_str()).join("new");
        let is_missing = |mailbox: &&Name| !self.mailbox_dirs.contains_key(&new(mailbox));
        let missing: Vec<Name> = self.couriers.mailboxes().filter(is_missing).cloned().collect();
        for mailbox in missing {
            self.watch_mailbox_of(mailbox.as_str());
        }
    }

    fn watch_mailbox(&mut self, mailbox: &Name) -> Result<(), String> {
        let home = self.project.queue.join("mailbox").join(mailbox.as_str());
        let Some(doorbell) = &mut self.doorbell else { return Ok(()) };
        for dir in ["new", "front"].map(|state| home.join(state)) {
            // The same path may be another directory now.
            doorbell.unwatch(&dir);
            if dir.is_dir() {
                doorbell.watch(&dir)?;
                self.mailbox_dirs.insert(dir, mailbox.clone());
            }
        }
        Ok(())
    }
}
