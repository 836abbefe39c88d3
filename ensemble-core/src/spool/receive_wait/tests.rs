use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::sync::Barrier;
use std::time::Instant;

use super::*;
use crate::Error;
use crate::durable::{Dir, Durability, MoveOutcome};
use crate::env::Lease;
use crate::message::{Envelope, Timestamp};
use crate::proto::testing::name;
use crate::sim::SimClock;
use crate::spool::{Admission, Settings, SpoolOptions};
use crate::watch::{FsWatcher, or_skip};

/// Longer than any test may take.
const PATIENCE: Duration = Duration::from_secs(60);
const LEASE: Duration = Duration::from_secs(1);
/// A delay that a slow machine cannot pass while it makes two calls.
const DELAY: Duration = Duration::from_millis(300);

struct Bed {
    home: tempfile::TempDir,
    spool: Spool,
    worker: Name,
}

fn options() -> SpoolOptions {
    SpoolOptions::default().with_durability(Durability::Process)
}

impl Bed {
    fn new() -> Self {
        Self::with(options())
    }

    fn with(options: SpoolOptions) -> Self {
        let home = tempfile::tempdir().unwrap();
        let spool = Spool::create(&home.path().join("queue"), options).unwrap();
        let worker = name("worker-1");
        let settings = Settings::default().with_lease_seconds(LEASE.as_secs());
        spool.add_mailbox(&worker, &settings).unwrap();
        Self { home, spool, worker }
    }

    fn publish(&self) {
        self.spool.publish(&Envelope::new(self.worker.clone(), "task")).unwrap();
    }

    /// A holder that takes a message and is never heard of again, in another process.
    fn dies_holding_one(&self) -> Lease {
        self.publish();
        let other = Spool::open(self.spool.root(), options()).unwrap();
        other.receive(&self.worker, &name("dead")).unwrap().unwrap().lease
    }

    /// Its directories raise no event: they are still what they were, elsewhere.
    fn move_mailbox_away(&self) {
        let mailboxes = Dir::open(&self.spool.root().join("mailbox")).unwrap();
        let elsewhere = Dir::open(self.home.path()).unwrap();
        let moved = mailboxes.move_new(self.worker.as_str(), &elsewhere, "away").unwrap();
        assert_eq!(moved, MoveOutcome::Done);
    }

    fn wait(&self) -> MailWait<&Spool> {
        self.spool.wait_for_mail(&self.worker, &self.worker)
    }

    fn receive_within(&self, patience: Duration) -> Option<Delivery> {
        let deadline = Instant::now() + patience;
        let mut wait = self.wait();
        loop {
            let delivery = wait.receive().unwrap();
            let left = deadline.saturating_duration_since(Instant::now());
            if delivery.is_some() || left.is_zero() {
                return delivery;
            }
            wait.sleep(left).unwrap();
        }
    }
}

/// Says how long it took to receive something.
fn receive(wait: &mut MailWait<&Spool>) -> Duration {
    let began = Instant::now();
    while wait.receive().unwrap().is_none() {
        assert!(began.elapsed() < PATIENCE);
        wait.sleep(PATIENCE).unwrap();
    }
    began.elapsed()
}

#[test]
fn a_message_that_lands_between_any_two_steps_ends_the_sleep() {
    let Some(_) = or_skip(FsWatcher::new()) else { return };
    for point in 0..3 {
        let bed = Bed::new();
        let publish_at = |now: i32| {
            if point == now {
                bed.publish();
            }
        };
        publish_at(0);
        let mut wait = bed.wait();
        publish_at(1);
        if wait.receive().unwrap().is_some() {
            assert!(point < 2);
            continue;
        }
        publish_at(2);
        assert!(wait.is_watched(), "a short nap would hide a miss");
        let began = Instant::now();
        wait.sleep(PATIENCE).unwrap();
        assert!(began.elapsed() < POLL_WITH_EVENTS, "only the regular look has found it: {point}");
        assert!(wait.receive().unwrap().is_some());
    }
}

#[test]
fn one_of_two_waits_is_told_what_landed_and_both_receive() {
    let Some(_) = or_skip(FsWatcher::new()) else { return };
    let bed = Bed::new();
    let other = Spool::open(bed.spool.root(), options()).unwrap();
    assert!(Arc::ptr_eq(&bed.spool.waits.watcher, &other.waits.watcher), "a user has few");
    let mut first = bed.wait();
    let mut second = other.wait_for_mail(&bed.worker, &bed.worker);
    assert!(first.receive().unwrap().is_none() && second.receive().unwrap().is_none());
    bed.publish();
    bed.publish();
    first.sleep(PATIENCE).unwrap();
    let landed = first.files.take_landed();
    assert!(!landed.is_empty() && second.files.take_landed().is_empty(), "{landed:?}");
    let gone = ["gone.yaml".to_owned()];
    let take = |landed| bed.spool.receive_some(&bed.worker, &bed.worker, 1, landed).unwrap().pop();
    assert!(take(&gone).is_some() && take(&landed).is_some(), "a name that is gone hides no other");
    assert!(second.receive().unwrap().is_none());
}

