//! Errors, with the path, the operation and the next step.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The result of nearly everything here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The errors of this crate. Every variant says what it was about. None is raised for something that a caller expects
/// in everyday work (an empty mailbox is `None`, not an error).
///
/// ```
/// use ensemble_core::{Error, Mailbox};
///
/// fn send(inbox: &Mailbox) -> ensemble_core::Result<()> {
///     match inbox.send("a task") {
///         Err(Error::NoMailbox { name, nearest }) => println!("no {name}; is it one of {nearest:?}?"),
///         Err(error) if error.is_transient() => println!("later: {error}"), // full, or locked
///         Err(error) if error.io_kind() == Some(std::io::ErrorKind::StorageFull) => println!("{error}"),
///         other => return other.map(drop),
///     }
///     Ok(())
/// }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused an operation on a path.
    #[error("cannot {operation} {path}: {source}{}", hint(operation, source))]
    Io {
        /// What was tried, in the infinitive.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// No such mailbox.
    #[error("there is no mailbox `{name}`{}", nearest_names(nearest))]
    NoMailbox {
        /// The name that was asked for.
        name: String,
        /// Mailboxes with similar names, best first.
        nearest: Vec<String>,
    },
    /// A mailbox of that name, or of one that differs only in case, exists.
    #[error("a mailbox `{existing}` already exists")]
    MailboxExists {
        /// The one that exists.
        existing: String,
    },
    /// There is no queue here.
    #[error("{path} is not a queue")]
    NoQueue {
        /// The path where the queue was expected.
        path: PathBuf,
    },
    /// The mailbox is bounded and full.
    #[error(
        "mailbox `{mailbox}` is full (it holds {capacity}): try again once it was read, or raise its capacity"
    )]
    Full {
        /// The mailbox.
        mailbox: String,
        /// Capacity of the mailbox, in messages.
        capacity: u64,
    },
    /// The sender has left as much unread in the mailbox as one sender may.
    #[error(
        "`{sender}` has {messages} unread messages ({bytes} bytes) in mailbox `{mailbox}`, as much as one sender may: try again once some were read, or raise `sender_quota`"
    )]
    Quota {
        /// The mailbox.
        mailbox: String,
        /// The sender that may not send more.
        sender: String,
        /// How many of its messages wait there.
        messages: u64,
        /// Their size with attachments, in bytes.
        bytes: u64,
    },
    /// The id is taken by a message with different content.
    #[error(
        "message `{id}` already exists in mailbox `{mailbox}` with different content: use another id"
    )]
    Conflict {
        /// The mailbox.
        mailbox: String,
        /// The id.
        id: String,
    },
    /// No such message.
    #[error("there is no message `{id}` {place}")]
    NoMessage {
        /// The id.
        id: String,
        /// Where it was looked for, as a phrase.
        place: String,
    },
    /// The id names messages in several mailboxes.
    #[error("message `{id}` is in several mailboxes ({}): name one", mailboxes.join(", "))]
    Ambiguous {
        /// The id.
        id: String,
        /// The mailboxes.
        mailboxes: Vec<String>,
    },
    /// The message is not held under this lease any more (or never was).
    #[error("the lease {lease} has ended: the message is {now}")]
    LeaseLost {
        /// The lease that was presented.
        lease: String,
        /// Where the message is now, as a phrase.
        now: String,
    },
    /// A file that is not what its place says. It was left or set aside, never deleted.
    #[error("{path}: {field}: {detail}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The field, or `file` if it is about the whole.
        field: String,
        /// What is wrong with it.
        detail: String,
    },
    /// An argument that the caller must change. Nothing was done.
    #[error("{what}: {field}: {detail}")]
    Invalid {
        /// The argument.
        what: String,
        /// The field of it.
        field: String,
        /// What is wrong with it.
        detail: String,
    },
    /// The content of a message is not the JSON that its reader expects.
    #[error("message `{id}` does not have the expected content: {detail}")]
    Body {
        /// The message.
        id: String,
        /// The value that does not fit, and where.
        detail: String,
    },
    /// Something is longer than its limit.
    #[error("{what} has {bytes} bytes, the limit is {limit}")]
    TooLarge {
        /// The item that is too large.
        what: String,
        /// Size of the item, in bytes.
        bytes: u64,
        /// The limit, in bytes.
        limit: u64,
    },
    /// Another process holds the lock.
    #[error("{path} is locked by {holder} (waited {:.1} s): wait for it, or stop it", waited.as_secs_f64())]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// The holder of the lock, if it is known.
        holder: String,
        /// How long this call waited.
        waited: Duration,
    },
    /// A needed program is not installed.
    #[error("`{program}` is not installed: {remedy}")]
    MissingProgram {
        /// The program.
        program: &'static str,
        /// Instructions to install the program.
        remedy: &'static str,
    },
    /// A server on the network did not answer as it should, or not at all.
    #[error("cannot {operation} at {server}: {detail}")]
    Server {
        /// What was tried, in the infinitive.
        operation: &'static str,
        /// The server's address, without anything secret.
        server: String,
        /// Its message, or why it could not be asked.
        detail: String,
        /// Whether it was unreachable, so that trying later may help.
        unreachable: bool,
    },
    /// The request violates the rules of a protocol: a second decision, a decision by another than the addressee,
    /// settling a request that has none. Nothing was done.
    #[error("{detail}")]
    Refused {
        /// Which rule, and what to do instead.
        detail: String,
    },
    /// An error with its own type, which [`Error::area`] finds: of names, requests, the blackboard.
    #[error("{0}")]
    #[cfg_attr(not(feature = "internals"), doc(hidden))]
    Area(Box<dyn AreaError>),
}

