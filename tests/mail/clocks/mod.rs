//! The wall clock jumps: nothing is removed, expired, delayed or hurried by it.

mod calendar;
mod retention;

use ensemble_core::requests::CLOSED_KEPT;

use crate::*;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
const DAY_MILLIS: i64 = 86_400_000;

/// A queue with a clock that begins with the machine's, whose stamps its files have.
fn bed() -> QueueBed {
    QueueSetup::of(["worker"]).clock(SimClock::new(SystemClock.wall())).build()
}

impl QueueBed {
    fn jump(&self, millis: i64) {
        let wall = self.clock.wall().unix_millis() + millis;
        self.clock.set_wall(Timestamp::from_unix_millis(wall));
    }

    fn settle(&self, id: &str) {
        self.spool.publish(&message(id)).unwrap();
        self.spool.settle(&self.receive().unwrap().lease).unwrap();
    }
}

fn message(id: &str) -> Envelope {
    Envelope::new(name("worker"), "work").with_id(MessageId::new(id).unwrap())
}

#[test]
fn a_jump_removes_no_settled_message_and_no_file_of_a_living_sender() {
    let bed = bed();
    bed.settle("one");
    std::fs::write(bed.home.path().join("queue/tmp/being-written"), "half").unwrap();
    for (looked_before, jump) in [(false, 8), (true, -8), (true, 400), (true, -3_650)] {
        if looked_before {
            bed.spool.sweep().unwrap();
        }
        bed.jump(jump * DAY_MILLIS);
        for spool in [&bed.spool, &bed.again()] {
            let swept = spool.sweep().unwrap();
            assert_eq!((swept.done_removed, swept.tmp_removed), (0, 0), "by {jump} days");
        }
        assert_eq!(bed.spool.publish(&message("one")).unwrap(), PublishOutcome::AlreadyStored);
        bed.jump(-jump * DAY_MILLIS);
    }
    // It is kept for its time, and no longer.
    bed.clock.advance(6 * DAY);
    assert_eq!(bed.spool.sweep().unwrap().done_removed, 0);
    bed.clock.advance(DAY + HOUR);
    assert_eq!(bed.again().sweep().unwrap().done_removed, 1);
    assert_eq!(bed.spool.publish(&message("one")).unwrap(), PublishOutcome::Stored);
}

#[test]
fn a_clock_that_stays_set_back_keeps_nothing_for_ever() {
    let bed = bed();
    bed.spool.sweep().unwrap();
    bed.settle("one");
    bed.clock.advance(HOUR);
    bed.spool.sweep().unwrap();
    bed.jump(-3_650 * DAY_MILLIS);
    bed.clock.advance(8 * DAY);
    assert_eq!(bed.spool.sweep().unwrap().done_removed, 1);
}

#[test]
fn a_delay_lasts_as_long_as_it_was_meant_to() {
    for jump in [8 * DAY_MILLIS, -8 * DAY_MILLIS, -3_650 * DAY_MILLIS] {
        let bed = bed();
        bed.spool.sweep().unwrap();
        bed.spool.publish(&message("later")).unwrap();
        let held = bed.receive().unwrap();
        bed.spool.release(&held.lease, 5 * SECOND * 60).unwrap();
        bed.jump(jump);
        bed.clock.advance(3 * SECOND);
        assert!(bed.receive().is_none(), "hurried by {jump}");
        assert_eq!(bed.spool.counts(&name("worker")).unwrap().delayed, 1);
        bed.clock.advance(5 * SECOND * 60);
        assert!(bed.again().receive(&name("worker"), &name("worker")).unwrap().is_some(), "{jump}");
    }
}

#[test]
fn a_delay_that_begins_while_the_clock_is_wrong_is_no_longer() {
    let bed = bed();
    bed.spool.sweep().unwrap();
    bed.spool.publish(&message("later")).unwrap();
    let held = bed.receive().unwrap();
    bed.jump(400 * DAY_MILLIS);
    bed.spool.release(&held.lease, HOUR).unwrap();
    bed.jump(-400 * DAY_MILLIS);
    bed.clock.advance(HOUR);
    assert!(bed.receive().is_some());
}

#[test]
fn a_delay_is_over_in_time_though_the_clock_was_set_back_for_good() {
    let bed = bed();
    bed.spool.sweep().unwrap();
    bed.spool.publish(&message("later")).unwrap();
    let held = bed.receive().unwrap();
    bed.spool.release(&held.lease, 2 * HOUR).unwrap();
    bed.clock.advance(SECOND);
    bed.spool.sweep().unwrap();
    bed.jump(-400 * DAY_MILLIS);
    for _ in 0..11 {
        bed.clock.advance(DOUBT);
        assert!(bed.receive().is_none());
    }
    assert_eq!(bed.spool.now(), bed.clock.wall(), "it is believed");
    bed.clock.advance(DOUBT);
    assert!(bed.receive().is_some(), "two hours have passed");
}

#[test]
fn a_message_expires_by_the_calendar_and_not_by_a_jump() {
    let bed = bed();
    bed.spool.sweep().unwrap();
    let expires = |id: &str, after| message(id).with_expiry(bed.clock.wall().plus(after));
    bed.spool.publish(&expires("jumped", DAY)).unwrap();
    bed.jump(8 * DAY_MILLIS);
    bed.clock.advance(3 * SECOND);
    assert!(bed.receive().is_some(), "no day has passed");
    bed.jump(-8 * DAY_MILLIS);
    bed.spool.publish(&expires("past", HOUR)).unwrap();
    bed.clock.advance(2 * HOUR);
    bed.spool.sweep().unwrap();
    bed.jump(-DAY_MILLIS);
    assert!(bed.receive().is_none(), "an hour has passed, whatever the clock says now");
    bed.jump(DAY_MILLIS);
    bed.spool.publish(&expires("for-good", DAY)).unwrap();
    bed.jump(2 * DAY_MILLIS);
    bed.spool.sweep().unwrap();
    bed.clock.advance(DOUBT);
    assert!(bed.receive().is_none(), "the clock stands by its new time, which is past the date");
}

#[test]
fn a_jump_neither_expires_nor_forgets_a_request() {
    let bed = bed();
    bed.spool.sweep().unwrap();
    let home = bed.home.path().join("queue/requests/done");
    std::fs::create_dir(&home).unwrap();
    std::fs::write(home.join("closed.yaml"), "version: 1\n").unwrap();
    let (requests, asked) = (Requests::new(&bed.spool), bed.clock.wall());
    bed.jump(40 * DAY_MILLIS);
    assert!(bed.spool.age(asked) < SECOND, "a request of before has not expired");
    assert_eq!(requests.sweep().unwrap(), 0);
    bed.jump(-40 * DAY_MILLIS);
    bed.clock.advance(CLOSED_KEPT + HOUR);
    assert_eq!(bed.spool.age(asked), CLOSED_KEPT + HOUR);
    assert_eq!(requests.sweep().unwrap(), 1);
}
