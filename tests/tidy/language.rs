//! Plain language: sentences name their actor, comments name their thing, and the glossary's words
//! are the only ones for their terms.

use crate::*;

/// Words that hide an actor. Put together here, so that this file does not find itself.
const HIDDEN: [(&str, &[&str]); 4] = [
    ("no", &["body", "bodys"]),
    ("some", &["body", "bodys"]),
    ("who", &["ever", "mever"]),
    ("", &["anybody", "everybody"]),
];
/// First words of a short doc comment that names no thing: `/// Which.`, `/// Its number.`
const RIDDLE_STARTS: [&str; 11] =
    ["Which", "Whose", "Who", "What", "How", "Where", "When", "Its", "It", "That", "Their"];
/// A longer comment has room for a noun.
const RIDDLE_WORDS_MAX: usize = 4;

/// The lines of a file that are so, each as `path:line: text`.
fn lines_that(path: &str, text: &str, is_so: impl Fn(&str) -> bool) -> Vec<String> {
    let found = (1..).zip(text.lines()).filter(|(_, line)| is_so(line));
    found.map(|(number, line)| format!("{path}:{number}: {}", line.trim())).collect()
}

/// A file without its unit tests.
fn product(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default()
}

fn words(text: &str) -> impl Iterator<Item = String> {
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
}

#[test]
fn sentences_name_their_actor() {
    let hidden: Vec<String> = HIDDEN
        .iter()
        .flat_map(|(start, ends)| ends.iter().map(move |end| format!("{start}{end}")))
        .collect();
    let mut found = Vec::new();
    for (path, text) in files(&[".rs", ".md", ".sh"]) {
        if ["CHANGELOG.md", "tests/tidy/language.rs"].contains(&path.as_str()) {
            continue;
        }
        for (number, line) in (1..).zip(text.lines()) {
            let of_line = words(line).filter(|word| hidden.contains(word));
            found.extend(of_line.map(|word| format!("{path}:{number}: {word}")));
        }
    }
    assert_none("a word that hides its actor", &found);
}

/// Prompts, messages and headers of files: people and agents read them in place of an error.
const READ_BY_AGENTS: [&str; 9] = [
    "crates/ensemble-team/src/board/breaker.rs",
    "crates/ensemble-team/src/board/mod.rs",
    "crates/ensemble-team/src/board/prompt/",
    "crates/ensemble-team/src/driver/supervise/mail.rs",
    "crates/ensemble-team/src/driver/steps.rs",
    "crates/ensemble-reports/src/lint/output.rs",
    "crates/ensemble-team/src/steps/prompt/",
    "crates/ensemble-team/src/steps/notices.rs",
    "ensemble-core/src/requests/messages.rs",
];

/// Whether a line of code holds a text that names a command such as `ensemble admin fsck`.
fn names_command(line: &str) -> bool {
    let starts: [String; 2] = ["`", "\""].map(|quote| format!("{quote}ensemble "));
    let verb = |rest: &str| rest.starts_with(|c: char| c.is_ascii_lowercase());
    !line.trim_start().starts_with("//")
        && line.contains('"')
        && starts.iter().any(|start| line.split(start.as_str()).skip(1).any(verb))
}

#[test]
fn the_library_names_no_command() {
    assert!(names_command("\"there is none: `ensemble admin fsck` makes it\""));
    assert!(names_command("format!(\"ensemble step {verb}\")"));
    assert!(!names_command("/// `ensemble admin fsck` repairs it."));
    assert!(!names_command("const ACTOR: &str = \"ensemble\";"));
    let mut found = Vec::new();
    for (path, text) in files(&[".rs"]) {
        // What a project or a use case says to a person ends with the command that helps.
        let homes = ["project", "app", "history", "conformance"];
        let is_of_command =
            homes.iter().any(|home| path.starts_with(&format!("crates/ensemble-{home}/")));
        let is_library = path.starts_with("ensemble-core/src/") || path.starts_with("crates/");
        if !is_library
            || is_of_command
            || path.ends_with("/tests.rs")
            || READ_BY_AGENTS.iter().any(|exempt| path.starts_with(exempt))
        {
            continue;
        }
        found.extend(lines_that(&path, product(&text), names_command));
    }
    assert_none("a text of the library that names a command", &found);
}

/// Commands that hold the terminal, as advice would name them. `ensemble admin watch &` returns.
const ENDLESS: [&str; 3] = ["`ensemble admin watch`", "`ensemble top`", "`ensemble log --follow`"];

#[test]
fn advice_names_no_command_that_holds_the_terminal() {
    let mut found = Vec::new();
    for (path, text) in files(&[".rs"]) {
        let is_product = path.contains("/src/") && !path.starts_with("tests/");
        found.extend(lines_that(&path, product(&text), |line| {
            let is_comment = line.trim_start().starts_with("//");
            is_product && !is_comment && ENDLESS.iter().any(|command| line.contains(command))
        }));
    }
    assert_none("advice that holds the terminal", &found);
}

/// Whether a line is a whole doc comment that starts with a pronoun and ends before it names a thing.
fn is_riddle(line: &str) -> bool {
    let line = line.trim_start();
    let Some(text) = line.strip_prefix("/// ").or_else(|| line.strip_prefix("//! ")) else {
        return false;
    };
    let mut words = text.split_whitespace();
    let starts = words.next().is_some_and(|word| {
        RIDDLE_STARTS.contains(&word.trim_end_matches(|c: char| !c.is_alphanumeric()))
    });
    starts && words.count() < RIDDLE_WORDS_MAX && text.ends_with('.')
}

#[test]
fn doc_comments_name_their_thing() {
    for riddle in ["/// Which.", "    //! Its number.", "/// What became of it."] {
        assert!(is_riddle(riddle), "{riddle}");
    }
    for plain in
        ["/// Number of the attempt.", "/// What the watcher does after a crash.", "// It."]
    {
        assert!(!is_riddle(plain), "{plain}");
    }
    let mut found = Vec::new();
    for (path, text) in files(&[".rs"]).iter().filter(|(path, _)| path != "tests/tidy/language.rs")
    {
        found.extend(lines_that(path, text, is_riddle));
    }
    assert_none("a doc comment that names no thing", &found);
}

#[test]
fn code_and_pages_use_the_words_of_the_glossary() {
    let glossary = std::fs::read_to_string(root().join("docs/concepts/glossary.md")).unwrap();
    let rows =
        glossary.lines().filter(|line| line.starts_with("| ") && !line.contains("| meaning |"));
    let rejected: Vec<&str> = rows
        .clone()
        .filter_map(|row| row.trim_end_matches(" |").rsplit("| ").next())
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .collect();
    assert_eq!(rows.count(), 25, "a newcomer learns 25 terms");
    assert!(rejected.len() >= 5, "this test reads the wrong table");
    let mut found = Vec::new();
    for (path, text) in files(&[".rs", ".md", ".sh"]) {
        if path == "docs/concepts/glossary.md" {
            continue;
        }
        for word in words(&text).filter(|word| rejected.contains(&word.as_str())) {
            found.push(format!("{path}: {word}"));
        }
    }
    assert_none("a word that the glossary replaces", &found);
}
