//! In the place of `remote`, for a program that was built without the feature `nats`.

use std::sync::Arc;

use crossbeam_channel::Receiver;
use ensemble_core::Result;

use crate::context::WatchContext;
use crate::servers::SharedSight;
use crate::wakes::LoopWaker;

pub(crate) use self::NoFollower as ServerFollower;

pub(crate) struct NoFollower;

impl NoFollower {
    /// Refuses a project with mailboxes on servers; `None` for others.
    pub(crate) fn new(
        context: &Arc<WatchContext>,
        _sight: SharedSight,
        _ends: (LoopWaker, Receiver<()>),
    ) -> Result<Option<Self>> {
        // Opening the queue says what is missing.
        if context.project.is_shared()? {
            context.project.open_unrecorded()?;
        }
        Ok(None)
    }

    pub(crate) fn run(&mut self) {}
}
