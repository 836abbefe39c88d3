//! WIP
#![forbid(unsafe_code)]
pub mod document;
pub mod driver;
pub mod dropbox;
pub mod durable;
pub mod env;
mod error;
pub mod event_log;
pub mod message;
pub mod pane;
pub mod proto;
pub mod provider;
#[cfg(any(test, feature = "sim"))]
pub mod sim;
pub mod spool;
pub mod tmux;

pub use error::{Error, Result};
