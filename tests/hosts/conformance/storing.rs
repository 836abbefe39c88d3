//! Publishing: an id is stored once, and the stored message equals the sent one.

use std::time::Duration;

use ensemble_core::Error;
use ensemble_core::env::PublishOutcome;
use ensemble_core::message::{Attachment, BODY_BYTES_MAX, Digest, Envelope};
use ensemble_core::spool::Settings;

use super::bed::*;

pub fn an_id_is_stored_once(factory: Factory) {
    let bed = factory(&Settings::default());
    let envelope = message("one\n");
    assert_eq!(bed.broker().publish(&envelope).unwrap(), PublishOutcome::Stored);
    assert_eq!(bed.broker().publish(&envelope).unwrap(), PublishOutcome::AlreadyStored);
    let retry = envelope.clone();
    assert_eq!(bed.again().broker().publish(&retry).unwrap(), PublishOutcome::AlreadyStored);
    assert_eq!(bodies(&*bed), ["one\n"]);
    // While it is held, too.
    assert_eq!(bed.broker().publish(&envelope).unwrap(), PublishOutcome::AlreadyStored);
    assert_eq!(bodies(&*bed), [""; 0]);
}

pub fn an_id_is_not_taken_twice(factory: Factory) {
    let bed = factory(&Settings::default());
    publish(&*bed, &message("one").with_id(id("task.7.1")));
    let other = message("two").with_id(id("task.7.1"));
    let refused = bed.broker().publish(&other);
    assert!(matches!(refused, Err(Error::Conflict { .. })), "{refused:?}");
    assert_eq!(bodies(&*bed), ["one"]);
}

pub fn an_id_stays_taken_when_it_is_settled(factory: Factory) {
    let bed = factory(&Settings::default());
    let envelope = message("one").with_id(id("task-7"));
    publish(&*bed, &envelope);
    bed.broker().settle(&receive(&*bed).lease).unwrap();
    let again = bed.again();
    assert_eq!(again.broker().publish(&envelope).unwrap(), PublishOutcome::AlreadyStored);
    assert_eq!(bodies(&*bed), [""; 0]);
}

pub fn a_message_keeps_every_field(factory: Factory) {
    let bed = factory(&Settings::default());
    let envelope = message("über\n\n  indented: [1, 2]\n\ttab\n")
        .with_kind(name("report.completed"))
        .from(name("worker.1"))
        .with_task("task „7“")
        .with_attempt(3)
        .with_correlation("request-7")
        .with_causation("reports/x.yaml")
        .with_source("tasks/y.yaml")
        .with_priority(4)
        .with_expiry(ensemble_core::message::Timestamp::from_unix_millis(2_000_000_000_000));
    publish(&*bed, &envelope);
    let delivery = receive(&*bed);
    assert_eq!(delivery.envelope, envelope);
    assert_eq!(delivery.lease.id, envelope.id);
    assert_eq!(delivery.lease.epoch, 1);
    assert_eq!(delivery.lease.holder, name("reader"));
    assert_eq!(delivery.lease_duration, Duration::from_secs(300));
}

pub fn concurrent_retries_of_one_id_store_it_once(factory: Factory) {
    let bed = factory(&Settings::default());
    let envelope = message("once").with_id(id("chosen"));
    let beds: Vec<_> = (0..4).map(|_| bed.again()).collect();
    let stored: usize = std::thread::scope(|scope| {
        let tries: Vec<_> = beds
            .iter()
            .map(|bed| scope.spawn(|| bed.broker().publish(&envelope.clone()).unwrap()))
            .collect();
        let outcomes = tries.into_iter().map(|t| t.join().unwrap());
        outcomes.filter(|published| *published == PublishOutcome::Stored).count()
    });
    assert_eq!(stored, 1);
    assert_eq!(bodies(&*bed), ["once"]);
}

pub fn an_unknown_mailbox_is_an_error(factory: Factory) {
    let bed = factory(&Settings::default());
    let absent = name("dispach");
    let unknown = |error: Error| match error {
        Error::NoMailbox { name, nearest } => (name, nearest),
        other => panic!("not about an unknown mailbox: {other}"),
    };
    let to_absent = Envelope::new(absent.clone(), "x");
    let (asked, nearest) = unknown(bed.broker().publish(&to_absent).unwrap_err());
    assert_eq!(asked, "dispach");
    assert_eq!(nearest, [MAILBOX], "the mailbox that was meant is suggested");
    unknown(bed.broker().receive(&absent, &absent).unwrap_err());
    unknown(bed.broker().scan(&absent).unwrap_err());
    let lease = ensemble_core::env::Lease {
        mailbox: absent.clone(),
        id: id("x"),
        holder: absent,
        epoch: 1,
    };
    unknown(bed.broker().settle(&lease).unwrap_err());
}

pub fn a_full_mailbox_refuses(factory: Factory) {
    let bed = factory(&Settings::default().with_capacity(2));
    let first = message("1");
    publish(&*bed, &first);
    publish(&*bed, &message("2"));
    let refused = bed.broker().publish(&message("3"));
    assert!(matches!(refused, Err(Error::Full { capacity: 2, .. })), "{refused:?}");
    assert!(refused.unwrap_err().is_transient());
    // One that already exists needs no room.
    assert_eq!(bed.broker().publish(&first).unwrap(), PublishOutcome::AlreadyStored);
    receive(&*bed);
    publish(&*bed, &message("3"));
}

