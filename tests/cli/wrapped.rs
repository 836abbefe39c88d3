//! `ensemble claude` in a person's terminal, which is a tmux pane that the command knows nothing of. The agent draws the
//! composer of Claude Code and notes each line that it is sent.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::bed::{Bed, SaidText as _, program, write_program};
use crate::tmux_support::{TestServer, eventually};

/// Shows a composer, notes each line, and answers pings where it knows `PROGRAM`. A line `quit N` ends it.
pub(crate) const AGENT: &str = r#"#!/usr/bin/env python3
import os, signal, subprocess, sys, time, tty
tty.setraw(0)
os.write(1, b"\x1b[?1049h\x1b[?2004h\x1b]0;Claude Code\x07")
buffer, slow = "", float(os.environ.get("SLOW", "0"))
def draw():
    rule = "\u2500" * 60
    text = f"\x1b[2J\x1b[H{rule}\r\n\u276f {buffer}\r\n{rule}\r\n  ? for shortcuts\x1b[2;{len(buffer) + 3}H"
    os.write(1, text.encode())
draw()
while True:
    time.sleep(slow)
    keys = os.read(0, 4096)
    if not keys:
        sys.exit(0)
    for key in keys.decode(errors="replace").replace("\x1b[200~", "").replace("\x1b[201~", ""):
        if key == "\r":
            with open(os.environ["LINES"], "a") as lines:
                lines.write(buffer + "\n")
            if buffer.startswith("AGENT_TEAM_PING") and "PROGRAM" in os.environ:
                subprocess.run([os.environ["PROGRAM"], "agent", "pong", *buffer.split()[1:]])
            if buffer.startswith("title"):
                title = b"\x1b]0;" + b"x" * int(buffer.split()[1]) + b"\x07"
                while title:
                    title = title[os.write(1, title):]
                with open(os.environ["LINES"], "a") as lines:
                    lines.write("titled\n")
            if buffer.startswith("deaf"):
                time.sleep(100000)
            if buffer.startswith("quit"):
                os.write(1, b"\x1b[?1049l")
                sys.exit(int(buffer.split()[1]))
            buffer = ""
        elif key == "\x1a":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif key == "\x7f":
            buffer = buffer[:-1]
        elif key >= " ":
            buffer += key
    draw()
"#;

struct Wrapped {
    bed: Bed,
    tmux: TestServer,
    lines: PathBuf,
}

impl Wrapped {
    fn start(words: &str, slow: &str) -> Self {
        let bed = Bed::empty();
        bed.configure("hooks: {providers: []}\nidentity: {outsiders: allow}\n");
        let mut tmux = TestServer::around(tempfile::tempdir().unwrap());
        let (bin, lines) = (tmux.dir.path().join("bin"), tmux.dir.path().join("lines"));
        write_program(bin.join("claude"), AGENT);
        let script = format!(
            "cd {project}; unset TMUX TMUX_PANE; export HOME={home} PROGRAM={program} LINES={lines} SLOW={slow} PATH={bin}:$PATH; \
             sh -c 'echo $$ > {pid}; exec {program} claude {words}'; \
             echo \"left $? $(stty -a | grep -o -e '[-]*icanon')\"; exec sleep 100000",
            project = bed.project().display(),
            home = bed.project().parent().unwrap().display(),
            lines = lines.display(),
            bin = bin.display(),
            pid = tmux.dir.path().join("pid").display(),
            program = program().display(),
        );
        let file = tmux.dir.path().join("terminal.sh");
        fs::write(&file, script).unwrap();
        tmux.server.new_session("main", &format!("exec sh {}", file.display()), 100, 30).unwrap();
        tmux.adopt();
        let wrapped = Self { bed, tmux, lines };
        wrapped.shows("? for shortcuts");
        eventually("the agent is a member", || wrapped.row()["state"] == "idle");
        eventually("a watcher runs", || wrapped.row()["watcher_running"] == true);
        wrapped
    }

