//! Names that can be searched: types of two words that are declared once, and functions that name their object.

use crate::*;

const TYPE_WORDS: [&str; 5] = ["struct ", "enum ", "union ", "trait ", "type "];
/// Idioms of their places: clap's arguments of a verb, and the parts of a machine.
const IDIOMS: [&str; 5] = ["Arguments", "Verb", "State", "Event", "Effect"];
const DECLARED_OFTEN: usize = 4;
/// Verbs that name no object: the reader of a search finds all of it.
const VAGUE: [&str; 7] = ["look", "take", "tell", "told", "keep", "note", "give"];

struct Declared {
    name: String,
    place: String,
}

fn word(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

fn declared<'c>(line: &'c str, words: &[&str]) -> Option<&'c str> {
    let is_associated = line.starts_with(' ') && line.trim_start().starts_with("type ");
    let mut line = line.trim_start();
    line = line.strip_prefix("pub ").unwrap_or(line);
    if let Some((_, rest)) = line.strip_prefix("pub(").and_then(|rest| rest.split_once(") ")) {
        line = rest;
    }
    for word in ["const ", "async "] {
        line = line.strip_prefix(word).unwrap_or(line);
    }
    let is_word = |word: &&&str| line.starts_with(**word);
    words.iter().find(is_word).filter(|_| !is_associated).map(|word| &line[word.len()..])
}

/// The names that the files of a crate declare by these words.
fn all(of: &super::crates::Crate, words: &[&str]) -> Vec<Declared> {
    let mut found = Vec::new();
    for source in of.files() {
        for (number, line) in (1..).zip(source.shipped().lines()) {
            if let Some(name) = declared(line, words).map(word).filter(|name| !name.is_empty()) {
                let place = format!("{}:{number}: {name}", source.path);
                found.push(Declared { name, place });
            }
        }
    }
    found
}

fn is_one_word(name: &str) -> bool {
    !name.chars().skip(1).any(char::is_uppercase)
}

fn per_thousand(part: usize, whole: usize) -> u64 {
    (part * 1_000).div_ceil(whole).try_into().unwrap()
}

/// The places of names that are declared at least so often.
fn repeated(types: &[&Declared], times: usize) -> Vec<String> {
    let mut places: BTreeMap<&str, Vec<&String>> = BTreeMap::new();
    for one in types.iter().filter(|one| !IDIOMS.contains(&one.name.as_str())) {
        places.entry(&one.name).or_default().push(&one.place);
    }
    // Each name once, at its last place.
    let often = places.into_values().filter(|places| places.len() >= times);
    often.filter_map(|places| places.last().map(|place| (*place).clone())).collect()
}

pub(crate) fn measures() -> Vec<Measure> {
    let by_crate: Vec<Vec<Declared>> = CRATES.iter().map(|of| all(of, &TYPE_WORDS)).collect();
    let types: Vec<&Declared> = by_crate.iter().flatten().collect();
    let functions: Vec<Declared> = CRATES.iter().flat_map(|of| all(of, &["fn "])).collect();
    assert!(types.len() > 1_000 && functions.len() > 3_000, "this test looks in the wrong place");
    let twice = by_crate.iter().flat_map(|of| repeated(&of.iter().collect::<Vec<_>>(), 2));
    let places = |found: &mut dyn Iterator<Item = &Declared>| -> Vec<String> {
        found.map(|one| one.place.clone()).collect()
    };
    let distinct: BTreeMap<&str, &Declared> =
        types.iter().map(|one| (one.name.as_str(), *one)).collect();
    let one_word = places(&mut distinct.values().copied().filter(|one| is_one_word(&one.name)));
    let is_vague = |one: &&Declared| VAGUE.contains(&one.name.as_str());
    let vague = places(&mut functions.iter().filter(is_vague));
    let (one_word_share, vague_share) =
        (per_thousand(one_word.len(), distinct.len()), per_thousand(vague.len(), functions.len()));
    vec![
        Measure::shrinking("different type names of one word, of 1,000", one_word, "300")
            .with_count(one_word_share),
        Measure::shrinking("type names declared twice in a crate", twice.collect(), "0"),
        Measure::shrinking("type names declared four times", repeated(&types, DECLARED_OFTEN), "0"),
        Measure::shrinking("functions called look, take, tell, …, of 1,000", vague, "5")
            .with_count(vague_share),
    ]
}

#[test]
fn declared_names_are_found() {
    let types = |line: &'static str| declared(line, &TYPE_WORDS).map(word);
    assert_eq!(types("pub(crate) struct RoutedReport<'a> {").as_deref(), Some("RoutedReport"));
    assert_eq!(types("type Graph = u8;").as_deref(), Some("Graph"));
    assert_eq!(types("    type Target = u8;"), None);
    assert_eq!(types("let structure = 1;"), None);
    assert_eq!(declared("    pub const fn look() {}", &["fn "]).map(word).as_deref(), Some("look"));
    assert!(is_one_word("Told") && !is_one_word("NoStep"));
    assert_eq!((per_thousand(1, 3), per_thousand(0, 3)), (334, 0));
}
