//! Running the watcher: one at a time, until it is asked to stop.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::failure_log::NewFailures;
use crate::panics::restart_after_panics;
use crossbeam_channel::{Receiver, Sender, unbounded};
use ensemble_core::durable::FileLock;
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::event_log::{EventLog, Recorder};
use ensemble_core::{Error, Result};
use ensemble_project::Project;
use ensemble_project::status::ACTOR;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::alerts::AlertThread;
use crate::context::WatchContext;
use crate::engine::WatchEngine;
use crate::remote::ServerFollower;
use crate::servers::SharedSight;
use crate::status_file::note_start;
use crate::wakes::{LoopWake, LoopWaker};
use crate::watch_set::loop_sources;

/// How long a start waits for the lock of another watcher, which may be about to end, and that one for its thread.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
/// How long it waits for processes that only look whether a watcher runs. They share the lock for a
/// moment, and a busy machine may stop them in that moment.
const LOOKERS_PATIENCE: Duration = Duration::from_secs(30);
/// How often a watcher looks whether its state directory is the one in which it has begun.
const PLACE_INTERVAL: Duration = Duration::from_secs(1);
/// How often a watcher that ends with its team looks whether there is one.
pub const USED_EVERY: Duration = Duration::from_secs(1);

/// Ends a running watcher from another thread.
#[derive(Clone, Debug)]
pub struct WatchStopper {
    waker: LoopWaker,
    stopped: Arc<AtomicBool>,
}

impl WatchStopper {
    /// Lets the watcher finish its step and stop, however many wake-ups are in line.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.waker.wake(LoopWake::Stop);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatcherEnd {
    Stopped,
    /// Its state directory was removed or replaced, and its lock with it: another watcher could begin beside it.
    StateRemoved,
    /// The project is no longer at its path: it was moved or removed.
    ProjectMoved,
}

/// A watcher that holds its project's lock and has not started yet.
pub struct Watcher {
    engine: WatchEngine,
    stopper: WatchStopper,
    log: Arc<EventLog>,
    alerts: Option<AlertThread>,
    /// Dropping the first ends the thread that follows the servers, which then drops the other side of the second.
    follower: (Sender<()>, Receiver<()>),
    lock: FileLock,
    project: Project,
}

/// Since when the configuration is known, for `has_old_config`: the lock file's time.
fn note_config_age(project: &Project) {
    let lock = File::options().append(true).open(project.watch_lock());
    let _ = lock.and_then(|lock| lock.set_modified(SystemTime::now()));
}

impl Watcher {
    /// Takes the project's lock and opens everything. Starts a new session of the event log.
    pub fn new(project: &Project) -> Result<Self> {
        project.ensure_state()?;
        let lock = acquire_lock(&project.watch_lock(), LOCK_PATIENCE)?;
        note_config_age(project);
        note_start(&project.watch_status(), SystemClock.monotonic());
        let log = Arc::new(EventLog::start_session(&project.logs(), ACTOR)?);
        let recorder: Arc<dyn Recorder> = Arc::<EventLog>::clone(&log);
        let spool = Arc::new(project.open_spool(Arc::clone(&recorder))?);
        let context = Arc::new(WatchContext { project: project.clone(), spool, recorder });
        let (waker, sources) = loop_sources()?;
        let sight = SharedSight::default();
        let (servers, servers_ended) = unbounded();
        let ends = (waker.clone(), servers_ended);
        let follower = ServerFollower::new(&context, SharedSight::clone(&sight), ends)?;
        let alerts = AlertThread::start(&context);
        let engine = WatchEngine::new(context, sight, (waker.clone(), sources))?;
        let stopper = WatchStopper { waker, stopped: Arc::default() };
        let (running, ended) = unbounded();
        if let Some(mut follower) = follower {
            std::thread::spawn(move || {
                follower.run();
                drop(running);
            });
        }
        let follower = (servers, ended);
        Ok(Self { engine, stopper, log, alerts, follower, lock, project: project.clone() })
    }

    pub fn stopper(&self) -> WatchStopper {
        self.stopper.clone()
    }

    /// Watches until it is stopped. `ready` is called once, when everything is watched and what
    /// had landed before is being routed.
    ///
    /// # Errors
    /// None at the moment: each failure while watching is recorded and tried again.
    pub fn run(mut self, ready: impl FnOnce()) -> Result<WatcherEnd> {
        self.engine.step(Vec::new());
        ready();
        let mut checked = Instant::now();
        let end = loop {
            self.engine.run_step();
            if let Some(alerts) = &self.alerts {
                alerts.changed();
            }
            if self.stopper.stopped.load(Ordering::Acquire) {
                break WatcherEnd::Stopped;
            }
            if checked.elapsed() >= PLACE_INTERVAL {
                checked = Instant::now();
                if !self.lock.is_at_its_path() {
                    // Where the queue has gone as well, its lock must not keep another watcher from the new place.
                    return Ok(match self.project.queue.is_dir() {
                        true => WatcherEnd::StateRemoved,
                        false => WatcherEnd::ProjectMoved,
                    });
                }
            }
        };
        self.engine.write_status_now();
        let (servers, ended) = self.follower;
        drop(servers);
        // It ends the tasks whose reports it was given, and reports to the other hosts that it has ended.
        let _ = ended.recv_timeout(LOCK_PATIENCE);
        if let Err(error) = self.log.end_session(ACTOR) {
            tracing::warn!(%error, "cannot record the end of the session");
        }
        Ok(end)
    }
}