#[test]
fn no_message_of_a_publisher_that_runs_beside_the_wait_is_missed() {
    const ROUNDS: u32 = 300;
    let bed = Bed::new();
    let barrier = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                barrier.wait();
                // Some steps of the other thread are a few microseconds, others some hundred.
                (0..round % 30 * 200).for_each(|_| std::hint::spin_loop());
                bed.publish();
            }
        });
        for round in 0..ROUNDS {
            barrier.wait();
            let began = Instant::now();
            let delivery = bed.receive_within(PATIENCE).expect("a message");
            assert!(began.elapsed() < POLL_WITH_EVENTS, "missed in round {round}");
            bed.spool.settle(&delivery.lease).unwrap();
        }
    });
}

#[test]
fn the_deadline_ends_the_wait_and_one_that_has_passed_only_looks() {
    let bed = Bed::new();
    let began = Instant::now();
    assert!(bed.receive_within(DELAY).is_none());
    assert!(began.elapsed() >= DELAY);
    assert!(bed.receive_within(Duration::ZERO).is_none());
    bed.publish();
    assert!(bed.receive_within(Duration::ZERO).is_some());
}

#[test]
fn a_mailbox_that_does_not_exist_or_is_removed_is_an_error() {
    let bed = Bed::new();
    let stranger = name("stranger");
    let refused = bed.spool.wait_for_mail(&stranger, &stranger).receive().unwrap_err();
    assert!(matches!(refused, Error::NoMailbox { .. }), "{refused}");
    let mut wait = bed.wait();
    assert!(wait.receive().unwrap().is_none());
    bed.move_mailbox_away();
    let refused = wait.sleep(PATIENCE).and_then(|()| wait.receive()).unwrap_err();
    assert!(matches!(refused, Error::NoMailbox { .. }), "{refused}");
}

#[test]
fn a_delayed_message_is_received_when_its_time_comes() {
    let bed = Bed::new();
    bed.publish();
    let lease = bed.receive_within(PATIENCE).unwrap().lease;
    let began = Instant::now();
    bed.spool.release(&lease, DELAY).unwrap();
    assert!(bed.receive_within(PATIENCE).is_some());
    let waited = began.elapsed();
    // Delays are counted in whole milliseconds of the wall clock.
    assert!(waited + Duration::from_millis(2) >= DELAY, "{waited:?}");
    assert!(waited < POLL_WITH_EVENTS, "{waited:?}");
}

#[test]
fn the_message_of_a_dead_holder_comes_back_when_its_lease_is_over() {
    let bed = Bed::new();
    let dead = bed.dies_holding_one();
    let began = Instant::now();
    let delivery = bed.receive_within(PATIENCE).expect("it comes back");
    let waited = began.elapsed();
    assert!(waited >= LEASE && waited < LEASE + POLL_WITH_EVENTS, "{waited:?}");
    assert_eq!((&delivery.lease.id, delivery.lease.epoch), (&dead.id, 2));
    assert!(matches!(bed.spool.settle(&dead), Err(Error::LeaseLost { .. })));
}

#[test]
fn a_lease_that_begins_during_the_wait_is_observed_too() {
    let bed = Bed::new();
    let mut wait = bed.wait();
    assert!(wait.receive().unwrap().is_none());
    bed.dies_holding_one();
    let waited = receive(&mut wait);
    assert!(waited < LEASE + LEASE_SCAN_GAP_MIN + POLL_WITH_EVENTS / 2, "{waited:?}");
}

#[test]
fn short_waits_in_a_row_observe_as_one_long_wait_does() {
    let clock = SimClock::new(Timestamp::from_unix_millis(0));
    let bed = Bed::with(options().with_clock(Arc::new(clock.clone())));
    bed.dies_holding_one();
    assert!(bed.wait().receive().unwrap().is_none());
    clock.advance(LEASE);
    assert!(bed.wait().receive().unwrap().is_some());
}

#[test]
fn short_processes_in_a_row_need_a_directory_for_their_observations() {
    let clock = SimClock::new(Timestamp::from_unix_millis(0));
    let bed = Bed::new();
    bed.dies_holding_one();
    let process = |options: SpoolOptions| {
        clock.advance(LEASE);
        let options = options.with_clock(Arc::new(clock.clone()));
        let spool = Spool::open(bed.spool.root(), options).unwrap();
        spool.wait_for_mail(&bed.worker, &bed.worker).receive().unwrap()
    };
    assert!(process(options()).is_none());
    assert!(process(options()).is_none(), "a new observer gives every holder a new lease");
    let observations = bed.home.path().join("leases");
    let remembering = || SpoolOptions { observations: Some(observations.clone()), ..options() };
    assert!(process(remembering()).is_none());
    assert!(process(remembering()).is_some());
}

