//! Order of delivery: urgent, released, delayed and expired messages.

use super::bed::*;

use crate::*;

pub fn the_oldest_comes_first(bed: &Bed) {
    for n in 0..5 {
        bed.publish(&message(&format!("{n}")));
    }
    assert_eq!(bed.bodies(), ["0", "1", "2", "3", "4"]);
}

pub fn the_most_urgent_comes_first(bed: &Bed) {
    for (body, priority) in [("a", 0), ("b", 3), ("c", 9), ("d", 3), ("e", 0)] {
        bed.publish(&message(body).with_priority(priority));
    }
    assert_eq!(bed.bodies(), ["c", "b", "d", "a", "e"]);
}

pub fn a_released_message_comes_first(bed: &Bed) {
    bed.publish(&message("first"));
    bed.publish(&message("second"));
    let delivery = bed.receive();
    bed.broker.release(&delivery.lease, Duration::ZERO).unwrap();
    let again = bed.receive();
    assert_eq!((again.envelope.body.as_str(), again.lease.epoch), ("first", 2));
    bed.broker.release(&again.lease, Duration::ZERO).unwrap();
    bed.publish(&message("urgent").with_priority(1));
    assert_eq!(bed.bodies(), ["urgent", "first", "second"]);
}

pub fn one_particular_message_is_taken_out_of_turn(bed: &Bed) {
    let ids = ["a", "b", "c"].map(|body| bed.publish(&message(body)));
    let take = |id: &MessageId| bed.broker.receive_id(&name(MAILBOX), id, &name("w")).unwrap();
    let taken = take(&ids[1]).unwrap();
    assert_eq!((taken.envelope.body.as_str(), taken.lease.epoch), ("b", 1));
    assert!(take(&ids[1]).is_none(), "it does not wait any more");
    assert!(take(&id("no-such-message")).is_none());
    bed.broker.release(&taken.lease, Duration::from_secs(60)).unwrap();
    // A receive by id takes the message although it is delayed.
    let again = take(&ids[1]).unwrap();
    assert_eq!(again.lease.epoch, 2);
    bed.broker.settle(&again.lease).unwrap();
    assert!(take(&ids[1]).is_none());
    assert_eq!(bed.bodies(), ["a", "c"]);
}

pub fn a_delayed_message_comes_when_it_is_due(bed: &Bed) {
    bed.publish(&message("later"));
    bed.broker.release(&bed.receive().lease, Duration::from_secs(60)).unwrap();
    assert_eq!(bed.bodies(), [""; 0]);
    bed.pass(Duration::from_secs(59));
    assert_eq!(bed.bodies(), [""; 0]);
    bed.publish(&message("now"));
    assert_eq!(bed.bodies(), ["now"]);
    bed.pass(Duration::from_secs(1));
    let delivery = bed.receive();
    assert_eq!((delivery.envelope.body.as_str(), delivery.lease.epoch), ("later", 2));
}

pub fn an_expired_message_is_not_delivered(bed: &Bed) {
    let soon = hand_clock().wall().plus(Duration::from_secs(60));
    let expiring = message("soon over").with_expiry(soon);
    bed.publish(&expiring);
    bed.publish(&message("lasting"));
    bed.pass(Duration::from_secs(60));
    assert_eq!(bed.bodies(), ["lasting"]);
    assert_eq!(bed.broker.scan(&name(MAILBOX)).unwrap().dead, 1);
    let letters = bed.broker.dead_letters(&name(MAILBOX)).unwrap();
    assert_eq!(letters.len(), 1);
    assert_eq!((&letters[0].id, letters[0].reason.as_str()), (&expiring.id, "expired"));
}

pub fn unfinished_messages_are_listed_in_the_order_of_receiving(bed: &Bed) {
    bed.publish(&message("later"));
    let later = bed.receive().lease;
    bed.publish(&message("held"));
    bed.receive();
    bed.broker.release(&later, Duration::from_secs(60)).unwrap();
    bed.publish(&message("everyday"));
    bed.publish(&message("urgent").with_priority(5));
    let listed = bed.broker.unfinished(&name(MAILBOX), 9).unwrap().into_iter();
    let listed = listed.map(|found| bed.broker.peek(&found.mailbox, &found.id).unwrap().body);
    assert_eq!(listed.collect::<Vec<_>>(), ["held", "urgent", "everyday", "later"]);
}

pub fn nothing_is_delivered_twice_to_a_crowd(bed: &Bed) {
    const MESSAGES: usize = 60;
    for n in 0..MESSAGES {
        bed.publish(&message(&format!("{n}")));
    }
    let received = bed.crowd(|reader, bed| {
        let mut received = Vec::new();
        while let Some(delivery) = bed.receive_as(&format!("reader-{reader}")) {
            assert_eq!(delivery.lease.epoch, 1);
            bed.broker.settle(&delivery.lease).unwrap();
            received.push(delivery.envelope.body);
        }
        received
    });
    let received = received.concat();
    let distinct: BTreeSet<_> = received.iter().collect();
    assert_eq!((received.len(), distinct.len()), (MESSAGES, MESSAGES));
    assert_eq!(bed.broker.scan(&name(MAILBOX)).unwrap().settled, MESSAGES as u64);
}
