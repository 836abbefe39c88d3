//! Problems of a document, precise enough to correct them.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

/// One problem of one field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FieldProblem {
    /// Line, starting at 1; 0 if the problem is a missing field.
    pub line: u64,
    /// The field, as in `findings[2].severity`.
    pub field: String,
    /// Description of the problem.
    pub detail: String,
    /// The correction.
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
#[non_exhaustive]
pub struct BrokenDocument {
    /// The file.
    pub path: PathBuf,
    /// The problems; at least one.
    pub problems: Vec<FieldProblem>,
}

/// Most problems that are reported for one document.
pub(super) const PROBLEMS_MAX: usize = 20;

fn sentence(problems: &[FieldProblem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