    #[track_caller]
    fn shows(&self, text: &str) {
        let shown = || self.tmux.screen("%0").join("\n").contains(text);
        eventually(&format!("the screen shows `{text}`"), shown);
    }

    fn row(&self) -> Value {
        let ran = self.bed.run("team --json");
        let rows = ran.stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        rows.into_iter().find(|row| row["agent"].is_string()).unwrap_or_default()
    }

    fn lines(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.lines).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn press(&self, keys: &[&str]) {
        self.tmux.human(keys);
    }

    fn send(&self, to: &str) {
        self.bed.ok(&format!("send --to {to} -m news --as human"));
    }

    #[track_caller]
    fn is_told(&self, count: usize) {
        let hints = || self.lines().iter().filter(|line| is_hint(line)).count();
        eventually(&format!("{count} hints: {:?}", self.lines()), || hints() >= count);
    }

    fn wrapper(&self) -> Pid {
        let text = fs::read_to_string(self.tmux.dir.path().join("pid")).unwrap();
        Pid::from_raw(text.trim().parse().unwrap()).unwrap()
    }
}

impl Drop for Wrapped {
    fn drop(&mut self) {
        let _ = kill_process(self.wrapper(), Signal::TERM);
        // The watcher ends with the last agent.
        let queue = self.bed.project().join("queue").display().to_string();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while crate::bed::is_running(&queue) && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
    }
}

fn is_hint(line: &str) -> bool {
    line.contains("ensemble") && line.contains("message")
}

#[test]
fn an_agent_in_any_terminal_is_a_member_and_is_told_of_its_mail() {
    let wrapped = Wrapped::start("", "0");
    let row = wrapped.row();
    assert_eq!((row["agent"].as_str(), row["came"].as_str()), (Some("claude"), Some("wrapped")));
    assert_eq!(
        (row["way_in"].as_str(), row["provider"].as_str()),
        (Some("terminal"), Some("claude"))
    );
    wrapped.send("claude");
    wrapped.is_told(1);
    let named = || wrapped.bed.ok("log --json").contains("\"way\":\"terminal\"");
    eventually("the receipt names the way", named);
    wrapped.bed.ok("agent inspect claude").has(["terminal, claude, running claude"]);
    // The other verbs take the same way.
    wrapped.bed.ok("agent nudge claude").has(["in pane terminal"]);
    wrapped.is_told(2);
    wrapped.bed.ok("agent ping claude");
    // A name that is taken.
    wrapped.bed.run("claude --name claude").says(["claude is up already"]);

    // Its exit code, the terminal, and the watcher.
    wrapped.press(&["quit 7", "Enter"]);
    wrapped.shows("left 7 icanon");
    assert_eq!(wrapped.row()["state"], "shutdown");
    assert!(wrapped.bed.ok("log --json").contains("\"agent.left\""));
    let waits = wrapped.bed.ok("inbox claude --json");
    assert!(waits.contains("queued") || waits.contains("news"), "its mail stays: {waits}");
    eventually("the watcher has ended", || {
        let status = wrapped.bed.ok("status");
        status.contains("not running")
    });
}

#[test]
fn a_draft_puts_the_hint_off_and_copy_mode_does_not() {
    let wrapped = Wrapped::start("--name w1", "0");
    wrapped.press(&["half a sentence"]);
    wrapped.shows("half a sentence");
    wrapped.send("w1");
    let deferred = || wrapped.bed.ok("log --json").contains("\"reason\":\"draft\"");
    eventually("the draft is seen", deferred);
    assert!(wrapped.lines().is_empty(), "{:?}", wrapped.lines());
    wrapped.press(&["Enter"]);
    wrapped.is_told(1);
    assert_eq!(wrapped.lines()[0], "half a sentence");

    wrapped.bed.ok("recv --as w1");
    wrapped.tmux.server.run(&["copy-mode", "-t", "%0"]).unwrap();
    wrapped.send("w1");
    wrapped.is_told(2);
}

