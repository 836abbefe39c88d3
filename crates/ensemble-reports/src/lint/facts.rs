//! Facts that a report must state: agent, count, share and place.

use serde::{Deserialize, Serialize};

use super::boundary::is_cjk;
use super::finding::{LintFinding, LintRule};

/// A required fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum RequiredFact {
    /// A name: `worker-1`, `conductor`.
    Who,
    /// A number.
    Count,
    /// A percentage.
    Share,
    /// `path:line`.
    Where,
}

impl RequiredFact {
    pub const ALL: [Self; 4] = [Self::Who, Self::Count, Self::Share, Self::Where];

    /// The finding that a text does not state it.
    pub(super) fn missing(self) -> LintFinding {
        let (rule, message, instead) = match self {
            Self::Who => (
                LintRule::MissingWho,
                "it does not say who",
                "name the agent, as in `worker_id: worker-1`",
            ),
            Self::Count => (
                LintRule::MissingCount,
                "it does not say how many",
                "give a number, as in `12 of 12 tests pass`",
            ),
            Self::Share => (
                LintRule::MissingShare,
                "it does not say what share",
                "give a percentage, as in `(100%)`",
            ),
            Self::Where => (
                LintRule::MissingWhere,
                "it does not say where",
                "give a path and a line, as in `src/api/auth.py:45-52`",
            ),
        };
        LintFinding::of_file(rule, message, instead)
    }
}

/// Roles that are names by themselves.
const ROLES: [&str; 8] =
    ["conductor", "dispatch", "dispatcher", "reviewer", "coder", "planner", "worker", "learner"];
const NUMBERS: [&str; 15] = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve", "none", "both",
];
/// Chinese counter words.
const COUNTERS: &str = "件回個个人行箇本次条項项処处点";
const NUMERALS: &str = "〇零一二两三四五六七八九十百千万";

pub(super) fn names_agent(text: &str, names: &[String]) -> bool {
    let is_name = |token: &str| {
        let lower = token.to_lowercase();
        let stem = lower.trim_end_matches(|c: char| c.is_ascii_digit());
        let role = stem.trim_end_matches(['-', '_']);
        // A role with a number, or a role that only one agent has.
        ROLES.contains(&role) && (stem.len() < lower.len() || role != "worker")
            || names.iter().any(|name| name.eq_ignore_ascii_case(token))
    };
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    text.split(|c| !is_part(c)).any(|token| is_name(token.trim_matches(['.', '-'])))
        || text.contains("ワーカー") && text.contains(|c: char| c.is_ascii_digit())
}

/// Whether a text has a number that counts something. Numbers in names, lines, versions and
/// percentages do not count.
pub(super) fn has_count(text: &str) -> bool {
    let mut before = ' ';
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let is_start = !before.is_ascii_alphanumeric() && !"-:/#._%".contains(before);
        before = c;
        if c.is_ascii_digit() && is_start {
            let rest = &text[at..];
            let length = rest.find(|c: char| !c.is_ascii_digit() && !",.".contains(c));
            let after = rest[length.unwrap_or(rest.len())..].trim_start_matches(' ');
            let next = after.chars().next().unwrap_or(' ');
            if !"%％-:_".contains(next) && !next.is_ascii_alphabetic() || is_word_after(after) {
                return true;
            }
        }
        let counted = chars.peek().is_some_and(|(_, next)| COUNTERS.contains(*next));
        if NUMERALS.contains(c) && counted {
            return true;
        }
    }
    let is_part = |c: char| c.is_ascii_alphanumeric();
    text.split(|c| !is_part(c)).any(|token| NUMBERS.iter().any(|n| n.eq_ignore_ascii_case(token)))
}

/// Whether a word of at least two letters follows, as in `12 tests`; `12a` is a name.
fn is_word_after(after: &str) -> bool {
    let length = after.bytes().take_while(u8::is_ascii_alphabetic).count();
    length >= 2 && !after.starts_with("percent")
}

pub(super) fn has_share(text: &str) -> bool {
    let mut rest = text;
    while let Some(at) = rest.find(['%', '％']) {
        if rest[..at].trim_end_matches(' ').ends_with(|c: char| c.is_ascii_digit()) {
            return true;
        }
        rest = rest[at..].trim_start_matches(['%', '％']);
    }
    let has_number_before = |word: &str| {
        text.match_indices(word).any(|(at, _)| {
            let before = text[..at].trim_end_matches(' ');
            before.ends_with(|c: char| c.is_ascii_digit() || NUMERALS.contains(c))
        })
    };
    has_number_before("percent") || has_number_before("パーセント") || text.contains("百分之")
}

/// A place that a text names: a path and its lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TextPlace<'t> {
    /// Offset in the text, in bytes.
    pub(super) at: usize,
    pub(super) text: &'t str,
    pub(super) path: &'t str,
    /// The first and the last line.
    pub(super) lines: (u64, u64),
}

const PLACES_MAX: usize = 1_000;
const PATH_BYTES_MAX: usize = 512;
/// Endings that mark a name without a slash as a file rather than a host.
const ENDINGS: [&str; 44] = [
    "rs", "py", "js", "ts", "jsx", "tsx", "go", "c", "h", "cc", "cpp", "hpp", "java", "kt", "rb",
    "php", "cs", "swift", "scala", "lua", "pl", "sh", "bash", "zsh", "sql", "md", "txt", "rst",
    "yaml", "yml", "json", "toml", "ini", "cfg", "xml", "html", "css", "scss", "vue", "proto",
    "lock", "log", "zig", "ex",
];
/// File names without an ending.
const BARE: [&str; 5] = ["Makefile", "Dockerfile", "README", "LICENSE", "Justfile"];
/// Texts between a path and its lines: `src/a.py の 45-52行目`, `src/a.py 第45行`, `src/a.py line 45`,
/// `src/a.py#L45`.
const JOINTS: [&str; 8] = [":", "#L", "の", "第", ", line", ", lines", "line", "lines"];

