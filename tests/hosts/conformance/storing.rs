//! Publishing: an id is stored once, and the stored message equals the sent one.

use ensemble_core::message::Digest;

use super::bed::*;

use crate::*;

pub fn an_id_is_stored_once(bed: &Bed) {
    let envelope = message("one\n");
    assert_eq!(bed.broker.publish(&envelope).unwrap(), PublishOutcome::Stored);
    assert_eq!(bed.broker.publish(&envelope).unwrap(), PublishOutcome::AlreadyStored);
    let retry = envelope.clone();
    assert_eq!(bed.again().broker.publish(&retry).unwrap(), PublishOutcome::AlreadyStored);
    assert_eq!(bed.bodies(), ["one\n"]);
    // While it is held, too.
    assert_eq!(bed.broker.publish(&envelope).unwrap(), PublishOutcome::AlreadyStored);
    assert_eq!(bed.bodies(), [""; 0]);
}

pub fn an_id_is_not_taken_twice(bed: &Bed) {
    bed.publish(&message("one").with_id(id("task.7.1")));
    let other = message("two").with_id(id("task.7.1"));
    let refused = bed.broker.publish(&other);
    assert!(matches!(refused, Err(Error::Conflict { .. })), "{refused:?}");
    assert_eq!(bed.bodies(), ["one"]);
}

pub fn an_id_stays_taken_when_it_is_settled(bed: &Bed) {
    let envelope = message("one").with_id(id("task-7"));
    bed.publish(&envelope);
    bed.broker.settle(&bed.receive().lease).unwrap();
    let again = bed.again();
    assert_eq!(again.broker.publish(&envelope).unwrap(), PublishOutcome::AlreadyStored);
    assert_eq!(bed.bodies(), [""; 0]);
}

pub fn a_message_keeps_every_field(bed: &Bed) {
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
    bed.publish(&envelope);
    let delivery = bed.receive();
    assert_eq!(delivery.envelope, envelope);
    assert_eq!(delivery.lease.id, envelope.id);
    assert_eq!(delivery.lease.epoch, 1);
    assert_eq!(delivery.lease.holder, name("reader"));
    assert_eq!(delivery.lease_duration, Duration::from_secs(300));
}

pub fn concurrent_retries_of_one_id_store_it_once(bed: &Bed) {
    let envelope = message("once").with_id(id("chosen"));
    let outcomes = bed.crowd(|_, bed| bed.broker.publish(&envelope).unwrap());
    let stored = outcomes.iter().filter(|it| **it == PublishOutcome::Stored).count();
    assert_eq!(stored, 1);
    assert_eq!(bed.bodies(), ["once"]);
}

pub fn an_unknown_mailbox_is_an_error(bed: &Bed) {
    let absent = name("dispach");
    let unknown = |error: Error| match error {
        Error::NoMailbox { name, nearest } => (name, nearest),
        other => panic!("not about an unknown mailbox: {other}"),
    };
    let to_absent = Envelope::new(absent.clone(), "x");
    let (asked, nearest) = unknown(bed.broker.publish(&to_absent).unwrap_err());
    assert_eq!(asked, "dispach");
    assert_eq!(nearest, [MAILBOX], "the mailbox that was meant is suggested");
    unknown(bed.broker.receive(&absent, &absent).unwrap_err());
    unknown(bed.broker.scan(&absent).unwrap_err());
    let lease = ensemble_core::env::Lease {
        mailbox: absent.clone(),
        id: id("x"),
        holder: absent,
        epoch: 1,
    };
    unknown(bed.broker.settle(&lease).unwrap_err());
}

pub fn a_full_mailbox_refuses(bed: &Bed) {
    let first = message("1");
    bed.publish(&first);
    bed.publish(&message("2"));
    let refused = bed.broker.publish(&message("3"));
    assert!(matches!(refused, Err(Error::Full { capacity: 2, .. })), "{refused:?}");
    assert!(refused.unwrap_err().is_transient());
    // One that already exists needs no room.
    assert_eq!(bed.broker.publish(&first).unwrap(), PublishOutcome::AlreadyStored);
    bed.receive();
    bed.publish(&message("3"));
}

pub fn a_full_mailbox_refuses_a_crowd(bed: &Bed) {
    let stored = bed.crowd(|_, bed| {
        let is_stored = |n: &i32| bed.broker.publish(&message(&n.to_string())).is_ok();
        (0..4).filter(is_stored).count()
    });
    let stored: usize = stored.into_iter().sum();
    assert_eq!(stored, 5);
    assert_eq!(bed.bodies().len(), 5);
}

