//! tmux as the place where agents run: an [`env::Pane`](ensemble_core::env::Pane) over one persistent
//! control-mode client a server (seed 002, P0-1; the safe recipe for typing).
//!
//! ```text
//! Server ──┬── control   one client, attached; ~0.3 ms an exchange
//!          └── spawned   one process an exchange, for who soon ends, or when a client cannot be had
//! Binding      %id + token + first process: which pane is meant, beyond doubt
//! TmuxPane     look (snapshot) → judge (provider) → type under a guard in the server (guard, typing);
//!              to a script that waits for a line, all in one exchange (quick)
//! ```
//!
//! These promises hold for any other activity on the server:
//!
//! * Nothing is typed into another pane than the one that was bound, into a dead one, or one that a
//!   person scrolls. Nor into one whose input is off or goes elsewhere too, or one that has changed
//!   between the look and the keys.
//! * What is typed is a [`NudgeText`](ensemble_core::pane::NudgeText), never content, and never
//!   through a paste buffer. Pasting into a dead pane ends the whole server of tmux 3.3a.
//! * No exchange takes longer than [`EXCHANGE_LIMIT`], also when the server hangs; a command that
//!   a hung server finds later is not carried out any more.
//! * No process is left behind: the client ends when its last [`TmuxServer`] is dropped, and also when
//!   its owner is killed.
//! * A server is not crashed by a control client that comes or goes at the wrong moment (`attach_lock`,
//!   `left_behind`).
//!
//! tmux 3.2 or newer is needed. Servers are distinguished by socket path; the user's own server is
//! never touched unless its socket is given.

use std::time::Duration;

mod attach_lock;
mod binding;
mod clients;
mod control;
mod cursors;
mod error;
mod failure;
mod guard;
mod left_behind;
mod lock;
mod manage;
mod mark;
mod pane;
mod parser;
mod quick;
mod quote;
mod server;
mod snapshot;
mod spawned;
mod team;
mod typing;

pub use binding::{Binding, TERMINAL_ID};
pub use cursors::PaneCursor;
pub use error::TmuxError;
pub(crate) use lock::PaneLock;
pub use manage::PaneInfo;
pub use pane::{PaneExamination, TmuxPane};
pub use server::TmuxServer;
pub(crate) use spawned::run_program;
pub use team::{PaneSigns, SessionOrder, TeamSession, WindowOrder};
pub use typing::{LINE_PATIENCE, SHARED_PACE, TextOutcome, TypedNudge};

#[cfg(feature = "fuzzing")]
pub use parser::ControlAnswer;
#[cfg(feature = "fuzzing")]
pub(crate) use parser::{LIMITS as CONTROL_LIMITS, answers as control_answers};
#[cfg(feature = "fuzzing")]
pub(crate) use snapshot::sizes as pane_snapshot;

/// Five seconds, the limit of every exchange with a tmux server.
pub const EXCHANGE_LIMIT: Duration = FIVE_SECONDS;

const FIVE_SECONDS: Duration = Duration::from_secs(5);
