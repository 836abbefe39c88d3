//! The sidecar: sees a file land in the queue within microseconds, routes it, and wakes the right
//! agent in its pane.
//!
//! ```text
//! files (watch_set) ──┐                 ┌── boxes, routing           drop boxes -> mailboxes
//! deadlines ──────────┼── engine.step ──┼── notifier, pane_worker    mailboxes -> panes
//! threads (wakes) ────┘                 ├── requests, departures     asked, decided, expired
//!                                       ├── members, leases, roles   the team
//!                                       └── steps, alarms, status    what is due by the clock
//! ```
//!
//! Events are hints; a listing is the truth. A file that landed while no watcher ran, whose event was lost, or whose
//! directory was replaced is found by the next scan, which runs every 30 seconds unless configured otherwise. Each
//! version of a file reaches each of its recipients once, even if the watcher crashes (`routing` says why).
//!
//! Embedders run a [`Watcher`] on their own thread and end it with a [`WatchStopper`], or use [`ensemble_core::watch`]
//! alone. The loop runs on its caller's thread. Separate threads handle each tmux server that is typed into, each
//! agent that is being shut down, each NATS connection, the ladders, the alerts if `notify` has a rule, and the
//! closing of an inotify descriptor, which can block for milliseconds.
#![forbid(unsafe_code)]
#![cfg_attr(not(feature = "nats"), allow(dead_code, reason = "no thread follows servers"))]

pub mod alarms;
pub mod alerts;
mod answers;
mod authority;
mod board_leases;
mod budget;
mod context;
mod dead_letters;
mod departures;
mod engine;
mod event_queue;
mod failure_log;
mod held_work;
mod history;
pub mod judge;
mod ladders;
mod leases;
mod mail;
mod mail_starts;
mod member_watch;
mod notifier;
mod pane_worker;
mod panics;
mod processes;
mod rate_limit_hold;
mod rejection_notice;
#[cfg_attr(not(feature = "nats"), path = "no_remote.rs")]
mod remote;
mod requests;
mod roles;
mod routing;
mod run;
mod screens;
mod servers;
mod sidebar;
mod status_file;
mod step_server;
mod steps;
mod unplanned;
mod wakes;
mod watch_set;
mod work_file;

pub use ensemble_core::dropbox::{FOUND_QUIET, IN_PLACE_QUIET, INCOMPLETE_PATIENCE};
pub use run::{USED_EVERY, WatchStopper, Watcher, WatcherEnd, run_process, run_process_while};
