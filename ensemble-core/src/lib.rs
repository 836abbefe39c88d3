//! WIP
#![forbid(unsafe_code)]
pub mod env;
mod error;
pub mod message;
pub mod pane;
pub mod proto;
#[cfg(any(test, feature = "sim"))]
pub mod sim;

pub use error::{Error, Result};
