//! Agents in terminals that we have opened for them, without tmux.
//!
//! ```text
//! a person's terminal <-> wrapper <-> pseudo-terminal <-> agent
//!                            |
//!                         screen, lock, socket  <-  watcher, team, nudge, ping …
//! ```
//!
//! The *wrapper* is the program that owns the agent's pseudo-terminal: `ensemble claude` and its like. It passes the
//! person's keys and the agent's screen on, sees the exact screen, and answers at a socket ([`TerminalDoor`]). [`TerminalPane`]
//! asks there what [`TmuxPane`](crate::tmux::TmuxPane) asks of a tmux server, and promises the same. Nothing is typed
//! into a dialog, a draft or a shell. Enter is pressed only behind exactly our line.
//!
//! | | a pane of tmux | a terminal |
//! |---|---|---|
//! | a person's keys while a line is typed | seen at the next look | kept back until the line is submitted |
//! | scrolling, copy-mode | puts a line off | does not matter |
//! | after the end of its program | the pane may stay | the terminal is gone |
//!
//! A binding whose id is [`TERMINAL_ID`](crate::tmux::TERMINAL_ID) names a terminal: its socket is that of the wrapper, its process is the agent.

mod bound;
mod client;
mod door;
pub mod hosted;
mod typist;
mod wire;

pub use bound::BoundPane;
pub use client::TerminalPane;
pub use door::TerminalDoor;
pub use typist::{LineSubmission, PERSON_PAUSE, PseudoTerminal, TerminalSnapshot};
use typist::{LineTypist, TypedMemory};
use wire::{TerminalAction, TerminalAnswer};

#[cfg(test)]
mod tests;
