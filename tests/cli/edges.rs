//! Sizes and numbers far above the usual: each has an error that says its limit, or it works.
//!
//! The numbers are small here; `EDGE_MAILBOXES=10000 EDGE_WAITERS=500` makes the long run.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use ensemble_core::durable::Durability;
use ensemble_core::message::{Envelope, MessageId, Name};
use ensemble_core::spool::{Settings, Spool, SpoolOptions};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::Value;

use crate::bed::{Bed, Ran, end, land, objects, ran, terminate, to_end, words};
use crate::tmux_support::eventually;
use crate::waiting::until_it_listens;

type Put<'p> = &'p dyn Fn(&std::path::Path);

const GIB: u64 = 1 << 30;
/// Address space of a command that reads nothing large, in KiB.
const LITTLE: u64 = 300_000;
/// The usual limit of open files of a process.
const OPEN_FILES: u64 = 1_024;
/// As many instances of inotify are free on a machine with the usual limit of 128, also beside other tests.
const LISTENING: usize = 16;

fn setting(variable: &str, usual: usize) -> usize {
    std::env::var(variable).map_or(usual, |text| text.parse().unwrap())
}

/// Runs under a limit of the shell's `ulimit`.
fn limited(bed: &Bed, limit: &str, line: &str) -> Ran {
    let mut command = bed.command(&words(line));
    let script = format!("ulimit {limit} && exec \"$@\"");
    let shell = Command::new("sh");
    let program = std::mem::replace(&mut command, shell);
    command.args(["-c", &script, "sh"]).arg(program.get_program()).args(program.get_args());
    command.env_clear().current_dir(bed.project()).stdin(Stdio::null());
    for (key, value) in program.get_envs() {
        command.env(key, value.unwrap());
    }
    ran(command.output().unwrap())
}

fn sparse(path: &std::path::Path) {
    File::create(path).unwrap().set_len(GIB).unwrap();
}

#[test]
fn a_message_of_a_gibibyte_is_refused_and_a_report_is_put_aside_unread() {
    let bed = Bed::new();
    sparse(&bed.project().join("large"));
    let little = format!("-v {LITTLE}");
    let sent = limited(&bed, &little, "send --to w1 --as lead -f large");
    sent.ends(1).says(["large has 1073741824 bytes, the limit is 268435456"]);
    // One that was put there by hand.
    fs::rename(bed.project().join("large"), bed.mailbox("w1/new/by-hand.yaml")).unwrap();
    limited(&bed, &little, "recv --as w1").ends(3);
    let letters = bed.json("dead list");
    assert!(letters[0]["reason"].as_str().unwrap().contains("1073741824 bytes"), "{letters:?}");
    let watcher = bed.start("watch");
    until_it_listens(&watcher);
    sparse(&bed.project().join("large"));
    let report = bed.project().join("queue/reports/large-completed.yaml");
    fs::rename(bed.project().join("large"), &report).unwrap();
    eventually("it is put aside", || !report.exists());
    eventually("it is recorded", || {
        bed.ok("log --type file.rejected").contains("has 1073741824 bytes, the limit is 1048576")
    });
    let most = peak(&watcher);
    assert!(most < 200_000, "{most} KiB");
    terminate(watcher);
    println!("the watcher's peak: {most} KiB");
}

#[test]
fn few_open_files_are_enough_for_many_mailboxes() {
    let bed = Bed::new();
    let spool = Spool::open(&bed.project().join("queue"), SpoolOptions::default()).unwrap();
    for number in 0..40 {
        spool.add_mailbox(&Name::new(format!("m{number}")).unwrap(), &Settings::default()).unwrap();
    }
    let sent = limited(&bed, "-n 96", "send --all --as lead -m x --json");
    assert_eq!((sent.code, &*sent.stderr), (0, ""), "{sent:?}");
    assert!(objects(&sent.stdout).len() >= 40, "{sent:?}");
}

