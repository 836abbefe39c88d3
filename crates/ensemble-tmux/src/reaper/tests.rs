//! Tests with real processes, which end with the test in any case.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use super::*;

const LIMIT: Duration = Duration::from_secs(60);
/// Patience for processes that may ignore a signal.
const POLITE: Duration = Duration::from_millis(500);

/// A shell that leads its own session, as the first process of a pane does. It prints `ready` (and
/// the pids of its children) once its children run.
struct Pane {
    shell: Child,
    lines: Vec<u32>,
    pass: String,
}

impl Pane {
    fn start(script: &str) -> Self {
        // Each pane has its own pass, so that another test's search cannot find it.
        let pass = uuid::Uuid::now_v7().simple().to_string();
        let mut command = Command::new("setsid");
        command.args(["sh", "-c", script]).env(PASS_VARIABLE, &pass).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut shell = command.spawn().expect("setsid of util-linux");
        let mut lines = Vec::new();
        let mut stdout = BufReader::new(shell.stdout.take().expect("a pipe")).lines();
        loop {
            let line = stdout.next().expect("the shell prints ready").expect("a line");
            match line.parse() {
                Ok(pid) => lines.push(pid),
                Err(_) => break,
            }
        }
        Self { shell, lines, pass }
    }

    fn root(&self) -> (u32, Option<u64>) {
        let pid = self.lines.first().copied().unwrap_or_else(|| self.shell.id());
        (pid, read_row(pid).map(|row| row.started))
    }

    fn processes(&self) -> ProcessSet {
        let (pid, started) = self.root();
        ProcessSet::new().with_root(pid, started)
    }

    fn pass(&self) -> Digest {
        Digest::of(self.pass.as_bytes())
    }
}

impl Drop for Pane {
    fn drop(&mut self) {
        let processes = self.processes().with_pass(self.pass());
        let mut reaper = Reaper::new(processes);
        while reaper.sweep(Signal::Kill).is_ok_and(|n| n > 0) {
            let _ = self.shell.try_wait();
            reaper.wait(Duration::from_millis(100));
        }
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// Ends all processes, by force after `patience`. Returns how many processes each search found.
fn reap(pane: &mut Pane, processes: ProcessSet, patience: Duration) -> Vec<usize> {
    let mut reaper = Reaper::new(processes);
    let mut found = vec![reaper.sweep(Signal::Terminate).expect("a sweep")];
    while found.last() != Some(&0) {
        assert!(found.len() < 10, "the searches do not end: {found:?}");
        reaper.wait(if found.len() == 1 { patience } else { LIMIT });
        let _ = pane.shell.try_wait();
        found.push(reaper.sweep(Signal::Kill).expect("a sweep"));
    }
    found
}

fn lives(pid: u32) -> bool {
    read_row(pid).is_some_and(|row| !row.zombie)
}

#[test]
fn whole_tree_and_background_processes_end() {
    // `$$` is the session's leader; the second sleeper has lost its parent.
    let mut pane =
        Pane::start("echo $$; sleep 1000 & echo $!; (sleep 1000 & echo $!); echo ready; wait");
    let processes = pane.processes();
    assert_eq!(pane.lines.len(), 3);
    let found = reap(&mut pane, processes, LIMIT);
    assert_eq!((found[0], found.last()), (3, Some(&0)), "{found:?}");
    assert!(pane.lines.iter().all(|pid| !lives(*pid)));
}

#[test]
fn daemon_in_its_own_session_is_found_by_its_pass() {
    let script =
        "echo $$; (setsid sh -c 'echo $$; echo ready; exec sleep 1000' &); exec sleep 1000";
    let mut pane = Pane::start(script);
    let daemon = pane.lines[1];
    // The shell between them may end only after the daemon has printed its line.
    let began = Instant::now();
    let is_below = || {
        let by_root = Reaper::new(pane.processes()).find().expect("a search");
        by_root.iter().any(|p| p.pid == daemon)
    };
    while is_below() {
        assert!(began.elapsed() < LIMIT, "it is still in the tree");
    }
    let processes = pane.processes().with_pass(pane.pass());
    reap(&mut pane, processes, LIMIT);
    assert!(!lives(daemon));
}

#[test]
fn process_that_ignores_signals_is_killed() {
    let mut pane =
        Pane::start("trap '' TERM HUP; echo $$; echo ready; while :; do sleep 1000; done");
    let (root, _) = pane.root();
    let mut reaper = Reaper::new(pane.processes());
    assert!(reaper.sweep(Signal::Terminate).expect("a sweep") >= 1);
    assert!(!reaper.wait(Duration::from_millis(300)), "it ignores the signal");
    assert!(lives(root));
    let processes = pane.processes();
    reap(&mut pane, processes, POLITE);
    assert!(!lives(root));
}

#[test]
fn stopped_process_is_ended() {
    let mut pane = Pane::start("echo $$; echo ready; exec sleep 1000");
    let (root, _) = pane.root();
    let pid = Pid::from_raw(i32::try_from(root).expect("a pid")).expect("a pid");
    rustix::process::kill_process(pid, Number::STOP).expect("it stops");
    let processes = pane.processes();
    let found = reap(&mut pane, processes, LIMIT);
    assert_eq!(found, [1, 0]);
}

#[test]
fn nested_agent_is_not_touched() {
    let mut pane = Pane::start("echo $$; sleep 1000 & echo $!; echo ready; wait");
    let other = pane.lines[1];
    let processes = pane.processes().but_not(other, read_row(other).map(|row| row.started));
    let root = pane.root().0;
    let mut reaper = Reaper::new(processes);
    assert_eq!(reaper.find().expect("a search").iter().map(|p| p.pid).collect::<Vec<_>>(), [root]);
    assert_eq!(reaper.sweep(Signal::Kill).expect("a sweep"), 1);
    reaper.wait(LIMIT);
    let _ = pane.shell.try_wait();
    assert!(!lives(root) && lives(other));
}

#[test]
fn reused_pid_is_a_different_process() {
    let pane = Pane::start("echo $$; echo ready; exec sleep 1000");
    let (root, started) = pane.root();
    let earlier = ProcessSet::new().with_root(root, started.map(|ticks| ticks - 1));
    assert_eq!(Reaper::new(earlier).find().expect("a search"), []);
}

/// Such a process has no terminal. Group 0 is that of kernel threads, and in some containers of process 1.
#[test]
fn a_shell_that_has_ended_and_was_not_reaped_marks_no_process() {
    let mut shell = Command::new("sh").args(["-c", "exit 0"]).spawn().expect("a shell");
    let began = Instant::now();
    while fate(shell.id()) == ProcessFate::Lives {
        assert!(began.elapsed() < LIMIT, "it ends by itself");
        std::thread::yield_now();
    }
    let started = read_row(shell.id()).map(|row| row.started);
    assert!(started.is_some(), "it is not reaped yet");
    let processes = ProcessSet::new().with_root(shell.id(), started).sparing_the_root();
    assert_eq!(Reaper::new(processes).find().expect("a search"), []);
    shell.wait().expect("it is reaped");
}

#[test]
fn caller_inside_the_agent_is_an_error() {
    let us = std::process::id();
    let processes = ProcessSet::new().with_root(us, read_row(us).map(|row| row.started));
    let error = Reaper::new(processes).find().expect_err("the search must fail");
    assert_eq!(error.area(), Some(&ReaperError::EndsItself { pid: us }), "{error}");
}
