//! Suppressions: `ensemble-lint: allow WORD-OR-RULE: the reason`.
//!
//! On a line of text it is for that line; alone on its line (a comment), also for the next one; with
//! `allow-file`, or for a rule about what is missing, for the whole document. Without a reason it
//! suppresses nothing and is a finding itself.

use super::finding::{Finding, Rule};

/// What a suppression begins with.
pub(super) const DIRECTIVE: &str = "ensemble-lint:";
/// How long a reason has to be, in characters.
const REASON_CHARS_MIN: usize = 4;

/// A suppression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Allowed {
    /// Its line, from 1.
    pub(super) line: u64,
    is_alone: bool,
    is_for_file: bool,
    what: Vec<String>,
    /// What is wrong with it.
    wrong: Option<&'static str>,
}

impl Allowed {
    /// Reads what stands behind [`DIRECTIVE`].
    pub(super) fn parse(rest: &str, line: u64, is_alone: bool) -> Self {
        let rest = rest.trim().trim_end_matches("-->").trim_end_matches("*/").trim();
        let verb = rest.split_whitespace().next().unwrap_or_default();
        let is_for_file = verb == "allow-file";
        let mut allowed = Self { line, is_alone, is_for_file, what: Vec::new(), wrong: None };
        if verb != "allow" && !is_for_file {
            allowed.wrong = Some("is neither `allow` nor `allow-file`");
            return allowed;
        }
        let rest = rest[verb.len()..].trim_start();
        // A reason stands behind the first colon, ASCII or full width.
        let (what, reason) = rest.split_once([':', '：']).unwrap_or((rest, ""));
        let names = what.split([',', '、']).map(|name| name.trim().to_lowercase());
        allowed.what = names.filter(|name| !name.is_empty()).collect();
        let reason = reason.trim().chars().filter(|c| c.is_alphanumeric()).count();
        allowed.wrong = match (allowed.what.is_empty(), reason < REASON_CHARS_MIN) {
            (true, _) => Some("names no rule and no word"),
            (false, true) => Some("has no reason"),
            (false, false) => None,
        };
        allowed
    }

    fn suppresses(&self, finding: &Finding) -> bool {
        let is_of_file = self.is_for_file || is_of_file(finding.rule);
        let is_here = finding.line == self.line || (self.is_alone && finding.line == self.line + 1);
        self.wrong.is_none()
            && (is_of_file || is_here)
            && self
                .what
                .iter()
                .any(|what| *what == finding.rule.as_str() || *what == finding.text.to_lowercase())
    }
}

/// Rules about a document as a whole.
const fn is_of_file(rule: Rule) -> bool {
    match rule {
        Rule::MissingWho | Rule::MissingCount | Rule::MissingShare | Rule::MissingWhere => true,
        Rule::VagueWord | Rule::BadWhere | Rule::Contract | Rule::BadAllow => false,
    }
}

/// Takes away what is suppressed, and tells of suppressions that are none.
pub(super) fn apply(findings: &mut Vec<Finding>, allowed: &[Allowed]) {
    if allowed.is_empty() {
        return;
    }
    // One pass, however many there are of both: lines are looked up, not searched.
    let mut of_line: std::collections::HashMap<u64, Vec<&Allowed>> = Default::default();
    let mut of_file = Vec::new();
    for one in allowed {
        of_line.entry(one.line).or_default().push(one);
        if one.is_alone {
            of_line.entry(one.line + 1).or_default().push(one);
        }
        if of_file.len() < 100 {
            of_file.push(one);
        }
    }
    findings.retain(|finding| {
        let here = of_line.get(&finding.line).into_iter().flatten().take(10);
        !here.chain(&of_file).any(|one| one.suppresses(finding))
    });
    for one in allowed {
        if let Some(wrong) = one.wrong {
            let mut finding = Finding::of_file(
                Rule::BadAllow,
                format!("the suppression {wrong}"),
                "write `ensemble-lint: allow some: the word stands in the ticket's title`",
            );
            finding.line = one.line;
            findings.push(finding);
        }
    }
    findings.sort_by_key(|finding| (finding.line, finding.column));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_needed() {
        let wrong = |text: &str| Allowed::parse(text, 1, true).wrong;
        assert_eq!(wrong(" allow some: quoted from the ticket"), None);
        assert_eq!(wrong(" allow 一部、多発：議事録の引用 -->"), None);
        assert_eq!(wrong(" allow-file missing-where, missing-share: it only reads"), None);
        assert_eq!(wrong(" allow some"), Some("has no reason"));
        assert_eq!(wrong(" allow some: --"), Some("has no reason"));
        assert_eq!(wrong(" allow : because I want it"), Some("names no rule and no word"));
        assert!(wrong(" disable").is_some() && wrong("").is_some());
    }
}
