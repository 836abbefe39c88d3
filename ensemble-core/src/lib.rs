//! WIP
#![forbid(unsafe_code)]
pub mod env;
mod error;
pub mod message;
pub mod pane;
pub mod proto;
pub mod provider;
pub mod tmux;

pub use error::{Error, Result};
