//! `lint` in `ensemble.yaml`.

use serde::{Deserialize, Serialize};

use super::facts::Fact;
use super::scan::Options;
use super::words::Language;

/// What becomes of a report with findings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Nothing is looked at.
    Off,
    /// It is delivered; the findings are recorded, and its author is told.
    #[default]
    Warn,
    /// It is set aside; its author is told.
    Refuse,
}

/// A banned word of one's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct OwnWord {
    /// The word, or several.
    pub word: String,
    /// What to say instead, for example.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instead: Option<String>,
    /// Its language, if it is banned only there: a Chinese word that is harmless in Japanese.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<Language>,
}

/// What is checked in this project. What is not set is as usual.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct LintConfig {
    /// What becomes of a report with findings when it lands: `off`, `warn` (default) or `refuse`.
    pub mode: Option<Mode>,
    /// What a report has to say (default: who, count, share, where).
    pub require: Option<Vec<Fact>>,
    /// The languages whose words are banned (default: all three).
    pub languages: Option<Vec<Language>>,
    /// Words that are banned besides.
    pub words: Vec<OwnWord>,
    /// Built-in words that are not banned here.
    pub allow: Vec<String>,
    /// Names of agents, besides `worker-1`, `conductor` and the like.
    pub names: Vec<String>,
}

impl LintConfig {
    /// What becomes of a report with findings.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode.unwrap_or_default()
    }

    /// The options of a linter, with places looked for below `root`.
    #[must_use]
    pub fn options(&self, root: Option<std::path::PathBuf>) -> Options {
        let usual = Options::default();
        Options {
            languages: self.languages.clone().unwrap_or(usual.languages),
            words: self.words.clone(),
            allow: self.allow.clone(),
            require: self.require.clone().unwrap_or(usual.require),
            root,
            names: self.names.clone(),
        }
    }

    /// This, and where it says nothing, `fallback`.
    #[must_use]
    pub fn or(self, fallback: Self) -> Self {
        Self {
            mode: self.mode.or(fallback.mode),
            require: self.require.or(fallback.require),
            languages: self.languages.or(fallback.languages),
            words: self.words.into_iter().chain(fallback.words).collect(),
            allow: self.allow.into_iter().chain(fallback.allow).collect(),
            names: self.names.into_iter().chain(fallback.names).collect(),
        }
    }
}
