//! Ends waits from another thread.

use std::io::{self, PipeReader, PipeWriter, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{Error, Result};

/// Ends every blocking wait of the [`Mailbox`](super::Mailbox) handles that were made with
/// [`until`](super::Mailbox::until), at once and for good. A cancelled wait takes no message with it.
///
/// Its descriptor is readable once it is cancelled, for your own `poll`. It takes two descriptors.
///
/// ```
/// use ensemble_core::{CancelToken, Queue};
/// # let home = tempfile::tempdir()?;
/// # let queue = Queue::open_or_create(home.path())?;
/// let stop = CancelToken::new()?;
/// let inbox = queue.mailbox("worker-1")?.until(&stop);
/// let worker = std::thread::spawn(move || inbox.recv()); // waits
/// stop.cancel();
/// assert!(stop.is_cancelled() && worker.join().unwrap()?.is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct CancelToken {
    shared: Arc<CancelPipe>,
}

#[derive(Debug)]
struct CancelPipe {
    is_cancelled: AtomicBool,
    /// Never read, so that it ends any number of waits.
    readable: PipeReader,
    writer: PipeWriter,
}

impl CancelToken {
    /// A token that is not cancelled.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn new() -> Result<Self> {
        let (readable, writer) = io::pipe().map_err(|e| Error::io("make", "a pipe", e))?;
        let is_cancelled = AtomicBool::new(false);
        Ok(Self { shared: Arc::new(CancelPipe { is_cancelled, readable, writer }) })
    }

    /// Ends all waits. Doing it again changes nothing.
    pub fn cancel(&self) {
        if !self.shared.is_cancelled.swap(true, Ordering::AcqRel) {
            // One byte fits into an empty pipe.
            let _ = (&self.shared.writer).write_all(&[1]);
        }
    }

    /// Whether both are clones of one token.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Whether it was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.shared.is_cancelled.load(Ordering::Acquire)
    }
}

impl AsFd for CancelToken {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.readable.as_fd()
    }
}
