//! The single pass over a text. An automaton finds banned words, exact phrases that contain them,
//! and the marks of quotations and code.

use std::sync::{Arc, OnceLock};

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};

use super::allow::{self, DIRECTIVE, LintSuppression};
use super::boundary::{NEIGHBOURHOOD, SIMPLIFIED, is_kana, is_word, token_end};
use super::config::OwnWord;
use super::facts::RequiredFact;
use super::finding::{LintFinding, LintRule};
use super::words::{EXACT, Language, SENSES, WordGuard, listed};

const FINDINGS_MAX: usize = 10_000;

/// Options of a check; start from `LintOptions::default()`.
#[derive(Clone, Debug)]
pub struct LintOptions {
    /// Languages whose words are banned.
    pub languages: Vec<Language>,
    /// Additional banned words.
    pub words: Vec<OwnWord>,
    /// Built-in words that are allowed.
    pub allow: Vec<String>,
    /// Facts that a report must state.
    pub require: Vec<RequiredFact>,
    /// Directory below which `path:line` is looked up; `None` to skip the lookup.
    pub root: Option<std::path::PathBuf>,
    /// Names of agents, in addition to `worker-1`, `conductor` and similar ones.
    pub names: Vec<String>,
}

impl Default for LintOptions {
    fn default() -> Self {
        Self {
            languages: Language::ALL.to_vec(),
            words: Vec::new(),
            allow: Vec::new(),
            require: RequiredFact::ALL.to_vec(),
            root: None,
            names: Vec::new(),
        }
    }
}

