//! The recording of README: a first team, typed into a terminal.
//!
//! Each screen is one that a tmux has shown. Only the time for which it stays is made up. The agents' program is
//! `agent.sh`.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::shell::{AGENT, Shell};
use crate::picture;
use crate::tmux_support::{TestServer, eventually};

const SIZE: (u16, u16) = (100, 24);
/// How long a typed line and its output stay, in milliseconds.
const TYPED: u32 = 1_200;
const SHOWN: u32 = 3_500;
const PROMPT: &str = "$";
const CONFIG: &str = "\
agents:
  worker-1: {provider: claude}
  worker-2: {provider: claude}
";

/// A terminal with a shell, and what it has shown.
struct Recorder {
    home: TempDir,
    tmux: TestServer,
    screens: Vec<(String, u32)>,
}

impl Recorder {
    fn start() -> Self {
        let (home, path) = Shell::home_with(AGENT);
        std::fs::create_dir(home.path().join("work/project")).unwrap();
        let shell_rc = home.path().join("shellrc");
        std::fs::write(&shell_rc, format!("PS1='{PROMPT} '\n")).unwrap();
        let shell = format!("exec bash --noprofile --rcfile {}", shell_rc.display());
        let dir = tempfile::tempdir().unwrap();
        let started = Command::new("tmux")
            .args(["-f", "/dev/null", "-S"])
            .arg(dir.path().join("socket"))
            .args(["new-session", "-d", "-s", "main", "-x", &SIZE.0.to_string()])
            .args(["-y", &SIZE.1.to_string(), &shell])
            .env_clear()
            .env("HOME", home.path())
            .env("PATH", path)
            .env("TERM", "xterm-256color")
            .current_dir(home.path().join("work/project"))
            .status()
            .unwrap();
        assert!(started.success(), "tmux starts");
        let mut tmux = TestServer::around(dir);
        tmux.adopt();
        let recorder = Self { home, tmux, screens: Vec::new() };
        recorder.tmux.wait_for_line(PROMPT);
        recorder
    }

    fn text(&self) -> String {
        self.tmux.screen("%0").join("\n")
    }

    /// Keeps the present screen for some milliseconds.
    fn keep(&mut self, stays: u32) {
        let mut tmux = Command::new("tmux");
        tmux.arg("-S").arg(self.tmux.server.socket());
        let screen = tmux.args(["capture-pane", "-e", "-p", "-t", "%0"]).output().unwrap();
        // A picture shows no path of the machine that drew it.
        let home = self.home.path().display().to_string();
        let shown = String::from_utf8(screen.stdout).unwrap().replace(&home, "~");
        self.screens.push((shown, stays));
    }

    /// Types a command.
    #[track_caller]
    fn type_line(&mut self, line: &str) {
        self.tmux.human(&["-l", line]);
        self.tmux.wait_for_line(&format!("{PROMPT} {line}"));
        self.keep(TYPED);
        self.tmux.human(&["Enter"]);
    }

    /// Begins with an empty screen.
    fn clear(&self) {
        self.tmux.human(&["clear", "Enter"]);
        eventually("an empty screen", || self.text().trim_end() == PROMPT);
    }

    /// Types a command, and waits for its end. Its output has this text.
    #[track_caller]
    fn run(&mut self, line: &str, shows: &str) {
        self.type_line(line);
        let is_over = || self.text().lines().last().map(str::trim_end) == Some(PROMPT);
        eventually(&format!("`{line}` is over"), is_over);
        assert!(self.text().contains(shows), "`{line}` does not show `{shows}`:\n{}", self.text());
        self.keep(SHOWN);
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        Shell::end_teams(self.home.path());
    }
}

#[test]
fn a_first_team_is_typed_and_recorded() {
    let mut recorder = Recorder::start();
    recorder.run("ensemble init", "created the queue");
    let project: &Path = &recorder.home.path().join("work/project");
    std::fs::write(project.join("ensemble.yaml"), CONFIG).unwrap();
    recorder.run("cat ensemble.yaml", "worker-2: {provider: claude}");
    recorder.clear();
    recorder.run("ensemble up", "worker-2");
    recorder.run("ensemble team", "worker-1");
    recorder.clear();
    recorder.run("ensemble send --to worker-1 --task t1 'count the lines' --until settled", "-");
    recorder.run("ensemble why t1", "finished");
    recorder.type_line("ensemble top");
    let is_idle = |line: &&str| line.contains("worker-") && line.contains("  idle");
    let idle = || recorder.text().lines().filter(is_idle).count() == 2;
    eventually("the live view shows both agents at rest", idle);
    recorder.keep(2 * SHOWN);
    let screens = std::mem::take(&mut recorder.screens);
    recorder.tmux.human(&["q"]);
    recorder.tmux.wait_for_line(PROMPT);
    recorder.clear();
    recorder.run("ensemble down --deadline 10s", "worker-1");
    assert_eq!(screens.len(), 14, "{screens:?}");
    let size = (usize::from(SIZE.0), usize::from(SIZE.1));
    let title = "A first team: up, a task and its story, the live view";
    picture::film("first-team", title, &screens, size);
}
