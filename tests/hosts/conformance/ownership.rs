//! Leases: one holder at a time, growing epochs, and refusal of late holders.

use ensemble_core::broker::TaskEnd;

use super::bed::*;

use crate::*;

/// Beyond the usual lease of 300 s and what an observer adds.
const LONG: Duration = Duration::from_secs(500);

pub fn a_message_has_one_holder(bed: &Bed) {
    bed.publish(&message("one"));
    let delivery = bed.receive_as("alice").unwrap();
    assert!(bed.again().receive_as("bob").is_none());
    assert!(bed.receive_as("alice").is_none());
    bed.broker.settle(&delivery.lease).unwrap();
    assert!(bed.again().receive_as("bob").is_none());
}

pub fn a_settled_message_is_done(bed: &Bed) {
    bed.publish(&message("one"));
    let lease = bed.receive().lease;
    bed.broker.settle(&lease).unwrap();
    bed.assert_fenced(&lease);
    bed.again().assert_fenced(&lease);
}

pub fn a_late_holder_is_fenced(bed: &Bed) {
    bed.publish(&message("one"));
    let late = bed.receive_as("sleeper").unwrap().lease;
    let other = bed.again();
    assert_eq!(other.observe_for(LONG), 1);
    bed.assert_fenced(&late);
    let next = other.receive_as("worker").unwrap();
    assert_eq!(next.lease.epoch, 2);
    bed.assert_fenced(&late);
    other.broker.settle(&next.lease).unwrap();
    bed.assert_fenced(&late);
}

pub fn a_released_message_fences_its_old_holder(bed: &Bed) {
    bed.publish(&message("one"));
    let first = bed.receive_as("alice").unwrap().lease;
    bed.broker.release(&first, Duration::ZERO).unwrap();
    bed.assert_fenced(&first);
    // The same holder under a new delivery is another one.
    let second = bed.receive_as("alice").unwrap().lease;
    bed.assert_fenced(&first);
    bed.broker.settle(&second).unwrap();
}

pub fn a_silent_holder_loses_its_message(bed: &Bed) {
    bed.publish(&message("one"));
    bed.receive_as("sleeper").unwrap();
    let observer = bed.again();
    assert_eq!(observer.observe_for(Duration::from_secs(299)), 0);
    assert!(bed.receive_as("worker").is_none());
    assert_eq!(observer.observe_for(LONG), 1);
    assert_eq!(bed.receive_as("worker").unwrap().lease.epoch, 2);
}

pub fn an_extended_lease_holds(bed: &Bed) {
    bed.publish(&message("one"));
    let lease = bed.receive_as("slow").unwrap().lease;
    for unfit in [0, 86_401] {
        let refused = bed.broker.extend(&lease, Duration::from_secs(unfit)).unwrap_err();
        assert!(matches!(refused, Error::Invalid { .. }), "{unfit}: {refused}");
    }
    bed.again().broker.extend(&lease, Duration::from_secs(3600)).unwrap();
    let observer = bed.again();
    assert_eq!(observer.observe_for(LONG), 0);
    bed.broker.extend(&lease, Duration::from_secs(3600)).unwrap();
    bed.broker.settle(&lease).unwrap();
    assert_eq!(observer.observe_for(Duration::from_secs(4000)), 0);
}

pub fn a_lease_can_be_used_elsewhere(bed: &Bed) {
    bed.publish(&message("one"));
    bed.publish(&message("two"));
    let (one, two) = (bed.receive().lease, bed.receive().lease);
    // As a command does that settles a message received by another process.
    bed.again().broker.settle(&one).unwrap();
    bed.again().broker.release(&two, Duration::ZERO).unwrap();
    bed.assert_fenced(&one);
    bed.assert_fenced(&two);
    assert_eq!(bed.bodies(), ["two"]);
}

pub fn another_holder_cannot_use_a_lease(bed: &Bed) {
    bed.publish(&message("one"));
    let lease = bed.receive_as("alice").unwrap().lease;
    bed.assert_fenced(&Lease { holder: name("bob"), ..lease.clone() });
    bed.assert_fenced(&Lease { epoch: 7, ..lease.clone() });
    bed.assert_fenced(&Lease { id: id("other"), ..lease.clone() });
    bed.broker.settle(&lease).unwrap();
}

pub fn a_report_ends_its_task_wherever_the_message_lies(bed: &Bed) {
    let task = |task: &str| bed.publish(&message("work").with_task(task));
    let ended = |task: &str, author: &str| {
        let author = &name(author);
        let end = TaskEnd { task, author, written_at: None, attempt: Some(1), only_in: None };
        let ended = bed.broker.end_task(&end, &NullRecorder).unwrap();
        ended.into_iter().map(|message| (message.id, message.withdrawn_from)).collect::<Vec<_>>()
    };
    // Held; queued again; delayed; never received, in its author's own mailbox.
    let held = task("held");
    let lease = bed.receive_as("alice").unwrap().lease;
    assert_eq!(ended("held", "bob"), [], "never its holder");
    assert_eq!(ended("held", "alice"), [(held, None)]);
    bed.assert_fenced(&lease);
    let queued = task("queued");
    bed.receive_as("alice").unwrap();
    assert_eq!(bed.observe_for(LONG), 1);
    assert_eq!(ended("queued", "bob"), []);
    assert_eq!(ended("queued", "alice"), [(queued, None)]);
    let delayed = task("delayed");
    let lease = bed.receive_as("alice").unwrap().lease;
    bed.broker.release(&lease, LONG).unwrap();
    assert_eq!(ended("delayed", "alice"), [(delayed, None)]);
    bed.publish(&message("again").with_task("delayed").with_attempt(2));
    assert_eq!(ended("delayed", MAILBOX), [], "a later attempt goes on");
    let again = bed.receive_as("bob").unwrap().lease;
    bed.broker.settle(&again).unwrap();
    let unread = task("unread");
    assert_eq!(ended("unread", MAILBOX), [(unread, None)]);
    // Held by another agent in the meantime, and never again by a third.
    let taken = task("taken");
    let late = bed.receive_as("alice").unwrap().lease;
    bed.broker.release(&late, Duration::ZERO).unwrap();
    let present = bed.receive_as("bob").unwrap().lease;
    bed.assert_fenced(&late);
    assert_eq!(ended("taken", "carol"), []);
    assert_eq!(ended("taken", "alice"), [(taken, Some(name("bob")))]);
    bed.assert_fenced(&present);
    assert_eq!(ended("taken", "alice"), [], "once");
    assert!(bed.again().receive_as("bob").is_none(), "nothing is handed out again");
}
