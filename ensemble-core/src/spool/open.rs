//! Opening a queue.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::receive_wait::QueueWaits;
use super::{Spool, SpoolOptions};
use crate::durable::{self, Dir, Durability};
use crate::{Error, Result};

/// # Open a queue
impl Spool {
    /// Creates a queue, or opens one that exists.
    pub fn create(root: &Path, options: SpoolOptions) -> Result<Self> {
        if durable::stat_path(root)?.is_none() {
            let parent = durable::parent_of(root);
            std::fs::create_dir_all(parent)
                .map_err(|e| Error::io("create directory", parent, e))?;
            let name = root.file_name().and_then(|n| n.to_str()).unwrap_or("queue");
            Dir::open(parent)?.ensure_child_safe(name, options.modes, options.durability)?;
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

    pub fn open(root: &Path, options: SpoolOptions) -> Result<Self> {
        let root = std::path::absolute(root).map_err(|e| Error::io("resolve", root, e))?;
        let spool = Self {
            waits: Box::new(QueueWaits::new(&root)),
            root,
            options: Box::new(options),
            open: Mutex::default(),
            oldest_settled: Box::default(),
            twins: Box::default(),
            calendar: Box::default(),
            syncs: Arc::default(),
        };
        match spool.mailboxes_dir() {
            // Each call says so, and an overview names it beside other parts that are wrong.
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotADirectory => {}
            opened => drop(opened?),
        }
        Ok(spool)
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub const fn durability(&self) -> Durability {
        self.options.durability
    }
}
