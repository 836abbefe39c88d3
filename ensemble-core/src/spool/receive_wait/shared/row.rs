//! One wait of a [`SharedWatcher`](super::SharedWatcher), and its bell.

use std::io::{PipeReader, PipeWriter, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::task::Waker;

#[derive(Debug, Default)]
pub(super) struct WaitRow {
    pub(super) places: Arc<[PathBuf]>,
    pub(super) is_watched: bool,
    /// Something happened since its last sleep began.
    pub(super) is_rung: bool,
    /// One of its directories was removed or moved.
    pub(super) is_replaced: bool,
    /// What landed in the first of its places, oldest first.
    pub(super) landed: Vec<String>,
    /// It sleeps on its bell: at other times nothing empties the pipe.
    pub(super) sleeps: bool,
    /// Made when it first sleeps while another wait reads.
    pub(super) bell: Option<Arc<WaitBell>>,
    /// Of a task that sleeps.
    pub(super) waker: Option<Waker>,
    #[cfg(feature = "tokio")]
    pub(super) is_task: bool,
}

/// A pipe that ends the sleep of one wait.
#[derive(Debug)]
pub(super) struct WaitBell {
    pub(super) reader: PipeReader,
    pub(super) writer: PipeWriter,
}

impl WaitRow {
    pub(super) fn bell(&mut self) -> Option<Arc<WaitBell>> {
        if self.bell.is_none() {
            let (reader, writer) = std::io::pipe().ok()?;
            self.bell = Some(Arc::new(WaitBell { reader, writer }));
        }
        self.bell.clone()
    }

    pub(super) fn ring(&mut self) {
        if !std::mem::replace(&mut self.is_rung, true) {
            self.wake();
        }
    }

    pub(super) fn wake(&mut self) {
        if let Some(bell) = self.bell.as_ref().filter(|_| self.sleeps) {
            // The pipe is emptied after each sleep, so this never blocks.
            let _ = (&bell.writer).write_all(&[1]);
        }
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}
