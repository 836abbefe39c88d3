//! Carries out decided shutdowns, each in its own thread.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use ensemble_core::event_log::types;
use ensemble_core::message::Name;
use ensemble_core::requests::{RequestEntry, RequestStore, Requests};
use ensemble_project::departure::{DepartureResult, carry_out};
use serde_json::json;

use crate::context::WatchContext;

/// Delay before a departure is retried that failed, or that another process is carrying out.
const RETRY: Duration = Duration::from_secs(2);

/// The shutdowns under way in a watcher. Dropping it interrupts them. The next watcher finds them
/// decided and not closed, and continues.
pub(crate) struct DepartureThreads {
    context: Arc<WatchContext>,
    store: Arc<dyn RequestStore + Send + Sync>,
    /// Carries no values: the threads notice that it is dropped.
    going_on: Option<Sender<()>>,
    ended: Receiver<()>,
    threads: Vec<JoinHandle<()>>,
}

impl DepartureThreads {
    pub(crate) fn new(
        context: &Arc<WatchContext>,
        store: Arc<dyn RequestStore + Send + Sync>,
    ) -> Self {
        let ((going_on, ended), context) = (bounded(0), Arc::clone(context));
        Self { context, store, going_on: Some(going_on), ended, threads: Vec::new() }
    }

    /// This request is decided: an agent agreed to its shutdown, or did not answer in time. Called once in a run of the
    /// watcher, and again in the next run while the request is not closed.
    pub(crate) fn begin(&mut self, entry: &RequestEntry) {
        self.threads.retain(|thread| !thread.is_finished());
        let (context, store) = (Arc::clone(&self.context), Arc::clone(&self.store));
        let (ended, entry) = (self.ended.clone(), entry.clone());
        self.threads.push(std::thread::spawn(move || {
            let mut rest =
                |longest| matches!(ended.recv_timeout(longest), Err(RecvTimeoutError::Timeout));
            see_through(&context, &*store, &entry, &mut rest);
        }));
    }
}

impl Drop for DepartureThreads {
    fn drop(&mut self) {
        drop(self.going_on.take());
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Carries out one request and retries after failures, until it is done or the watcher stops.
fn see_through(
    context: &WatchContext,
    store: &dyn RequestStore,
    entry: &RequestEntry,
    rest: &mut dyn FnMut(Duration) -> bool,
) {
    let id: &Name = &entry.request.request_id;
    let mut last_failure = String::new();
    loop {
        match carry_out(&context.project, store, &*context.recorder, entry, rest) {
            Ok(DepartureResult::Done { .. } | DepartureResult::Interrupted) => return,
            Ok(DepartureResult::Elsewhere) => {}
            Err(error) => {
                tracing::warn!(%id, %error, "cannot carry out a shutdown, retrying");
                let error = error.to_string();
                if error != last_failure {
                    let data =
                        json!({ "agent": entry.request.to, "request_id": id, "error": error });
                    context.record(types::SHUTDOWN_FAILED, data);
                    last_failure = error;
                }
            }
        }
        if !rest(RETRY) || Requests::new(store).is_closed(id).unwrap_or(false) {
            return;
        }
    }
}