/// An error of one area of the library. `?` turns it into an [`Error`].
pub trait AreaError: std::error::Error + Send + Sync + 'static {
    /// Whether the same call may succeed later although nothing was changed.
    fn is_transient(&self) -> bool {
        false
    }

    /// Whether an invariant is broken: a person must look, and trying again does not help.
    fn is_invariant_broken(&self) -> bool {
        false
    }
}

impl<E: AreaError> From<E> for Error {
    fn from(error: E) -> Self {
        Self::Area(Box::new(error))
    }
}

fn hint(operation: &str, source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::AlreadyExists if operation.starts_with("create dir") => {
            " (something else is in the place of a directory: move that away)"
        }
        io::ErrorKind::StorageFull => " (the disk is full: free some room and try again)",
        io::ErrorKind::QuotaExceeded => {
            " (the disk quota is used up: free some room and try again)"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            " (the file system is read-only: mount it writable, or let this sandbox write there)"
        }
        io::ErrorKind::PermissionDenied => " (check who owns it; a queue is private to its owner)",
        io::ErrorKind::NotADirectory => {
            " (something else is in the place of a directory: move that away)"
        }
        io::ErrorKind::CrossesDevices => " (the queue must be in one file system)",
        _ if is_out_of_descriptors(source) => " (too many open files: raise `ulimit -n`)",
        _ if source.raw_os_error() == Some(5) => {
            " (the disk fails: this does not count as done; see the kernel's log, and try again once it works)"
        }
        _ => "",
    }
}

fn is_out_of_descriptors(source: &io::Error) -> bool {
    matches!(source.raw_os_error(), Some(23 | 24))
}

fn nearest_names(nearest: &[String]) -> String {
    match nearest {
        [] => String::new(),
        names => format!(": did you mean {}?", names.join(" or ")),
    }
}

impl Error {
    /// The kind of the IO error inside, if it is one.
    #[must_use]
    pub fn io_kind(&self) -> Option<io::ErrorKind> {
        match self {
            Self::Io { source, .. } => Some(source.kind()),
            _ => None,
        }
    }

    /// Whether the same call may succeed later without an intervention.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Locked { .. }
                | Self::Full { .. }
                | Self::Quota { .. }
                | Self::Server { unreachable: true, .. }
        ) || matches!(self, Self::Area(error) if error.is_transient())
            || matches!(
                self.io_kind(),
                Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            )
    }
}

fn allow<T>(found: Result<T>, is_allowed: impl Fn(&Error) -> bool) -> Result<Option<T>> {
    match found {
        Err(error) if is_allowed(&error) => Ok(None),
        other => other.map(Some),
    }
}

/// The found value; `None` if a file or directory is missing.
pub fn allow_missing<T>(found: Result<T>) -> Result<Option<T>> {
    allow(found, |error| error.io_kind() == Some(io::ErrorKind::NotFound))
}

/// As [`allow_missing`], and `None` if a file is where a directory should be.
pub fn allow_misplaced<T>(found: Result<T>) -> Result<Option<T>> {
    let absent = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
    allow(found, |error| error.io_kind().is_some_and(|kind| absent.contains(&kind)))
}

