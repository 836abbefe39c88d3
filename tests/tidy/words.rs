//! Words and idioms that a native writer would not have chosen, counted by area; CONTRIBUTING.md has what to write.
//!
//! A count is a hint and not a verdict: "for whatever reason" is good English, and is counted all the same.

use crate::*;

/// One idiom a line. `a|b` are alternatives, `^` begins a sentence, `-word` may not follow, `~word` may not precede.
const IDIOMS: [&str; 28] = [
    "told",
    "tell|tells|telling of",
    "stand|stands|stood|standing -for",
    "lie|lies",
    "go|goes|went|going|gone on",
    "become|becomes|became of",
    "take|takes|took|taken|taking in",
    "give|gives|gave|given|giving back",
    "be|is|are|was|were over",
    "be|is|are|was|were there -a -an -any",
    "look|looks|looked|looking after",
    "~there be|is|are|was|were no -longer -more",
    "of ours|theirs|yours|mine",
    "of its|their|our|your|his|her own",
    "^else",
    ", else",
    "all the same",
    "not tell|tells",
    "looked at",
    "anew",
    "meanwhile",
    "whatever",
    "as ever",
    "for ever",
    "also from",
    "so long -as",
    "so many",
    "its|their end",
];
/// Vague texts for the linter, and screens and mail of other programs.
const SAMPLES: [&str; 2] = ["tests/team/lint/", "tests/fixtures/"];
/// Pages without prose to mend: past releases, the list of these idioms, and names of members in JSON.
const EXEMPT: [&str; 3] =
    ["CHANGELOG.md", "tests/tidy/words.rs", "ensemble-cli/src/printed/shapes.rs"];
const AREAS: [&str; 5] =
    ["README and texts of the program", "docs/start", "docs/guides", "other pages", "comments"];

/// 40 in the whole tree.
const GOALS: [&str; 5] = ["0", "0", "5", "10", "25"];

/// A place that an idiom was found in.
struct Found {
    area: usize,
    place: String,
}

/// A word in lower case, or a sign that ends a sentence (`.`) or a part of it (`,`).
struct Token {
    line: usize,
    text: String,
    begins_sentence: bool,
}

/// A line of the table.
struct Idiom {
    line: &'static str,
    begins_sentence: bool,
    not_before: Option<&'static str>,
    /// The alternatives for each word.
    words: Vec<Vec<&'static str>>,
    not_behind: Vec<&'static str>,
}

impl Idiom {
    fn parse(line: &'static str) -> Self {
        let (mut not_before, mut words, mut not_behind) = (None, Vec::new(), Vec::new());
        for part in line.trim_start_matches('^').split(' ') {
            match part.split_at(1) {
                ("~", word) => not_before = Some(word),
                ("-", word) => not_behind.push(word),
                _ => words.push(part.split('|').collect()),
            }
        }
        Self { line, begins_sentence: line.starts_with('^'), not_before, words, not_behind }
    }

    /// Whether the tokens from `at` are this idiom.
    fn is_at(&self, tokens: &[Token], at: usize) -> bool {
        let text = |at: usize| tokens.get(at).map(|token| token.text.as_str());
        let behind = text(at + self.words.len());
        let before = at.checked_sub(1).and_then(text);
        (at..)
            .zip(&self.words)
            .all(|(at, words)| text(at).is_some_and(|text| words.contains(&text)))
            && (!self.begins_sentence || tokens[at].begins_sentence)
            && before.is_none_or(|word| self.not_before != Some(word))
            && !behind.is_some_and(|word| self.not_behind.contains(&word))
    }
}

/// The idioms by their first words.
fn table() -> &'static BTreeMap<&'static str, Vec<Idiom>> {
    static TABLE: OnceLock<BTreeMap<&str, Vec<Idiom>>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut table: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for line in IDIOMS {
            for word in &Idiom::parse(line).words[0] {
                table.entry(*word).or_default().push(Idiom::parse(line));
            }
        }
        table
    })
}

fn tokens(text: &str, first_line: usize) -> Vec<Token> {
    let (mut tokens, mut word_at, mut line) = (Vec::<Token>::new(), None, first_line);
    let mut is_start = true;
    for (at, c) in text.char_indices().chain([(text.len(), '\n')]) {
        if c.is_alphanumeric() || "'_{}".contains(c) {
            word_at.get_or_insert(at);
            continue;
        }
        if let Some(from) = word_at.take() {
            let word = &text[from..at];
            let begins_sentence = is_start && word.starts_with(char::is_uppercase);
            tokens.push(Token { line, text: word.to_lowercase(), begins_sentence });
            is_start = false;
        }
        match c {
            '\n' => line += 1,
            '.' | '!' | '?' | ';' | ':' | '|' => is_start = true,
            ',' | '(' | ')' | '"' | '`' => {}
            _ => continue,
        }
        if c != '\n' {
            tokens.push(Token { line, text: c.to_string(), begins_sentence: false });
        }
    }
    tokens
}

fn idioms(text: &str, first_line: usize) -> Vec<(usize, &'static str)> {
    let tokens = tokens(&without_code(text), first_line);
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let idioms = table().get(token.text.as_str()).into_iter().flatten();
        let here = idioms.filter(|idiom| idiom.is_at(&tokens, at));
        found.extend(here.map(|idiom| (token.line, idiom.line)));
    }
    found
}

