//! In the place of `remote`, for a program that was built without the feature `nats`.

use std::sync::Arc;

use crossbeam_channel::Receiver;
use ensemble_core::Result;
use ensemble_core::event_log::Recorder;
use ensemble_core::spool::Spool;
use ensemble_project::Project;

use crate::servers::SharedSight;
use crate::wakes::LoopWaker;

pub(crate) use self::NoFollower as ServerFollower;

pub(crate) struct NoFollower;

impl NoFollower {
    /// Refuses a project with mailboxes on servers; `None` for others.
    pub(crate) fn new(
        project: &Project,
        _spool: Arc<Spool>,
        _recorder: Arc<dyn Recorder>,
        _waker: LoopWaker,
        _stop: Receiver<()>,
    ) -> Result<Option<Self>> {
        // Opening the queue says what is missing.
        if project.is_shared()? {
            project.open_unrecorded()?;
        }
        Ok(None)
    }

    pub(crate) fn with_sight(self, _sight: SharedSight) -> Self {
        self
    }

    pub(crate) fn run(&mut self) {}
}
