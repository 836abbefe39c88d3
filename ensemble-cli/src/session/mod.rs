//! A session of the event log as one page for people: what went wrong first, then who did what when, and
//! how long things took. One file, without a script and without the network.
//!
//! ```text
//! records, streamed ──> Story (bounded) ──> page
//!                       spans, marks, troubles, latencies, totals
//! ```
//!
//! However long the log is, the story keeps at most so many of each thing and counts the rest.

mod latency;
mod page;
mod story;
#[cfg(test)]
mod tests;
mod timeline;
mod trouble;

pub(crate) use page::page;
pub(crate) use story::Story;
