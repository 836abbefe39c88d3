//! Types of records are named by the constants of `event_log::types`, so that a misspelt one does not compile.

use ensemble_core::event_log::types::TABLE;

use crate::*;

/// Calls that write a record; the type is one of the first two arguments.
const CALLS: [&str; 3] = ["record(", "record_often(", "receipts("];
const TABLE_FILE: &str = "/event_log/types.rs";
/// Files with types of messages that have the name of a record, and a word that is many things.
const MESSAGES: [&str; 4] =
    ["/steps/notices.rs", "/steps/submit.rs", "/steps/orders.rs", "/requests/messages.rs"];
const COMMON_WORD: &str = "escalation";

/// The code that is shipped, with its texts and without its comments.
fn shipped(text: &str) -> String {
    let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    text[..end].lines().filter(|line| !line.trim_start().starts_with("//")).collect()
}

fn written() -> Vec<&'static Source> {
    let is_ours = |s: &&Source| {
        s.path.contains("/src/")
            && !s.path.starts_with("fuzz/")
            // Embedders have the words and no constants.
            && !s.path.starts_with("examples/")
            && !s.is_test()
            && !s.path.contains("/tests/")
            && !s.path.ends_with(TABLE_FILE)
    };
    sources().iter().filter(is_ours).collect()
}

/// Literals that stand for a type at a call that writes a record.
fn bare(code: &str) -> Vec<String> {
    let is_type = |text: &&str| text.contains('.') || TABLE.iter().any(|row| row.name == *text);
    let calls = CALLS.iter().flat_map(|call| code.match_indices(call));
    let arguments = calls.map(|(at, call)| code[at + call.len()..].splitn(3, ',').take(2));
    let literals = arguments.flatten().filter_map(|argument| argument.trim().strip_prefix('"'));
    let types = literals.filter_map(|rest| rest.split('"').next()).filter(is_type);
    types.map(str::to_owned).collect()
}

#[test]
fn a_record_is_written_by_a_constant() {
    let (mut found, mut calls) = (Vec::new(), 0);
    for source in written() {
        let code = shipped(&source.text);
        calls += code.matches("record(types::").count();
        found.extend(bare(&code).into_iter().map(|kind| format!("{}: {kind}", source.path)));
    }
    assert!(calls > 50, "this test looks for the wrong thing: {calls}");
    assert_none("a bare literal: use a constant of event_log::types", &found);
}

#[test]
fn a_type_of_record_is_spelt_out_in_one_place() {
    let mut found = Vec::new();
    for source in written() {
        let code = shipped(&source.text);
        let is_message = MESSAGES.iter().any(|file| source.path.ends_with(file));
        for row in TABLE.iter().filter(|row| row.name != COMMON_WORD && !is_message) {
            if code.contains(&format!("\"{}\"", row.name)) {
                found.push(format!("{}: {}", source.path, row.name));
            }
        }
    }
    assert_none("a literal: use a constant of event_log::types", &found);
}

#[test]
fn a_bare_literal_is_found() {
    assert_eq!(bare("log.record(\"nudge.sent\", ACTOR, data)"), ["nudge.sent"]);
    assert_eq!(bare("self.record(world, \"task_start\", data)"), ["task_start"]);
    assert_eq!(bare("log.record(types::TEAM_DOWN, \"ensemble\", data)"), [""; 0]);
}
