//! Invariants of Ensemble's readers for arbitrary bytes, one file each.
//!
//! ```text
//! envelope   message files                        what is read is written and read to the same
//! control    what a tmux server prints            blocks end where they began to; limits hold
//! screen     what a pane shows                    never ready while a dialog rule matches
//! mcp        tools, and JSON-RPC lines            one answer each; the queue stays whole
//! board      state.yaml                           changed in place to exactly what was meant
//! log_tail   a segment of the event log           the next record is read, none before it is lost
//! config     ensemble.yaml                        what is read is written and read to the same
//! drop_box   reports, reviews, tasks …            what is written under a contract keeps it
//! lint       prose and reports                    findings stand where they say
//! foreign    hooks, ACP, records of sessions      what is shown is short; only our verbs go unasked
//! ```
//!
//! Each file has a `check`, which panics if its invariant is broken. The programs in `bins/` pass
//! it libfuzzer's inputs. `tests/torture/fuzz_regressions.rs` passes it the seeds and every past finding,
//! in every ordinary test run.
#![forbid(unsafe_code)]

pub mod board;
pub mod config;
pub mod control;
pub mod drop_box;
pub mod envelope;
pub mod foreign;
pub mod lint;
pub mod log_tail;
pub mod mcp;
pub mod screen;

/// A target: its name and its invariant.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: [Target; 10] = [
    ("envelope", envelope::check),
    ("control", control::check),
    ("screen", screen::check),
    ("mcp", mcp::check),
    ("board", board::check),
    ("log_tail", log_tail::check),
    ("config", config::check),
    ("drop_box", drop_box::check),
    ("lint", lint::check),
    ("foreign", foreign::check),
];

/// An empty directory, in memory where possible: no target depends on a disk.
pub(crate) fn scratch() -> tempfile::TempDir {
    let in_memory = tempfile::tempdir_in("/dev/shm");
    in_memory.or_else(|_| tempfile::tempdir()).expect("a scratch directory")
}

/// An error's text must be safe to show and log: short, and without control characters.
pub(crate) fn check_error(text: &str) {
    assert!(text.len() <= 64 * 1024, "an error of {} bytes", text.len());
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "an error that steers: {text:?}");
}
