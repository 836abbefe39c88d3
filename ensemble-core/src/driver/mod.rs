//! Where the protocols meet the world: machines of [`crate::proto`] are fed with what panes, files
//! and clocks say, and what they want is done.
//!
//! ```text
//! Assigner     one worker at a time: lock -> Readiness -> AckManager        (`ensemble assign`)
//! Readiness    proto::ready::Handshake over a pane and a PongBox            (seed 000)
//! AckManager   any number of proto::ack::Ladder over panes and a spool      (seed 002, P0-3)
//! ```
//!
//! Nothing here starts a thread. A call that waits is handed a `rest`: a function that sleeps for at
//! most the time it is given and may return early, for instance because a file has landed
//! ([`watch::Waiter`](crate::watch::Waiter)). [`nap`] is one that needs nothing.
//!
//! Whatever is done is recorded: see docs/protocol/assignments.md and docs/protocol/event-log.md.

mod ack;
mod agent;
mod assign;
mod delivery;
mod escalation;
mod keystrokes;
mod pongs;
mod readiness;
mod shared;

use std::time::Duration;

pub use ack::{AckManager, DeliveryId};
pub use agent::worker_state;
pub use assign::{Assigned, Assigner};
pub use delivery::{Ended, Order, message_id};
pub use escalation::{EscalationFile, Notice, file_name, read_escalations};
pub use pongs::PongBox;
pub use readiness::{Readied, Readiness, seen_at_the_window};

/// How often something is looked at that cannot ring: a pane's screen.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Sleeps, at most [`LOOK_INTERVAL`]: the `rest` of callers without a file watcher.
pub fn nap(longest: Duration) {
    std::thread::sleep(longest.min(LOOK_INTERVAL));
}
