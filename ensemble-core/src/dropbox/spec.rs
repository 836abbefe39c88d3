//! One drop box: its name, its directory, and which files belong to it.

use std::sync::Arc;

use super::route::PathPattern;

pub const DROP_BOXES: [&str; 3] = ["reports", "tasks", "ack"];

/// One drop box of a queue. Its name is the first part of its files' paths: in routes, messages, records and the
/// ledger.
#[derive(Clone, Debug)]
pub struct BoxSpec {
    name: Arc<str>,
    directory: Option<String>,
    files: PathPattern,
}

impl BoxSpec {
    /// A box for some files of one directory below the queue; without a directory, of the queue itself.
    pub fn new(name: &str, directory: Option<String>, files: PathPattern) -> Self {
        Self { name: name.into(), directory, files }
    }

    /// The box for all files of the directory of its name.
    pub fn named(name: &str) -> Self {
        Self::new(name, Some(name.to_owned()), PathPattern::new("*"))
    }

    pub const fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Its directory below the queue; `None` for the queue itself.
    pub fn directory(&self) -> Option<&str> {
        self.directory.as_deref()
    }

    pub const fn files(&self) -> &PathPattern {
        &self.files
    }

    /// Whether a file of its directory belongs to it.
    pub fn takes(&self, file: &str) -> bool {
        self.files.is_any() || self.files.stars(file).is_some()
    }

    /// Its directory as a person reads it, such as `reviews/`.
    pub fn shown(&self) -> String {
        self.directory().map_or_else(|| "the queue itself".to_owned(), |dir| format!("{dir}/"))
    }
}
