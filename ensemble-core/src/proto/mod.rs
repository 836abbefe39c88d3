//! The protocols as pure state machines: no IO, no clock, no threads, no randomness.
//!
//! A machine in which time plays no part is a function that turns a state and an event into the
//! next state. Every other machine has the same four methods ([`Machine`]):
//!
//! 1. [`Machine::handle`] takes an event that happened `now`;
//! 2. [`Machine::handle_timeout`] takes the passing of time; spurious and early calls do nothing;
//! 3. [`Machine::poll_effect`] returns the next action for the driver, or `None`;
//! 4. [`Machine::poll_timeout`] returns the next deadline of the machine.
//!
//! `now` never decreases. After each `handle` and `handle_timeout`, call `poll_effect` until it returns
//! `None`. Then wait for an event or the deadline. Late, repeated and unexpected events change nothing.
//! Each file begins with its transition table. Tests advance the clock by hand, so hours pass in
//! microseconds.
//!
//! ```
//! use std::time::Duration;
//! use ensemble_core::env::Monotonic;
//! use ensemble_core::proto::Machine;
//! use ensemble_core::proto::lease::{Event, LeaseWatch, LOOK_INTERVAL};
//!
//! // An observer of leases looks every thirty seconds.
//! let start = Monotonic::ZERO;
//! let mut watch = LeaseWatch::new(start);
//! let duration = Duration::from_secs(300);
//! watch.handle(start, Event::Seen { key: "coder-1", sequence: 7, duration });
//! watch.handle(start, Event::ScanDone);
//! assert_eq!(watch.poll_effect(), None);
//! assert!(watch.poll_timeout() <= Some(start + 2 * LOOK_INTERVAL));
//! ```
//!
//! # Limits
//!
//! A machine keeps its state in memory: a crash loses the phase, and each file says what the next run
//! does. A machine trusts its driver to carry out every effect and to call it at its deadline.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

use crate::env::Monotonic;

pub mod ack;
pub mod calendar;
pub mod lease;
pub mod ready;
pub mod reconcile;
pub mod request;
#[cfg(any(test, feature = "sim"))]
pub mod testing;

/// The contract that all machines share.
pub trait Machine {
    type Event;
    /// The actions that the machine requests.
    type Effect;

    /// Takes an event. Late, doubled and unexpected events are absorbed.
    fn handle(&mut self, now: Monotonic, event: Self::Event);

    /// Takes the passing of time. Does nothing before [`Machine::poll_timeout`].
    fn handle_timeout(&mut self, now: Monotonic);

    /// The next thing to do, in order; `None` when there is nothing.
    fn poll_effect(&mut self) -> Option<Self::Effect>;

    /// When to call [`Machine::handle_timeout`] at the latest; `None` for never.
    fn poll_timeout(&self) -> Option<Monotonic>;
}
