//! Time that is advanced by hand.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::lock;
use crate::env::{Clock, Monotonic};
use crate::message::Timestamp;

/// A clock that pauses until it is advanced. Clones are the same clock.
#[derive(Clone, Debug)]
pub struct SimClock(Arc<Mutex<SimTimes>>);

#[derive(Debug)]
struct SimTimes {
    monotonic: Duration,
    suspended: Duration,
    wall: Timestamp,
}

impl SimClock {
    pub fn new(wall: Timestamp) -> Self {
        let (monotonic, suspended) = (Duration::ZERO, Duration::ZERO);
        Self(Arc::new(Mutex::new(SimTimes { monotonic, suspended, wall })))
    }

    pub fn advance(&self, by: Duration) {
        let mut times = lock(&self.0);
        times.monotonic += by;
        times.wall = times.wall.plus(by);
    }

    /// Advances to this reading; does nothing if it is past.
    pub fn advance_to(&self, to: Monotonic) {
        self.advance(to.since(self.monotonic()));
    }

    /// Simulates a suspend: only the wall clock and the boot time advance.
    pub fn suspend(&self, by: Duration) {
        let mut times = lock(&self.0);
        times.suspended += by;
        times.wall = times.wall.plus(by);
    }

    pub fn set_wall(&self, wall: Timestamp) {
        lock(&self.0).wall = wall;
    }
}

impl Clock for SimClock {
    fn monotonic(&self) -> Monotonic {
        Monotonic::from_duration(lock(&self.0).monotonic)
    }

    fn wall(&self) -> Timestamp {
        lock(&self.0).wall
    }

    fn boottime(&self) -> Monotonic {
        let times = lock(&self.0);
        Monotonic::from_duration(times.monotonic + times.suspended)
    }
}
