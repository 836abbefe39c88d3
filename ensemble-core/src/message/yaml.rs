//! The only module that reads and writes YAML.
//!
//! Every text is capped before it is parsed. The parser has a budget: depth 16, no aliases, no
//! duplicate keys, one document, YAML 1.2 booleans only. A hostile file costs milliseconds and
//! gives an error that names its line.

use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_saphyr::options::{DuplicateKeyPolicy, NonFiniteFloatPolicy};
use serde_saphyr::{Budget, Options, with_deserializer_from_str_with_options};

use super::nearest;
use crate::{Error, Result};

pub const DEPTH_MAX: usize = 16;
/// Maximum number of nodes in a document.
const NODES_MAX: usize = 100_000;
/// How the parser ends an error, with line and column.
const PLACE: &str = " at line ";
const COLUMN: &str = ", column ";

fn options() -> Options {
    serde_saphyr::options! {
        budget: budget(),
        duplicate_keys: DuplicateKeyPolicy::Error,
        strict_booleans: true,
        with_snippet: false,
    }
}

fn budget() -> Option<Budget> {
    serde_saphyr::budget! {
        max_depth: DEPTH_MAX,
        max_aliases: 0,
        max_anchors: 0,
        max_merge_keys: 0,
        max_documents: 1,
        max_nodes: NODES_MAX,
        max_events: NODES_MAX * 4,
    }
}

/// Why and where a text is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct YamlFault {
    /// Line and column in characters, as YAML counts them, each starting at 1.
    pub place: Option<(u64, u64)>,
    /// The parser's message, one line, without the place.
    pub detail: String,
}

impl YamlFault {
    /// The error of the file at `path`; `field` is the field with the fault, if known.
    pub fn at(self, path: &Path, field: Option<&str>) -> Error {
        let place = self.place.map_or_else(
            || "file".to_owned(),
            |(line, column)| format!("line {line}, column {column}"),
        );
        let field = field.map(|field| format!(", in `{field}`")).unwrap_or_default();
        Error::malformed(path, place + &field, self.detail)
    }
}

/// Reads a document that came from `path`.
///
/// # Errors
///
/// [`Error::Malformed`] with line, column and the parser's message.
pub fn parse<T: DeserializeOwned>(text: &str, path: &Path) -> Result<T> {
    read(text).map_err(|fault| fault.at(path, None))
}

/// As [`parse`], for a caller that adds the file and field itself.
pub fn read<T: DeserializeOwned>(text: &str) -> std::result::Result<T, YamlFault> {
    read_with(text, options())
}

/// As [`read`], but accepts infinity and NaN.
pub fn read_any<T: DeserializeOwned>(text: &str) -> std::result::Result<T, YamlFault> {
    let mut options = options();
    options.non_finite_float_policy = NonFiniteFloatPolicy::PassThrough;
    read_with(text, options)
}

/// The text of a file that came from `path`. The error says what to do about another encoding.
pub fn decode_text<'c>(content: &'c [u8], path: &Path) -> Result<&'c str> {
    std::str::from_utf8(content).map_err(|error| {
        let what = match content {
            [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => "is UTF-16".to_owned(),
            _ => format!("is not UTF-8 at byte {}", error.valid_up_to()),
        };
        Error::malformed(path, "file", what + ": save it as UTF-8")
    })
}

fn read_with<T: DeserializeOwned>(
    text: &str,
    options: Options,
) -> std::result::Result<T, YamlFault> {
    let text = without_last_mark(text);
    let read = with_deserializer_from_str_with_options(text, options, |parser| {
        deserialize(parser).map_err(serde::de::Error::custom)
    });
    read.map_err(|error| match text.trim().is_empty() {
        true => YamlFault { place: None, detail: "is empty".to_owned() },
        false => find_conflict(text).unwrap_or_else(|| fault(&error)),
    })
}

