use std::thread::JoinHandle;

use ensemble_app::departing::StandInWatcher;
use ensemble_project::Project;
use ensemble_watch::{WatchStopper, Watcher};

struct WatcherThread {
    stopper: WatchStopper,
    thread: Option<JoinHandle<()>>,
}

/// Starts one; `None` if another one has just started.
pub(crate) fn start_watcher(project: &Project) -> Option<Box<dyn StandInWatcher>> {
    let watcher = Watcher::new(project).ok()?;
    let stopper = watcher.stopper();
    let thread = std::thread::spawn(move || {
        let _ = watcher.run(|| {});
    });
    Some(Box::new(WatcherThread { stopper, thread: Some(thread) }))
}

impl StandInWatcher for WatcherThread {
    fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for WatcherThread {
    fn drop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
