//! Agents in panes and terminals, for the broker [`ensemble_core`].
//!
//! * [`tmux`] implements [`Pane`](ensemble_core::env::Pane) over one control-mode client a server. The
//!   guard that decides whether keys may be typed is evaluated inside the tmux server.
//! * [`terminal`] does the same in our terminals, and in panes of zellij and herdr.
//! * [`provider`] reads what an agent's program shows: a profile is a data file, not code. It also
//!   reads the process table and the program's own machine-readable state.
//! * [`nudge`] decides when an agent is notified that mail waits, as a machine without IO.
//! * [`session`] keeps what an agent's own hooks report of it.
//! * [`reaper`] finds every process of an agent and ends it by pidfd.
//!
//! The crate starts one thread for each attached server: it reads what the control client prints.
#![forbid(unsafe_code)]

#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod nudge;
pub mod provider;
pub mod reaper;
pub mod session;
mod sys;
pub mod terminal;
pub mod tmux;
