//! Requests on a real file system, one promise a test; and a team of a hundred over a modelled one.

mod bed;
mod files;
mod gates;
mod messages;
mod simulation;
#[path = "../support/mod.rs"]
mod support;
