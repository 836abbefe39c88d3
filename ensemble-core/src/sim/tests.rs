use std::time::Duration;

use super::*;
use crate::Error;
use crate::env::{Clock, Pane, PublishOutcome, Transport};
use crate::message::{Envelope, MessageId, Name, Timestamp};
use crate::pane::{Deferral, Key, NudgeOutcome, NudgeText};

fn name(name: &str) -> Name {
    Name::new(name).unwrap()
}

fn queue() -> (SimClock, SimTransport, Name) {
    let clock = SimClock::new(Timestamp::from_unix_millis(1_000));
    let transport = SimTransport::new(clock.clone());
    transport.add_mailbox(&name("w"));
    (clock, transport, name("w"))
}

fn message(id: &str, body: &str) -> Envelope {
    let mut envelope = Envelope::new(name("w"), body).with_id(MessageId::new(id).unwrap());
    envelope.created_at = Timestamp::from_unix_millis(0);
    envelope
}

#[test]
fn suspend_advances_every_clock_but_the_monotonic_one() {
    let clock = SimClock::new(Timestamp::from_unix_millis(0));
    clock.advance(Duration::from_secs(1));
    clock.suspend(Duration::from_secs(9));
    assert_eq!(clock.monotonic().as_duration(), Duration::from_secs(1));
    assert_eq!(clock.boottime().as_duration(), Duration::from_secs(10));
    assert_eq!(clock.wall(), Timestamp::from_unix_millis(10_000));
}

#[test]
fn ids_are_stored_once_and_unknown_mailboxes_are_errors() {
    let (_, transport, _) = queue();
    assert_eq!(transport.publish(&message("a", "1")).unwrap(), PublishOutcome::Stored);
    assert_eq!(transport.publish(&message("a", "1")).unwrap(), PublishOutcome::AlreadyStored);
    assert!(matches!(transport.publish(&message("a", "2")), Err(Error::Conflict { .. })));
    let stranger = Envelope::new(name("unknown"), "");
    assert!(matches!(transport.publish(&stranger), Err(Error::NoMailbox { .. })));
}

#[test]
fn messages_come_by_priority_and_age_and_expired_ones_never() {
    let (clock, transport, w) = queue();
    let expiring = message("e", "").with_expiry(Timestamp::from_unix_millis(1_500));
    for envelope in
        [message("a", ""), message("b", ""), message("c", "").with_priority(3), expiring]
    {
        transport.publish(&envelope).unwrap();
    }
    let receive = || transport.receive(&w, &w).unwrap().map(|d| d.lease);
    let first = receive().unwrap();
    assert_eq!(first.id.as_str(), "c");
    transport.release(&first, Duration::from_secs(60)).unwrap();
    assert_eq!(receive().unwrap().id.as_str(), "a");
    clock.advance(Duration::from_secs(1));
    assert_eq!(receive().unwrap().id.as_str(), "b");
    assert_eq!(receive(), None);
    let counts = transport.scan(&w).unwrap();
    assert_eq!((counts.queued, counts.delayed, counts.acked, counts.dead), (1, 1, 2, 1));
    clock.advance(Duration::from_secs(60));
    assert_eq!(receive().unwrap().epoch, 2);
}

#[test]
fn expired_holder_is_fenced_and_attempts_are_limited() {
    let (clock, transport, w) = queue();
    transport.publish(&message("a", "")).unwrap();
    let first = transport.receive(&w, &w).unwrap().unwrap().lease;
    transport.extend(&first, LEASE_DURATION * 2).unwrap();
    clock.advance(LEASE_DURATION);
    assert_eq!(transport.sweep(), 0);
    clock.advance(LEASE_DURATION);
    assert_eq!(transport.sweep(), 1);
    let second = transport.receive(&w, &name("other")).unwrap().unwrap().lease;
    for refused in [transport.settle(&first), transport.extend(&first, LEASE_DURATION)] {
        assert!(matches!(refused, Err(Error::LeaseLost { .. })));
    }
    transport.release(&second, Duration::ZERO).unwrap();
    for _ in 2..ATTEMPTS_MAX {
        let lease = transport.receive(&w, &w).unwrap().unwrap().lease;
        transport.release(&lease, Duration::ZERO).unwrap();
    }
    assert_eq!(transport.scan(&w).unwrap().dead, 1);
}

#[test]
fn pane_refuses_by_its_state_and_by_its_script() {
    let screen = SimPane::default();
    let mut pane = screen.clone();
    screen.show(|state| state.in_mode = true);
    let copy_mode = NudgeOutcome::Refused { deferral: Deferral::CopyMode };
    assert_eq!(pane.press(Key::Escape).unwrap(), copy_mode);
    let half = NudgeOutcome::TextOnly { deferral: Deferral::Moved };
    screen.answer_next(half.clone());
    let text = NudgeText::new("mail").unwrap();
    assert_eq!(pane.nudge(&text).unwrap(), half);
    screen.show(|state| state.in_mode = false);
    pane.open("claude").unwrap();
    let typed = PaneAction::Text { text, submitted: false };
    assert_eq!(screen.presses(), [typed, PaneAction::Open("claude".to_owned())]);
}
