//! A complete file of a drop box, as a closure gets it.

use std::cell::RefCell;

use serde::de::DeserializeOwned;

use crate::dropbox::CompleteFile;
use crate::message::MessageId;
use crate::{Error, Result};

/// A complete file of a drop box, as the closure of a [`Watcher`](super::Watcher) gets it.
///
/// ```
/// use ensemble_core::{CallbackResult, Report};
///
/// #[derive(serde::Deserialize)]
/// struct Completed { task_id: String, files: Vec<String> }
///
/// fn handle(report: &Report) -> CallbackResult {
///     let Ok(completed) = report.parse::<Completed>() else {
///         report.reject("it needs `task_id` and `files`");
///         return Ok(());
///     };
///     println!("{} ({} bytes)", report.path(), report.content().len());
///     println!("{}: {} files, by {:?}", completed.task_id, completed.files.len(), report.field("by"));
///     println!("task {:?}, stored as {}", report.stem(), report.id()); // the id is the same after a crash
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct Report {
    file: CompleteFile,
    path: String,
    stem: Option<String>,
    id: MessageId,
    rejected: RefCell<Option<String>>,
}

impl Report {
    pub(super) fn new(file: CompleteFile, id: MessageId, stem: Option<String>) -> Self {
        Self { path: file.path(), file, stem, id, rejected: RefCell::new(None) }
    }

    pub(super) fn into_verdict(self) -> (CompleteFile, Option<String>) {
        (self.file, self.rejected.into_inner())
    }

    /// Its path below the queue, such as `reports/task-7-completed.yaml`.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The text that the first `*` of the route's pattern matched.
    #[must_use]
    pub fn stem(&self) -> Option<&str> {
        self.stem.as_deref()
    }

    /// An id of this version of this file, which is the same after a crash: what to look for before you do something
    /// twice.
    #[must_use]
    pub fn id(&self) -> &MessageId {
        &self.id
    }

    /// The bytes of the file.
    #[must_use]
    pub fn content(&self) -> &[u8] {
        &self.file.content
    }

    /// A field of the YAML or JSON in it, if that is text.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.file.fields.get(name)?.as_str()
    }

    /// The YAML or JSON in it, as one of your types.
    ///
    /// # Errors
    /// [`Error::Body`] says what does not fit.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T> {
        let parsed = T::deserialize(&self.file.fields);
        parsed.map_err(|e| Error::Body { id: self.path.clone(), detail: e.to_string() })
    }

    /// Has the file moved to `rejected/`, with this reason beside it, once the closure has returned `Ok`.
    pub fn reject(&self, reason: impl Into<String>) {
        *self.rejected.borrow_mut() = Some(reason.into());
    }
}