/// The value; `None` if the message is gone.
pub fn allow_gone<T>(found: Result<T>) -> Result<Option<T>> {
    allow(found, |error| matches!(error, Error::NoMessage { .. }))
}

/// The value; `None` if there is no such mailbox.
pub fn allow_no_mailbox<T>(found: Result<T>) -> Result<Option<T>> {
    allow(found, |error| matches!(error, Error::NoMailbox { .. }))
}

/// The value that was read; `None` if a message is gone or cannot be read.
pub fn allow_unreadable<T>(read: Result<T>) -> Result<Option<T>> {
    allow(read, |error| {
        matches!(error, Error::NoMessage { .. } | Error::Malformed { .. } | Error::TooLarge { .. })
    })
}

#[cfg_attr(not(feature = "internals"), doc(hidden))]
impl Error {
    pub(crate) fn without_area(self) -> Self {
        match self {
            Self::Area(error) => Self::Refused { detail: error.to_string() },
            other => other,
        }
    }

    /// Whether the process, or the whole system, has no descriptor left.
    #[must_use]
    pub fn is_out_of_descriptors(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_out_of_descriptors(source))
    }

    /// Whether the servers do not answer, so that all that is on them fails alike. What they refuse concerns one thing.
    #[must_use]
    pub const fn is_server_away(&self) -> bool {
        matches!(self, Self::Server { unreachable: true, .. })
    }

    /// Whether a mailbox is missing, or has no room for a message of this sender.
    #[must_use]
    pub const fn is_undeliverable(&self) -> bool {
        matches!(self, Self::NoMailbox { .. } | Self::Full { .. } | Self::Quota { .. })
    }

    pub(crate) fn too_large(what: impl Into<String>, bytes: usize, limit: usize) -> Self {
        Self::TooLarge { what: what.into(), bytes: bytes as u64, limit: limit as u64 }
    }

    pub(crate) fn invalid(
        what: impl Into<String>,
        field: impl Into<String>,
        detail: impl Into<String>,
    ) -> Self {
        Self::Invalid { what: what.into(), field: field.into(), detail: detail.into() }
    }

    pub fn io(
        operation: &'static str,
        path: impl AsRef<Path>,
        source: impl Into<io::Error>,
    ) -> Self {
        Self::Io { operation, path: path.as_ref().to_owned(), source: source.into() }
    }

    pub fn malformed(
        path: impl AsRef<Path>,
        field: impl Into<String>,
        detail: impl Into<String>,
    ) -> Self {
        let (field, detail) = (printable(field.into()), printable(detail.into()));
        Self::Malformed { path: path.as_ref().to_owned(), field, detail }
    }

    /// Whether an invariant is broken: a person must look, and trying again does not help.
    #[must_use]
    pub fn is_invariant_broken(&self) -> bool {
        matches!(self, Self::Area(error) if error.is_invariant_broken())
    }

    /// The error of this area inside, if it is one.
    ///
    /// ```
    /// use ensemble_core::Error;
    /// use ensemble_core::message::{Name, NameError};
    /// let error = Error::from(Name::new("../etc").unwrap_err());
    /// assert!(matches!(error.area(), Some(NameError::Character { .. } | NameError::Start { .. })));
    /// ```
    #[must_use]
    pub fn area<E: AreaError>(&self) -> Option<&E> {
        let Self::Area(error) = self else { return None };
        let error: &(dyn std::error::Error + 'static) = &**error;
        error.downcast_ref()
    }

    /// The error of this area inside; this error if it is another one.
    ///
    /// # Errors
    /// The error itself, if it is of another area.
    pub fn into_area<E: AreaError>(self) -> Result<E> {
        match self {
            Self::Area(error) if self::is::<E>(&*error) => {
                let error: Box<dyn std::error::Error> = error;
                error.downcast().map(|error| *error).map_err(|_| unreachable!("it was asked"))
            }
            other => Err(other),
        }
    }
}

fn is<E: AreaError>(error: &dyn AreaError) -> bool {
    let error: &(dyn std::error::Error + 'static) = error;
    error.is::<E>()
}

/// Replaces control characters in text that a file says: errors repeat it, and errors are shown on
/// terminals and written to logs.
pub fn printable(text: String) -> String {
    let steers = |c: char| c.is_control() && c != '\n';
    if !text.contains(steers) {
        return text;
    }
    let shown = |c: char| if steers(c) { c.escape_debug().to_string() } else { c.to_string() };
    text.chars().map(shown).collect()
}
