//! Starting a watcher, and waiting for it.
//!
//! | who | starts | how |
//! |---|---|---|
//! | `up`, `agent start`, `agent restart` | the team's watcher, also in place of one that has not read a changed `ensemble.yaml` | in its window of the team's session |
//! | everyday verbs, hooks and tools ([`revive_watcher`]) | the watcher of a team that is up and whose watcher has died | in that window |
//! | wrappers ([`keep_watcher`]) | a watcher that ends with the last agent | in the background |
//!
//! No one starts a watcher for a queue without a team, nor after `down`, which closes the window.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ensemble_core::driver::nap;
use ensemble_core::durable::{Dir, FileLock, FileModes};
use ensemble_core::event_log::NullRecorder;
use ensemble_core::message::{Name, shell_quoted};
use ensemble_core::spool::Spool;
use ensemble_core::watch::Waiter;
use ensemble_project::Project;
use ensemble_project::overview::{WatcherView, has_old_config};
use ensemble_project::team::{AGENT_VARIABLES, ProjectTeam, socket_of};

use crate::diagnostics::say;
use crate::failure::{Failure, Outcome};
use crate::text::one_line;
use crate::wait_line::WaitLine;

const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// How long a verb waits for a watcher that it has started by the way.
const REVIVAL_PATIENCE: Duration = Duration::from_secs(1);
const WRAPPER_PATIENCE: Duration = Duration::from_secs(10);
const WRAPPER_EVERY: Duration = Duration::from_secs(5);

pub fn watcher_runs(project: &Project) -> bool {
    WatcherView::of(project).runs()
}

/// Whether the watcher in the team's own window has started before the last change of the configuration, which it reads
/// only then.
pub fn is_outdated(project: &Project, team: &ProjectTeam<'_>) -> Outcome<bool> {
    let holder = FileLock::holder(&project.watch_lock());
    let mut panes = team.panes()?.into_iter();
    let is_in_window = panes.any(|pane| pane.is_sidecar && !pane.dead && holder == Some(pane.pid));
    Ok(is_in_window && has_old_config(project))
}

/// The command of a team's own window, as `sh -c` takes it: the watcher, or where one runs elsewhere the event log.
pub fn window_command(project: &Project, runs_elsewhere: bool) -> Outcome<String> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::refused(format!("cannot tell where this program is: {error}")))?;
    let verb = if runs_elsewhere { "log --follow" } else { "watch" };
    let (program, queue) = (shell_quoted(&program), shell_quoted(&project.queue));
    Ok(format!("exec {program} --queue {queue} {verb}"))
}

/// Returns when the watcher of this project reports, or after 30 s.
pub fn await_report(project: &Project) {
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

/// Starts the watcher of a team that is up, if that has died. Trouble with it is not the caller's.
pub fn revive_watcher(project: &Project) {
    // Asked first, because they cost least: most queues have no team, and most teams have a watcher.
    let has_server = socket_of(project).is_ok_and(|socket| socket.exists());
    let is_watched = || FileLock::is_held(&project.watch_lock()).unwrap_or(true);
    if has_server && !is_watched() && restart_in_window(project).is_ok_and(|started| started) {
        await_lock(project, REVIVAL_PATIENCE);
    }
}

/// Starts the watcher in the window in which it has ended. Whether it did.
fn restart_in_window(project: &Project) -> Outcome<bool> {
    let recorder = Arc::new(NullRecorder);
    let spool = Spool::open(&project.queue, project.spool_options(recorder.clone()))?;
    let actor = Name::new("watcher").map_err(ensemble_core::Error::from)?;
    let team = ProjectTeam::new(project, &spool, recorder, actor)?;
    // `up`, `down` and others that do this hold it.
    let Some(_alone) = team.lock_if_free()? else { return Ok(false) };
    let panes = team.panes()?;
    let is_starting = panes.iter().any(|pane| pane.is_sidecar && !pane.dead);
    if panes.is_empty() || is_starting || watcher_runs(project) {
        return Ok(false);
    }
    team.restart_sidecar(&window_command(project, false)?)?;
    Ok(true)
}

/// Starts a watcher whenever none runs: one may have been killed, or ended with a team that was brought up.
pub fn keep_watcher(project: &Project) {
    loop {
        if !watcher_runs(project) && start_in_background(project).is_ok() {
            await_lock(project, WRAPPER_PATIENCE);
        }
        nap(WRAPPER_EVERY);
    }
}

/// Starts a watcher that ends with the last agent.
fn start_in_background(project: &Project) -> Outcome {
    let program = std::env::current_exe()?;
    // Several agents may start one at the same moment: the one that stays keeps its log's name.
    let (state, name) = (Dir::open(&project.state)?, "watch.log");
    let log = state.open_append(name, FileModes::default());
    let log = log.or_else(|_| state.begin_file(name))?;
    log.set_len(0)?;
    let mut command = Command::new(program);
    command.arg("--queue").arg(&project.queue).args(["watch", "--while-used"]);
    for variable in AGENT_VARIABLES {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    let mut child = command.spawn()?;
    // It may end before this process does.
    thread::spawn(move || child.wait());
    Ok(())
}

fn await_lock(project: &Project, patience: Duration) {
    let waiter = Waiter::new(std::slice::from_ref(&project.state));
    let deadline = Instant::now() + patience;
    while !watcher_runs(project) && Instant::now() < deadline {
        waiter.wait(LOOK_INTERVAL);
    }
}