/// The most memory that a process has had, in KiB.
fn peak(process: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn more_mailboxes_than_files_may_be_open() {
    let count = setting("EDGE_MAILBOXES", 200);
    let bed = Bed::new();
    let options = SpoolOptions { durability: Durability::Process, ..SpoolOptions::default() };
    let spool = Spool::open(&bed.project().join("queue"), options).unwrap();
    let begin = Instant::now();
    for number in 0..count {
        let name = Name::new(format!("agent-{number}")).unwrap();
        spool.add_mailbox(&name, &Settings::default()).unwrap();
    }
    println!("{count} mailboxes: added: {:.2} s", begin.elapsed().as_secs_f64());
    let last = format!("agent-{}", count - 1);
    let open = format!("-n {OPEN_FILES}");
    for line in [
        &format!("send --to {last} --as lead --id one -m hello"),
        &format!("recv --as {last}"),
        &format!("settle one --as {last}"),
        &format!("inbox --as {last}"),
        "status",
        "mailbox list",
        "why one",
        "doctor",
        "admin fsck",
    ] {
        let begin = Instant::now();
        let ran = limited(&bed, &open, line);
        assert_eq!(ran.code, 0, "{line}: {ran:?}");
        println!("{count} mailboxes: {line}: {:.2} s", begin.elapsed().as_secs_f64());
    }
    // Far fewer say one thing: what is missing, and not each part that is not read for that.
    for files in [16, 20, 24] {
        let status = limited(&bed, &format!("-n {files}"), "status --json");
        assert_eq!(status.code, 0, "{files}: {status:?}");
        let rows = objects(&status.stdout);
        let needs = rows.last().unwrap()["needs"].as_array().unwrap();
        let said = format!("a process may open {files} files here, and needs more");
        let is_it = |need: &Value| need["text"].as_str().unwrap().contains(&said);
        assert!(needs.len() <= 1 && needs.iter().all(is_it), "{files}: {needs:?}");
    }
    let watcher = bed.start("watch");
    land(&bed, "reports/r-completed.yaml", "n: 1\n");
    eventually("a report is routed", || bed.ok("inbox --as dispatch").contains("report."));
    println!("{count} mailboxes: the watcher's peak: {} KiB", peak(&watcher));
    terminate(watcher);
}

#[test]
fn each_of_many_waiting_receivers_gets_its_message() {
    let count = setting("EDGE_WAITERS", 24);
    let bed = Bed::new();
    let waiting: Vec<Child> =
        (0..count).map(|_| bed.start("recv --as w1 --wait 1h --body")).collect();
    waiting.iter().take(LISTENING).for_each(until_it_listens);
    let begin = Instant::now();
    for number in 0..count {
        bed.send(&format!("message {number:04}"));
    }
    let mut bodies: Vec<String> = Vec::new();
    for child in waiting {
        let ran = end(child);
        ran.ends(0);
        bodies.push(ran.stdout);
    }
    bodies.sort();
    let expected: Vec<String> = (0..count).map(|number| format!("message {number:04}")).collect();
    assert_eq!(bodies, expected);
    println!("{count} waiting receivers: {:.1} s", begin.elapsed().as_secs_f64());
}

#[test]
fn content_of_any_bytes_and_from_files_of_any_name_arrives_as_it_was() {
    let bed = Bed::new();
    let all: Vec<u8> = (0..=255).collect();
    let contents = [b"\0".to_vec(), all.repeat(300), b"\xff\xfe".to_vec(), vec![b'x'; 61_441]];
    for (file, content) in
        ["-rf", "two\nlines", "$(touch hacked)", "../up.txt"].iter().zip(contents)
    {
        bed.write_file(file, &content);
        let sent = to_end(&mut bed.command(&["send", "--to", "w1", "--as", "lead", "-f", file]));
        assert_eq!((sent.code, sent.stderr.as_str()), (0, ""), "{file}: {sent:?}");
        let got = bed.command(&["recv", "--as", "w1", "--body"]).output().unwrap();
        assert!(got.status.success(), "{file}: {got:?}");
        assert!(got.stdout == content, "{file}");
    }
    assert!(!bed.project().join("hacked").exists());
    let kept = fs::read_dir(bed.project().join("queue/attachments")).unwrap().flatten();
    let names: Vec<String> = kept.map(|it| it.file_name().into_string().unwrap()).collect();
    assert!(names.iter().all(|name| name.len() == 64), "named by digest alone: {names:?}");
}

#[test]
fn an_attachment_that_is_not_what_was_sent_is_an_error_and_no_wait() {
    let bed = Bed::new();
    bed.write_file("file", vec![b'y'; 61_441]);
    let pipe = |path: &std::path::Path| {
        mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    };
    let replace: [(&str, Put<'_>); 5] = [
        ("missing", &|_| ()),
        ("a pipe", &pipe),
        ("a link", &|path| symlink("/etc/passwd", path).unwrap()),
        ("a directory", &|path| fs::create_dir(path).unwrap()),
        ("other content", &|path| fs::write(path, vec![b'z'; 61_441]).unwrap()),
    ];
    for (what, make) in replace {
        bed.ok("send --to w1 --as lead -f file");
        let place = bed.project().join("queue/attachments");
        let path = fs::read_dir(&place).unwrap().flatten().next().unwrap().path();
        fs::remove_file(&path).unwrap();
        make(&path);
        let ran = bed.run("recv --as w1 --body");
        assert!([1, 3, 4].contains(&ran.code), "{what}: {ran:?}");
        assert!(
            !ran.stdout.contains("root:") && ran.stderr.contains("ttachment"),
            "{what}: {ran:?}"
        );
        match path.is_dir() && !path.is_symlink() {
            true => fs::remove_dir(&path).unwrap(),
            false => drop(fs::remove_file(&path)),
        }
    }
}

const MESSAGES: usize = 20_000;

fn name() -> Name {
    Name::new("w1").unwrap()
}

/// The queue as the command opens it, in another process.
fn spool(bed: &Bed) -> Spool {
    let options = SpoolOptions {
        durability: Durability::Process,
        share_backlog: true,
        ..SpoolOptions::default()
    };
    Spool::open(&bed.project().join("queue"), options).unwrap()
}

fn publish(bed: &Bed, count: usize) -> Vec<MessageId> {
    let batch: Vec<_> = (0..count).map(|n| Envelope::new(name(), n.to_string())).collect();
    spool(bed).publish_batch(&batch).unwrap();
    batch.into_iter().map(|envelope| envelope.id).collect()
}

fn hint(bed: &Bed) -> PathBuf {
    bed.mailbox("w1/backlog")
}

fn received(bed: &Bed) -> MessageId {
    let id = bed.object("recv --as w1")["id"].as_str().unwrap().to_owned();
    MessageId::new(id).unwrap()
}

/// Receives everything with this many consumers; the ids, sorted.
fn drain(bed: &Bed, consumers: usize) -> Vec<MessageId> {
    let all = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..consumers {
            scope.spawn(|| {
                let spool = spool(bed);
                while let Some(delivery) = spool.receive(&name(), &name()).unwrap() {
                    all.lock().unwrap().push(delivery.lease.id);
                }
            });
        }
    });
    let mut all = all.into_inner().unwrap();
    all.sort();
    all
}

