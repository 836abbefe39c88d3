//! Plain language: sentences name their actor, and the glossary's words are the only ones for their terms.

use super::{assert_none, files, root};

/// Words that hide an actor. Put together here, so that this file does not find itself.
const HIDDEN: [(&str, &[&str]); 4] = [
    ("no", &["body", "bodys"]),
    ("some", &["body", "bodys"]),
    ("who", &["ever", "mever"]),
    ("", &["anybody", "everybody"]),
];
/// Occurrences left in the tree. This number only ever shrinks.
const HIDDEN_ACTORS_MAX: usize = 538;

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
    let mut found = 0;
    for (path, text) in files(&[".rs", ".md", ".sh"]) {
        if !["CHANGELOG.md", "tests/tidy/language.rs"].contains(&path.as_str()) {
            found += words(&text).filter(|word| hidden.contains(word)).count();
        }
    }
    assert!(found <= HIDDEN_ACTORS_MAX, "{found} words hide their actor: name the actor instead");
}

#[test]
fn code_and_pages_use_the_words_of_the_glossary() {
    let glossary = std::fs::read_to_string(root().join("docs/glossary.md")).unwrap();
    let rows =
        glossary.lines().filter(|line| line.starts_with("| ") && !line.contains("| meaning |"));
    let rejected: Vec<&str> = rows
        .clone()
        .filter_map(|row| row.trim_end_matches(" |").rsplit("| ").next())
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .collect();
    assert!(rows.count() >= 40 && rejected.len() >= 4, "this test reads the wrong table");
    let mut found = Vec::new();
    for (path, text) in files(&[".rs", ".md", ".sh"]) {
        if path == "docs/glossary.md" {
            continue;
        }
        for word in words(&text).filter(|word| rejected.contains(&word.as_str())) {
            found.push(format!("{path}: {word}"));
        }
    }
    assert_none("a word that the glossary replaces", &found);
}