pub(super) fn places(text: &str) -> Vec<TextPlace<'_>> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "/._-+@~".contains(c);
    let mut found = Vec::new();
    let mut rest = 0;
    while let Some(from) = text[rest..].find(is_part).map(|at| rest + at) {
        let length = text[from..].find(|c| !is_part(c)).unwrap_or(text.len() - from);
        rest = from + length;
        let path = text[from..rest].trim_end_matches('.');
        if path.len() > PATH_BYTES_MAX || !is_path(path) || path.starts_with("//") {
            continue;
        }
        if let Some((lines, end)) = lines_behind(&text[from + path.len()..]) {
            let text = &text[from..from + path.len() + end];
            found.push(TextPlace { at: from, text, path, lines });
            rest = from + text.len();
            if found.len() == PLACES_MAX {
                break;
            }
        }
    }
    found
}

fn is_path(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let ending = name.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    BARE.contains(&name)
        || ending.is_some_and(|ending| ENDINGS.contains(&ending.as_str()))
        || path.contains('/') && name.contains(|c: char| c.is_ascii_alphabetic())
}

/// The lines that follow a path directly, and the end of that text.
fn lines_behind(text: &str) -> Option<((u64, u64), usize)> {
    let mut rest = text.trim_start_matches(['`', ' ']);
    let joint = JOINTS.iter().filter(|joint| rest.starts_with(**joint)).max_by_key(|j| j.len())?;
    rest = rest[joint.len()..].trim_start_matches([' ', 'L']);
    rest = rest.strip_prefix('第').unwrap_or(rest).trim_start();
    let (first, after) = number(rest)?;
    // 12.5 is not a line, and 10:30 after a path is line 10.
    if after.starts_with('.') && after[1..].starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let range = after.strip_prefix(['-', '–', '~', '〜']).map(|rest| rest.trim_start_matches('L'));
    let (last, after) = range.and_then(number).unwrap_or((first, after));
    Some(((first, last.max(first)), text.len() - after.len()))
}

fn number(text: &str) -> Option<(u64, &str)> {
    let length = text.bytes().take_while(u8::is_ascii_digit).count();
    Some((text[..length].parse().ok()?, &text[length..]))
}

pub(super) fn says(fact: RequiredFact, text: &str, names: &[String]) -> bool {
    match fact {
        RequiredFact::Who => names_agent(text, names),
        RequiredFact::Count => has_count(text),
        RequiredFact::Share => has_share(text),
        RequiredFact::Where => !places(text).is_empty(),
    }
}

const _: () = assert!(is_cjk('第'));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_identifies_an_agent_but_a_shared_role_does_not() {
        for text in ["Worker-1 has failed", "by conductor", "worker_2.", "ワーカー3が完了"] {
            assert!(names_agent(text, &[]), "{text}");
        }
        for text in ["a worker has failed", "workers", "worker-", "", "a person"] {
            assert!(!names_agent(text, &[]), "{text}");
        }
        assert!(names_agent("done by alice.", &["Alice".to_owned()]));
    }

    #[test]
    fn numbers_in_names_lines_and_shares_are_not_counts() {
        let english = ["12 tests pass", "no errors: 0", "3/4 done", "three files", "1,204 lines"];
        for text in ["3件を修正", "三件を修正", "修复 4 个"].iter().chain(&english) {
            assert!(has_count(text), "{text}");
        }
        let names = ["worker-1 is done", "src/a.rs:45 is fixed", "issue #123", "v1.2 out"];
        for text in ["87% done", "all tests pass", ""].iter().chain(&names) {
            assert!(!has_count(text), "{text}");
        }
    }

    #[test]
    fn percentages_are_shares() {
        for text in
            ["87% pass", "87 %", "全体の８０と80％", "12.5 percent", "80パーセント", "百分之八十"]
        {
            assert!(has_share(text), "{text}");
        }
        for text in ["3/4", "%d", "100 %%s".trim_end_matches("%%s"), "percent", "3割"] {
            assert!(!has_share(text), "{text}");
        }
    }

    #[test]
    fn places_are_found_in_every_notation() {
        let one = |text: &str| places(text).first().map(|p| (p.path.to_owned(), p.lines));
        let expected = Some(("src/api/auth.py".to_owned(), (45, 52)));
        for text in [
            "src/api/auth.py:45-52",
            "see `src/api/auth.py`:45-52.",
            "src/api/auth.py の 45-52行目",
            "src/api/auth.py 第 45-52 行",
            "src/api/auth.py, lines 45-52",
            "src/api/auth.py#L45-L52",
            "(src/api/auth.py line 45-52)",
        ] {
            assert_eq!(one(text), expected, "{text}");
        }
        assert_eq!(one("Makefile:3"), Some(("Makefile".to_owned(), (3, 3))));
        let hosts = ["localhost:8080", "example.com:443", "http://a/b.rs:1", "10.0.0.1:22"];
        let others = ["at 12:30:45", "ratio 3:4", "src/api/auth.py", "note: 5", "a.rs: done"];
        for text in hosts.iter().chain(&others) {
            assert_eq!(one(text), None, "{text}");
        }
        assert_eq!(places(&"a/b.rs:1 ".repeat(5_000)).len(), PLACES_MAX);
    }
}