pub fn names_with_dots_are_kept_apart(bed: &Bed) {
    let (one, two) = (name("a.b"), name("a"));
    bed.broker.add_mailbox(&one, &Settings::default()).unwrap();
    bed.broker.add_mailbox(&two, &Settings::default()).unwrap();
    let exists = bed.broker.add_mailbox(&name("A.B"), &Settings::default());
    assert!(matches!(exists, Err(Error::MailboxExists { .. })), "{exists:?}");
    assert_eq!(bed.broker.mailboxes().unwrap(), [two.clone(), one.clone(), name(MAILBOX)]);
    let envelope = Envelope::new(one.clone(), "dotted").with_id(id("c.d"));
    bed.broker.publish(&envelope).unwrap();
    assert!(bed.broker.receive(&two, &two).unwrap().is_none());
    assert_eq!(bed.broker.receive(&one, &one).unwrap().unwrap().envelope.id, id("c.d"));
}

pub fn a_message_that_is_too_large_is_refused(bed: &Bed) {
    bed.publish(&message(&"x".repeat(BODY_BYTES_MAX)));
    let refused = bed.broker.publish(&message(&"x".repeat(BODY_BYTES_MAX + 1)));
    assert!(matches!(refused, Err(Error::TooLarge { .. })), "{refused:?}");
    assert_eq!(bed.bodies().len(), 1);
}

pub fn content_of_every_size_is_attached(bed: &Bed) {
    for bytes in [0, 1, 128 * 1024, 128 * 1024 + 1, 700_000] {
        let content: Vec<u8> = (0..bytes).map(|at: usize| (at % 251) as u8).collect();
        let attachment = bed.broker.attach(&content).unwrap();
        assert_eq!(bed.broker.attach(&content).unwrap(), attachment, "it may be stored again");
        assert_eq!(attachment.bytes, content.len() as u64);
        assert!(bed.broker.attached(&attachment).unwrap() == content, "{bytes} bytes");
    }
    let absent = Attachment { sha256: Digest::of(b"never stored"), bytes: 12 };
    assert!(matches!(bed.broker.attached(&absent), Err(Error::Malformed { .. })));
}

pub fn a_sender_has_its_share_of_bytes(bed: &Bed) {
    let attach = |mebibytes: u64| {
        let attachment = Attachment { sha256: Digest::of(b"large"), bytes: mebibytes << 20 };
        bed.broker.publish(&message("see attachment").with_attachment(attachment))
    };
    attach(100).unwrap();
    let refused = attach(1);
    assert!(matches!(refused, Err(Error::Quota { messages: 1, .. })), "{refused:?}");
    bed.publish(&message("small"));
    assert_eq!(bed.bodies().len(), 2);
    attach(40).unwrap();
    attach(20).unwrap();
    assert!(attach(20).is_err());
}

pub fn what_is_stored_is_recorded(bed: &Bed) {
    let log = &bed.log;
    let sent = message("body").with_task("t1").with_correlation("c1").with_source("here.md");
    bed.publish(&sent);
    bed.publish(&message("plain"));
    let [stored, plain] = &log.of("message.stored")[..] else { panic!() };
    let named = ["id", "mailbox", "type", "bytes", "task_id", "correlation_id", "source"];
    let keys = |data: &serde_json::Value| data.as_object().unwrap().keys().cloned().collect();
    let keys: [Vec<String>; 2] = [keys(stored), keys(plain)];
    assert_eq!((&keys[0][..], &keys[1][..]), (&named.map(String::from)[..], &keys[0][..4]));
    assert_eq!((&stored["source"], &stored["bytes"]), (&"here.md".into(), &4.into()));
}

pub fn every_state_is_counted(bed: &Bed) {
    for n in 0..6 {
        bed.publish(&message(&format!("{n}")));
    }
    let settled = bed.receive();
    bed.broker.settle(&settled.lease).unwrap();
    bed.receive();
    let back = bed.receive();
    bed.broker.release(&back.lease, Duration::from_secs(3600)).unwrap();
    bed.publish(
        &message("late").with_expiry(ensemble_core::message::Timestamp::from_unix_millis(1)),
    );
    // An expired message counts as waiting until a consumer meets it.
    let counts = bed.again().broker.scan(&name(MAILBOX)).unwrap();
    assert_eq!((counts.queued, counts.delayed), (5, 1));
    assert_eq!((counts.acked, counts.settled, counts.dead), (1, 1, 0));
}
