//! Clocks that are set, by hand.

use ensemble_core::proto::calendar::{Calendar, ClockReading};
use proptest::prelude::*;

use crate::*;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
const YEAR: Duration = Duration::from_secs(365 * 86_400);
const START: Timestamp = Timestamp::from_unix_millis(1_800_000_000_000);

/// A machine whose wall clock can be set, and the calendar of a process on it.
struct Machine {
    clock: SimClock,
    boot: String,
    calendar: Calendar,
}

impl Machine {
    fn new() -> Self {
        let clock = SimClock::new(START);
        let calendar =
            Calendar::begin(&ClockReading::new("boot-1", clock.boottime(), clock.wall()));
        Self { clock, boot: "boot-1".to_owned(), calendar }
    }

    fn look(&mut self) -> Option<i64> {
        let Self { clock, boot, calendar } = self;
        calendar.read_clocks(&ClockReading::new(boot, clock.boottime(), clock.wall()))
    }

    fn pass(&mut self, time: Duration) -> Option<i64> {
        self.clock.advance(time);
        self.look()
    }

    fn set(&mut self, by: i64) {
        let wall = self.clock.wall().unix_millis() + by;
        self.clock.set_wall(Timestamp::from_unix_millis(wall));
    }

    /// Off for this time, and started again.
    fn restart(&mut self, off: Duration) {
        self.boot = format!("{}+", self.boot);
        self.clock = SimClock::new(self.clock.wall().plus(off));
    }

    fn stamp(&self) -> Timestamp {
        self.clock.wall()
    }
}

#[test]
fn a_clock_that_is_not_set_is_followed_and_ages_are_exact() {
    let mut machine = Machine::new();
    for _ in 0..1_000 {
        let stamp = machine.stamp();
        assert_eq!(machine.pass(HOUR), None);
        assert_eq!(machine.calendar.age(stamp), HOUR);
        assert_eq!(machine.calendar.now(), machine.stamp());
    }
    assert_eq!(machine.calendar.age(START), 1_000 * HOUR);
    machine.clock.suspend(DAY);
    assert_eq!(machine.look(), None, "a suspend is no jump");
    assert_eq!(machine.calendar.age(START), 1_000 * HOUR + DAY);
}

#[test]
fn a_stamp_of_the_tick_before_the_calendar_began_is_exact() {
    let mut machine = Machine::new();
    let tick = Duration::from_millis(10);
    let stamp = Timestamp::from_unix_millis(START.unix_millis() - millis(tick));
    machine.pass(DAY);
    assert_eq!(machine.calendar.age(stamp), DAY + tick);
}

#[test]
fn a_jump_of_three_seconds_ages_nothing_and_moves_no_calendar() {
    let mut machine = Machine::new();
    let old = machine.stamp();
    machine.pass(HOUR);
    let day = millis(DAY);
    for by in [8 * day, -8 * day, 400 * day, -3_650 * day, millis(HOUR), -millis(HOUR)] {
        let before = machine.calendar.age(old);
        machine.set(by);
        assert_eq!(machine.pass(3 * SECOND), Some(by));
        assert_eq!(machine.calendar.age(old), before + 3 * SECOND);
        let expected = machine.stamp().unix_millis() - by;
        assert_eq!(machine.calendar.now().unix_millis(), expected, "{by}");
        // What is stamped now is not old, no matter what it says.
        let stamp = machine.stamp();
        machine.set(-by);
        assert_eq!(machine.pass(3 * SECOND), Some(-by));
        assert_eq!(machine.calendar.now(), machine.stamp());
        assert!(machine.calendar.age(stamp) <= 6 * SECOND, "{by}");
    }
}

#[test]
fn a_clock_that_stays_changed_is_followed_after_the_doubt() {
    for by in [millis(DAY), -millis(DAY)] {
        let mut machine = Machine::new();
        let old = machine.stamp();
        machine.pass(HOUR);
        machine.set(by);
        assert_eq!(machine.pass(Duration::ZERO), Some(by));
        machine.pass(DOUBT - SECOND);
        assert_eq!(machine.calendar.now().unix_millis(), machine.stamp().unix_millis() - by);
        machine.pass(SECOND);
        assert_eq!(machine.calendar.now(), machine.stamp());
        assert_eq!(machine.calendar.was_set_back(), by < 0);
        assert!(machine.calendar.age(old) <= HOUR + DOUBT, "ages do not jump when it is followed");
        machine.pass(30 * DAY);
        // Set back, the clock says for a second time that it is the time of `old`.
        assert!(machine.calendar.age(old) >= 29 * DAY, "nothing is kept for ever");
    }
}

#[test]
fn a_clock_that_is_set_again_and_again_is_not_followed() {
    let mut machine = Machine::new();
    for round in 1..100_i64 {
        machine.set(millis(HOUR) * round);
        machine.pass(DOUBT - SECOND);
    }
    let true_time = START.plus(99 * (DOUBT - SECOND));
    assert_eq!(machine.calendar.now(), true_time);
    let kept = serde_json::to_value(&machine.calendar).unwrap()["lines"].as_array().unwrap().len();
    assert!(kept <= 64, "{kept}");
}

