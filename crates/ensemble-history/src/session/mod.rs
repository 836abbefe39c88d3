//! A session of the event log as one page for people: who needs a person, what went wrong, who did what when.
//!
//! ```text
//! records, streamed ──> Story (bounded) ──────────────> page: one file, its own style and script, no network
//!                       states, tasks, requests, troubles, stories, latencies
//! the present       ──> needs, usage ────────────────>
//! ```
//!
//! However long the log is, the story keeps at most this many of each thing and counts the rest.

mod asked;
mod index;
mod latency;
mod page;
mod planned;
mod sections;
mod states;
mod story;
#[cfg(test)]
mod tests;
mod timeline;
mod trouble;
mod work;

pub use page::{AgentUse, SessionPresent, page};
pub use story::SessionStory;
