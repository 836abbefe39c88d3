//! Whole teams in simulated time: every machine, driven through days of work by seeds.

mod stack;
mod team;

use ensemble_core::sim::{SimClock, SimRng, SimTransport};