/// The text with a blank in place of each code span.
fn without_code(text: &str) -> String {
    let pieces = text.split('`').enumerate();
    pieces
        .map(|(at, piece)| match at % 2 {
            0 => piece.to_owned(),
            _ => format!("`{}", "\n".repeat(piece.matches('\n').count())),
        })
        .collect()
}

/// The lines outside of blocks of code, the others empty.
fn prose(page: &str) -> String {
    let mut in_fence = false;
    let line = |line: &str| {
        let is_fence = line.trim_start().starts_with("```");
        in_fence ^= is_fence;
        if in_fence || is_fence { "\n".to_owned() } else { format!("{line}\n") }
    };
    page.lines().map(line).collect()
}

/// A text and its first line.
type Text = (usize, String);

/// Comments that follow one another as one text, and each literal that has words.
fn texts(source: &str) -> (Vec<Text>, Vec<Text>) {
    let (mut comments, mut literals) = (Vec::<Text>::new(), Vec::new());
    let mut line = 1;
    for (kind, part) in parts(source) {
        let lines = part.matches('\n').count();
        if kind == Kind::Comment {
            let body = part.trim_start_matches(['/', '!', '*']).to_owned();
            match comments.last_mut() {
                Some((first, open)) if *first + open.matches('\n').count() + 1 == line => {
                    open.push('\n');
                    open.push_str(&body);
                }
                _ => comments.push((line, body)),
            }
        } else if kind == Kind::Literal && part.contains(' ') {
            literals.push((line, part.replace("\\n", "  ")));
        }
        line += lines;
    }
    let comments = comments.into_iter().map(|(line, text)| (line, prose(&text))).collect();
    (comments, literals)
}

fn area(page: &str) -> usize {
    match page {
        "README.md" => 0,
        page if page.starts_with("docs/start/") => 1,
        page if page.starts_with("docs/guides/") => 2,
        _ => 3,
    }
}

fn found() -> Vec<Found> {
    let mut found = Vec::new();
    let mut add = |area: usize, path: &str, all: Vec<(usize, &str)>| {
        found.extend(
            all.into_iter()
                .map(|(line, idiom)| Found { area, place: format!("{path}:{line}: {idiom}") }),
        );
    };
    let pages = files(&[".rs", ".md"]);
    assert!(pages.len() > SAMPLES.len() + EXEMPT.len(), "this test looks in the wrong place");
    for (path, text) in pages {
        let is_sample = SAMPLES.iter().any(|samples| path.starts_with(samples));
        if is_sample || EXEMPT.contains(&path.as_str()) {
            continue;
        }
        if path.ends_with(".md") {
            add(area(&path), &path, idioms(&prose(&text), 1));
            continue;
        }
        let (comments, _) = texts(&text);
        comments.iter().for_each(|(line, text)| add(4, &path, idioms(text, *line)));
        let is_crate = path.starts_with("ensemble-") || path.starts_with("crates/");
        if is_crate && path.contains("/src/") && !path.contains("/tests") {
            let shipped = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            let (_, literals) = texts(shipped);
            literals.iter().for_each(|(line, text)| add(0, &path, idioms(text, *line)));
        }
    }
    found
}

/// The number of idioms in each area, with their places.
pub(crate) fn measures() -> Vec<Measure> {
    let found = found();
    let of_area = |area: usize| {
        let places = found.iter().filter(|found| found.area == area);
        let places: Vec<String> = places.map(|found| found.place.clone()).collect();
        Measure::shrinking(&format!("unidiomatic words: {}", AREAS[area]), places, GOALS[area])
    };
    (0..AREAS.len()).map(of_area).collect()
}

#[test]
fn idioms_are_found_and_good_english_is_not() {
    let count = |text: &str| idioms(text, 1).len();
    for bad in [
        "It was told so.",
        "a lease is over",
        "This is no message.",
        "It goes\non.",
        "a mark of ours",
        "Fine. Else it waits.",
        "if it is free, else it waits",
        "| Else it waits |",
        "It waits so long.",
        "what became of it",
    ] {
        assert_eq!(count(bad), 1, "{bad}");
    }
    for good in [
        "There is no message.",
        "It is no longer here.",
        "if so, or else it waits",
        "`told` is a name, and {told} is a value",
        "as long as it runs, so long as it runs",
        "It is, no doubt, over.",
        "Is there a message?",
        "QUEUE stands for a directory",
    ] {
        assert_eq!(count(good), 0, "{good}");
    }
    assert_eq!(idioms("one\ntwo `a\nb`\nand told", 5), [(8, "told")]);
}

#[test]
fn comments_and_literals_are_read_and_code_is_not() {
    let source = "//! A page\n//! of two lines.\n\nlet stands = \"is over\"; // beside code\n/// ```\n\
                  /// told\n/// ```\nfn lies() {}\n";
    let (comments, literals) = texts(source);
    let comments: Vec<_> = comments.iter().map(|(line, text)| (*line, text.trim())).collect();
    assert_eq!(comments, [(1, "A page\n of two lines."), (4, "beside code")]);
    assert_eq!(literals, [(4, "\"is over\"".to_owned())]);
}
