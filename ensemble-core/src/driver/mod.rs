//! Drivers run the protocols: they feed the machines of [`crate::proto`] with events from panes, files
//! and clocks, and carry out their effects.
//!
//! ```text
//! Assigner     one worker at a time: lock -> Readiness -> AckDriver        (`ensemble assign`)
//! Readiness    proto::ready::Handshake over a pane and a PongBox            (seed 000)
//! Ladders      the ladder of every task of a queue, kept in files           (the watcher, `assign`)
//! AckDriver    any number of proto::ack::Ladder over panes and a spool      (seed 002, P0-3)
//! ```
//!
//! No driver starts a thread. A blocking call takes a `rest` callback, which sleeps for at most the
//! given time. It may return early, for instance when a file lands
//! ([`watch::Waiter`](crate::watch::Waiter)); its error ends the call. [`nap`] is the simplest one.
//!
//! Every driver records what it does: see docs/protocol/assignments.md and docs/protocol/event-log.md.
//!
//! # Limits
//!
//! A driver runs in its caller's thread, and its machines end with its process. Assignments and shutdowns
//! continue in the next process that finds them; one controller at a time works on one worker.

mod ack;
mod ack_file;
mod adopted;
mod agent;
mod assign;
mod delivery;
mod escalation;
mod following;
mod keystrokes;
mod ladder_file;
mod ladders;
mod pongs;
mod readiness;
mod shared;

use std::time::Duration;

pub use ack::{AckDriver, DeliveryId};
pub use ack_file::ack_signer;
pub use agent::worker_state;
pub use assign::{AskElsewhere, AssignOutcome, HandedOver, TaskAssigner};
pub use delivery::{DeliveryOrder, Ended, message_id};
pub use escalation::{EscalationFile, Notice, file_name, read_escalations};
pub use ladder_file::{LADDERS_DIRECTORY, LadderFile, LadderState, LadderStore};
pub use ladders::{LADDERS_MAX, LadderHost, LadderPrompt, Ladders, MailboxReader, TASK_TYPE};
pub use pongs::PongBox;
pub use readiness::{HookEvidence, ReadinessCheck, ReadyOutcome, seen_at_the_window};

/// How often something without events is polled: a pane's screen.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Sleeps, at most [`LOOK_INTERVAL`]: the `rest` of callers without a file watcher.
pub fn nap(longest: Duration) {
    std::thread::sleep(longest.min(LOOK_INTERVAL));
}