#[test]
fn new_processes_go_on_where_the_last_one_stopped() {
    let bed = Bed::new();
    let sent = publish(&bed, MESSAGES);
    assert_eq!(received(&bed), sent[0]);
    let listed = hint(&bed).metadata().unwrap();
    for expected in &sent[1..50] {
        assert_eq!(received(&bed), *expected);
    }
    assert_eq!(hint(&bed).metadata().unwrap().ino(), listed.ino(), "listed only once");

    let others = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                (0..5).for_each(|_| others.lock().unwrap().push(received(&bed)));
            });
        }
    });
    let mut others = others.into_inner().unwrap();
    others.extend(drain(&bed, 1));
    others.sort();
    assert_eq!(others, sent[50..], "each once");
    assert!(!hint(&bed).exists(), "there is nothing to share any more");
    bed.fails(3, "recv --as w1");
}

#[test]
fn garbage_loses_doubles_and_blocks_nothing() {
    let bed = Bed::new();
    let sent = publish(&bed, 3000);
    let repeated: String = (0..500).map(|_| format!("{}\n", sent[2999])).collect();
    let absent: String = (0..500).map(|n| format!("absent-{n}\n")).collect();
    let contents = [
        "\u{0}\u{1}garbage".to_owned(),
        format!("{:020}\n", u64::MAX),
        format!("{:020}\n{absent}", 21),
        format!("{:020}\n{}\n", 30, sent[5]),
    ];
    for (content, expected) in contents.iter().zip(&sent) {
        std::fs::write(hint(&bed), content).unwrap();
        assert_eq!(received(&bed), *expected);
    }
    // A hint that is wrong about the order is believed, and costs no more than that.
    std::fs::write(hint(&bed), format!("{:020}\n{repeated}", 21)).unwrap();
    assert_eq!(received(&bed), sent[2999]);
    assert_eq!(received(&bed), sent[4], "a missing message is skipped");
    assert_eq!(bed.ok("admin fsck"), "clean\n");
    assert_eq!(drain(&bed, 4), sent[5..2999]);
}

