//! Suppressions: `ensemble-lint: allow WORD-OR-RULE: the reason`.
//!
//! On a line of text a suppression applies to that line. Alone on its line (a comment) it also
//! applies to the next one. With `allow-file`, or for a rule about missing facts, it applies to the
//! whole document. Without a reason it suppresses nothing and is a finding itself.

use super::finding::{LintFinding, LintRule};

pub(super) const DIRECTIVE: &str = "ensemble-lint:";
const REASON_CHARS_MIN: usize = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LintSuppression {
    /// Line of the suppression, starting at 1.
    pub(super) line: u64,
    is_alone: bool,
    is_for_file: bool,
    what: Vec<String>,
    wrong: Option<&'static str>,
}

impl LintSuppression {
    /// Parses the text behind [`DIRECTIVE`].
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
        // The reason follows the first colon, ASCII or full width.
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

    fn suppresses(&self, finding: &LintFinding) -> bool {
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

const fn is_of_file(rule: LintRule) -> bool {
    match rule {
        LintRule::MissingWho
        | LintRule::MissingCount
        | LintRule::MissingShare
        | LintRule::MissingWhere => true,
        LintRule::VagueWord | LintRule::BadWhere | LintRule::Contract | LintRule::BadAllow => false,
    }
}

/// Removes suppressed findings, and adds a finding for each invalid suppression.
pub(super) fn apply(findings: &mut Vec<LintFinding>, allowed: &[LintSuppression]) {
    if allowed.is_empty() {
        return;
    }
    // Index the lines, so that one pass suffices for any number of findings and suppressions.
    let mut of_line: std::collections::HashMap<u64, Vec<&LintSuppression>> = Default::default();
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
            let mut finding = LintFinding::of_file(
                LintRule::BadAllow,
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
    fn suppressions_need_a_reason() {
        let wrong = |text: &str| LintSuppression::parse(text, 1, true).wrong;
        assert_eq!(wrong(" allow some: quoted from the ticket"), None);
        assert_eq!(wrong(" allow 一部、多発：議事録の引用 -->"), None);
        assert_eq!(wrong(" allow-file missing-where, missing-share: it only reads"), None);
        assert_eq!(wrong(" allow some"), Some("has no reason"));
        assert_eq!(wrong(" allow some: --"), Some("has no reason"));
        assert_eq!(wrong(" allow : because I want it"), Some("names no rule and no word"));
        assert!(wrong(" disable").is_some() && wrong("").is_some());
    }
}
