//! The async runtime, hidden: one thread, started with the connection and ended with it.
//!
//! Futures run on that thread and callers wait for them on a channel, so that a call may come from
//! any thread, from inside somebody else's runtime too. Every call is bounded in time.

use std::future::Future;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// What a call is given beyond its own limit to hand over its result, on a machine under load.
const GRACE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Runtime {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Runtime {
    pub(super) fn start() -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = thread::Builder::new().name("ensemble-nats".to_owned()).spawn(move || {
            // Ends when the sender is dropped, too.
            let _ = runtime.block_on(stopped);
            runtime.shutdown_background();
        })?;
        Ok(Self { handle, stop: Some(stop), thread: Some(thread) })
    }

    /// Runs a future to its end and returns its result; `None` once `limit` is over.
    pub(super) fn run<T: Send + 'static>(
        &self,
        limit: Duration,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.handle.spawn(async move {
            if let Ok(result) = tokio::time::timeout(limit, future).await {
                let _ = sender.send(result);
            }
        });
        receiver.recv_timeout(limit + GRACE).ok()
    }

    /// Lets a future run by itself, until the runtime ends.
    pub(super) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(future);
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_ends_at_its_limit() {
        let runtime = Runtime::start().unwrap();
        assert_eq!(runtime.run(Duration::from_secs(5), async { 7 }), Some(7));
        let never = std::future::pending::<()>();
        assert_eq!(runtime.run(Duration::from_millis(1), never), None);
    }
}
