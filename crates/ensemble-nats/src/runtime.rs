//! The private async runtime. The calling thread drives it during a call, and its own thread
//! between calls.
//!
//! ```text
//! a call starts                         the thread yields; the caller drives until its call has ended
//! no call, and a caller awaits updates  the thread drives at once
//! no call since QUIET                   the thread drives
//! ```
//!
//! So consecutive calls involve no other thread: a hand-over and its return would cost more than
//! half of the server's response time. Calls may come from any thread. Calls from inside another
//! runtime are handed to the thread after all. Every call is limited in time.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime as Tokio};
use tokio::sync::Notify;

/// Extra time beyond its own limit for a handed-over call to return its result, on a loaded
/// machine.
const GRACE: Duration = Duration::from_secs(1);
/// The thread takes over within twice this time after the last call. This is short compared with
/// the server's patience with a client that does not answer, and long enough for the checks to cost
/// nothing.
const QUIET: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct Runtime {
    /// `None` only during the drop.
    tokio: Option<Arc<Tokio>>,
    lock: Arc<DriverLock>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct DriverLock {
    state: Mutex<State>,
    changed: Condvar,
    let_go: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Calls that drive, or wait for the driving call to end.
    callers: usize,
    calls: u64,
    driven: bool,
    /// Callers that wait for tasks of the runtime without driving it.
    waiters: usize,
    over: bool,
}

impl DriverLock {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks until the thread must drive; `false` at the end.
    fn wait(&self) -> bool {
        let mut state = self.state();
        let mut seen = state.calls;
        while !state.over {
            if state.callers == 0 && state.waiters > 0 {
                break;
            }
            let waited = self.changed.wait_timeout(state, QUIET);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if state.callers == 0 && state.calls == seen {
                break;
            }
            seen = state.calls;
        }
        state.driven = true;
        !state.over
    }

    fn end(&self) {
        self.state().over = true;
        self.changed.notify_all();
        self.let_go.notify_one();
    }
}

struct DrivingCall<'a>(&'a DriverLock);

impl<'a> DrivingCall<'a> {
    fn begin(lock: &'a DriverLock) -> Self {
        let mut state = lock.state();
        state.callers += 1;
        state.calls += 1;
        if state.driven {
            lock.let_go.notify_one();
        }
        Self(lock)
    }
}

impl Drop for DrivingCall<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.callers -= 1;
        if state.callers == 0 && state.waiters > 0 {
            self.0.changed.notify_all();
        }
    }
}

/// A caller that waits for updates, until this is dropped.
pub(super) struct UpdateWaiter<'a>(&'a DriverLock);

impl<'a> UpdateWaiter<'a> {
    fn begin(lock: &'a DriverLock) -> Self {
        lock.state().waiters += 1;
        lock.changed.notify_all();
        Self(lock)
    }
}

impl Drop for UpdateWaiter<'_> {
    fn drop(&mut self) {
        self.0.state().waiters -= 1;
    }
}

impl Runtime {
    pub(super) fn start() -> std::io::Result<Self> {
        let tokio = Arc::new(Builder::new_current_thread().enable_all().build()?);
        let lock = Arc::new(DriverLock::default());
        let (driven, its_lock) = (Arc::clone(&tokio), Arc::clone(&lock));
        let thread = thread::Builder::new().name("ensemble-nats".to_owned()).spawn(move || {
            while its_lock.wait() {
                driven.block_on(its_lock.let_go.notified());
                its_lock.state().driven = false;
            }
        })?;
        Ok(Self { tokio: Some(tokio), lock, thread: Some(thread) })
    }

    /// Runs a future to completion and returns its result; `None` once `limit` has passed.
    pub(super) fn run<T: Send + 'static>(
        &self,
        limit: Duration,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let result = Arc::new(Mutex::new(None));
        let place = Arc::clone(&result);
        // The future is large, and each hand-over would move it.
        let done = Box::pin(async move {
            let value = future.await;
            *super::lock(&place) = Some(value);
        });
        self.run_boxed(limit, done);
        super::lock(&result).take()
    }

    /// Runs a future until it completes, or for at most `limit`. Not generic, because every caller would get its own
    /// copy.
    fn run_boxed(&self, limit: Duration, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        let Some(tokio) = self.tokio.as_ref() else { return };
        let bounded = async move { drop(tokio::time::timeout(limit, future).await) };
        if Handle::try_current().is_err() {
            let _call = DrivingCall::begin(&self.lock);
            return tokio.block_on(bounded);
        }
        // Inside another runtime this thread must not drive one.
        let (sender, receiver) = mpsc::sync_channel(1);
        tokio.spawn(async move {
            bounded.await;
            sender.send(())
        });
        let _waiting = self.waiting();
        let _ = receiver.recv_timeout(limit + GRACE);
    }

    pub(super) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        if let Some(tokio) = &self.tokio {
            tokio.spawn(future);
        }
    }

    /// A guard that a caller holds while it waits for a task of the runtime.
    pub(super) fn waiting(&self) -> UpdateWaiter<'_> {
        UpdateWaiter::begin(&self.lock)
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.lock.end();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // Does not wait for tasks, so that a drop inside another runtime is allowed.
        if let Some(tokio) = self.tokio.take().and_then(Arc::into_inner) {
            tokio.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::sync::oneshot;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn call_ends_at_its_limit() {
        let runtime = Runtime::start().unwrap();
        assert_eq!(runtime.run(LONG, async { 7 }), Some(7));
        let never = std::future::pending::<()>();
        assert_eq!(runtime.run(Duration::from_millis(1), never), None);
    }

    #[test]
    fn tasks_run_between_calls() {
        let runtime = Runtime::start().unwrap();
        for _ in 0..100 {
            let (sender, receiver) = mpsc::channel();
            runtime.run(LONG, async {});
            runtime.spawn(async move { sender.send(()).unwrap() });
            let _waiting = runtime.waiting();
            receiver.recv_timeout(LONG).unwrap();
        }
        // Tasks also run without a waiting caller.
        let (sender, receiver) = mpsc::channel();
        runtime.run(LONG, async {});
        runtime.spawn(async move { sender.send(()).unwrap() });
        receiver.recv_timeout(LONG).unwrap();
    }

    #[test]
    fn calls_of_many_threads_all_return() {
        let runtime = Runtime::start().unwrap();
        let done = AtomicU32::new(0);
        thread::scope(|threads| {
            for _ in 0..8 {
                threads.spawn(|| {
                    for n in 0..500u32 {
                        let (sender, receiver) = oneshot::channel();
                        runtime.spawn(async move { sender.send(n).unwrap() });
                        assert_eq!(runtime.run(LONG, receiver), Some(Ok(n)));
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(done.into_inner(), 4000);
    }

    #[test]
    fn runtime_works_and_drops_inside_another_runtime() {
        let other = Builder::new_current_thread().enable_all().build().unwrap();
        other.block_on(async {
            let runtime = Runtime::start().unwrap();
            assert_eq!(runtime.run(LONG, async { 7 }), Some(7));
            assert_eq!(runtime.run(LONG, async { 8 }), Some(8));
        });
    }
}
