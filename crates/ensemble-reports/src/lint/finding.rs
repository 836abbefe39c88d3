//! Findings of a check, with their positions.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LintRule {
    VagueWord,
    /// No agent is named.
    MissingWho,
    MissingCount,
    MissingShare,
    /// No `path:line` is given.
    MissingWhere,
    /// A `path:line` that does not exist.
    BadWhere,
    /// A report that violates its contract.
    Contract,
    /// A suppression without a reason or without a rule.
    BadAllow,
}

impl LintRule {
    pub const ALL: [Self; 8] = [
        Self::VagueWord,
        Self::MissingWho,
        Self::MissingCount,
        Self::MissingShare,
        Self::MissingWhere,
        Self::BadWhere,
        Self::Contract,
        Self::BadAllow,
    ];

    /// The rule's name in suppressions and outputs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::VagueWord => "vague-word",
            Self::MissingWho => "missing-who",
            Self::MissingCount => "missing-count",
            Self::MissingShare => "missing-share",
            Self::MissingWhere => "missing-where",
            Self::BadWhere => "bad-where",
            Self::Contract => "contract",
            Self::BadAllow => "bad-allow",
        }
    }

    pub const fn about(self) -> &'static str {
        match self {
            Self::VagueWord => "A report says numbers, names and places instead of vague words.",
            Self::MissingWho => "A report says who: a worker, Conductor, a reviewer by name.",
            Self::MissingCount => "A report says how many, as a number.",
            Self::MissingShare => "A report says what share, as a percentage.",
            Self::MissingWhere => "A report says where, as path:line.",
            Self::BadWhere => "A place that a report names exists.",
            Self::Contract => "A report can be read as the contract of its file says.",
            Self::BadAllow => "A suppression names a rule or a word, and its reason.",
        }
    }
}

impl fmt::Display for LintRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LintFinding {
    pub rule: LintRule,
    /// Line, starting at 1.
    pub line: u64,
    /// Column in characters, starting at 1.
    pub column: u64,
    pub end_column: u64,
    /// The text found there; empty if something is missing.
    pub text: String,
    pub message: String,
    /// Suggested correction.
    pub instead: String,
    /// Offset in the text, in bytes.
    #[serde(skip)]
    pub(super) at: usize,
}

impl LintFinding {
    /// A finding about a document as a whole.
    pub(super) fn of_file(
        rule: LintRule,
        message: impl Into<String>,
        instead: impl Into<String>,
    ) -> Self {
        Self {
            rule,
            line: 1,
            column: 1,
            end_column: 1,
            text: String::new(),
            message: message.into(),
            instead: instead.into(),
            at: 0,
        }
    }
}

impl fmt::Display for LintFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.message, self.instead)
    }
}
