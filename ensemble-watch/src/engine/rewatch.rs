//! The directories that the watcher watches.

use std::path::PathBuf;

use ensemble_core::env::Monotonic;
use ensemble_core::message::Name;
use ensemble_core::watch::{FsEvent, FsWatcher, WatchError};

use super::{CANARY_DIRECTORY, Engine};
use crate::alarms;
use crate::boxes::Boxes;
use crate::steps;

/// The file watcher of the loop, and the directories in which only some files count.
pub(crate) struct WatchSet<'a> {
    /// Missing while nothing can be watched.
    pub(crate) fs_watcher: Option<&'a mut FsWatcher>,
    /// Directories in which only files of boards and steps count.
    quiet: &'a [PathBuf],
}

impl WatchSet<'_> {
    /// A set without a file watcher.
    #[cfg(test)]
    pub(crate) const fn empty() -> Self {
        Self { fs_watcher: None, quiet: &[] }
    }

    /// The watcher's own status lies beside the board: it would wake itself for ever.
    pub(crate) fn is_noise(&self, event: &FsEvent) -> bool {
        match event {
            FsEvent::Landed { dir, name, .. } => {
                self.quiet.contains(dir) && !alarms::is_relevant(name) && !steps::is_relevant(name)
            }
            FsEvent::Left { dir } => self.quiet.contains(dir),
            _ => false,
        }
    }
}

impl Engine {
    pub(crate) fn watch_set(&mut self) -> WatchSet<'_> {
        WatchSet { fs_watcher: self.fs_watcher.as_mut(), quiet: &self.quiet }
    }

    /// Watches everything anew, before anything is listed.
    pub(super) fn rewatch(&mut self, now: Monotonic) -> Result<(), String> {
        self.watch_all(now).map_err(|error| error.to_string())?;
        self.boxes.as_ref().and_then(Boxes::refused).map_or(Ok(()), |why| Err(why.to_owned()))
    }

    fn watch_all(&mut self, now: Monotonic) -> ensemble_core::Result<()> {
        self.fs_watcher = None;
        self.mailbox_dirs.clear();
        let limit = self.project.config.report_bytes_max();
        self.boxes = Some(Boxes::open(&self.project.queue, limit)?);
        let mut fs_watcher = FsWatcher::new()?;
        self.quiet = alarms::places(&self.project);
        // Without them the regular look finds what has changed.
        for place in self.quiet.iter().filter(|place| place.is_dir()) {
            let _ = fs_watcher.watch(place);
        }
        for (dir, _) in self.boxes.iter().flat_map(Boxes::directories) {
            fs_watcher.watch(dir)?;
        }
        for dir in [
            self.project.queue.join("mailbox"),
            self.project.panes(),
            self.project.state.join(CANARY_DIRECTORY),
        ] {
            fs_watcher.watch(&dir)?;
        }
        self.requests.rewatch(&mut fs_watcher)?;
        self.steps.rewatch(&mut fs_watcher);
        self.fs_watcher = Some(fs_watcher);
        self.rebind(now);
        let mailboxes = self.spool.mailboxes()?;
        mailboxes.iter().try_for_each(|mailbox| self.watch_mailbox(mailbox))?;
        Ok(())
    }

    pub(super) fn watch_mailbox_of(&mut self, name: &str) {
        if let Ok(mailbox) = Name::new(name) {
            // If it cannot be watched, the regular scan finds its mail.
            let _ = self.watch_mailbox(&mailbox);
            self.changed.insert(mailbox);
        }
    }

    /// A mailbox whose directories were still being made when it was noticed.
    pub(super) fn watch_what_is_missing(&mut self) {
        let new =
            |mailbox: &Name| self.project.queue.join("mailbox").join(mailbox.as_str()).join("new");
        let is_missing = |mailbox: &&Name| !self.mailbox_dirs.contains_key(&new(mailbox));
        let missing: Vec<Name> = self.notifier.mailboxes().filter(is_missing).cloned().collect();
        for mailbox in missing {
            self.watch_mailbox_of(mailbox.as_str());
        }
    }

    fn watch_mailbox(&mut self, mailbox: &Name) -> Result<(), WatchError> {
        let home = self.project.queue.join("mailbox").join(mailbox.as_str());
        let Some(fs_watcher) = &mut self.fs_watcher else { return Ok(()) };
        for dir in ["new", "front"].map(|state| home.join(state)) {
            // The same path may be another directory now.
            fs_watcher.unwatch(&dir);
            if dir.is_dir() {
                fs_watcher.watch(&dir)?;
                self.mailbox_dirs.insert(dir, mailbox.clone());
            }
        }
        Ok(())
    }
}
