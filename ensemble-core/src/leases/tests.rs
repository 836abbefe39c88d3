//! The driver over a real mailbox and a clock that is advanced by hand.

use std::sync::Mutex;

use super::*;
use crate::durable::Durability;
use crate::event_log::NullRecorder;
use crate::message::{Envelope, Timestamp};
use crate::sim::SimClock;
use crate::spool::{Settings, Spool, SpoolOptions};

const LEASE: Duration = Duration::from_secs(40);

/// A queue with one mailbox, whose messages are held for [`LEASE`].
struct Bed {
    home: tempfile::TempDir,
    spool: Spool,
    clock: SimClock,
    mailboxes: [Name; 1],
}

impl Bed {
    fn new(bodies: &[&str]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let options = SpoolOptions::default().with_durability(Durability::Process);
        let spool = Spool::create(&home.path().join("queue"), options).unwrap();
        let mailboxes = [Name::new("worker-1").unwrap()];
        let settings = Settings::default().with_lease_seconds(LEASE.as_secs());
        spool.add_mailbox(&mailboxes[0], &settings).unwrap();
        for body in bodies {
            spool.publish(&Envelope::new(mailboxes[0].clone(), *body)).unwrap();
        }
        Self { home, spool, clock: SimClock::new(Timestamp::from_unix_millis(0)), mailboxes }
    }

    fn receive(&self) -> Lease {
        let [mailbox] = &self.mailboxes;
        self.spool.receive(mailbox, mailbox).unwrap().expect("a message waits").lease
    }

    fn look(&self, leases: &mut MailboxLeases, clock: &dyn Clock) -> Vec<Name> {
        leases.scan_mailboxes(clock, &self.spool, &self.mailboxes, &NullRecorder).unwrap()
    }
}

/// After whose next reading something else happens, as when its reader is stopped.
struct Slow<'a> {
    clock: &'a SimClock,
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send + 'a>>>,
}

impl Clock for Slow<'_> {
    fn monotonic(&self) -> Monotonic {
        self.clock.monotonic()
    }
    /// The last that is read.
    fn wall(&self) -> Timestamp {
        let now = self.clock.wall();
        let meanwhile = self.meanwhile.lock().unwrap().take();
        meanwhile.into_iter().for_each(|happens| happens());
        now
    }
}

#[test]
fn a_message_received_while_the_observer_is_stopped_keeps_its_whole_lease() {
    let bed = Bed::new(&["one", "two"]);
    let mut leases = MailboxLeases::new("lead", &bed.clock);
    let first = bed.receive();
    let meanwhile = || {
        bed.clock.advance(Duration::from_secs(30));
        bed.receive();
    };
    let slow = Slow { clock: &bed.clock, meanwhile: Mutex::new(Some(Box::new(meanwhile))) };
    assert_eq!(bed.look(&mut leases, &slow), []);
    bed.spool.extend(&first, LEASE).unwrap();
    bed.clock.advance(Duration::from_secs(15));
    assert_eq!(bed.look(&mut leases, &bed.clock), [], "the second was held for 15 s of 40");
    bed.clock.advance(LEASE + Duration::from_secs(1));
    assert_eq!(bed.look(&mut leases, &bed.clock).len(), 2, "both leases end");
}

#[test]
fn the_next_deadline_is_the_end_of_the_shortest_lease() {
    let bed = Bed::new(&["one"]);
    let mut leases = MailboxLeases::new("lead", &bed.clock);
    assert_eq!(leases.poll_timeout(), None);
    let lease = bed.receive();
    assert_eq!(bed.look(&mut leases, &bed.clock), []);
    assert_eq!(leases.held(), [(lease.clone(), LEASE)]);
    assert_eq!(leases.poll_timeout(), Some(bed.clock.monotonic() + LEASE));
    bed.clock.advance(LEASE - Duration::from_millis(1));
    assert!(!leases.is_due(bed.clock.monotonic()));
    bed.clock.advance(Duration::from_millis(1));
    assert!(leases.is_due(bed.clock.monotonic()));
    assert_eq!(bed.look(&mut leases, &bed.clock), bed.mailboxes);
    assert!(bed.spool.settle(&lease).is_err(), "the dead holder is fenced");
    assert_eq!(bed.receive().epoch, 2);
}

