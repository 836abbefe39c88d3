//! Errors of mailboxes.

use crate::error::AreaError;
use crate::message::Name;

/// A mailbox does not allow the operation. Callers find it by [`Error::area`](crate::Error::area).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MailboxError {
    #[error(
        "mailbox `{mailbox}` has unfinished messages ({unfinished}): settle or dead-letter them, or force it"
    )]
    Unfinished { mailbox: Name, unfinished: u64 },
}

impl AreaError for MailboxError {
    fn is_invariant_broken(&self) -> bool {
        true
    }
}
