//! What the event log says, for people and for other programs.
//!
//! ```text
//! session   a session as one page: who needs a person, what went wrong, who did what when
//! export    traces and metrics, for programs of others
//! ```
//!
//! Both read the log and change nothing of it. No agent and no message needs them.
#![forbid(unsafe_code)]

pub mod export;
pub mod session;
