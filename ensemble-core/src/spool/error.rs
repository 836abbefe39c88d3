//! Errors of mailboxes.

use std::path::PathBuf;

use crate::error::AreaError;
use crate::message::Name;

/// A mailbox does not allow the operation. Callers find it by [`Error::area`](crate::Error::area).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MailboxError {
    /// The mailbox has messages that are not settled; it was not removed.
    #[error(
        "mailbox `{mailbox}` has {unfinished} messages that are not finished: settle or dead-letter them, or force it"
    )]
    Unfinished {
        /// The mailbox.
        mailbox: Name,
        /// Number of queued and acked messages.
        unfinished: u64,
    },
    /// A former version has left a write-ahead log. Messages may be only there, so the queue was
    /// not opened.
    #[error(
        "{}: a former version has left a write-ahead log, which may have messages that are nowhere else: \
         repair the queue with that version first",
        path.display()
    )]
    FormerLog {
        /// The first file of the log.
        path: PathBuf,
    },
}

impl AreaError for MailboxError {
    fn is_invariant_broken(&self) -> bool {
        true
    }
}
