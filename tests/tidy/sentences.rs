//! Sentences of pages and comments have at most 25 words.
//!
//! ```text
//! a paragraph   lines that follow one another; a heading, a bullet, a fence or a blank line ends it;
//!               each cell of a table is one; code in fences, or indented by four, is none
//! a sentence    ends with a word in `.`, `!`, `?` or `:` before a capital, code or an opening quote;
//!               a `·` between the items of a list ends it, too
//! a word        is between blanks and has a letter or a digit; code in backticks is one word,
//!               the address of a link is none
//! ```

use super::{assert_none, files};

const WORDS_MAX: usize = 25;
/// Longer sentences left in the tree. These numbers only ever shrink.
const LONG_IN_PAGES_MAX: usize = 0;
const LONG_IN_COMMENTS_MAX: usize = 0;
/// Vague texts for the linter, and screens and mail of other programs.
const SAMPLES: [&str; 2] = ["tests/lint/", "tests/fixtures/"];
/// The test of real agents writes what it has seen below this heading.
const WRITTEN_BY_A_TEST: (&str, &str) = ("docs/evidence/agents.md", "\n## Results\n");

struct Paragraph {
    /// Line on which it begins, from 1.
    line: usize,
    text: String,
}

/// The paragraphs of a page, or those of a source file's comments.
#[derive(Default)]
struct Reader {
    is_source: bool,
    in_fence: bool,
    /// `//`, `///` or `//!` of the open paragraph.
    marker: &'static str,
    open: Option<Paragraph>,
    done: Vec<Paragraph>,
}

impl Reader {
    fn read(text: &str, is_source: bool) -> Vec<Paragraph> {
        let mut reader = Self { is_source, ..Self::default() };
        for (number, line) in (1..).zip(text.lines()) {
            reader.take(number, line);
        }
        reader.close();
        reader.done
    }

    fn close(&mut self) {
        self.done.extend(self.open.take());
    }

    fn take(&mut self, line: usize, text: &str) {
        let (marker, body) = match comment(text) {
            _ if !self.is_source => ("", text),
            Some(comment) => comment,
            None => {
                self.in_fence = false;
                return self.close();
            }
        };
        let trimmed = body.trim();
        let is_indented = body.starts_with("    ") && (self.is_source || self.open.is_none());
        if is_fence(trimmed) {
            self.in_fence = !self.in_fence;
            self.close();
        } else if self.in_fence || is_indented || trimmed.is_empty() || trimmed.starts_with('#') {
            self.close();
        } else if trimmed.starts_with('|') {
            self.close();
            let cells = trimmed.split('|');
            self.done.extend(cells.map(|cell| Paragraph { line, text: cell.to_owned() }));
        } else {
            if marker != self.marker || is_item(trimmed) {
                self.close();
            }
            self.marker = marker;
            let open = self.open.get_or_insert(Paragraph { line, text: String::new() });
            open.text.push_str(trimmed);
            open.text.push('\n');
        }
    }
}

/// The marker of a line that is a comment, and the text behind it.
fn comment(line: &str) -> Option<(&'static str, &str)> {
    let line = line.trim_start();
    let with = |marker| line.strip_prefix(marker).map(|body| (marker, body));
    let (marker, body) = with("//!").or_else(|| with("///")).or_else(|| with("//"))?;
    Some((marker, body.strip_prefix(' ').unwrap_or(body)))
}

/// Whether a line begins or ends a block of code, and is no code span that happens to begin it.
fn is_fence(line: &str) -> bool {
    line.starts_with("```") && !line.trim_start_matches('`').contains('`')
}

fn is_item(line: &str) -> bool {
    let number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    line.starts_with("- ") || line.starts_with("* ") || (number != line && number.starts_with(". "))
}