#[derive(Clone, Debug)]
enum PatternSort {
    Word { language: Option<Language>, guard: WordGuard, instead: String },
    Exact,
    Mark(TextMark),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextMark {
    LineEnd,
    /// Opens a quotation that ends with this text; straight quotation marks open and close.
    Open(&'static str),
    Close,
    Straight,
    Apostrophe,
    Backtick,
    Tilde,
    Address,
    Directive,
}

const MARKS: &[(&str, TextMark)] = &[
    ("\n", TextMark::LineEnd),
    ("\"", TextMark::Straight),
    ("'", TextMark::Apostrophe),
    ("\u{201c}", TextMark::Open("\u{201d}")),
    ("\u{201e}", TextMark::Open("\u{201c}")),
    ("\u{201d}", TextMark::Close),
    ("\u{2018}", TextMark::Open("\u{2019}")),
    ("\u{2019}", TextMark::Close),
    ("\u{ab}", TextMark::Open("\u{bb}")),
    ("\u{bb}", TextMark::Close),
    ("「", TextMark::Open("」")),
    ("」", TextMark::Close),
    ("『", TextMark::Open("』")),
    ("』", TextMark::Close),
    ("《", TextMark::Open("》")),
    ("》", TextMark::Close),
    ("`", TextMark::Backtick),
    ("~~~", TextMark::Tilde),
    ("://", TextMark::Address),
    (DIRECTIVE, TextMark::Directive),
];

/// Checks texts. The first check builds the automaton of 1.4 MiB, so a watcher without reports has none.
#[derive(Clone, Debug)]
pub struct Linter {
    built: Arc<OnceLock<WordAutomaton>>,
    pub(super) options: LintOptions,
}

/// The automaton of all words and marks, and what each of its patterns is.
#[derive(Debug)]
struct WordAutomaton {
    automaton: AhoCorasick,
    sorts: Vec<PatternSort>,
}

impl Linter {
    pub fn new(options: &LintOptions) -> Self {
        // Linters with the default words share one automaton.
        static USUAL: OnceLock<Arc<OnceLock<WordAutomaton>>> = OnceLock::new();
        let is_usual = options.words.is_empty()
            && options.allow.is_empty()
            && Language::ALL.iter().all(|language| options.languages.contains(language));
        let built = if is_usual { USUAL.get_or_init(Arc::default).clone() } else { Arc::default() };
        Self { built, options: options.clone() }
    }

    /// Checks a text for vague words, in one pass.
    pub fn text(&self, text: &str) -> Vec<LintFinding> {
        let (mut findings, allowed) = self.scan(text, true);
        allow::apply(&mut findings, &allowed);
        findings
    }

    /// As [`Linter::text`], but returns the suppressions instead of applying them. Only a text that
    /// `is_prose` has block quotes and fences; a value of a report has none.
    pub(super) fn scan(
        &self,
        text: &str,
        is_prose: bool,
    ) -> (Vec<LintFinding>, Vec<LintSuppression>) {
        let mut pass = ScanPass::new(text, is_prose);
        let WordAutomaton { automaton, sorts } = self.built.get_or_init(|| build(&self.options));
        for found in automaton.find_iter(text) {
            let (start, end) = (found.start(), found.end());
            if start < pass.skipped_to {
                continue;
            }
            match &sorts[found.pattern().as_usize()] {
                PatternSort::Exact => {}
                PatternSort::Mark(mark) => pass.mark(*mark, start, end),
                PatternSort::Word { language, guard, instead } => {
                    if !pass.is_block_quote
                        && pass.findings.len() < FINDINGS_MAX
                        && is_word(text, start, end, *guard)
                        && (*language != Some(Language::Zh) || !pass.is_japanese(start, end))
                    {
                        pass.vague(start, end, instead);
                    }
                }
            }
        }
        pass.end()
    }
}

fn build(options: &LintOptions) -> WordAutomaton {
    let mut patterns: Vec<String> = Vec::new();
    let mut sorts = Vec::new();
    let allowed: Vec<String> = options.allow.iter().map(|word| word.to_lowercase()).collect();
    // Of two equal words the first counts.
    for OwnWord { word, instead, language } in &options.words {
        if !word.trim().is_empty() {
            patterns.push(word.trim().to_owned());
            let instead =
                instead.clone().unwrap_or_else(|| "a number, a name or a place".to_owned());
            sorts.push(PatternSort::Word { language: *language, guard: WordGuard::None, instead });
        }
    }
    for sense in SENSES.iter().filter(|sense| options.languages.contains(&sense.language)) {
        for word in sense.words().filter(|word| !allowed.iter().any(|it| it == word)) {
            patterns.push(word.to_owned());
            let (language, instead) = (Some(sense.language), sense.instead.to_owned());
            sorts.push(PatternSort::Word { language, guard: sense.guard, instead });
        }
    }
    for exact in listed(EXACT) {
        patterns.push(exact.to_owned());
        sorts.push(PatternSort::Exact);
    }
    for (text, mark) in MARKS {
        patterns.push((*text).to_owned());
        sorts.push(PatternSort::Mark(*mark));
    }
    let built = AhoCorasick::builder()
        .ascii_case_insensitive(true)
        .match_kind(MatchKind::LeftmostLongest)
        .kind(Some(AhoCorasickKind::DFA))
        .build(&patterns);
    // The build fails only for more patterns than fit into 31 bits. Without patterns nothing is
    // found.
    let automaton = built.unwrap_or_else(|_| {
        AhoCorasick::new([] as [&str; 0]).unwrap_or_else(|_| unreachable!("nothing to build"))
    });
    WordAutomaton { automaton, sorts }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextContext {
    Nothing,
    /// A quotation. Findings before it stay, even if it is not closed.
    Quote {
        closes: &'static str,
        kept: usize,
    },
    /// Code between this many backticks.
    Code {
        ticks: usize,
        kept: usize,
    },
    /// A block between lines of this many backticks or tildes.
    Fence {
        mark: char,
        length: usize,
        kept: usize,
    },
}

struct ScanPass<'t> {
    text: &'t str,
    is_prose: bool,
    findings: Vec<LintFinding>,
    allowed: Vec<LintSuppression>,
    within: TextContext,
    line: u64,
    line_start: usize,
    is_block_quote: bool,
    skipped_to: usize,
    /// An offset in this line and the number of characters of the line before it.
    counted: (usize, u64),
    has_kana: Option<bool>,
    /// The last checked sentence position, and whether the sentence has kana and characters of
    /// Chinese only.
    seen: Option<(usize, (bool, bool))>,
}

impl<'t> ScanPass<'t> {
    fn new(text: &'t str, is_prose: bool) -> Self {
        let mut pass = Self {
            text,
            is_prose,
            findings: Vec::new(),
            allowed: Vec::new(),
            within: TextContext::Nothing,
            line: 1,
            line_start: 0,
            is_block_quote: false,
            skipped_to: 0,
            counted: (0, 0),
            has_kana: None,
            seen: None,
        };
        pass.begin_line(0);
        pass
    }

    fn begin_line(&mut self, at: usize) {
        self.line_start = at;
        let rest = self.text[at..].trim_start_matches([' ', '\t']);
        self.is_block_quote = self.is_prose && rest.starts_with('>');
    }

    fn mark(&mut self, mark: TextMark, start: usize, end: usize) {
        match mark {
            TextMark::LineEnd => self.line_end(start),
            TextMark::Address => self.skipped_to = token_end(self.text, end),
            TextMark::Directive => {
                let rest = self.text[end..].lines().next().unwrap_or_default();
                let alone = self.text[self.line_start..start].chars().all(|c| !c.is_alphanumeric());
                self.allowed.push(LintSuppression::parse(rest, self.line, alone));
                self.skipped_to = end + rest.len();
            }
            TextMark::Backtick => self.ticks(start, '`'),
            TextMark::Tilde => self.ticks(start, '~'),
            // The opening quotation mark of one language is the closing mark of another.
            TextMark::Open(closes) => match self.within {
                TextContext::Quote { closes: wanted, .. } if wanted == &self.text[start..end] => {
                    self.close(wanted, start, end);
                }
                _ => self.open(closes),
            },
            TextMark::Close => self.close(&self.text[start..end], start, end),
            TextMark::Straight => match self.within {
                TextContext::Quote { closes: "\"", .. } => self.close("\"", start, end),
                // 5" is a length.
                _ if !self.text[..start].ends_with(|c: char| c.is_ascii_digit()) => self.open("\""),
                _ => {}
            },
            TextMark::Apostrophe => {
                let before = self.text[..start].chars().next_back();
                let after = self.text[end..].chars().next();
                let in_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
                if matches!(self.within, TextContext::Quote { closes: "'", .. }) && !in_word(after)
                {
                    self.close("'", start, end);
                } else if !in_word(before) && in_word(after) {
                    self.open("'");
                }
            }
        }
    }

    /// Ends a line. A quotation opened by an apostrophe ends with the line. Every other quotation
    /// ends with the paragraph: an unclosed one is not a quotation.
    fn line_end(&mut self, at: usize) {
        let is_blank = self.text[self.line_start..at].trim().is_empty();
        self.line += 1;
        self.begin_line(at + 1);
        let is_over = match self.within {
            TextContext::Quote { closes: "'", .. } => true,
            TextContext::Quote { .. } | TextContext::Code { .. } => is_blank,
            TextContext::Nothing | TextContext::Fence { .. } => false,
        };
        if is_over {
            self.within = TextContext::Nothing;
        }
    }

    fn open(&mut self, closes: &'static str) {
        if self.within == TextContext::Nothing {
            self.within = TextContext::Quote { closes, kept: self.findings.len() };
        }
    }

    fn close(&mut self, mark: &str, start: usize, end: usize) {
        let TextContext::Quote { closes, kept } = self.within else { return };
        // An apostrophe inside a word closes nothing.
        let in_word = mark == "\u{2019}"
            && self.text[..start].ends_with(char::is_alphanumeric)
            && self.text[end..].starts_with(char::is_alphanumeric);
        if closes == mark && !in_word {
            self.findings.truncate(kept);
            self.within = TextContext::Nothing;
        }
    }

    /// A run of backticks or tildes: it opens or closes code, or is part of it.
    fn ticks(&mut self, start: usize, mark: char) {
        let length = self.text[start..].len() - self.text[start..].trim_start_matches(mark).len();
        self.skipped_to = start + length;
        let begins_line =
            self.text[self.line_start..start].trim_matches([' ', '\t', '>']).is_empty();
        let kept = self.findings.len();
        self.within = match self.within {
            TextContext::Nothing if begins_line && length >= 3 && self.is_prose => {
                TextContext::Fence { mark, length, kept }
            }
            TextContext::Nothing if mark == '`' => TextContext::Code { ticks: length, kept },
            TextContext::Code { ticks, kept } if ticks == length && mark == '`' => {
                self.findings.truncate(kept);
                TextContext::Nothing
            }
            TextContext::Fence { mark: opened, length: long, kept }
                if begins_line && opened == mark && length >= long =>
            {
                self.findings.truncate(kept);
                TextContext::Nothing
            }
            unchanged => unchanged,
        };
    }

    /// Whether the sentence is Japanese. It is if it has kana. If it has neither kana nor
    /// characters of Chinese only, the rest of the text decides.
    fn is_japanese(&mut self, start: usize, end: usize) -> bool {
        let text = self.text;
        let (kana, chinese) = self.neighbours(start, end);
        let is_chinese = chinese || text[start..end].contains(|c| SIMPLIFIED.contains(c));
        kana || !is_chinese && *self.has_kana.get_or_insert_with(|| text.chars().any(is_kana))
    }

    /// Whether the sentence has kana, and characters of Chinese only. The result for an earlier
    /// word of the same sentence is reused.
    fn neighbours(&mut self, start: usize, end: usize) -> (bool, bool) {
        const SAME_BYTES_MAX: usize = 256;
        let goes_on = |c: &char| !matches!(c, '。' | '！' | '？' | '!' | '?' | '\n');
        let text = self.text;
        if let Some((at, seen)) = self.seen
            && start - at < SAME_BYTES_MAX
            && text[at..start].chars().all(|c| goes_on(&c))
        {
            return seen;
        }
        let before = text[..start].chars().rev().take(NEIGHBOURHOOD).take_while(goes_on);
        let after = text[end..].chars().take(NEIGHBOURHOOD).take_while(goes_on);
        let (mut kana, mut chinese) = (false, false);
        for c in before.chain(after) {
            kana = kana || is_kana(c);
            chinese = chinese || SIMPLIFIED.contains(c);
        }
        self.seen = Some((start, (kana, chinese)));
        (kana, chinese)
    }

    fn vague(&mut self, start: usize, end: usize, instead: &str) {
        let text = &self.text[start..end];
        // Count from the last finding of the line, so that a long line is counted only once.
        let (from, columns) = self.counted.max((self.line_start, 0));
        let columns = columns + self.text[from..start].chars().count() as u64;
        self.counted = (start, columns);
        let column = columns + 1;
        self.findings.push(LintFinding {
            rule: LintRule::VagueWord,
            line: self.line,
            column,
            end_column: column + text.chars().count() as u64,
            text: text.to_owned(),
            message: format!("`{text}` is vague"),
            instead: format!("say it exactly, such as: {instead}"),
            at: start,
        });
    }

    fn end(mut self) -> (Vec<LintFinding>, Vec<LintSuppression>) {
        if let TextContext::Fence { kept, .. } = self.within {
            // An unclosed block is code to the end.
            self.findings.truncate(kept);
        }
        (self.findings, self.allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_text_builds_the_automaton() {
        let options = LintOptions { allow: vec!["several".to_owned()], ..LintOptions::default() };
        let linter = Linter::new(&options);
        assert!(linter.built.get().is_none());
        assert_eq!(linter.text("some of several").len(), 1);
        assert!(linter.clone().built.get().is_some());
    }
}
