//! The watcher as a real process.
#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use ensemble_core::watch::FsWatcher;
use rustix::process::Signal;

use crate::support::{Bed, PATIENCE, Process, die_with_parent, eventually, eventually_true};

pub const WATCHER: &str = env!("CARGO_BIN_EXE_ensemble-watch");

/// Names the queue whose watcher a process is to become.
const BECOME_VARIABLE: &str = "TORTURE_WATCHED_QUEUE";
const BECOME_TEST: &str = "watcher::a_child_process_becomes_the_watcher";

/// The watcher ends with the test that has started it, also if that is killed.
#[test]
fn a_child_process_becomes_the_watcher() {
    if let Some(queue) = std::env::var_os(BECOME_VARIABLE) {
        die_with_parent();
        let error = command(queue.as_ref()).exec();
        panic!("the watcher does not start: {error}");
    }
}

/// A running watcher; killed, if it still runs, when this is dropped.
#[derive(Debug)]
pub struct Watcher {
    process: Process,
    status: PathBuf,
}

impl Watcher {
    /// Starts the watcher of a queue, without waiting for anything.
    pub fn launch(queue: &Path) -> Self {
        Self::launch_with(queue, &[], Stdio::null())
    }

    /// As [`Watcher::launch`], with more in its environment, and with its complaints.
    pub fn launch_with(queue: &Path, variables: &[(&str, &Path)], complaints: Stdio) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("a test program"));
        command.args(["--exact", BECOME_TEST, "--nocapture"]).env(BECOME_VARIABLE, queue);
        Self::run(command.envs(variables.iter().copied()).stderr(complaints), queue)
    }

    /// As [`Watcher::launch`], by a command to which only the queue is added.
    pub fn launch_by(program: Command, queue: &Path) -> Self {
        Self::run(complete(program, queue).stderr(Stdio::null()), queue)
    }

    fn run(command: &mut Command, queue: &Path) -> Self {
        let process = Process::start(command.stdout(Stdio::null()));
        let status = queue.parent().expect("a project").join(".ensemble/watch.json");
        Self { process, status }
    }

    /// Starts the watcher of a project and waits until it watches.
    #[track_caller]
    pub fn start(bed: &Bed) -> Self {
        Self::start_in(&bed.queue())
    }

    #[track_caller]
    pub fn start_in(queue: &Path) -> Self {
        let mut watcher = Self::launch(queue);
        watcher.wait_until_it_watches();
        watcher
    }

    #[track_caller]
    pub fn wait_until_it_watches(&mut self) {
        let pid = self.pid();
        self.wait_for_status("the watcher says that it watches", |status| status["pid"] == pid);
    }

    pub fn status(&self) -> Option<serde_json::Value> {
        serde_json::from_slice(&std::fs::read(&self.status).ok()?).ok()
    }

    /// Whether this process can have an instance of inotify. Says so, if not.
    pub fn may_hear_events() -> bool {
        let made = FsWatcher::new();
        if let Err(error) = &made {
            println!("skipped: {error}");
        }
        made.is_ok()
    }

    /// Whether it hears of files by inotify, and does not only look for them.
    pub fn hears_events(&self) -> bool {
        self.status().is_some_and(|status| status["degraded"].is_null())
    }

    #[track_caller]
    pub fn wait_for_status(&self, what: &str, is_so: impl Fn(&serde_json::Value) -> bool) {
        eventually(PATIENCE, what, || self.status().filter(|status| is_so(status)));
    }

    pub fn pid(&mut self) -> u32 {
        self.process.child().id()
    }

    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// SIGSTOP, and waits until it does nothing any more.
    #[track_caller]
    pub fn stand_still(&mut self) {
        self.signal(Signal::STOP);
        let stat = format!("/proc/{}/stat", self.pid());
        eventually_true(PATIENCE, "the watcher stands still", || {
            std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") T "))
        });
    }

    pub fn kill(self) {
        self.process.kill();
    }

    #[track_caller]
    pub fn end(&mut self, patience: Duration) -> ExitStatus {
        self.process.end(patience)
    }

    #[track_caller]
    pub fn stop(mut self) {
        assert!(self.process.is_running(), "the watcher has ended by itself");
        self.signal(Signal::TERM);
        let status = self.end(PATIENCE);
        assert!(status.success(), "the watcher ended with {status}");
    }

    pub fn is_running(&mut self) -> bool {
        self.process.is_running()
    }

    #[track_caller]
    pub fn assert_running(&mut self) {
        assert!(self.process.is_running(), "the watcher has ended by itself");
    }
}

/// The command that starts the watcher of a queue, free of what the environment says.
pub fn command(queue: &Path) -> Command {
    complete(Command::new(WATCHER), queue)
}

fn complete(mut command: Command, queue: &Path) -> Command {
    command.arg("--queue").arg(queue).env_remove("ENSEMBLE_QUEUE").env_remove("NOTIFY_SOCKET");
    command.env("XDG_CONFIG_HOME", "/nonexistent").env_remove(BECOME_VARIABLE);
    command
}
