//! Checks reports for vague words and missing facts: agent, count, share and place (seed 002, the
//! rule against vague expressions).
//!
//! ```text
//! rule            finds
//! vague-word      a banned word: some, about 30, 一部, 大约 …
//! missing-who     a report that names no agent
//! missing-count   … that has no number
//! missing-share   … that has no percentage
//! missing-where   … that has no path:line
//! bad-where       a path:line that does not exist
//! contract        a report that violates its contract
//! bad-allow       a suppression without a reason or without a rule
//! ```
//!
//! Text is read once: one automaton finds banned words of all languages together with quotation
//! marks, code marks and line ends. Words in quotation marks, code, block quotes, paths and
//! addresses are not the writer's own and are ignored. The time is linear in the length of any
//! text.

mod allow;
mod boundary;
mod config;
mod document;
mod facts;
mod finding;
mod output;
mod places;
mod scan;
#[cfg(test)]
mod tests;
mod words;

pub use config::{LintConfig, LintMode, OwnWord};
pub use document::{FILE_BYTES_MAX, LintedFile, TextShape};
pub use facts::RequiredFact;
pub use finding::{LintFinding, LintRule};
pub use output::{FindingFormat, render};
pub use scan::{LintOptions, Linter};
pub use words::{Language, banned_words};