#[test]
fn messages_missing_from_the_hint_are_received_too() {
    let bed = Bed::new();
    let sent = publish(&bed, 1500);
    assert_eq!(received(&bed), sent[0]);
    // Handmade, and older than every message in the hint.
    let old = MessageId::new("01000000-0000-7000-8000-000000000000").unwrap();
    std::fs::write(bed.mailbox(&format!("w1/new/{old}.yaml")), "body: by hand\n").unwrap();
    let urgent = Envelope::new(name(), "now").with_priority(9);
    spool(&bed).publish(&urgent).unwrap();
    let late = publish(&bed, 10);
    assert_eq!(received(&bed), urgent.id, "front/ comes first, whatever the hint says");
    let mut expected = [&[old], &sent[1..], &late[..]].concat();
    expected.sort();
    assert_eq!(drain(&bed, 4), expected);
}

/// A session remembers 256 reminders, and an older message would cost a request after each turn.
#[test]
fn more_held_messages_than_a_session_remembers_are_reminded_of_once() {
    let bed = Bed::new();
    publish(&bed, 260);
    drain(&bed, 1);
    let stop = "hook stop --provider claude --as w1";
    let reminded = || bed.run_with(stop, br#"{"session_id": "s1"}"#).stdout;
    assert!(reminded().contains("You still hold 248 more"));
    assert_eq!(reminded(), "");
}

/// Claude Code puts what is longer into a file, and each further hook costs a request.
#[test]
fn a_hook_hands_over_as_many_messages_as_its_agent_reads_at_once() {
    let bed = Bed::new();
    publish(&bed, 100);
    let hook = |event: &str| {
        let line = format!("hook {event} --provider claude --as w1");
        let said = bed.run_with(&line, br#"{"session_id": "s1"}"#).stdout;
        let said: Value = serde_json::from_str(&said).unwrap();
        let context = &said["hookSpecificOutput"]["additionalContext"];
        let text = context.as_str().or_else(|| said["reason"].as_str()).unwrap();
        assert!(text.len() < 10_000, "{} characters", text.len());
        text.matches("Message from").count()
    };
    let (first, then) = (hook("tool"), hook("stop"));
    assert!(first > 50 && first + then == 100, "{first} and {then}");
}
