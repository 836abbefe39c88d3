//! Waits for a watcher that was started, and says if it has to poll.

use std::time::{Duration, Instant};

use ensemble_core::watch::Waiter;
use ensemble_watch::overview::WatcherView;
use ensemble_watch::project::Project;

use crate::exit::say;
use crate::text::one_line;
use crate::wait_line::WaitLine;

/// How long a started watcher may take until it reports.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often its report is looked for without being woken.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Returns when the watcher of this project reports, or after 30 s.
pub(crate) fn await_report(project: &Project) {
    let waiter = Waiter::new(std::slice::from_ref(&project.state));
    let deadline = Instant::now() + PATIENCE;
    let _line = WaitLine::new("the watcher to start", Some(PATIENCE));
    loop {
        let watcher = WatcherView::of(project);
        if let Some(status) = watcher.status().filter(|_| watcher.has_reported()) {
            if let Some(why) = status["degraded"].as_str() {
                say(&format!("warning: the watcher polls: {}", one_line(why)));
            }
            return;
        }
        if Instant::now() >= deadline {
            return say("warning: the watcher has not started: `ensemble agent attach` shows why");
        }
        waiter.wait(LOOK_INTERVAL);
    }
}
