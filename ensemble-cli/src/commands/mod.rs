//! The commands. To add one, write its file, and add a line to the list of modules and one to `verbs`, which places it
//! in the tree of commands. Its arguments and its help are those of its type.

mod adopt;
mod agent;
mod anomaly;
mod api;
mod assign;
mod attach;
mod board;
mod completions;
mod conformance;
mod controls;
mod dead;
mod discover;
mod dispatch;
mod doctor;
mod down;
mod fsck;
mod goal;
mod held;
mod help;
mod hook;
mod hooks;
mod inbox;
mod init;
mod instruct;
mod join;
mod lint;
mod log;
mod mailbox;
mod man;
#[cfg(feature = "mcp")]
mod mcp;
mod migrate;
mod notify;
mod pane;
mod ping;
mod projects;
mod prompt;
mod recall;
mod recv;
mod report;
mod request;
mod restart;
mod review;
mod schema;
mod send;
mod spawn;
mod sprint;
mod status;
mod step;
mod summary;
mod supervise;
mod task;
mod team;
mod top;
mod up;
mod usage;
mod verbs;
mod watch;
mod whoami;
mod why;
mod wrapped;

#[cfg(test)]
pub(crate) use verbs::{PLACES, bare, place_among, whole};
pub(crate) use verbs::{Verb, is_hook, parse, program};
