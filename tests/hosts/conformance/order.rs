//! Order of delivery: urgent, released, delayed and expired messages.

use std::collections::BTreeSet;
use std::time::Duration;

use ensemble_core::env::Clock as _;
use ensemble_core::message::MessageId;
use ensemble_core::spool::Settings;

use super::bed::*;
use crate::queue::hand_clock;

pub fn the_oldest_comes_first(factory: Factory) {
    let bed = factory(&Settings::default());
    for n in 0..5 {
        publish(&*bed, &message(&format!("{n}")));
    }
    assert_eq!(bodies(&*bed), ["0", "1", "2", "3", "4"]);
}

pub fn the_most_urgent_comes_first(factory: Factory) {
    let bed = factory(&Settings::default());
    for (body, priority) in [("a", 0), ("b", 3), ("c", 9), ("d", 3), ("e", 0)] {
        publish(&*bed, &message(body).with_priority(priority));
    }
    assert_eq!(bodies(&*bed), ["c", "b", "d", "a", "e"]);
}

pub fn a_released_message_comes_first(factory: Factory) {
    let bed = factory(&Settings::default());
    publish(&*bed, &message("first"));
    publish(&*bed, &message("second"));
    let delivery = receive(&*bed);
    bed.broker().release(&delivery.lease, Duration::ZERO).unwrap();
    let again = receive(&*bed);
    assert_eq!((again.envelope.body.as_str(), again.lease.epoch), ("first", 2));
    bed.broker().release(&again.lease, Duration::ZERO).unwrap();
    publish(&*bed, &message("urgent").with_priority(1));
    assert_eq!(bodies(&*bed), ["urgent", "first", "second"]);
}

pub fn one_particular_message_is_taken_out_of_turn(factory: Factory) {
    let bed = factory(&Settings::default());
    let broker = bed.broker();
    let ids = ["a", "b", "c"].map(|body| publish(&*bed, &message(body)));
    let take = |id: &MessageId| broker.receive_id(&name(MAILBOX), id, &name("w")).unwrap();
    let taken = take(&ids[1]).unwrap();
    assert_eq!((taken.envelope.body.as_str(), taken.lease.epoch), ("b", 1));
    assert!(take(&ids[1]).is_none(), "it does not wait any more");
    assert!(take(&id("no-such-message")).is_none());
    bed.broker().release(&taken.lease, Duration::from_secs(60)).unwrap();
    // A receive by id takes the message although it is delayed.
    let again = take(&ids[1]).unwrap();
    assert_eq!(again.lease.epoch, 2);
    bed.broker().settle(&again.lease).unwrap();
    assert!(take(&ids[1]).is_none());
    assert_eq!(bodies(&*bed), ["a", "c"]);
}

pub fn a_delayed_message_comes_when_it_is_due(factory: Factory) {
    let bed = factory(&Settings::default());
    publish(&*bed, &message("later"));
    bed.broker().release(&receive(&*bed).lease, Duration::from_secs(60)).unwrap();
    assert_eq!(bodies(&*bed), [""; 0]);
    bed.pass(Duration::from_secs(59));
    assert_eq!(bodies(&*bed), [""; 0]);
    publish(&*bed, &message("now"));
    assert_eq!(bodies(&*bed), ["now"]);
    bed.pass(Duration::from_secs(1));
    let delivery = receive(&*bed);
    assert_eq!((delivery.envelope.body.as_str(), delivery.lease.epoch), ("later", 2));
}

pub fn an_expired_message_is_not_delivered(factory: Factory) {
    let bed = factory(&Settings::default());
    let soon = hand_clock().wall().plus(Duration::from_secs(60));
    let expiring = message("soon over").with_expiry(soon);
    publish(&*bed, &expiring);
    publish(&*bed, &message("lasting"));
    bed.pass(Duration::from_secs(60));
    assert_eq!(bodies(&*bed), ["lasting"]);
    assert_eq!(bed.broker().scan(&name(MAILBOX)).unwrap().dead, 1);
    let broker = bed.broker();
    let letters = broker.dead_letters(&name(MAILBOX)).unwrap();
    assert_eq!(letters.len(), 1);
    assert_eq!((&letters[0].id, letters[0].reason.as_str()), (&expiring.id, "expired"));
}

pub fn unfinished_messages_are_listed_in_the_order_of_receiving(factory: Factory) {
    let bed = factory(&Settings::default());
    let broker = bed.broker();
    publish(&*bed, &message("later"));
    let later = receive(&*bed).lease;
    publish(&*bed, &message("held"));
    receive(&*bed);
    bed.broker().release(&later, Duration::from_secs(60)).unwrap();
    publish(&*bed, &message("everyday"));
    publish(&*bed, &message("urgent").with_priority(5));
    let listed = broker.unfinished(&name(MAILBOX), 9).unwrap().into_iter();
    let listed = listed.map(|found| broker.peek(&found.mailbox, &found.id).unwrap().body);
    assert_eq!(listed.collect::<Vec<_>>(), ["held", "urgent", "everyday", "later"]);
}

pub fn nothing_is_delivered_twice_to_a_crowd(factory: Factory) {
    const MESSAGES: usize = 60;
    let bed = factory(&Settings::default());
    for n in 0..MESSAGES {
        publish(&*bed, &message(&format!("{n}")));
    }
    let beds: Vec<_> = (0..4).map(|_| bed.again()).collect();
    let received: Vec<String> = std::thread::scope(|scope| {
        let readers: Vec<_> = beds
            .iter()
            .enumerate()
            .map(|(reader, bed)| {
                scope.spawn(move || {
                    let mut received = Vec::new();
                    while let Some(delivery) = receive_as(&**bed, &format!("reader-{reader}")) {
                        assert_eq!(delivery.lease.epoch, 1);
                        bed.broker().settle(&delivery.lease).unwrap();
                        received.push(delivery.envelope.body);
                    }
                    received
                })
            })
            .collect();
        readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect()
    });
    let distinct: BTreeSet<_> = received.iter().collect();
    assert_eq!((received.len(), distinct.len()), (MESSAGES, MESSAGES));
    assert_eq!(bed.broker().scan(&name(MAILBOX)).unwrap().settled, MESSAGES as u64);
}
