//! A deep backlog and processes that receive one message each.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Mutex;

use ensemble_core::durable::Durability;
use ensemble_core::message::{Envelope, MessageId, Name};
use ensemble_core::spool::{Spool, SpoolOptions};
use serde_json::Value;

use crate::bed::Bed;

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
