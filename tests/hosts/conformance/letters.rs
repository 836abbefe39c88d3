//! Dead letters: a message that fails repeatedly is dead-lettered with a reason, and can be
//! redriven.

use ensemble_core::event_log::types;
use ensemble_core::message::TASK_TYPE;
use ensemble_core::spool::ATTEMPTS_MAX_DEFAULT;

use super::bed::*;

use crate::*;

pub fn a_message_that_always_fails_is_buried(bed: &Bed) {
    bed.publish(&message("poison"));
    for attempt in 1..=ATTEMPTS_MAX_DEFAULT {
        let delivery = bed.receive();
        assert_eq!(delivery.lease.epoch, attempt);
        bed.broker.release(&delivery.lease, Duration::ZERO).unwrap();
    }
    assert_eq!(bed.bodies(), [""; 0]);
    assert_eq!(bed.broker.scan(&name(MAILBOX)).unwrap().dead, 1);
    let letters = bed.broker.dead_letters(&name(MAILBOX)).unwrap();
    assert_eq!(letters[0].reason, "released after 5 attempts");
    assert_eq!(letters[0].epoch, 5);
}

pub fn a_buried_message_says_why(bed: &Bed) {
    let broker = &bed.broker;
    let buried = bed.publish(&message("not for me"));
    let lease = bed.receive_as("alice").unwrap().lease;
    broker.dead_letter(&lease, "wrong\nteam: „über“").unwrap();
    bed.assert_fenced(&lease);
    let again = bed.again();
    let broker = &again.broker;
    let letters = broker.dead_letters(&name(MAILBOX)).unwrap();
    assert_eq!(letters.len(), 1);
    assert_eq!((&letters[0].id, letters[0].epoch), (&buried, 1));
    assert_eq!(letters[0].reason, "wrongteam: „über“", "control characters are left out");
    assert_eq!(letters[0].holder, Some(name("alice")));
    assert!(letters[0].at.is_some());
    assert_eq!(broker.state(&name(MAILBOX), &buried).unwrap(), Some(State::Dead));
    assert_eq!(broker.peek(&name(MAILBOX), &buried).unwrap().body, "not for me");
    // Its id stays taken.
    let other = bed.broker.publish(&message("another").with_id(buried));
    assert!(matches!(other, Err(Error::Conflict { .. })), "{other:?}");
}

pub fn a_redriven_message_has_all_its_attempts(bed: &Bed) {
    let poison = bed.publish(&message("poison").with_priority(2));
    for _ in 0..2 {
        bed.broker.release(&bed.receive().lease, Duration::ZERO).unwrap();
    }
    assert!(bed.receive_as("reader").is_none());
    bed.broker.redrive(&name(MAILBOX), &poison).unwrap();
    bed.publish(&message("everyday"));
    for epoch in 3..=4 {
        let delivery = bed.receive();
        assert_eq!((&delivery.lease.id, delivery.lease.epoch), (&poison, epoch));
        assert_eq!(bed.broker.attempts_before(&name(MAILBOX), &poison).unwrap(), 2);
        bed.broker.release(&delivery.lease, Duration::ZERO).unwrap();
    }
    assert_eq!(bed.bodies(), ["everyday"]);
    assert_eq!(bed.broker.dead_letters(&name(MAILBOX)).unwrap()[0].epoch, 4);
}

pub fn a_silent_holder_uses_up_an_attempt(bed: &Bed) {
    bed.publish(&message("deadly"));
    bed.receive_as("victim").unwrap();
    assert_eq!(bed.observe_for(Duration::from_secs(200)), 1);
    assert!(bed.receive_as("next").is_none());
    let letters = bed.broker.dead_letters(&name(MAILBOX)).unwrap();
    assert_eq!(letters[0].reason, "lease expired after 1 attempt");
    assert_eq!(letters[0].holder, Some(name("victim")));
}

pub fn a_redriven_message_comes_first(bed: &Bed) {
    bed.publish(&message("first"));
    let second = bed.publish(&message("second"));
    bed.broker.set_aside(&name(MAILBOX), &second, "by mistake").unwrap();
    bed.broker.redrive(&name(MAILBOX), &second).unwrap();
    assert_eq!(bed.bodies(), ["second", "first"], "even if it was never delivered");
}

pub fn a_task_that_expires_has_failed_with_its_holder(bed: &Bed) {
    let (broker, log) = (&bed.broker, &bed.log);
    let soon = hand_clock().wall().plus(Duration::from_secs(60));
    let task = message("late").with_kind(name(TASK_TYPE)).with_task("t1").with_expiry(soon);
    bed.publish(&task);
    bed.pass(Duration::from_secs(60));
    assert!(bed.receive_as("alice").is_none());
    let letters = broker.dead_letters(&name(MAILBOX)).unwrap();
    let letter = (letters[0].reason.as_str(), letters[0].holder.as_ref(), letters[0].epoch);
    assert_eq!(letter, ("expired", Some(&name("alice")), 1));
    let failed = log.of(types::TASK_FAILED);
    assert_eq!((&failed[0]["worker_id"], &failed[0]["task_id"]), (&"alice".into(), &"t1".into()));
    assert_eq!((failed.len(), log.count(types::MESSAGE_DEAD)), (1, 1));
}

pub fn only_a_dead_letter_is_redriven(bed: &Bed) {
    let waiting = bed.publish(&message("waiting"));
    for absent in [waiting, id("never-sent")] {
        let refused = bed.broker.redrive(&name(MAILBOX), &absent);
        assert!(matches!(refused, Err(Error::NoMessage { .. })), "{refused:?}");
    }
    let lease = bed.receive().lease;
    assert!(bed.broker.redrive(&name(MAILBOX), &lease.id).is_err());
    bed.broker.settle(&lease).unwrap();
    assert!(bed.broker.redrive(&name(MAILBOX), &lease.id).is_err());
}
