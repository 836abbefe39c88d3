//! Drivers run the protocols: they feed the machines of [`crate::proto`] with events from panes, files
//! and clocks, and carry out their effects.
//!
//! ```text
//! Assigner     one worker at a time: lock -> Readiness -> AckManager        (`ensemble assign`)
//! Readiness    proto::ready::Handshake over a pane and a PongBox            (seed 000)
//! AckManager   any number of proto::ack::Ladder over panes and a spool      (seed 002, P0-3)
//! Dispatcher   collect::Collect over the reports, and Batches, which tell once (`ensemble summary`)
//! Conductor    sends an instruction, hears of escalations, waits for the summary  (`ensemble instruct`)
//! Reviews      how often a task came back from review                 (`ensemble review`)
//! TaskEnds     records each end of a task once                      (`task_complete`, `task_failed`)
//! ShutdownDriver      proto::shutdown over processes, a pane, mail and the roster        (seed 004)
//! supervise    proto::supervise over a blackboard, worktrees and processes     (seed 001)
//! BoardLeases  proto::lease over a blackboard's leases                         (seed 001)
//! StepDriver   a step queue (feature `steps`) over mailboxes                          (seed 003)
//! ```
//!
//! No driver starts a thread. A blocking call takes a `rest` callback, which sleeps for at most the given
//! time and may return early, for instance when a file lands ([`watch::Waiter`](crate::watch::Waiter)).
//! [`nap`] is the simplest one:
//!
//! ```
//! use std::time::{Duration, Instant};
//! use ensemble_core::driver::{LOOK_INTERVAL, nap};
//!
//! let start = Instant::now();
//! nap(Duration::from_millis(5));
//! assert!(start.elapsed() >= Duration::from_millis(5));
//! assert!(LOOK_INTERVAL <= Duration::from_millis(100)); // no nap asks for longer
//! ```
//!
//! Every driver records what it does: see docs/protocol/assignments.md and docs/protocol/event-log.md.
//!
//! # Limits
//!
//! A driver runs in its caller's thread, and its machines end with its process. Assignments and shutdowns
//! continue in the next process that finds them; one controller at a time works on one worker.

mod ack;
mod agent;
mod assign;
mod batches;
mod board_leases;
mod collect;
mod conductor;
mod delivery;
mod departure;
mod ends;
mod escalation;
mod keystrokes;
mod pongs;
mod readiness;
mod reviews;
#[cfg(feature = "steps")]
mod steps;
pub mod supervise;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use ack::{AckManager, DeliveryId};
pub use agent::worker_state;
pub use assign::{Assigned, Assigner};
pub use batches::{Batches, SUMMARY_PATH, Told, batch_of};
pub use board_leases::BoardLeases;
pub use collect::{Batch, Dispatcher};
pub use conductor::{Conductor, INSTRUCTION_TYPE};
pub use delivery::{Ended, Order, message_id};
pub use departure::{AgentHost, Departed, Departure, ShutdownDriver};
pub use ends::TaskEnds;
pub use escalation::{EscalationFile, Notice, file_name, read_escalations};
pub use pongs::PongBox;
pub use readiness::{Readied, Readiness, seen_at_the_window};
pub use reviews::{REVIEW_CYCLES_DEFAULT, ReviewCount, Reviews, file_stem};
#[cfg(feature = "steps")]
pub use steps::{Prompted, STEP_TYPE, StepDriver, Turn};

/// How often something is looked at that cannot ring: a pane's screen.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Sleeps, at most [`LOOK_INTERVAL`]: the `rest` of callers without a file watcher.
pub fn nap(longest: Duration) {
    std::thread::sleep(longest.min(LOOK_INTERVAL));
}
