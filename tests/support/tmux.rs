//! A private tmux server in its own directory, ended with all it holds when it is dropped.
#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use ensemble_core::env::Pane;
use ensemble_core::message::Name;
use ensemble_core::pane::{Deferral, NudgeOutcome, NudgeText};
use ensemble_tmux::provider::{AgentObserver, Profiles};
use ensemble_tmux::tmux::{TmuxPane, TmuxServer};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// How long a condition may take to come true; far above what a loaded machine needs.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// How often a test looks whether what it waits for has come.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(5);

pub const PROMPT: &str = "user@host:~$";

pub struct TestServer {
    pub server: TmuxServer,
    pub dir: TempDir,
    pids: Vec<u32>,
}

impl TestServer {
    /// A server whose first pane, `%0` of the session `main`, runs `command`.
    pub fn start(command: &str) -> Self {
        Self::start_in(tempfile::tempdir().expect("a directory"), command)
    }

    /// As [`Self::start`], in a directory in which the test has already put something.
    pub fn start_in(dir: TempDir, command: &str) -> Self {
        let server = TmuxServer::new(dir.path().join("socket"));
        let mut this = Self { server, dir, pids: Vec::new() };
        this.new_server(command);
        this
    }

    /// Around a server that the test has started on the socket in this directory; see [`Self::adopt`].
    pub fn around(dir: TempDir) -> Self {
        let server = TmuxServer::new(dir.path().join("socket"));
        Self { server, dir, pids: Vec::new() }
    }

    /// A server whose first pane runs an interactive bash with [`PROMPT`], ready for input.
    pub fn bash() -> Self {
        let this = Self::start(bash_command());
        this.wait_for_line(PROMPT);
        this
    }

    /// A server whose first pane runs a script that appends each line it reads to
    /// [`Self::received`].
    pub fn reader() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let command = reader_command(dir.path());
        let server = TmuxServer::new(dir.path().join("socket"));
        let mut this = Self { server, dir, pids: Vec::new() };
        this.new_server(&command);
        this.wait_for_reader();
        this
    }

    /// The command of the script that [`Self::reader`] runs.
    pub fn reader_command(&self) -> String {
        reader_command(self.dir.path())
    }

    pub fn wait_for_reader(&self) {
        let ready = self.dir.path().join("ready");
        eventually("the script reads", || ready.exists());
    }

    pub fn received(&self) -> Vec<String> {
        let text = fs::read_to_string(self.dir.path().join("received")).unwrap_or_default();
        text.split_inclusive('\n').map(|line| line.trim_end_matches('\n').to_owned()).collect()
    }

    pub fn new_server(&mut self, command: &str) {
        // A busy machine may start it after the limit for one exchange.
        eventually("a session", || {
            self.server.new_session("main", command, 132, 24).is_ok() || self.server.pid().is_ok()
        });
        self.adopt();
    }

    /// Takes charge of a server that another handle has started on our socket.
    pub fn adopt(&mut self) {
        self.pids.push(self.server.pid().expect("a process id"));
    }

    pub fn pid(&self) -> u32 {
        *self.pids.last().expect("a server")
    }

    /// A pane with an agent of a built-in profile in it.
    pub fn pane(&self, id: &str, profile: &str) -> TmuxPane {
        let profile = Profiles::embedded().expect("profiles").get(profile).expect("a profile");
        let binding = self.server.bind(id).expect("a binding");
        let locks = self.dir.path().join("locks");
        TmuxPane::new(self.server.clone(), binding, AgentObserver::new(profile), &locks)
            .expect("a pane")
    }

    /// The screen of a pane, without trailing blank lines.
    pub fn screen(&self, id: &str) -> Vec<String> {
        let mut lines = self.server.run(&["capture-pane", "-p", "-t", id]).expect("a screen");
        while lines.last().is_some_and(|line| line.trim().is_empty()) {
            lines.pop();
        }
        lines
    }

    pub fn human(&self, keys: &[&str]) {
        let mut command = vec!["send-keys", "-t", "%0"];
        command.extend(keys);
        self.server.run(&command).expect("keys");
    }

    /// Waits until the last line that `%0` shows is `line`.
    pub fn wait_for_line(&self, line: &str) {
        eventually(line, || self.screen("%0").last().is_some_and(|last| last.trim_end() == line));
    }

    /// Waits until the program in the foreground of `%0` is `command`.
    pub fn wait_for_command(&self, command: &str) {
        eventually(command, || {
            self.server.panes().expect("panes").iter().any(|p| p.id == "%0" && p.command == command)
        });
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        for pid in self.pids.iter().filter_map(|pid| Pid::from_raw(i32::try_from(*pid).ok()?)) {
            let _ = kill_process(pid, Signal::CONT);
            let _ = self.server.kill_server();
            let deadline = Instant::now() + PATIENCE;
            while is_running(pid) && Instant::now() < deadline {
                std::thread::sleep(LOOK_INTERVAL);
            }
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Whether a process runs; one that has ended and only waits to be reaped does not.
fn is_running(pid: Pid) -> bool {
    fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()))
        .is_ok_and(|stat| !stat.contains(") Z "))
}

fn reader_command(dir: &Path) -> String {
    let script = dir.join("reader.sh");
    let text = "cd \"$(dirname \"$0\")\" || exit 1\n\
                : > ready\n\
                while IFS= read -r line; do printf '%s\\n' \"$line\" >> received; done\n";
    fs::write(&script, text).expect("a script");
    format!("exec sh {}", script.display())
}

/// An interactive bash that reads and leaves no files.
pub const fn bash_command() -> &'static str {
    "exec env HISTFILE=/dev/null PS1='user@host:~$ ' bash --norc --noprofile -i"
}

pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "never came true: {what}");
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// A nudge for dispatch in the words of a built-in profile.
pub fn text_for(profile: &str) -> NudgeText {
    let profile = Profiles::embedded().expect("profiles").get(profile).expect("a profile");
    profile.program().nudge_text(&Name::new("dispatch").expect("a name"), 3, false)
}

pub fn refusal(pane: &mut TmuxPane) -> Deferral {
    match pane.nudge(&text_for(pane.profile().name())).expect("an outcome") {
        NudgeOutcome::Refused { deferral } => deferral,
        other => panic!("not refused: {other:?}"),
    }
}
