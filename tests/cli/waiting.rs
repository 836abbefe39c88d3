//! Waiting: for a message, for a receipt, for the log. Real second processes, no sleeps.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::Child;
use std::time::{Duration, Instant};

use ensemble_core::event_log::{EventLog, Recorder as _};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::bed::{Bed, JsonMembers as _, Running, SaidText as _, end, objects, polls};
use crate::live::Screen;
use crate::tmux_support::eventually;

/// How long a process without a handler of signals sleeps before it is taken to wait.
const IDLE: Duration = Duration::from_secs(2);

fn first_line(child: &mut Child) -> String {
    let mut line = String::new();
    // Reads a byte at a time: the rest stays in the pipe for a later reader.
    let stdout = child.stdout.as_mut().unwrap();
    let mut byte = [0];
    while stdout.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
        line.push(char::from(byte[0]));
    }
    line
}

/// Returns once a process listens for file events. Where there are none, it looks again and again.
/// Then it waits if it catches the signal that ends it, or has slept for a while without.
pub(crate) fn until_it_listens(child: &Child) {
    if polls() {
        let start = Instant::now();
        let is_idle = || start.elapsed() > IDLE && line_of(child, "State:").starts_with('S');
        return eventually("it waits", || catches(child, Signal::TERM) || is_idle());
    }
    let directory = format!("/proc/{}/fd", child.id());
    let deadline = Instant::now() + crate::tmux_support::PATIENCE;
    while Instant::now() < deadline {
        let mut open = std::fs::read_dir(&directory).unwrap().flatten();
        let is_inotify = |path: std::path::PathBuf| path.to_string_lossy().contains("inotify");
        if open.any(|fd| std::fs::read_link(fd.path()).is_ok_and(is_inotify)) {
            return;
        }
        std::thread::yield_now();
    }
    panic!("it never listened");
}

fn catches(child: &Child, signal: Signal) -> bool {
    u64::from_str_radix(&line_of(child, "SigCgt:"), 16).unwrap() >> (signal.as_raw() - 1) & 1 == 1
}

