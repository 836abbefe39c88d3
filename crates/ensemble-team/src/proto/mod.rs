//! The protocols of a team as pure state machines: no IO, no clock, no threads, no randomness.
//!
//! They follow the contract of [`ensemble_core::proto`]: a transition table on top of each file, and a
//! test of all pairs of state and event. [`goal`], [`task`], [`agent`] and [`drain`] are functions
//! from a state and an event to the next state. The others have four methods, with the time as an
//! argument.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod agent;
pub mod alarm;
pub mod beat;
pub mod dispatch;
pub mod drain;
pub mod goal;
pub mod patience;
pub mod shutdown;
pub mod step;
pub mod supervise;
pub mod task;
#[cfg(test)]
pub(crate) mod testing;
