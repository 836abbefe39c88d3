//! Extends a lease while work continues.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use super::Queue;
use crate::env::Lease;
use crate::{Error, Result};

/// Extends a lease at once and at each third of it, until it is dropped. [`Message`](super::Message) has an example.
///
/// It stops by itself once the lease is lost; the next call on the message then returns that error.
#[derive(Debug)]
#[must_use = "the lease is extended until this is dropped"]
pub struct KeepAlive {
    /// Dropped to stop the thread, which waits on the other end.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl KeepAlive {
    pub(super) fn start(queue: &Queue, lease: Lease) -> Result<Self> {
        let spool = std::sync::Arc::clone(queue.spool());
        let duration = spool.settings(&lease.mailbox)?.lease_duration();
        // Much of it may have passed, such as for the last message of a batch.
        spool.extend(&lease, duration)?;
        let (stop, stopped) = mpsc::channel::<()>();
        let extend = move || {
            let has_time = |pause: Duration| {
                matches!(stopped.recv_timeout(pause), Err(RecvTimeoutError::Timeout))
            };
            while has_time(duration / 3) {
                // A full disk may have room again at the next third, before the lease expires.
                if matches!(spool.extend(&lease, duration), Err(Error::LeaseLost { .. })) {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("keep-alive".to_owned()).spawn(extend);
        let thread = thread.map_err(|e| Error::io("start", "a thread", e))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for KeepAlive {
    fn drop(&mut self) {
        self.stop = None;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