fn line_of(child: &Child, name: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned()
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// A mailbox with a lease of one second, whose only message was received by a process that has ended.
fn with_a_dead_holder(bed: &Bed) {
    bed.ok("mailbox add impatient --lease 1s");
    bed.ok("send --to impatient --as lead -m unfinished");
    bed.ok("recv --mailbox impatient --as dead");
}

#[test]
fn consumers_that_wait_for_less_than_a_lease_observe_it_together() {
    let bed = Bed::new();
    with_a_dead_holder(&bed);
    let began = Instant::now();
    loop {
        let ran = bed.run("recv --mailbox impatient --as w1 --wait 100ms --body");
        if ran.code == 0 {
            break assert_eq!(ran.stdout, "unfinished");
        }
        assert_eq!(ran.code, 3, "{}", ran.stderr);
        assert!(began.elapsed() < crate::tmux_support::PATIENCE, "each began a new lease");
    }
}

#[test]
fn a_waiting_consumer_ends_by_its_signal_and_takes_nothing_along() {
    let bed = Bed::new();
    for number in [Signal::TERM, Signal::INT] {
        let mut consumer = bed.start("recv --as w1 --wait 1h");
        until_it_listens(&consumer);
        signal(&consumer, number);
        assert_eq!(consumer.wait().unwrap().signal(), Some(number.as_raw()));
    }
    bed.send("x");
    assert_eq!(bed.object("inbox w1")["state"], "queued");
}

#[test]
fn a_signal_does_not_cut_a_message_that_is_being_printed() {
    let bed = Bed::new();
    let content = vec![b'x'; 1 << 20];
    assert_eq!(bed.run_with("send --to w1", &content).code, 0);
    let mut consumer = bed.start("recv --as w1 --body");
    let mut stdout = consumer.stdout.take().unwrap();
    let mut got = vec![0];
    stdout.read_exact(&mut got).unwrap();
    signal(&consumer, Signal::TERM);
    stdout.read_to_end(&mut got).unwrap();
    assert_eq!((got.len(), consumer.wait().unwrap().code()), (content.len(), Some(0)));
}

#[test]
fn a_sender_waits_until_its_message_is_acked_settled_or_dead_or_learns_its_state() {
    let bed = Bed::new();
    let mut sender = bed.start("send --to w1 -m x --expires 0 --until settled");
    let id = first_line(&mut sender);
    bed.fails(3, "recv --as w1");
    end(sender).ends(1).says([&format!("`{id}` is a dead letter: expired"), "ensemble dead retry"]);
    for state in ["acked", "settled"] {
        let mut sender = bed.start(&format!("send --to w1 -m x --until {state} --wait 1h"));
        let id = first_line(&mut sender);
        assert_eq!(bed.object("recv --as w1")["id"], json!(id));
        bed.ok(&format!("settle {id}"));
        assert_eq!(end(sender).code, 0);
    }
    bed.ok("send --to w1 --id a -m x");
    bed.ok("recv --as w1");
    assert_eq!(bed.object("send --to w1 --id a -m x --until notified")["state"], "acked");
    bed.ok("settle a");
    assert_eq!(bed.object("send --to w1 --id a -m x --until acked")["state"], "settled");
    assert_eq!(bed.object("send --to w1 -m x --until stored")["state"], "stored");
    let ran = bed.run("send --to w1 -m x --until acked --wait 50ms --json");
    assert_eq!(ran.code, 3);
    assert_eq!(objects(&ran.stdout)[0]["state"], "stored");
    ran.says(["after 50ms the message is stored, not acked"]);
}

#[test]
fn the_log_is_followed_and_nudges_are_read_from_it() {
    let bed = Bed::new();
    bed.send("1");
    let mut follower = Running(bed.start("log --follow --type message.* --limit 5 --json"));
    let mut lines = BufReader::new(follower.0.stdout.take().unwrap()).lines();
    let mut next = || objects(&lines.next().unwrap().unwrap()).remove(0);
    assert_eq!(next()["type"], "message.stored");
    bed.ok("recv --as w1");
    next().fits(json!({ "type": "message.acked", "actor": "w1" }));
    let log = EventLog::open(&bed.project().join(".ensemble/logs")).unwrap();
    for state in ["notified", "submitted"] {
        let mut sender = bed.start(&format!("send --to w1 -m x --until {state}"));
        let id = first_line(&mut sender);
        log.record("receipt.submitted", "watcher", json!({ "mailbox": "dispatch", "ids": [id] }));
        let data = json!({ "mailbox": "w1", "ids": ["another", id] });
        log.record(&format!("receipt.{state}"), "watcher", data);
        assert_eq!(end(sender).code, 0);
    }
}

#[test]
fn a_terminal_shows_what_a_verb_waits_for_and_a_pipe_shows_nothing() {
    let bed = Bed::new();
    let screen = Screen::start(&bed.project(), "recv --as w1 --wait 10m", (80, 24));
    screen.shows_all(["waiting for mail in `w1`, since ", ", until "]);
    bed.send("hello from the test");
    screen.shows("hello from the test");
    screen.shows_no_more("waiting for");
    let plan = bed.project().join("plan.md");
    std::fs::write(plan, "the plan\n").unwrap();
    let verb = "request plan plan.md --task t1 --to boss --as w1 --wait 10m";
    bed.ok("mailbox add boss");
    let screen = Screen::start(&bed.project(), verb, (60, 10));
    screen.shows("waiting for boss to decide plan_approval");
    let shown = screen.text();
    let lines: Vec<&str> = shown.lines().filter(|line| line.contains("waiting for")).collect();
    assert_eq!(lines.len(), 1, "one line, however narrow: {shown}");
    let pipe = bed.project().join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let screen = Screen::start(&bed.project(), "send --to boss -f pipe", (80, 24));
    screen.shows("waiting for the content of pipe, since ");
    std::fs::write(&pipe, "from a pipe\n").unwrap();
    screen.shows("left 0");
    let ran = bed.run("recv --as dispatch --wait 2s");
    ran.ends(3);
    ran.stderr.lacks(["waiting for"]);
    ran.says(["nothing waits in mailbox `dispatch`"]);
}

/// Each verb with `--wait`, in a case in which it waits.
const WAITS: [(&str, &str); 10] = [
    ("assign", "assign boss work --task t1 --wait 10m"),
    ("agent instruct", "agent instruct -f instruction.yaml --wait 10m"),
    ("recv", "recv --as quiet --wait 10m"),
    ("request ask", "request ask plan_approval boss why --as w1 --wait 10m"),
    ("request plan", "request plan -f plan.md --task t2 --to boss --as w1 --wait 10m"),
    ("request shutdown", "request shutdown w1 --as boss --wait 10m"),
    ("send", "send --to boss --until settled --wait 10m work"),
    ("step next", "step next --as w1 --wait 10m"),
    ("step run", "step run 0-4-1 --wait 10m"),
    ("task summary", "task summary --task t-9 --wait 10m"),
];
/// `demo` tells its story instead.
const OTHER_WAITS: [&str; 1] = ["demo"];

#[test]
fn each_verb_with_a_wait_says_on_a_terminal_what_it_waits_for() {
    let bed = Bed::new();
    let rows = crate::bed::objects(&bed.ok("admin schema commands"));
    let has_wait = |row: &&Value| row["flags"].to_string().contains("--wait ");
    let mut found: Vec<&str> =
        rows.iter().filter(has_wait).map(|row| row["place"].as_str().unwrap()).collect();
    let mut known: Vec<&str> = WAITS.iter().map(|(verb, _)| *verb).chain(OTHER_WAITS).collect();
    found.sort_unstable();
    known.sort_unstable();
    assert_eq!(found, known, "a new verb that waits is tried here");

    bed.add_mailboxes(&["boss", "quiet"]);
    let file = |name: &str, text: &str| bed.write_file(name, text);
    file("ensemble.yaml", "durability: process\nreadiness: {wait: 600}\n");
    file("plan.md", "the plan\n");
    file(
        "instruction.yaml",
        "type: start_workers\nworker_count: 1\ncreated_at: monday\ntasks:\n  - {id: t-1, instruction: count}\n",
    );
    file(
        "steps.yaml",
        "task_id: 0-4-1\norchestrator: conductor\nsteps:\n  - {agent: boss, goal: work}\n",
    );
    bed.ok("step add -f steps.yaml");
    let screens = WAITS.map(|(_, line)| Screen::start(&bed.project(), line, (80, 12)));
    for ((verb, _), screen) in WAITS.iter().zip(&screens) {
        screen.shows("waiting for ");
        let shown = screen.text();
        assert!(shown.lines().any(|line| line.contains(", since ")), "{verb}: {shown}");
    }
    screens[0].shows("waiting for boss to answer ping 1, since ");
    let ready = bed.project().join(".ensemble/ready");
    std::fs::write(ready.join("boss@1.pong"), "").unwrap();
    screens[0].shows("waiting for boss to receive t1, since ");
}
