//! The section `lint` of `ensemble.yaml`.

use serde::{Deserialize, Serialize};

use super::facts::RequiredFact;
use super::scan::LintOptions;
use super::words::Language;

/// The longest word that a project adds or allows, in bytes.
const WORD_BYTES_MAX: usize = 200;
/// All of them together, in bytes: the automaton that finds them is built at each start.
const WORDS_BYTES_MAX: usize = 16_384;

/// How reports with findings are handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum LintMode {
    /// Reports are not checked.
    Off,
    /// Reports are delivered; the findings are recorded, and the author is notified.
    #[default]
    #[serde(alias = "advise")]
    Warn,
    /// Reports are rejected; the author is notified.
    Refuse,
}

/// A banned word that the project adds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct OwnWord {
    /// The word, or several words.
    pub word: String,
    /// An example of a better wording.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instead: Option<String>,
    /// Its language, if it is banned only there: for example a Chinese word that is harmless in
    /// Japanese.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<Language>,
}

/// Checks in this project. Unset fields have their defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct LintConfig {
    /// How an arriving report with findings is handled: `off`, `warn` (default) or `refuse`.
    pub mode: Option<LintMode>,
    /// The same for messages, tasks and instructions when they are sent: `off` (default), `warn` or `refuse`.
    pub messages: Option<LintMode>,
    /// Facts that a report must state (default: who, count, share, where).
    pub require: Option<Vec<RequiredFact>>,
    /// Languages whose words are banned (default: all three).
    pub languages: Option<Vec<Language>>,
    /// Additional banned words.
    pub words: Vec<OwnWord>,
    /// Built-in words that are allowed here.
    pub allow: Vec<String>,
    /// Names of agents, in addition to `worker-1`, `conductor` and similar ones.
    pub names: Vec<String>,
}

impl LintConfig {
    /// How reports with findings are handled.
    pub fn mode(&self) -> LintMode {
        self.mode.unwrap_or_default()
    }

    /// The list with words that would take seconds to build the search for, and what is wrong with them.
    pub fn fault(&self) -> Option<(String, String)> {
        let lists: [(&str, Vec<&str>); 3] = [
            ("words", self.words.iter().map(|own| own.word.as_str()).collect()),
            ("allow", self.allow.iter().map(String::as_str).collect()),
            ("names", self.names.iter().map(String::as_str).collect()),
        ];
        lists.into_iter().find_map(|(key, texts)| {
            let longest = texts.iter().map(|text| text.len()).max().unwrap_or(0);
            let together: usize = texts.iter().map(|text| text.len()).sum();
            let fault = if longest > WORD_BYTES_MAX {
                format!("a word has {longest} bytes, the limit is {WORD_BYTES_MAX}")
            } else if together > WORDS_BYTES_MAX {
                format!("the words have {together} bytes, the limit is {WORDS_BYTES_MAX}")
            } else {
                return None;
            };
            Some((format!("lint.{key}"), fault))
        })
    }

    /// Options of a linter that looks up places below `root`.
    pub fn options(&self, root: Option<std::path::PathBuf>) -> LintOptions {
        let usual = LintOptions::default();
        LintOptions {
            languages: self.languages.clone().unwrap_or(usual.languages),
            words: self.words.clone(),
            allow: self.allow.clone(),
            require: self.require.clone().unwrap_or(usual.require),
            root,
            names: self.names.clone(),
        }
    }

    /// These settings, with unset fields from `fallback`.
    pub fn or(self, fallback: Self) -> Self {
        Self {
            mode: self.mode.or(fallback.mode),
            messages: self.messages.or(fallback.messages),
            require: self.require.or(fallback.require),
            languages: self.languages.or(fallback.languages),
            words: self.words.into_iter().chain(fallback.words).collect(),
            allow: self.allow.into_iter().chain(fallback.allow).collect(),
            names: self.names.into_iter().chain(fallback.names).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_would_take_seconds_are_refused_with_their_list() {
        let own = |word: String| OwnWord { word, instead: None, language: None };
        let of = |words: Vec<OwnWord>| LintConfig { words, ..LintConfig::default() }.fault();
        assert_eq!(of(vec![own("x".repeat(WORD_BYTES_MAX))]), None);
        let long = of(vec![own("x".repeat(WORD_BYTES_MAX + 1))]).unwrap();
        assert_eq!(long.0, "lint.words");
        assert_eq!(long.1, "a word has 201 bytes, the limit is 200");
        let most = WORDS_BYTES_MAX / WORD_BYTES_MAX;
        let many = |count| of(vec![own("x".repeat(WORD_BYTES_MAX)); count]);
        assert_eq!(many(most), None);
        assert!(many(most + 1).unwrap().1.contains("the limit is 16384"));
        let allow = vec!["y".repeat(WORD_BYTES_MAX + 1)];
        let allowed = LintConfig { allow, ..LintConfig::default() }.fault().unwrap();
        assert_eq!(allowed.0, "lint.allow");
    }
}
