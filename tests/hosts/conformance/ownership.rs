//! Leases: one holder at a time, growing epochs, and refusal of late holders.

use std::time::Duration;

use ensemble_core::Error;
use ensemble_core::broker::TaskEnd;
use ensemble_core::env::Lease;
use ensemble_core::event_log::NullRecorder;
use ensemble_core::spool::Settings;

use super::bed::*;

/// Beyond the usual lease of 300 s and what an observer adds.
const LONG: Duration = Duration::from_secs(500);

pub fn a_message_has_one_holder(factory: Factory) {
    let bed = factory(&Settings::default());
    publish(&*bed, &message("one"));
    let delivery = receive_as(&*bed, "alice").unwrap();
    assert!(receive_as(&*bed.again(), "bob").is_none());
    assert!(receive_as(&*bed, "alice").is_none());
    bed.broker().settle(&delivery.lease).unwrap();
    assert!(receive_as(&*bed.again(), "bob").is_none());
}

pub fn a_settled_message_is_done(factory: Factory) {
    let bed = factory(&Settings::default());
    publish(&*bed, &message("one"));
    let lease = receive(&*bed).lease;
    bed.broker().settle(&lease).unwrap();
    assert_fenced(&*bed, &lease);
    assert_fenced(&*bed.again(), &lease);
}

pub fn a_late_holder_is_fenced(factory: Factory) {
    let bed = factory(&Settings::default());
    publish(&*bed, &message("one"));
    let late = receive_as(&*bed, "sleeper").unwrap().lease;
    let other = bed.again();
    assert_eq!(other.observe_for(LONG), 1);
    assert_fenced(&*bed, &late);
    let next = receive_as(&*other, "worker").unwrap();
    assert_eq!(next.lease.epoch, 2);
    assert_fenced(&*bed, &late);
    other.broker().settle(&next.lease).unwrap();
    assert_fenced(&*bed, &late);
}

pub fn a_released_message_fences_its_old_holder(factory: Factory) {
    let bed = factory(&Settings::default());
    publish(&*bed, &message("one"));
    let first = receive_as(&*bed, "alice").unwrap().lease;
    bed.broker().release(&first, Duration::ZERO).unwrap();
    assert_fenced(&*bed, &first);
    // The same holder under a new delivery is another one.
    let second = receive_as(&*bed, "alice").unwrap().lease;
    assert_fenced(&*bed, &first);
    bed.broker().settle(&second).unwrap();
}

pub fn a_silent_holder_loses_its_message(factory: Factory) {
    let bed = factory(&Settings::default());
    publish(&*bed, &message("one"));
    receive_as(&*bed, "sleeper").unwrap();
    let observer = bed.again();
    assert_eq!(observer.observe_for(Duration::from_secs(299)), 0);
    assert!(receive_as(&*bed, "worker").is_none());
    assert_eq!(observer.observe_for(LONG), 1);
    assert_eq!(receive_as(&*bed, "worker").unwrap().lease.epoch, 2);
}

pub fn an_extended_lease_holds(factory: Factory) {
    let bed = factory(&Settings::default());
    publish(&*bed, &message("one"));
    let lease = receive_as(&*bed, "slow").unwrap().lease;
    for unfit in [0, 86_401] {
        let refused = bed.broker().extend(&lease, Duration::from_secs(unfit)).unwrap_err();
        assert!(matches!(refused, Error::Invalid { .. }), "{unfit}: {refused}");
    }
    bed.again().broker().extend(&lease, Duration::from_secs(3600)).unwrap();
    let observer = bed.again();
    assert_eq!(observer.observe_for(LONG), 0);
    bed.broker().extend(&lease, Duration::from_secs(3600)).unwrap();
    bed.broker().settle(&lease).unwrap();
    assert_eq!(observer.observe_for(Duration::from_secs(4000)), 0);
}

pub fn a_lease_can_be_used_elsewhere(factory: Factory) {
    let bed = factory(&Settings::default());
    publish(&*bed, &message("one"));
    publish(&*bed, &message("two"));
    let (one, two) = (receive(&*bed).lease, receive(&*bed).lease);
    // As a command does that settles a message received by another process.
    bed.again().broker().settle(&one).unwrap();
    bed.again().broker().release(&two, Duration::ZERO).unwrap();
    assert_fenced(&*bed, &one);
    assert_fenced(&*bed, &two);
    assert_eq!(bodies(&*bed), ["two"]);
}

pub fn another_holder_cannot_use_a_lease(factory: Factory) {
    let bed = factory(&Settings::default());
    publish(&*bed, &message("one"));
    let lease = receive_as(&*bed, "alice").unwrap().lease;
    assert_fenced(&*bed, &Lease { holder: name("bob"), ..lease.clone() });
    assert_fenced(&*bed, &Lease { epoch: 7, ..lease.clone() });
    assert_fenced(&*bed, &Lease { id: id("other"), ..lease.clone() });
    bed.broker().settle(&lease).unwrap();
}

pub fn a_report_ends_its_task_wherever_the_message_lies(factory: Factory) {
    let bed = factory(&Settings::default());
    let broker = bed.broker();
    let task = |task: &str| publish(&*bed, &message("work").with_task(task));
    let ended = |task: &str, author: &str| {
        let author = &name(author);
        let end = TaskEnd { task, author, written_at: None, attempt: Some(1), only_in: None };
        let ended = broker.end_task(&end, &NullRecorder).unwrap();
        ended.into_iter().map(|message| (message.id, message.withdrawn_from)).collect::<Vec<_>>()
    };
    // Held; queued again; delayed; never received, in its author's own mailbox.
    let held = task("held");
    let lease = receive_as(&*bed, "alice").unwrap().lease;
    assert_eq!(ended("held", "bob"), [], "never its holder");
    assert_eq!(ended("held", "alice"), [(held, None)]);
    assert_fenced(&*bed, &lease);
    let queued = task("queued");
    receive_as(&*bed, "alice").unwrap();
    assert_eq!(bed.observe_for(LONG), 1);
    assert_eq!(ended("queued", "bob"), []);
    assert_eq!(ended("queued", "alice"), [(queued, None)]);
    let delayed = task("delayed");
    let lease = receive_as(&*bed, "alice").unwrap().lease;
    bed.broker().release(&lease, LONG).unwrap();
    assert_eq!(ended("delayed", "alice"), [(delayed, None)]);
    publish(&*bed, &message("again").with_task("delayed").with_attempt(2));
    assert_eq!(ended("delayed", MAILBOX), [], "a later attempt goes on");
    let again = receive_as(&*bed, "bob").unwrap().lease;
    bed.broker().settle(&again).unwrap();
    let unread = task("unread");
    assert_eq!(ended("unread", MAILBOX), [(unread, None)]);
    // Held by another agent in the meantime, and never again by a third.
    let taken = task("taken");
    let late = receive_as(&*bed, "alice").unwrap().lease;
    bed.broker().release(&late, Duration::ZERO).unwrap();
    let present = receive_as(&*bed, "bob").unwrap().lease;
    assert_fenced(&*bed, &late);
    assert_eq!(ended("taken", "carol"), []);
    assert_eq!(ended("taken", "alice"), [(taken, Some(name("bob")))]);
    assert_fenced(&*bed, &present);
    assert_eq!(ended("taken", "alice"), [], "once");
    assert!(receive_as(&*bed.again(), "bob").is_none(), "nothing is handed out again");
}
