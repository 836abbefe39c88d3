//! Opening a queue.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::{MailboxError, Options, Spool};
use crate::durable::{self, Dir, Durability};
use crate::{Error, Result};

/// Directory of the write-ahead log of former versions.
const FORMER_LOG: &str = "wal";
/// End of the name of one of its files.
const FORMER_SEGMENT: &str = ".wal";

/// # Open a queue
impl Spool {
    /// Creates a queue, or opens one that exists.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub fn create(root: &Path, options: Options) -> Result<Self> {
        if durable::stat_path(root)?.is_none() {
            if let Some(parent) = root.parent() {
                std::fs::create_dir_all(parent)
                    .map_err(|e| Error::io("create directory", parent, e))?;
            }
            let parent = Dir::open(
                root.parent()
                    .filter(|p| !p.as_os_str().is_empty())
                    .unwrap_or_else(|| Path::new(".")),
            )?;
            let name = root.file_name().and_then(|n| n.to_str()).unwrap_or("queue");
            parent.ensure_child_safe(name, options.modes, options.durability)?;
        }
        let queue = Dir::open(root)?;
        for child in ["tmp", "mailbox", "reports", "tasks", "ack", "requests"] {
            queue.ensure_child(child, options.modes)?;
        }
        if options.durability == Durability::Power {
            queue.sync()?;
        }
        Self::open(root, options)
    }

    /// Opens a queue.
    ///
    /// # Errors
    /// [`Error::NoQueue`] if there is none, or every user may write to it.
    /// [`MailboxError::FormerLog`] if a former version has left a write-ahead log.
    pub fn open(root: &Path, options: Options) -> Result<Self> {
        let root = std::path::absolute(root).map_err(|e| Error::io("resolve", root, e))?;
        let spool = Self {
            root,
            options: Box::new(options),
            open: Mutex::default(),
            oldest_settled: Box::default(),
            twins: Box::default(),
            calendar: Box::default(),
            waits: Box::default(),
            syncs: Arc::default(),
        };
        spool.mailboxes_dir()?;
        spool.refuse_former_log()?;
        Ok(spool)
    }

    /// Former versions could log messages in `wal/` instead of syncing their files. After a power
    /// cut such messages may be only there, and only those versions read it.
    fn refuse_former_log(&self) -> Result<()> {
        let log = match self.queue_dir()?.open_child(FORMER_LOG) {
            Ok(log) => log,
            Err(error) if error.io_kind() == Some(io::ErrorKind::NotFound) => return Ok(()),
            Err(error) => return Err(error),
        };
        let segment = log.names()?.into_iter().find(|name| name.ends_with(FORMER_SEGMENT));
        match segment {
            Some(segment) => Err(MailboxError::FormerLog { path: log.path().join(segment) }.into()),
            None => Ok(()),
        }
    }

    /// The root directory of the queue.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What the queue's messages survive.
    #[must_use]
    pub const fn durability(&self) -> Durability {
        self.options.durability
    }
}
