//! JSON of other programs. An input's first line says what it is: `hook` an event of an agent's hook, `acp` lines of the
//! Agent Client Protocol, `project` a file of the list of projects, or a provider's name its record of a session.

use ensemble_cli::hook_fuzzing::{acp_permissions, hook_texts};
use ensemble_core::message::read_foreign_json;
use ensemble_project::registry::read_entry;
use ensemble_usage::{ReadingLimit, RecordedProgram, UsageRecords};
use serde_json::Value;

/// How long a text of an event may be, in characters; each may be escaped.
const TEXT_CHARS_MAX: usize = 120 * 10;
/// What a shell would do more with than run commands.
const SHELL_CHARACTERS: [char; 7] = ['$', '`', '|', '>', '<', '\n', '\r'];

/// What is read is the same for the strict reader; what is shown is short and steers no terminal; and nothing is
/// allowed without a person but our own verbs.
pub fn check(data: &[u8]) {
    let (head, rest) = data.split_at(data.iter().position(|b| *b == b'\n').unwrap_or(data.len()));
    let rest = rest.strip_prefix(b"\n").unwrap_or(rest);
    if let Ok(value) = serde_json::from_slice::<Value>(rest) {
        assert_eq!(read_foreign_json::<Value>(rest).expect("it is JSON"), value);
    }
    let Ok(head) = std::str::from_utf8(head) else { return };
    match head {
        "hook" => match hook_texts(rest) {
            Ok(texts) => {
                for text in texts {
                    assert!(text.chars().count() <= TEXT_CHARS_MAX, "{text:?}");
                    assert!(!text.contains(char::is_control), "{text:?}");
                }
            }
            Err(error) => super::check_error(&error),
        },
        "acp" => {
            for (line, options, is_everyday, answer) in acp_permissions(rest) {
                let unquoted = !line.contains(['\'', '"']);
                let is_shell = unquoted && line.trim().contains(SHELL_CHARACTERS);
                assert!(!(is_everyday && is_shell), "allowed without a person: {line:?}");
                assert!(!is_everyday || line.is_empty() || line.trim().starts_with("ensemble "));
                // The answer is one of those that were offered.
                let chosen = &answer["outcome"]["optionId"];
                let offered = options.as_array().map_or(&[][..], Vec::as_slice);
                assert!(chosen.is_null() || offered.iter().any(|it| it["optionId"] == *chosen));
            }
        }
        "project" => {
            let home = super::scratch();
            let path = home.path().join("1-1.json");
            std::fs::write(&path, rest).expect("a file");
            if let Some(known) = read_entry(&path) {
                assert!(known.queue.exists(), "{known:?}");
            }
        }
        provider => {
            let Some(program) = RecordedProgram::of_provider(provider) else { return };
            let home = super::scratch();
            let path = home.path().join("record.jsonl");
            std::fs::write(&path, rest).expect("a file");
            let mut records = UsageRecords::new(program);
            records.update(std::slice::from_ref(&path), &mut ReadingLimit::none());
            let entries = records.entries().len();
            assert!(records.entries().is_sorted_by_key(|entry| entry.at));
            records.update(&[path], &mut ReadingLimit::none());
            assert_eq!(records.entries().len(), entries, "an unchanged file was counted twice");
        }
    }
}
