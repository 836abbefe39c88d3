//! Receiving and settling many messages at a time.

use crate::*;

fn publish(bed: &QueueBed, body: &str, priority: u8) {
    let envelope = Envelope::new(name("dispatch"), body).with_priority(priority);
    bed.spool.publish(&envelope).unwrap();
}

#[test]
fn many_are_taken_at_once_in_order_and_each_under_its_own_lease() {
    let bed = QueueBed::new(["dispatch"]);
    for body in ["1", "2", "3"] {
        publish(&bed, body, 0);
    }
    publish(&bed, "urgent", 5);
    let take = |limit| bed.spool.receive_batch(&name("dispatch"), &name("w1"), limit).unwrap();
    assert!(take(0).is_empty());
    let taken = take(2);
    let bodies = |taken: &[Delivery]| -> Vec<String> {
        taken.iter().map(|delivery| delivery.envelope.body.clone()).collect()
    };
    assert_eq!(bodies(&taken), ["urgent", "1"]);
    assert_eq!(bed.counts().acked, 2);
    let rest = take(10);
    assert_eq!(bodies(&rest), ["2", "3"]);
    bed.spool.release(&rest[0].lease, Duration::ZERO).unwrap();
    let again = take(10);
    assert_eq!((bodies(&again), again[0].lease.epoch), (vec!["2".to_owned()], 2));
}

#[test]
fn of_many_that_are_settled_each_has_its_own_outcome() {
    let bed = QueueBed::new(["dispatch"]);
    bed.spool.add_mailbox(&name("other"), &Settings::default()).unwrap();
    for body in ["1", "2", "3"] {
        publish(&bed, body, 0);
    }
    bed.spool.publish(&Envelope::new(name("other"), "4")).unwrap();
    let mut leases: Vec<_> = bed
        .spool
        .receive_batch(&name("dispatch"), &name("w1"), 9)
        .unwrap()
        .into_iter()
        .chain(bed.spool.receive(&name("other"), &name("w2")).unwrap())
        .map(|delivery| delivery.lease)
        .collect();
    bed.spool.release(&leases[1], Duration::ZERO).unwrap();
    let outcomes = bed.spool.settle_batch(&leases).unwrap();
    assert!(matches!(&outcomes[..], [Ok(()), Err(Error::LeaseLost { .. }), Ok(()), Ok(())]));
    assert_eq!((bed.counts().queued, bed.counts().settled), (1, 2));
    assert!(matches!(bed.spool.find(&leases[3].id).unwrap().state, State::Settled));
    // Everything before the one that cannot be observed is done.
    let held = bed.receive().unwrap().lease;
    leases[0].mailbox = name("nowhere");
    let error = bed.spool.settle_batch(&[held.clone(), leases[0].clone()]).unwrap_err();
    assert!(matches!(error, Error::NoMailbox { .. }));
    assert!(matches!(bed.spool.find(&held.id).unwrap().state, State::Settled));
}
