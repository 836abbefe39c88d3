use std::time::Duration;

use super::*;
use crate::env::Clock;
use crate::message::Timestamp;

#[test]
fn suspend_advances_every_clock_but_the_monotonic_one() {
    let clock = SimClock::new(Timestamp::from_unix_millis(0));
    clock.advance(Duration::from_secs(1));
    clock.suspend(Duration::from_secs(9));
    assert_eq!(clock.monotonic().as_duration(), Duration::from_secs(1));
    assert_eq!(clock.boottime().as_duration(), Duration::from_secs(10));
    assert_eq!(clock.wall(), Timestamp::from_unix_millis(10_000));
}