#[test]
fn a_persons_keys_and_ours_are_never_mixed() {
    // The agent is slow to show what it was sent, so that keys meet one of our lines.
    let wrapped = Wrapped::start("--name w1", "0.15");
    let mut said = Vec::new();
    for round in 0..6 {
        wrapped.send("w1");
        let line = format!("person {round}");
        for key in line.chars() {
            wrapped.press(&["-l", &key.to_string()]);
        }
        wrapped.press(&["Enter"]);
        said.push(line);
        let _ = wrapped.bed.run("recv --as w1 --wait 5s");
    }
    let all = || said.iter().all(|line| wrapped.lines().contains(line));
    eventually("all that the person has said", all);
    let others: Vec<String> =
        wrapped.lines().into_iter().filter(|line| !said.contains(line)).collect();
    assert!(others.iter().all(|line| is_hint(line)), "{others:?}");
}

#[test]
fn a_wrapper_outlives_titles_silent_clients_its_watcher_and_a_stop() {
    let wrapped = Wrapped::start("--name w1", "0");
    wrapped.press(&["title 2000000", "Enter"]);
    eventually("the agent has set it", || wrapped.lines().contains(&"titled".to_owned()));
    wrapped.bed.ok("agent inspect w1").has(["terminal, claude, running claude"]);
    // Clients that ask nothing keep no other waiting.
    let text = wrapped.bed.read_file(".ensemble/roster/w1.yaml");
    let socket = text.lines().find_map(|line| line.trim().strip_prefix("socket: ")).unwrap();
    let silent: Vec<_> = (0..3)
        .map(|_| std::os::unix::net::UnixStream::connect(socket.trim_matches('"')).unwrap())
        .collect();
    wrapped.bed.ok("agent inspect w1").has(["terminal, claude, running claude"]);
    drop(silent);
    // A watcher that was killed comes again.
    let text = wrapped.bed.json("status").pop().unwrap()["watcher"]["holder"].to_string();
    let first = text.split("(pid ").nth(1).and_then(|rest| rest.split(')').next());
    let first: i32 = first.unwrap_or_else(|| panic!("{text}")).parse().unwrap();
    kill_process(Pid::from_raw(first).unwrap(), Signal::KILL).unwrap();
    wrapped.send("w1");
    wrapped.is_told(1);
    // A stopped agent stops its wrapper, and continues with it.
    let (wrapper, agent) = (wrapped.wrapper().as_raw_pid(), wrapped.row()["pid"].clone());
    let stopped = |pid: &dyn std::fmt::Display| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    };
    wrapped.press(&["C-z"]);
    eventually("the wrapper has stopped", || stopped(&wrapper));
    kill_process(wrapped.wrapper(), Signal::CONT).unwrap();
    // The terminal is raw again before the agent continues.
    eventually("the agent goes on", || !stopped(&agent));
    wrapped.press(&["quit 4", "Enter"]);
    wrapped.shows("left 4 icanon");
}

#[test]
fn an_agent_that_reads_no_key_does_not_stop_the_answers_of_its_wrapper() {
    let wrapped = Wrapped::start("--name w1", "0");
    wrapped.press(&["deaf", "Enter"]);
    eventually("it reads no more", || wrapped.lines().contains(&"deaf".to_owned()));
    let paste = wrapped.tmux.dir.path().join("paste");
    fs::write(&paste, "x".repeat(400_000)).unwrap();
    wrapped.tmux.server.run(&["load-buffer", paste.to_str().unwrap()]).unwrap();
    wrapped.tmux.server.run(&["paste-buffer", "-t", "%0"]).unwrap();
    for _ in 0..2 {
        // What is typed while a person's paste waits would be mixed with it.
        let nudged = wrapped.bed.run("agent nudge w1");
        assert_ne!(nudged.code, 0, "{nudged:?}");
        wrapped.bed.ok("agent inspect w1").has(["terminal, claude, running claude"]);
    }
}

