//! The protocols of a team as pure state machines: no IO, no clock, no threads, no randomness.
//!
//! They follow the contract of [`ensemble_core::proto`]: a transition table on top of each file, and a
//! test of all pairs of state and event. [`goal`], [`task`], [`agent`] and [`drain`] are functions
//! from a state and an event to the next state. The others have four methods, with the time as an
//! argument.
//!
//! | module | the machine of |
//! |---|---|
//! | [`goal`] | the goal and the sprint of a blackboard |
//! | [`task`] | one task of a blackboard |
//! | [`agent`] | one agent of a blackboard |
//! | [`beat`] | the heartbeats that keep an agent's lease |
//! | [`dispatch`] | a batch of tasks that Dispatch hands out |
//! | [`supervise`] | the supervisor of one agent |
//! | [`alarm`] | an alarm about a task that makes no progress |
//! | [`step`] | a queue of steps |
//! | [`shutdown`] | the end of an agent: consent, grace, signals |
//! | [`drain`] | a team that finishes its work before it ends |
//! | [`patience`] | how long Dispatch waits for reports |
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
