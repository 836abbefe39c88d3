//! Rules over several reviews: `all("approved")`, `any("needs_fix")`.

use std::fmt;
use std::str::FromStr;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum VerdictRule {
    /// Every verdict is this one, and there is at least one verdict.
    All(String),
    Any(String),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a rule: write all(\"approved\") or any(\"needs_fix\")")]
pub struct RuleError {
    text: String,
}

impl VerdictRule {
    /// Whether the rule holds. Verdicts are compared in any of their spellings.
    pub fn holds<'a>(&self, verdicts: impl IntoIterator<Item = &'a str>) -> bool {
        let mut verdicts = verdicts.into_iter().map(canonical);
        match self {
            Self::All(wanted) => {
                let first = verdicts.next();
                first.as_ref() == Some(wanted) && verdicts.all(|verdict| verdict == *wanted)
            }
            Self::Any(wanted) => verdicts.any(|verdict| verdict == *wanted),
        }
    }
}

fn canonical(verdict: &str) -> String {
    match super::Verdict::read(verdict) {
        Some(known) => known.as_str().to_owned(),
        None => super::reader::word(verdict),
    }
}

impl FromStr for VerdictRule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let fail = || RuleError { text: text.escape_debug().take(60).collect() };
        let (name, rest) = text.trim().split_once('(').ok_or_else(fail)?;
        let word = rest.trim_end().strip_suffix(')').ok_or_else(fail)?.trim();
        let quote = word.chars().next().filter(|c| matches!(c, '"' | '\'')).ok_or_else(fail)?;
        let word = word[1..].strip_suffix(quote).ok_or_else(fail)?;
        if word.is_empty() || word.contains(['"', '\'']) {
            return Err(fail());
        }
        match name.trim() {
            "all" => Ok(Self::All(canonical(word))),
            "any" => Ok(Self::Any(canonical(word))),
            _ => Err(fail()),
        }
    }
}

impl fmt::Display for VerdictRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All(word) => write!(f, "all(\"{word}\")"),
            Self::Any(word) => write!(f, "any(\"{word}\")"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_parsed_strictly_and_round_trip() {
        for (text, rule) in [
            ("all(\"approved\")", "all(\"approved\")"),
            ("any(\"needs_fix\")", "any(\"needs_fix\")"),
            (" any( 'Needs Fix' ) ", "any(\"needs_fix\")"),
        ] {
            assert_eq!(text.parse::<VerdictRule>().unwrap().to_string(), rule);
        }
        for wrong in
            ["", "all", "all()", "all(approved)", "none(\"x\")", "all(\"a\"", "any(\"a\",\"b\")"]
        {
            assert!(wrong.parse::<VerdictRule>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn one_needs_fix_is_enough_and_all_needs_a_verdict() {
        let any: VerdictRule = "any(\"needs_fix\")".parse().unwrap();
        assert!(any.holds(["approved", "changes requested"]));
        assert!(!any.holds(["approved"]) && !any.holds([]));
        let all: VerdictRule = "all(\"approved\")".parse().unwrap();
        assert!(all.holds(["LGTM"]) && !all.holds([]));
    }
}
