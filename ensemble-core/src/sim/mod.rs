//! Deterministic doubles of [`crate::env`], for simulations and for embedders' own tests (feature
//! `sim`).
//!
//! | double | instead of | what it adds |
//! |---|---|---|
//! | [`SimClock`] | [`SystemClock`](crate::env::SystemClock) | advanced by hand; can suspend and jump |
//! | [`SimRecorder`] | an event log | remembers records in memory |
//! | [`SimRng`] | a random generator | one seed, the same numbers everywhere |
//!
//! All doubles are cheap to clone, and clones share their state: pass one to the code under test
//! and keep the other. No double waits: simulated days pass in milliseconds, and a run repeats from
//! its seed.

mod clock;
mod recorder;
mod rng;

#[cfg(test)]
mod tests;

pub use clock::SimClock;
pub use recorder::SimRecorder;
pub use rng::SimRng;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Ignores poisoning, so a double stays usable after a failed assertion in another thread.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