#[test]
fn all_messages_of_four_dead_holders_return_after_one_lease() {
    let bed = Bed::new(&["1", "2", "3", "4", "5", "6", "7", "8"]);
    let [mailbox] = &bed.mailboxes;
    let mut leases = MailboxLeases::new("lead", &bed.clock);
    for holder in ["a", "a", "b", "b", "c", "c", "d", "d"] {
        bed.spool.receive(mailbox, &Name::new(holder).unwrap()).unwrap().unwrap();
    }
    bed.look(&mut leases, &bed.clock);
    bed.clock.advance(LEASE);
    assert_eq!(bed.look(&mut leases, &bed.clock).len(), 8);
}

#[test]
fn a_suspended_machine_does_not_move_the_deadline() {
    let bed = Bed::new(&["one"]);
    bed.clock.suspend(Duration::from_secs(3_600));
    let mut leases = MailboxLeases::new("lead", &bed.clock);
    bed.receive();
    bed.look(&mut leases, &bed.clock);
    assert_eq!(leases.poll_timeout(), Some(bed.clock.monotonic() + LEASE));
}

#[test]
fn a_jump_of_the_wall_clock_neither_ends_nor_extends_a_lease() {
    let bed = Bed::new(&["one"]);
    let mut leases = MailboxLeases::new("lead", &bed.clock);
    bed.receive();
    bed.look(&mut leases, &bed.clock);
    bed.clock.set_wall(Timestamp::from_unix_millis(1_000_000_000_000));
    bed.clock.advance(LEASE - Duration::from_secs(1));
    assert_eq!(bed.look(&mut leases, &bed.clock), []);
    let late = LEASE + crate::proto::lease::OVERTIME_MAX;
    for _ in 0..late.as_secs() / 10 {
        bed.clock.advance(Duration::from_secs(10));
        bed.look(&mut leases, &bed.clock);
    }
    assert_eq!(bed.receive().epoch, 2);
}

#[test]
fn the_next_process_of_the_same_boot_continues_and_without_memory_it_begins_anew() {
    let bed = Bed::new(&["one"]);
    let file = bed.home.path().join("observed.json");
    let look_as_new_process = |after: Duration| {
        bed.clock.advance(after);
        let mut leases = MailboxLeases::remembered("lead", &bed.clock, &file);
        let returned = bed.look(&mut leases, &bed.clock);
        assert!(leases.take_trouble().is_none());
        returned
    };
    bed.receive();
    assert_eq!(look_as_new_process(Duration::ZERO), []);
    bed.clock.advance(LEASE);
    let mut without = MailboxLeases::new("lead", &bed.clock);
    assert_eq!(bed.look(&mut without, &bed.clock), []);
    assert_eq!(look_as_new_process(Duration::from_secs(1)), bed.mailboxes);
}

#[test]
fn a_mailbox_that_cannot_be_read_keeps_no_lease_of_another_one() {
    let bed = Bed::new(&["one"]);
    let bad = Name::new("bad").unwrap();
    bed.spool.add_mailbox(&bad, &Settings::default()).unwrap();
    bed.spool.publish(&Envelope::new(bad.clone(), "two")).unwrap();
    bed.spool.receive(&bad, &bad).unwrap().unwrap();
    let settings = bed.home.path().join("queue/mailbox/bad/mailbox.yaml");
    std::fs::write(settings, "lease_seconds: [\n").unwrap();
    let mailboxes = [bad, bed.mailboxes[0].clone()];
    // As another process, which has not read the settings before.
    let spool = Spool::open(&bed.home.path().join("queue"), SpoolOptions::default()).unwrap();
    let mut leases = MailboxLeases::new("lead", &bed.clock);
    let mut look = || leases.scan_mailboxes(&bed.clock, &spool, &mailboxes, &NullRecorder).unwrap();
    bed.receive();
    assert_eq!(look(), []);
    bed.clock.advance(LEASE + Duration::from_secs(1));
    assert_eq!(look(), [bed.mailboxes[0].clone()]);
    assert!(leases.take_trouble().is_some_and(|error| error.to_string().contains("mailbox.yaml")));
}
