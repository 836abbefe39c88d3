//! WIP
#![forbid(unsafe_code)]
pub mod document;
pub mod dropbox;
pub mod durable;
pub mod env;
mod error;
pub mod event_log;
pub mod message;
pub mod pane;
pub mod proto;
pub mod provider;
pub mod spool;
pub mod tmux;
#[cfg(any(test, feature = "sim"))]
pub mod sim;

pub use error::{Error, Result};
