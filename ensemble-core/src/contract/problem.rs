//! What is wrong with a document, precisely enough to mend it.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

/// One thing that is wrong with one field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Problem {
    /// The line, from 1; 0 if it is about something that is not there.
    pub line: u64,
    /// The field, as in `findings[2].severity`.
    pub field: String,
    /// What is wrong with it.
    pub detail: String,
    /// How to say it.
    pub hint: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, field, detail, hint } = self;
        if *line > 0 {
            write!(f, "line {line}: ")?;
        }
        write!(f, "{field} {detail}: {hint}")
    }
}

/// A document that names itself a report, a review … and cannot be read as one. Every problem is
/// named, not only the first.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {}", path.display(), sentence(problems))]
#[non_exhaustive]
pub struct Broken {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it; at least one.
    pub problems: Vec<Problem>,
}

/// How many problems one document is told of.
pub(super) const PROBLEMS_MAX: usize = 20;

fn sentence(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
