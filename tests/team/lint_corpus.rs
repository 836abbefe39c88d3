//! How well the rule against vague words classifies sentences: every sentence of `lint/corpus.txt` by itself, and no
//! clean one classified as vague.

use std::collections::BTreeMap;

use ensemble_reports::lint::{LintOptions, Linter};

const CORPUS: &str = include_str!("lint/corpus.txt");
/// Written without knowledge of the rules, which were corrected by what they had missed.
const UNSEEN: &str = include_str!("lint/unseen.txt");

struct Sentence<'a> {
    is_vague: bool,
    language: &'a str,
    text: &'a str,
}

fn sentences() -> Vec<Sentence<'static>> {
    labelled(CORPUS)
}

fn labelled(corpus: &'static str) -> Vec<Sentence<'static>> {
    let lines = corpus.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let [label, language, text] = line.splitn(3, '\t').collect::<Vec<_>>()[..] else {
                panic!("not a sentence: {line}")
            };
            assert!(matches!(label, "vague" | "clean"), "{line}");
            Sentence { is_vague: label == "vague", language, text }
        })
        .collect()
}

#[test]
fn the_corpus_is_large_and_even() {
    let all = sentences();
    let vague = all.iter().filter(|s| s.is_vague).count();
    assert!(all.len() >= 200, "{}", all.len());
    assert!(vague.abs_diff(all.len() - vague) <= all.len() / 20, "{vague} of {}", all.len());
    for language in ["ja", "en", "zh"] {
        assert!(all.iter().filter(|s| s.language == language).count() >= 60, "{language}");
    }
}

#[test]
fn no_clean_sentence_is_taken_for_vague_and_vague_ones_are_found() {
    let Told { alarms, missed } = tell_apart(sentences());
    assert!(alarms.is_empty(), "false alarms:\n{}", alarms.join("\n"));
    assert!(missed.is_empty(), "missed:\n{}", missed.join("\n"));
}

#[test]
fn sentences_that_the_rules_were_not_made_for_are_told_apart_too() {
    let all = labelled(UNSEEN);
    assert_eq!(all.iter().filter(|s| s.is_vague).count() * 2, all.len());
    let Told { alarms, missed } = tell_apart(all);
    assert!(alarms.is_empty(), "false alarms:\n{}", alarms.join("\n"));
    assert!(missed.is_empty(), "missed:\n{}", missed.join("\n"));
}

struct Told {
    alarms: Vec<String>,
    missed: Vec<&'static str>,
}

/// Lints each sentence by itself, and prints the figures.
fn tell_apart(sentences: Vec<Sentence<'static>>) -> Told {
    let linter = Linter::new(&LintOptions::default());
    let (mut alarms, mut missed) = (Vec::new(), Vec::new());
    let mut figures: BTreeMap<&str, [usize; 4]> = BTreeMap::new();
    for Sentence { is_vague, language, text } in sentences {
        let words: Vec<String> = linter.text(text).into_iter().map(|f| f.text).collect();
        let counts = figures.entry(language).or_default();
        counts[if is_vague { 0 } else { 2 }] += 1;
        match (is_vague, words.is_empty()) {
            (true, true) => missed.push(text),
            (true, false) => counts[1] += 1,
            (false, true) => {}
            (false, false) => {
                counts[3] += 1;
                alarms.push(format!("{text}: {words:?}"));
            }
        }
    }
    for (language, [vague, found, clean, alarms]) in &figures {
        println!(
            "{language}: {found} of {vague} vague found, {alarms} false alarms of {clean} clean"
        );
    }
    Told { alarms, missed }
}

#[test]
fn all_clean_sentences_together_are_clean_too() {
    // Each its own paragraph: what one leaves open must not reach the next.
    let linter = Linter::new(&LintOptions::default());
    for language in ["ja", "en", "zh"] {
        let clean: Vec<&str> = sentences()
            .iter()
            .filter(|s| !s.is_vague && s.language == language)
            .map(|s| s.text)
            .collect();
        let words: Vec<String> =
            linter.text(&clean.join("\n\n")).into_iter().map(|f| f.text).collect();
        assert!(words.is_empty(), "{language}: {words:?}");
    }
}