/// The marks that a merge of git has left in a file.
fn find_conflict(text: &str) -> Option<YamlFault> {
    let line = text.lines().position(|line| line.starts_with("<<<<<<< "))?;
    text.lines().find(|line| line.starts_with(">>>>>>> "))?;
    let detail = "has two versions that git could not merge: keep one, and remove its marks";
    Some(YamlFault { place: Some((line as u64 + 1, 1)), detail: detail.to_owned() })
}

/// One copy of the parser's code serves all types: a copy for each was a twentieth of the program.
#[cfg(feature = "internals")]
fn deserialize<'de, T: DeserializeOwned>(
    parser: impl serde::Deserializer<'de>,
) -> Result<T, erased_serde::Error> {
    erased_serde::deserialize(&mut <dyn erased_serde::Deserializer<'_>>::erase(parser))
}

/// Embedders have few types, and one crate less.
#[cfg(not(feature = "internals"))]
fn deserialize<'de, T: DeserializeOwned, D: serde::Deserializer<'de>>(
    parser: D,
) -> Result<T, D::Error> {
    T::deserialize(parser)
}

/// The text without a trailing `---`, which would begin an empty document. People who write front
/// matter add one out of habit.
fn without_last_mark(text: &str) -> &str {
    let rest = text.trim_ascii_end().strip_suffix("\n---");
    rest.filter(|rest| !rest.trim_ascii().is_empty()).unwrap_or(text)
}

/// An erased error is a text. Each level that it has passed has added its place, the innermost first.
fn fault(error: &serde_saphyr::Error) -> YamlFault {
    let text = error.to_string();
    let (mut message, mut place) = (text.as_str(), None);
    while let Some((rest, numbers)) = message.rsplit_once(PLACE)
        && let Some((line, column)) = numbers.split_once(COLUMN)
        && let (Ok(line), Ok(column)) = (line.parse::<u64>(), column.parse::<u64>())
    {
        (message, place) = (rest, Some((line, column)));
    }
    let given = error.location().map(|at| (at.line(), at.column()));
    let plain = in_plain_words(message.lines().next().unwrap_or_default());
    YamlFault { place: place.or(given), detail: one_line(&plain) }
}

/// How the parser's error for an exceeded budget begins; the name of the budget follows.
const OVER_BUDGET: &str = "budget breached: ";
/// What the parser's error for a duplicate key has before and after the key.
const TWICE: &str = "duplicate mapping key: ";
const TWICE_ADVICE: &str = ", set DuplicateKeyPolicy";
/// How the parser's errors for an unknown field or value begin, and what the author of a file reads
/// instead. `KNOWN` comes before the list of valid ones.
const UNKNOWN: [(&str, &str); 2] =
    [("unknown field `", "unknown field"), ("unknown variant `", "unknown value")];
/// Most names that an error lists.
const KNOWN_MAX: usize = 16;
const KNOWN: &str = "`, expected ";
/// Words of the parser, for programmers, and what they mean to the author of a file.
const PLAIN_WORDS: [(&str, &str); 14] = [
    (
        "cannot deserialize null into string; use Option<String>",
        "is empty where a text is expected",
    ),
    ("cannot deserialize null into", "is empty where a value is expected:"),
    ("string scalar", "a single value: put a text into quotes"),
    ("mapping start", "fields, each as `name: value`"),
    ("sequence start", "a list, such as `[a, b]`"),
    ("u8", "a whole number from 0 to 255"),
    ("u16", "a whole number from 0 to 65535"),
    ("u32", "a whole number from 0"),
    ("u64", "a whole number from 0"),
    ("usize", "a whole number from 0"),
    ("i32", "a whole number"),
    ("i64", "a whole number"),
    ("f32", "a number"),
    ("f64", "a number"),
];

/// What the parser says of a text that is not YAML, by its distinct words, and what the author of the file reads instead.
const SYNTAX: [(&str, &str); 32] = [
    ("tagged enum", "expected one word"),
    ("non-finite", "expected a number"),
    ("unexpected EOF", "ends before a bracket or a quote is closed"),
    ("end of input", "ends where a value is expected"),
    ("valid inside a block", "has an item (`- `) inside of brackets: write commas between items"),
    ("tab cannot be", "is indented by a tab: use blanks"),
    ("tabs disallowed", "is indented by a tab: use blanks"),
    ("scanning an anchor", ANCHOR),
    ("mapping values are not allowed", "has a `: ` inside of a text: put the text into quotes"),
    ("simple key", "is not `name: value`: a text of several lines needs `|` and deeper lines"),
    ("found a tab", "is indented by a tab: use blanks"),
    (
        "quoted scalar, found unknown escape",
        "has a `\\` in double quotes: write `\\\\`, or use single quotes",
    ),
    ("multiline quoted scalar", "has a quote that is not closed"),
    ("unclosed quote", "has a quote that is not closed"),
    ("unclosed bracket", "has a bracket that is not closed"),
    (
        "invalid trailing content",
        "continues after its closing quote: put the whole text into quotes",
    ),
    ("invalid indentation", "is not indented as the lines before it"),
    ("invalid floating point", "expected a number"),
    ("invalid boolean", "expected true or false"),
    ("unknown anchor", ANCHOR),
    ("recursion limit", "is nested too deep"),
    ("expected '-' indicator", "is neither an item (`- `) of the list before it nor a field"),
    ("surrogate", "has half of a character in double quotes, such as `\\ud800`"),
    ("hexadecimal", "has a `\\x` or `\\u` without its digits in double quotes: write `\\\\`"),
    ("block scalar", "has a line after `|` or `>` that is not as deep as the first"),
    ("plain scalar", "begins with a mark of YAML: put the text into quotes"),
    ("a tag", "begins with `!`: put the text into quotes"),
    ("<document start>", "is not indented as the lines before it, or by a tab: use blanks"),
    ("YAML major version", "begins with a `%YAML` of another version: remove the line"),
    ("directive", "begins with `%`: put the text into quotes"),
    ("flow ", "lacks a comma or the end of its brackets"),
    (
        "did not find expected key",
        "continues after its closing bracket, or is not indented as the lines before it: put a text with brackets into quotes",
    ),
];
const ANCHOR: &str =
    "has a text that begins with `*` or `&`, an alias or anchor of YAML: put the text into quotes";
/// How the parser names a character with which nothing begins.
const CHARACTER: &str = "unexpected character: `";

/// The parser's message for the author of a file, who cannot set the parser's options.
pub fn in_plain_words(message: &str) -> String {
    if let Some(breach) = message.strip_prefix(OVER_BUDGET) {
        return match breach.split([' ', '{']).next().unwrap_or_default() {
            "Documents" => "has more than one document: remove the second `---`".to_owned(),
            "Anchors" | "Aliases" | "AliasAnchorRatio" | "MergeKeys" => ANCHOR.to_owned(),
            "Depth" => format!("is nested deeper than {DEPTH_MAX} levels"),
            _ => "is too large".to_owned(),
        };
    }
    if let Some(key) = message.strip_prefix(TWICE) {
        let key = key.split(TWICE_ADVICE).next().unwrap_or_default();
        return format!("has the key `{key}` twice");
    }
    for (start, what) in UNKNOWN {
        let rest = message.strip_prefix(start).and_then(|rest| rest.split_once(KNOWN));
        let Some((given, known)) = rest else { continue };
        let known = known.trim_start_matches("one of ").split(", ").map(|it| it.trim_matches('`'));
        let known: Vec<&str> = known.filter(|name| !name.is_empty()).collect();
        let more = if known.len() > KNOWN_MAX { ", …" } else { "" };
        let listed = &known[..known.len().min(KNOWN_MAX)];
        // A name that was cut off, or has a word too many.
        let is_longer = |name: &&&str| name.starts_with(given) || given.starts_with(**name);
        let near = nearest(given, known.iter().copied());
        return match near.first().or_else(|| known.iter().find(is_longer)) {
            Some(meant) => format!("{what} `{given}`: did you mean `{meant}`?"),
            None => format!("{what} `{given}`: known are {}{more}", listed.join(", ")),
        };
    }
    if let Some((_, plain)) = SYNTAX.iter().find(|(words, _)| message.contains(words)) {
        return (*plain).to_owned();
    }
    if let Some(character) = message.strip_prefix(CHARACTER) {
        let character = character.trim_end_matches('\'');
        if character.starts_with("\\u{") || character.starts_with(char::is_control) {
            return "has a control character: remove it".to_owned();
        }
        return format!(
            "begins with {character}: put the text into quotes, and leave out code fences"
        );
    }
    // What it did at that moment says nothing to the author.
    let message = match message.split_once(", ") {
        Some((doing, rest)) if doing.starts_with("while ") => rest,
        _ => message,
    };
    // Rust's word for the wrong value says nothing to the author either.
    let expected = message.strip_prefix("invalid ").and_then(|it| it.split_once(", expected "));
    let mut plain = expected.map_or_else(|| message.to_owned(), |it| format!("expected {}", it.1));
    for (word, meaning) in PLAIN_WORDS {
        for lead in ["expected ", "invalid ", ""] {
            let ends = format!("{lead}{word}");
            let is_sentence = lead.is_empty() && word.contains(' ');
            if (!lead.is_empty() && plain.ends_with(&ends)) || (is_sentence && plain.contains(word))
            {
                let lead = if lead.is_empty() { "" } else { "expected " };
                plain = plain.replacen(&ends, &format!("{lead}{meaning}"), 1);
            }
        }
    }
    plain
}

pub fn render<T: Serialize>(value: &T) -> String {
    // Our own types always have a YAML form: maps with string keys, sequences and scalars.
    serde_saphyr::to_string(value).unwrap_or_default()
}

/// The first line of an error, without control characters.
fn one_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().filter(|c| !c.is_control()).take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_the_innermost_place_once_however_deep_it_is() {
        type Deep = std::collections::BTreeMap<String, Vec<Option<u8>>>;
        let found = |text: &str| read::<Deep>(text).unwrap_err();
        let wrong = found("a:\n  - 300\n");
        let detail = "expected a whole number from 0 to 255".to_owned();
        assert_eq!(wrong, YamlFault { place: Some((2, 5)), detail });
        // A place that the text itself names is none.
        let quoted = found("a:\n  - {at line 9, column 9: 1}\n");
        assert_eq!(quoted.place, Some((2, 5)), "{quoted:?}");
    }

    #[test]
    fn an_unknown_field_or_value_names_the_one_that_is_meant_or_all() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        #[allow(dead_code, clippy::allow_attributes, reason = "only its errors are read")]
        struct Config {
            agents: u8,
            routes: u8,
            durability: crate::durable::Durability,
        }
        let detail = |text: &str| read::<Config>(text).unwrap_err().detail;
        assert_eq!(detail("agent: 1\n"), "unknown field `agent`: did you mean `agents`?");
        assert_eq!(
            detail("nothing: 1\n"),
            "unknown field `nothing`: known are agents, routes, durability"
        );
        let cut = detail("agents_of_mine: 1\n");
        assert_eq!(cut, "unknown field `agents_of_mine`: did you mean `agents`?");
        assert_eq!(detail("durability: powr\n"), "unknown value `powr`: did you mean `power`?");
    }

    #[test]
    fn an_empty_text_and_the_marks_of_a_merge_are_named() {
        let merged = "id: a\n<<<<<<< HEAD\npriority: 1\n=======\npriority: 2\n>>>>>>> other\n";
        type Map = std::collections::BTreeMap<String, String>;
        let wrong = read::<Map>(merged).unwrap_err();
        assert!(wrong.detail.contains("git could not merge") && wrong.place == Some((2, 1)));
        assert_eq!(read::<u64>(" \n").unwrap_err().detail, "is empty");
    }

    /// Texts with a fault of the rarer kinds.
    const FAULTY: &str = "at: .inf\n|id: a\nunit: [power]\n|id: [\n- a\n|id: {a: b\n|id: [a, b\npriority: 1\n\
        |id: -]\n|id: >\n  a\n b\n|id:\n\t- a\n|%id\n---\nid: a\n|id: !<a\n|id: &\n|id: \"\\ud800\"\n|id: \"\\xg\"\n|";

    #[test]
    fn an_error_has_no_word_of_the_parser_for_programmers() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        #[allow(dead_code, clippy::allow_attributes, reason = "only its errors are read")]
        struct Report {
            id: String,
            priority: Option<u8>,
            attempt: Option<u64>,
            at: Option<f64>,
            tags: Option<Vec<String>>,
            is_final: Option<bool>,
            unit: Option<crate::durable::Durability>,
        }
        let wrong = read::<Report>("id: a\nis_final: {a: 1}\n").unwrap_err().detail;
        assert_eq!(wrong, "expected a single value: put a text into quotes");
        let deep = format!("id: {}x{}\n", "[".repeat(20), "]".repeat(20));
        for text in [
            "id: a\n---\nid: b\n",
            "id: &a x\npriority: 1\n",
            "id: *a\n",
            "id: a\nid: b\n",
            "id:\n",
            "id: ~\n",
            "id: [a]\n",
            "id: {a: b}\n",
            "id: a\npriority: 300\n",
            "id: a\npriority: 5.0\n",
            "id: a\npriority: \"5\"\n",
            "id: a\npriority: x\n",
            "id: a\nattempt: -1\n",
            "id: a\nat: soon\n",
            "id: a\ntags: x\n",
            "id: a\ntags: [x: y]\n",
            "id: a\nis_final: yes\n",
            "id: a\nother: b\n",
            "priority: 1\n",
            "- a\n",
            "a: [1\n",
            "a: \"x\n",
            "\ta: 1\n",
            "id: !!binary x\n",
            "id: a: b\n",
            "id: @a\n",
            "id: \"\\q\"\n",
            "id: 'a' b\n",
            "id: |\n a\n  b\n c\nd\n",
            "id: a\n - b\n",
            "- a\nb\n",
            "```yaml\nid: a\n```\n",
            "id: [a] b\n",
            "\u{1b}[32mid: a\n",
            "# a\n\tx: 1\nid: a\n",
            "%YAML 2.0\n---\nid: a\n",
            "<<: *a\n",
            &deep,
        ]
        .into_iter()
        .chain(FAULTY.split('|'))
        {
            let Err(fault) = read::<Report>(text) else { continue };
            let words = "Option|Policy|budget|deserializ|scalar|u8|u64|f64|mapping start\
                |{ |serde|struct|Anchors|breach|while |simple key|mapping values|references|recursion|document start|invalid type\
                |expected key|u{|floating|strict mode|EOF|enum|policy|flow|block|directive|surrogate|hexadecimal|end of input|major version|document start>";
            let found: Vec<&str> =
                words.split('|').filter(|word| fault.detail.contains(word)).collect();
            assert!(found.is_empty(), "{text:?}: {found:?} in {:?}", fault.detail);
        }
        assert_eq!(read::<Report>("id: a\nid: b\n").unwrap_err().detail, "has the key `id` twice");
    }

    #[test]
    fn a_mark_at_the_end_begins_no_second_document() {
        let read = read::<std::collections::BTreeMap<String, String>>;
        for text in ["a: b\n---\n", "---\na: b\n---", "a: b\n...\n---\n\n"] {
            assert_eq!(read(text).unwrap()["a"], "b", "{text:?}");
        }
        assert!(read("a: b\n---\nc: d\n").is_err());
    }
}
