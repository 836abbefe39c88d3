//! Agents in panes: what is typed to them and what is not, in a real tmux server and over scripted panes.

#[path = "../support/panes/agent.rs"]
mod agent;
#[path = "../support/panes/herdr.rs"]
mod herdr;
#[path = "../support/panes/hosts.rs"]
mod hosts;
#[path = "../support/http.rs"]
mod http_server;
#[path = "../support/queue.rs"]
mod queue;
#[path = "../support/panes/stage.rs"]
mod stage;
#[path = "../support/tmux.rs"]
mod tmux_support;

mod drivers;
mod key_clients;
mod nudge;
mod panes;
mod refusals;
mod scripted;
mod server;
#[path = "../support/panes/zellij.rs"]
mod zellij;
