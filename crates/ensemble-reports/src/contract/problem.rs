//! Problems of a document, precise enough to correct them.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FieldProblem {
    /// Line, starting at 1; 0 if the problem is a missing field.
    pub line: u64,
    /// The field, as in `findings[2].severity`.
    pub field: String,
    pub detail: String,
    pub hint: String,
}

impl fmt::Display for FieldProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, field, detail, hint } = self;
        if *line > 0 {
            write!(f, "line {line}: ")?;
        }
        write!(f, "{field} {detail}: {hint}")
    }
}

/// A document that is identified as a report, a review or another contract but cannot be read.
/// Lists every problem, not only the first.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {}", path.display(), sentence(problems))]
pub struct BrokenDocument {
    pub path: PathBuf,
    pub problems: Vec<FieldProblem>,
}

pub(super) const PROBLEMS_MAX: usize = 20;

fn sentence(problems: &[FieldProblem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
