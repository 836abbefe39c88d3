//! Carries out decided shutdowns, each in its own thread, as the [`DecisionHandler`] of decided requests.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use ensemble_core::event_log::{Recorder, types};
use ensemble_core::message::Name;
use ensemble_core::requests::{RequestEntry, RequestStore, Requests};
use ensemble_project::Project;
use ensemble_project::departure::{DepartureResult, carry_out};
use ensemble_project::status::ACTOR;
use serde_json::json;

use crate::requests::DecisionHandler;

/// Delay before a departure is retried that failed, or that another process is carrying out.
const RETRY: Duration = Duration::from_secs(2);

/// The shutdowns under way in a watcher. Dropping it interrupts them. The next watcher finds them
/// decided and not closed, and continues.
pub(crate) struct DepartureThreads {
    project: Project,
    store: Arc<dyn RequestStore + Send + Sync>,
    recorder: Arc<dyn Recorder>,
    /// Carries no values: the threads notice that it is dropped.
    going_on: Option<Sender<()>>,
    ended: Receiver<()>,
    threads: Vec<JoinHandle<()>>,
}

impl DepartureThreads {
    pub(crate) fn new(
        project: &Project,
        store: Arc<dyn RequestStore + Send + Sync>,
        recorder: Arc<dyn Recorder>,
    ) -> Self {
        let (going_on, ended) = bounded(0);
        Self {
            project: project.clone(),
            store,
            recorder,
            going_on: Some(going_on),
            ended,
            threads: Vec::new(),
        }
    }
}

impl DecisionHandler for DepartureThreads {
    fn decided(&mut self, entry: &RequestEntry) {
        self.threads.retain(|thread| !thread.is_finished());
        let (project, entry) = (self.project.clone(), entry.clone());
        let (store, recorder) = (Arc::clone(&self.store), Arc::clone(&self.recorder));
        let ended = self.ended.clone();
        self.threads.push(std::thread::spawn(move || {
            let mut rest =
                |longest| matches!(ended.recv_timeout(longest), Err(RecvTimeoutError::Timeout));
            see_through(&project, &*store, &*recorder, &entry, &mut rest);
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
    project: &Project,
    store: &dyn RequestStore,
    recorder: &dyn Recorder,
    entry: &RequestEntry,
    rest: &mut dyn FnMut(Duration) -> bool,
) {
    let id: &Name = &entry.request.request_id;
    let mut last_failure = String::new();
    loop {
        match carry_out(project, store, recorder, entry, rest) {
            Ok(DepartureResult::Done { .. } | DepartureResult::Interrupted) => return,
            Ok(DepartureResult::Elsewhere) => {}
            Err(error) => {
                tracing::warn!(%id, %error, "cannot carry out a shutdown, retrying");
                let error = error.to_string();
                if error != last_failure {
                    let data =
                        json!({ "agent": entry.request.to, "request_id": id, "error": error });
                    recorder.record(types::SHUTDOWN_FAILED, ACTOR, data);
                    last_failure = error;
                }
            }
        }
        if !rest(RETRY) || Requests::new(store).is_closed(id).unwrap_or(false) {
            return;
        }
    }
}