#[test]
fn a_signal_ends_the_agent_and_gives_the_terminal_back() {
    let wrapped = Wrapped::start("--name w1", "0");
    kill_process(wrapped.wrapper(), Signal::TERM).unwrap();
    wrapped.shows("left 143 icanon");
    assert_eq!(wrapped.row()["state"], "shutdown");
    // Its terminal is closed, and `up` cannot open it again.
    let again = "`ensemble claude --name w1`";
    for line in ["send --to w1 -m news", "agent restart w1"] {
        let ran = wrapped.bed.run(line);
        assert!(ran.stderr.contains(again), "{line}: {ran:?}");
    }
}

#[test]
fn a_killed_wrapper_leaves_a_free_name_and_the_mail() {
    let wrapped = Wrapped::start("--name w1", "0");
    wrapped.send("w1");
    wrapped.is_told(1);
    kill_process(wrapped.wrapper(), Signal::KILL).unwrap();
    wrapped.shows("left 137");
    eventually("the agent has ended with its terminal", || wrapped.row()["state"] == "gone");
    assert!(wrapped.bed.ok("inbox w1").contains("news") || wrapped.row()["unread"] == 1);
    wrapped.bed.run("claude --name w1").stderr.lacks(["is up already"]);
    let up = wrapped.bed.run("up");
    assert!(up.stderr.contains("no agent to bring up"), "`up` leaves it alone: {up:?}");
}

#[test]
fn without_tmux_and_without_a_terminal_an_agent_takes_part_all_the_same() {
    let bed = Bed::empty();
    let bin = bed.project().join("bin");
    let script = format!(
        "#!/bin/sh\n{program} agent whoami; {program} recv; exit 3\n",
        program = program().display()
    );
    write_program(bin.join("claude"), script);
    std::os::unix::fs::symlink("/bin/sh", bin.join("sh")).unwrap();
    bed.ok("init");
    bed.ok("mailbox add claude");
    bed.ok("send --to claude -m news");
    let mut command = bed.command(&["claude", "-p", "go on"]);
    let ran = command.env("PATH", &bin).stdin(std::process::Stdio::null()).output().unwrap();
    let stdout = String::from_utf8_lossy(&ran.stdout);
    assert_eq!(ran.status.code(), Some(3), "{ran:?}");
    assert!(stdout.contains("claude") && stdout.contains("news"), "{ran:?}");
    // What it held is released, and nothing of it is left.
    assert!(bed.ok("inbox claude").contains("1"), "{}", bed.ok("inbox claude"));
    assert!(!bed.project().join(".ensemble/claude.terminal").exists());
    let missing = bed.command(&["codex"]).env("PATH", &bin).output().unwrap();
    assert_eq!(missing.status.code(), Some(5), "{missing:?}");
    let queue = bed.project().join("queue").display().to_string();
    eventually("the watcher has ended", || !crate::bed::is_running(&queue));
}

#[test]
fn agents_that_start_at_once_in_a_new_project_share_its_queue() {
    const AGENTS: usize = 6;
    for _ in 0..3 {
        let bed = Bed::empty();
        let bin = tempfile::tempdir().unwrap();
        write_program(bin.path().join("claude"), "#!/bin/sh\nexit 7\n");
        let path = format!("{}:{}", bin.path().display(), std::env::var("PATH").unwrap());
        let start = |number: usize| {
            let mut command = bed.command(&["claude", "--name", &format!("a{number}")]);
            command.env("PATH", &path).stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let started: Vec<_> = (0..AGENTS).map(start).collect();
        for agent in started {
            let ended = agent.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&ended.stderr).into_owned();
            assert_eq!(ended.status.code(), Some(7), "{said}");
        }
        let boxes = fs::read_dir(bed.mailbox("")).unwrap().count();
        assert!(boxes >= AGENTS, "{boxes} mailboxes");
        let queue = bed.project().join("queue").display().to_string();
        eventually("the watcher has ended", || !crate::bed::is_running(&queue));
    }
}
