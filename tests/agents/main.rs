//! Agents in panes: what is typed to them and what is not, in a real tmux server and over scripted panes.

#[path = "../support/tmux.rs"]
mod tmux_support;

mod drivers;
mod key_clients;
mod nudge;
mod refusals;
mod scripted;
mod server;