pub fn a_full_mailbox_refuses_a_crowd(factory: Factory) {
    let bed = factory(&Settings::default().with_capacity(5));
    let beds: Vec<_> = (0..4).map(|_| bed.again()).collect();
    let stored: usize = std::thread::scope(|scope| {
        let senders: Vec<_> = beds
            .iter()
            .map(|bed| {
                scope.spawn(move || {
                    (0..4)
                        .filter(|n| bed.broker().publish(&message(&format!("{n}"))).is_ok())
                        .count()
                })
            })
            .collect();
        senders.into_iter().map(|sender| sender.join().unwrap()).sum()
    });
    assert_eq!(stored, 5);
    assert_eq!(bodies(&*bed).len(), 5);
}

pub fn names_with_dots_are_kept_apart(factory: Factory) {
    let bed = factory(&Settings::default());
    let broker = bed.broker();
    let (one, two) = (name("a.b"), name("a"));
    broker.add_mailbox(&one, &Settings::default()).unwrap();
    broker.add_mailbox(&two, &Settings::default()).unwrap();
    let exists = broker.add_mailbox(&name("A.B"), &Settings::default());
    assert!(matches!(exists, Err(Error::MailboxExists { .. })), "{exists:?}");
    assert_eq!(broker.mailboxes().unwrap(), [two.clone(), one.clone(), name(MAILBOX)]);
    let envelope = Envelope::new(one.clone(), "dotted").with_id(id("c.d"));
    broker.publish(&envelope).unwrap();
    assert!(broker.receive(&two, &two).unwrap().is_none());
    assert_eq!(broker.receive(&one, &one).unwrap().unwrap().envelope.id, id("c.d"));
}

pub fn a_message_that_is_too_large_is_refused(factory: Factory) {
    let bed = factory(&Settings::default());
    publish(&*bed, &message(&"x".repeat(BODY_BYTES_MAX)));
    let refused = bed.broker().publish(&message(&"x".repeat(BODY_BYTES_MAX + 1)));
    assert!(matches!(refused, Err(Error::TooLarge { .. })), "{refused:?}");
    assert_eq!(bodies(&*bed).len(), 1);
}

pub fn content_of_every_size_is_attached(factory: Factory) {
    let bed = factory(&Settings::default());
    let broker = bed.broker();
    for bytes in [0, 1, 128 * 1024, 128 * 1024 + 1, 700_000] {
        let content: Vec<u8> = (0..bytes).map(|at: usize| (at % 251) as u8).collect();
        let attachment = broker.attach(&content).unwrap();
        assert_eq!(broker.attach(&content).unwrap(), attachment, "it may be stored again");
        assert_eq!(attachment.bytes, content.len() as u64);
        assert!(broker.attached(&attachment).unwrap() == content, "{bytes} bytes");
    }
    let absent = Attachment { sha256: Digest::of(b"never stored"), bytes: 12 };
    assert!(matches!(broker.attached(&absent), Err(Error::Malformed { .. })));
}

pub fn a_sender_has_its_share_of_bytes(factory: Factory) {
    let bed = factory(&Settings::default());
    let attach = |mebibytes: u64| {
        let attachment = Attachment { sha256: Digest::of(b"large"), bytes: mebibytes << 20 };
        bed.broker().publish(&message("see attachment").with_attachment(attachment))
    };
    attach(100).unwrap();
    let refused = attach(1);
    assert!(matches!(refused, Err(Error::Quota { messages: 1, .. })), "{refused:?}");
    publish(&*bed, &message("small"));
    assert_eq!(bodies(&*bed).len(), 2);
    attach(40).unwrap();
    attach(20).unwrap();
    assert!(attach(20).is_err());
}

pub fn what_is_stored_is_recorded(factory: Factory) {
    let bed = factory(&Settings::default());
    let log = bed.log();
    let sent = message("body").with_task("t1").with_correlation("c1").with_source("here.md");
    publish(&*bed, &sent);
    publish(&*bed, &message("plain"));
    let [stored, plain] = &log.of("message.stored")[..] else { panic!() };
    let named = ["id", "mailbox", "type", "bytes", "task_id", "correlation_id", "source"];
    let keys = |data: &serde_json::Value| data.as_object().unwrap().keys().cloned().collect();
    let keys: [Vec<String>; 2] = [keys(stored), keys(plain)];
    assert_eq!((&keys[0][..], &keys[1][..]), (&named.map(String::from)[..], &keys[0][..4]));
    assert_eq!((&stored["source"], &stored["bytes"]), (&"here.md".into(), &4.into()));
}

pub fn every_state_is_counted(factory: Factory) {
    let bed = factory(&Settings::default());
    for n in 0..6 {
        publish(&*bed, &message(&format!("{n}")));
    }
    let settled = receive(&*bed);
    bed.broker().settle(&settled.lease).unwrap();
    receive(&*bed);
    let back = receive(&*bed);
    bed.broker().release(&back.lease, Duration::from_secs(3600)).unwrap();
    publish(
        &*bed,
        &message("late").with_expiry(ensemble_core::message::Timestamp::from_unix_millis(1)),
    );
    // An expired message counts as waiting until a consumer meets it.
    let counts = bed.again().broker().scan(&name(MAILBOX)).unwrap();
    assert_eq!((counts.queued, counts.delayed), (5, 1));
    assert_eq!((counts.acked, counts.settled, counts.dead), (1, 1, 0));
}
