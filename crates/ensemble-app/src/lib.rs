//! The use cases of Ensemble, each one function over the project as its caller sees it ([`App`]). Verbs, tools, calls of
//! the API, hooks and the live view parse what they were given, call one of them, and print its answer.
#![forbid(unsafe_code)]

pub mod acting;
pub mod admit;
pub mod agent_panes;
pub mod agent_program;
pub mod asking;
pub mod authority;
pub mod batches;
pub mod board_agents;
pub mod boards;
pub mod config_edit;
pub mod config_schema;
pub mod content;
pub mod controls;
pub mod departing;
pub mod diagnostics;
pub mod door_hints;
pub mod drop;
pub mod environment;
pub mod error_line;
pub mod exit_code;
pub mod failure;
pub mod free_names;
pub mod handle;
pub mod held;
pub mod hook_entries;
pub mod hook_files;
pub mod ids;
pub mod interrupt;
pub mod introduction;
pub mod mail;
pub mod new_queue;
pub mod overview;
pub mod queue;
pub mod receipt;
pub mod sentences;
pub mod starting;
pub mod steps;
pub mod story;
pub mod tasks;
pub mod team_log;
pub mod text;
pub mod transport;
pub mod usage;
pub mod wait_line;
pub mod watcher_start;
pub mod worker;

pub use handle::App;