/// The text with each code span as one word and without the addresses of links.
fn plain(text: &str) -> String {
    let (mut plain, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(['`', ']']) {
        plain.push_str(&rest[..at]);
        let ticks = rest[at..].len() - rest[at..].trim_start_matches('`').len();
        let mark = if ticks > 0 { &rest[at..at + ticks] } else { "]" };
        rest = &rest[at + mark.len()..];
        plain.push_str(mark);
        if ticks > 0 {
            if let Some((_, after)) = rest.split_once(mark) {
                plain.push_str("code`");
                rest = after;
            }
        } else if let Some((_, after)) = rest.strip_prefix('(').and_then(|a| a.split_once(')')) {
            rest = after;
        }
    }
    plain + rest
}

/// The sentences of a paragraph that have too many words, with their number.
fn long(paragraph: &str) -> Vec<(usize, String)> {
    let text = plain(paragraph);
    let words: Vec<&str> = text.split_whitespace().collect();
    let ends = |word: &str| {
        word.trim_end_matches(['"', '”', ')', '*', '_']).ends_with(['.', '!', '?', ':'])
    };
    let begins = |word: &str| word.starts_with(|c: char| c.is_uppercase() || "`*[(“\"".contains(c));
    let (mut found, mut sentence) = (Vec::new(), Vec::new());
    for (index, word) in words.iter().enumerate() {
        sentence.push(*word);
        let is_end = words.get(index + 1).is_none_or(|next| ends(word) && begins(next));
        if is_end || *word == "·" {
            let is_word = |word: &&&str| word.contains(char::is_alphanumeric);
            let count = sentence.iter().filter(is_word).count();
            if count > WORDS_MAX {
                found.push((count, sentence.join(" ")));
            }
            sentence.clear();
        }
    }
    found
}

#[test]
fn sentences_are_short() {
    let (mut pages, mut comments) = (Vec::new(), Vec::new());
    for (path, text) in files(&[".rs", ".md"]) {
        if SAMPLES.iter().any(|samples| path.starts_with(samples)) {
            continue;
        }
        let (page, heading) = WRITTEN_BY_A_TEST;
        let written = if path == page { text.split(heading).next().unwrap() } else { &text };
        let kind = match path.ends_with(".rs") {
            true => &mut comments,
            false => &mut pages,
        };
        for paragraph in Reader::read(written, path.ends_with(".rs")) {
            for (count, sentence) in long(&paragraph.text) {
                kind.push(format!("{path}:{}: {count} words: {sentence}", paragraph.line));
            }
        }
    }
    for (found, max) in [(pages, LONG_IN_PAGES_MAX), (comments, LONG_IN_COMMENTS_MAX)] {
        if found.len() > max {
            assert_none("a sentence of more than 25 words: cut it in two", &found);
        }
    }
}

#[test]
fn words_and_sentences_are_counted() {
    let counts = |text: &str| -> Vec<usize> {
        Reader::read(text, false).iter().flat_map(|p| long(&p.text)).map(|(n, _)| n).collect()
    };
    let words = |count: usize| vec!["word"; count].join(" ");
    let short = |text: &str, why: &str| assert!(counts(text).is_empty(), "{why}: {text}");
    short(&words(25), "the limit");
    assert_eq!(counts(&words(26)), [26]);
    assert_eq!(counts(&format!("{}\n{}", words(20), words(6))), [26], "a paragraph has lines");
    for end in [". Then ", "! `code` ", "? *Then* ", ": The ", ".\" Then ", " · ", "\n\n", "\n- "]
    {
        short(&format!("{}{end}{}", words(20), words(20)), "two sentences");
    }
    for no_end in ["; ", ": the ", " (", " – ", ", "] {
        assert!(counts(&format!("{}{no_end}{}", words(20), words(20)))[0] >= 40, "{no_end:?}");
    }
    short(&format!("{} `{}`", words(24), words(9)), "code is one word");
    short(&format!("{} [a](b.md \"{}\")", words(24), words(9)), "an address");
    short(&format!("{} – + {}", words(20), words(5)), "signs are no words");
    short(&format!("| {} | {} |", words(20), words(20)), "cells of a table");
    short(&format!("```text\n{}\n```\n\n    {}", words(30), words(30)), "code");
    assert_eq!(counts(&format!("```` ```text ```` opens\n{}", words(24))), [26], "no fence");
}

#[test]
fn comments_are_read_and_code_is_not() {
    let source = "//! A page\n//! of two lines.\n\nlet words = 1; // beside code\n    /// First.\n    \
                  // Second.\n    // - An item.\n// ```text\n// a table\n// ```\n//     code\n";
    let texts: Vec<String> = Reader::read(source, true)
        .iter()
        .map(|paragraph| format!("{}: {}", paragraph.line, paragraph.text.trim()))
        .collect();
    assert_eq!(texts, ["1: A page\nof two lines.", "5: First.", "6: Second.", "7: - An item."]);
}