fn acquire_lock(path: &Path, patience: Duration) -> Result<FileLock> {
    let start = Instant::now();
    loop {
        match FileLock::acquire(path, patience) {
            Err(error @ Error::Locked { .. }) => {
                // A watcher holds it exclusively.
                let is_shared = FileLock::acquire_shared(path, Duration::ZERO).is_ok();
                if !is_shared || start.elapsed() >= LOOKERS_PATIENCE {
                    return Err(error);
                }
            }
            taken => return taken,
        }
    }
}

/// Runs the watcher of a project as a process, until SIGTERM, SIGINT or SIGHUP. If systemd has started it, it reports
/// its state to systemd. A panic of any thread starts the program again, with the same arguments.
pub fn run_process(project: &Project, ready: impl FnOnce()) -> Result<()> {
    run_watcher(project, |_| {}, ready)
}

/// As [`run_process`], also until `is_used` says twice, [`USED_EVERY`] apart, that the watcher is not needed any more.
pub fn run_process_while(
    project: &Project,
    is_used: impl Fn(&Project) -> bool + Send + 'static,
    ready: impl FnOnce(),
) -> Result<()> {
    let looked_at = project.clone();
    let follow = |stopper: SharedStopper| {
        std::thread::spawn(move || {
            let mut unused = 0;
            while unused < 2 {
                std::thread::sleep(USED_EVERY);
                unused = if is_used(&looked_at) { 0 } else { unused + 1 };
            }
            stopper.stop();
        });
    };
    run_watcher(project, follow, ready)
}

fn run_watcher(
    project: &Project,
    follow: impl FnOnce(SharedStopper),
    ready: impl FnOnce(),
) -> Result<()> {
    tell_trouble_on_stderr();
    restart_after_panics();
    let mut watcher = Watcher::new(project)?;
    let stopper = SharedStopper(Arc::new(Mutex::new(watcher.stopper())));
    follow(stopper.clone());
    let signals = signal_hook::iterator::Signals::new([
        signal_hook::consts::SIGTERM,
        signal_hook::consts::SIGINT,
        // The terminal it runs in is closed, or the tmux server ends.
        signal_hook::consts::SIGHUP,
    ]);
    let mut signals =
        signals.map_err(|error| Error::io("listen to signals of", "this process", error))?;
    let signalled = stopper.clone();
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            signalled.stop();
        }
    });
    let mut ready = Some(ready);
    loop {
        let end = watcher.run(|| {
            // Fails without systemd, which is fine.
            let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
            if let Some(ready) = ready.take() {
                ready();
            }
        })?;
        if end == WatcherEnd::ProjectMoved {
            tracing::warn!(path = %project.root().display(), "the project was moved or removed");
        }
        if end != WatcherEnd::StateRemoved {
            break;
        }
        tracing::warn!("the state directory was removed: beginning again with a new one");
        watcher = Watcher::new(project)?;
        stopper.follow(watcher.stopper());
    }
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    Ok(())
}

/// Stops the watcher that a process runs, also one that has followed another.
#[derive(Clone, Debug)]
struct SharedStopper(Arc<Mutex<WatchStopper>>);

impl SharedStopper {
    fn current(&self) -> MutexGuard<'_, WatchStopper> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stop(&self) {
        self.current().stop();
    }

    /// A stop that came in between is for the new watcher.
    fn follow(&self, next: WatchStopper) {
        let before = std::mem::replace(&mut *self.current(), next);
        if before.stopped.load(Ordering::Acquire) {
            self.stop();
        }
    }
}

/// Warnings go to stderr, those that come again and again once; `RUST_LOG` asks for more or less, by levels and targets (`info`, `ensemble_watch=debug`).
fn tell_trouble_on_stderr() {
    let asked = std::env::var("RUST_LOG").ok().and_then(|text| text.parse::<Targets>().ok());
    let filter = asked.unwrap_or_else(|| Targets::new().with_default(LevelFilter::WARN));
    // On a full disk a line is lost; reporting that on stderr would panic.
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .log_internal_errors(false)
        .with_filter(NewFailures)
        .with_filter(filter);
    // Fails if the embedder has set a subscriber, which then stays.
    let _ = tracing_subscriber::registry().with(layer).try_init();
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(50);

    /// As `ensemble status` or `ensemble up` do, stopped while they look.
    #[test]
    fn a_start_outwaits_those_who_look_whether_a_watcher_runs() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("watch.lock");
        let looks = FileLock::acquire_shared(&path, Duration::ZERO).unwrap();
        std::thread::scope(|scope| {
            let start = scope.spawn(|| acquire_lock(&path, SHORT));
            std::thread::sleep(4 * SHORT);
            drop(looks);
            start.join().unwrap().unwrap();
        });
    }

    #[test]
    fn where_a_watcher_runs_no_other_starts() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("watch.lock");
        let _watcher = acquire_lock(&path, SHORT).unwrap();
        assert!(matches!(acquire_lock(&path, SHORT), Err(Error::Locked { .. })));
    }
}