#[test]
fn a_restart_counts_no_time_that_the_machine_was_off() {
    let mut machine = Machine::new();
    let old = machine.stamp();
    machine.pass(HOUR);
    machine.restart(30 * DAY);
    machine.pass(SECOND);
    assert_eq!(machine.calendar.age(old), HOUR + SECOND);
    assert_eq!(machine.calendar.now(), machine.stamp(), "a clock that went on is believed");
    // The battery of the clock was empty.
    machine.restart(Duration::ZERO);
    machine.set(-millis(20 * YEAR));
    let expected = machine.calendar.now();
    machine.pass(SECOND);
    assert_eq!(machine.calendar.now(), expected.plus(SECOND), "behind the newest stamp on disk");
    assert_eq!(machine.calendar.age(old), HOUR + 2 * SECOND);
}

#[test]
fn a_stamp_that_nothing_explains_counts_from_when_it_was_seen() {
    let mut machine = Machine::new();
    machine.pass(DAY);
    let strange = [START.plus(400 * DAY), Timestamp::from_unix_millis(0), START.plus(YEAR)];
    for stamp in strange {
        assert_eq!(machine.calendar.age(stamp), Duration::ZERO);
    }
    machine.pass(7 * DAY);
    for stamp in strange {
        assert_eq!(machine.calendar.age(stamp), 7 * DAY, "it is not kept until its time comes");
    }
    let new = machine.stamp().plus(SECOND);
    assert_eq!(machine.calendar.age(new), Duration::ZERO, "made since the look");
    machine.pass(HOUR);
    assert_eq!(machine.calendar.age(new), HOUR - SECOND);
}

#[test]
fn a_jump_between_two_looks_makes_nothing_older() {
    let mut machine = Machine::new();
    machine.pass(HOUR);
    machine.set(millis(400 * DAY));
    let stamp = machine.stamp();
    machine.set(-millis(400 * DAY));
    assert_eq!(machine.pass(HOUR), None, "it was not seen");
    assert_eq!(machine.calendar.age(stamp), Duration::ZERO);
}

#[test]
fn a_calendar_survives_its_process_and_is_written_when_it_has_changed() {
    let mut machine = Machine::new();
    let write = |machine: &mut Machine| {
        let was_due = machine.calendar.is_due();
        machine.calendar.note_written();
        let text = serde_json::to_string(&machine.calendar).unwrap();
        machine.calendar = serde_json::from_str(&text).unwrap();
        was_due
    };
    assert!(write(&mut machine), "it is new");
    machine.pass(SECOND);
    assert!(!write(&mut machine));
    machine.set(millis(DAY));
    machine.pass(SECOND);
    assert!(write(&mut machine), "a jump");
    let stamp = Timestamp::from_unix_millis(0);
    machine.calendar.age(stamp);
    assert!(write(&mut machine), "a stamp that nothing explains");
    machine.pass(HOUR);
    assert_eq!(machine.calendar.age(stamp), HOUR);
    assert!(machine.calendar.is_due(), "an hour has passed");
}

#[test]
fn a_file_of_another_program_is_no_calendar_and_one_without_lines_does_no_harm() {
    assert!(serde_json::from_str::<Calendar>("{\"lines\":[]}").is_err());
    let mut machine = Machine::new();
    let mut written = serde_json::to_value(&machine.calendar).unwrap();
    (written["lines"], written["believed"]) = (json!([]), json!(7));
    machine.calendar = serde_json::from_value(written).unwrap();
    machine.pass(SECOND);
    assert_eq!(machine.calendar.age(machine.stamp()), Duration::ZERO);
}

proptest! {
    /// No matter what happens to the clocks, no stamp is taken to be older than it is, and none is young forever.
    #[test]
    fn no_stamp_is_older_than_it_is(acts in prop::collection::vec((0_u8..5, 0_i64..2_000_000), 1..80)) {
        let mut machine = Machine::new();
        let mut stamps = vec![(machine.stamp(), Duration::ZERO)];
        let mut lived = Duration::ZERO;
        for (act, amount) in acts {
            let time = Duration::from_secs(u64::try_from(amount).unwrap());
            match act {
                0 => machine.set((amount - 1_000_000) * 100_000),
                1 => machine.restart(time),
                2 => machine.clock.suspend(time),
                _ => machine.clock.advance(time),
            }
            if act >= 2 {
                lived += time;
            }
            machine.look();
            stamps.push((machine.stamp(), lived));
            for (stamp, made) in &stamps {
                let (age, truth) = (machine.calendar.age(*stamp), lived.saturating_sub(*made));
                // Drift cannot be distinguished from small corrections.
                prop_assert!(age <= truth + truth / 500 + 4 * SECOND, "{age:?} of {truth:?}");
            }
        }
        machine.pass(DOUBT);
        prop_assert_eq!(machine.calendar.now(), machine.stamp());
        // A week is enough unless the wall clock says in the meantime for a second time what the stamp says.
        let mut oldest = vec![Duration::ZERO; stamps.len()];
        for _ in 0..15 {
            machine.pass(DAY);
            for (oldest, (stamp, _)) in oldest.iter_mut().zip(&stamps) {
                *oldest = machine.calendar.age(*stamp).max(*oldest);
            }
        }
        prop_assert!(oldest.iter().all(|oldest| *oldest >= 7 * DAY), "{oldest:?}");
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap()
}
