//! The files that agents exchange, and the words in them.
//!
//! ```text
//! contract   tasks, reports, reviews, escalations: read leniently, written strictly
//! lint       vague words and missing facts in a report
//! ```
//!
//! It knows no team and no mailbox.
#![forbid(unsafe_code)]

pub mod contract;
pub mod lint;
