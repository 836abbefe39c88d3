//! What a check has found, and where.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// A banned word.
    VagueWord,
    /// Nobody is named.
    MissingWho,
    /// There is no number.
    MissingCount,
    /// There is no percentage.
    MissingShare,
    /// There is no `path:line`.
    MissingWhere,
    /// A `path:line` that does not exist.
    BadWhere,
    /// A report that cannot be read as one.
    Contract,
    /// A suppression without a reason, or of no rule.
    BadAllow,
}

impl Rule {
    /// All of them.
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

    /// Its name, as suppressions and outputs have it.
    #[must_use]
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

    /// What it is for, in a sentence.
    #[must_use]
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

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One thing that is to be changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// Which rule.
    pub rule: Rule,
    /// The line, from 1.
    pub line: u64,
    /// The column in characters, from 1.
    pub column: u64,
    /// The column behind it.
    pub end_column: u64,
    /// What stands there; empty if something is missing.
    pub text: String,
    /// What is wrong.
    pub message: String,
    /// How to say it.
    pub instead: String,
    /// Where it begins in the text, in bytes.
    #[serde(skip)]
    pub(super) at: usize,
}

impl Finding {
    /// A finding about a document as a whole.
    pub(super) fn of_file(
        rule: Rule,
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

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.message, self.instead)
    }
}
