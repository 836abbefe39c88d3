//! The project, its queue and its event log, which all parts of the watcher share.

use std::sync::Arc;

use ensemble_core::event_log::Recorder;
use ensemble_core::spool::Spool;
use ensemble_project::Project;
use ensemble_project::status::ACTOR;
use serde_json::Value;

pub(crate) struct WatchContext {
    pub(crate) project: Project,
    pub(crate) spool: Arc<Spool>,
    pub(crate) recorder: Arc<dyn Recorder>,
}

impl WatchContext {
    pub(crate) fn record(&self, kind: &str, data: Value) {
        self.recorder.record(kind, ACTOR, data);
    }
}