/// Refuses everything.
#[derive(Debug)]
struct Closed;

impl Admission for Closed {
    fn concerns(&self, _: &Dir, _: &Name) -> Result<bool> {
        Ok(true)
    }
    fn refusal(&self, _: &Dir, _: &Name, envelope: &Envelope) -> Result<Option<Error>> {
        Ok(Some(Error::NoMessage { id: envelope.id.to_string(), place: "admitted".to_owned() }))
    }
}

#[test]
fn a_wait_beside_a_message_that_the_holder_may_not_take_does_not_spin() {
    let Some(_) = or_skip(FsWatcher::new()) else { return };
    let clock = SimClock::new(Timestamp::from_unix_millis(1_000_000));
    let options = options().with_clock(Arc::new(clock.clone()));
    let bed = Bed::with(options.clone().with_admission(Arc::new(Closed)));
    bed.publish();
    let open = Spool::open(bed.spool.root(), options).unwrap();
    let lease = open.receive(&bed.worker, &bed.worker).unwrap().unwrap().lease;
    open.release(&lease, DELAY).unwrap();
    clock.advance(2 * DELAY);
    let mut wait = bed.wait();
    assert!(wait.receive().unwrap().is_none());
    let began = Instant::now();
    wait.sleep(DELAY).unwrap();
    assert!(began.elapsed() >= DELAY);
}

/// Threads that each wait for another mailbox, and messages for them one by one: the one that reads the watcher has
/// to pass each event on, and to hand the watcher over when its own mail has come.
#[test]
fn waits_that_share_a_watcher_are_each_woken_by_their_own_mail() {
    const WAITS: usize = 24;
    let Some(_) = or_skip(FsWatcher::new()) else { return };
    let bed = Bed::new();
    let boxes: Vec<Name> = (0..WAITS).map(|number| name(&format!("box-{number}"))).collect();
    for mailbox in &boxes {
        bed.spool.add_mailbox(mailbox, &Settings::default()).unwrap();
    }
    let ready = Barrier::new(WAITS + 1);
    let (done, finished) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for mailbox in &boxes {
            let (spool, ready, done) = (&bed.spool, &ready, done.clone());
            scope.spawn(move || {
                let mut wait = spool.wait_for_mail(mailbox, mailbox);
                assert!(wait.receive().unwrap().is_none() && wait.is_watched());
                ready.wait();
                let began = Instant::now();
                let delivery = loop {
                    wait.sleep(PATIENCE).unwrap();
                    assert!(began.elapsed() < PATIENCE);
                    if let Some(delivery) = wait.receive().unwrap() {
                        break delivery;
                    }
                };
                done.send((delivery.lease.mailbox, Instant::now())).unwrap();
            });
        }
        ready.wait();
        // Not in the order in which they began: the reader's turn comes somewhere in between.
        for number in (0..WAITS).map(|step| step * 7 % WAITS) {
            let published = Instant::now();
            bed.spool.publish(&Envelope::new(boxes[number].clone(), "task")).unwrap();
            let (mailbox, received) = finished.recv_timeout(PATIENCE).unwrap();
            assert_eq!(mailbox, boxes[number]);
            let waited = received.saturating_duration_since(published);
            assert!(waited < POLL_WITH_EVENTS, "only the regular look has found it: {waited:?}");
        }
    });
}

#[test]
fn waits_of_one_mailbox_survive_its_replacement_together() {
    let Some(_) = or_skip(FsWatcher::new()) else { return };
    let bed = Bed::new();
    let (mut first, mut second) = (bed.wait(), bed.wait());
    assert!(first.receive().unwrap().is_none() && second.receive().unwrap().is_none());
    bed.move_mailbox_away();
    bed.spool.add_mailbox(&bed.worker, &Settings::default()).unwrap();
    // Silence makes the first one watch the new directories; the second one has to look, too.
    first.sleep(Duration::from_millis(1)).unwrap();
    let began = Instant::now();
    second.sleep(PATIENCE).unwrap();
    bed.publish();
    second.sleep(PATIENCE).unwrap();
    assert!(began.elapsed() < POLL_WITH_EVENTS, "only the regular look has found it");
    assert!(second.receive().unwrap().is_some());
}

#[test]
fn a_cancelled_reader_hands_the_watcher_over() {
    let Some(_) = or_skip(FsWatcher::new()) else { return };
    let bed = Bed::new();
    let (mut reader, mut other) = (bed.wait(), bed.wait());
    let (readable, mut writer) = std::io::pipe().unwrap();
    std::thread::scope(|scope| {
        let sleeping = scope.spawn(|| {
            reader.sleep_beside(PATIENCE, Some(readable.as_fd())).unwrap();
        });
        let waiting = scope.spawn(|| receive(&mut other));
        writer.write_all(&[1]).unwrap();
        sleeping.join().unwrap();
        bed.publish();
        assert!(waiting.join().unwrap() < POLL_WITH_EVENTS);
    });
}
