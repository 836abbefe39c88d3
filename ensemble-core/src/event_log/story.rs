//! The story of one object: every record that names it, or a message about it.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Map, Value};

use super::Record;
use super::mentions::MentionFilter;
use super::reader::read_mentioning;
use crate::{Error, Result};

/// The fields in which a message names its subject.
const ABOUT: [&str; 3] = ["task_id", "request_id", "correlation_id"];

/// The log's records of one message, task, step, request or agent.
#[derive(Debug)]
pub struct ObjectStory {
    /// The requested name, and the ids of the messages about it.
    pub names: BTreeSet<String>,
    /// Every record with one of the names anywhere in its data or as its actor, in the order of the log.
    pub records: Vec<Record>,
    /// Number of lines skipped because they are not records. The reader checks only both ends of
    /// lines that mention none of the names.
    pub bad_lines: u64,
    pub failure: Option<Error>,
}

/// Reads all records about `id` from the log in `dir`. A message belongs to a task, a request or
/// another message if its stored record names it. Such a message's records belong to the story,
/// too.
pub fn story(dir: &Path, id: &str) -> Result<ObjectStory> {
    let asked = BTreeSet::from([id.to_owned()]);
    let told = of_names(dir, asked.clone())?;
    let messages = told.records.iter().filter(|record| is_about(&record.data, &asked));
    let ids = messages.filter_map(|record| Some(record.data.get("id")?.as_str()?.to_owned()));
    let names: BTreeSet<String> = ids.chain(asked.iter().cloned()).collect();
    // A message's records may precede the record that names its subject, since the sender and the
    // watcher write the log separately.
    if names == asked { Ok(told) } else { of_names(dir, names) }
}

/// Every record that has one of these names, or whose actor has.
fn of_names(dir: &Path, names: BTreeSet<String>) -> Result<ObjectStory> {
    let mut all = read_mentioning(dir, MentionFilter::of(&names))?;
    let is_wanted =
        |record: &Record| names.contains(&record.actor) || names_any(&record.data, &names);
    let records = all.by_ref().filter(is_wanted).collect();
    let bad_lines = all.bad_lines().count();
    Ok(ObjectStory { names, records, bad_lines, failure: all.into_failure() })
}

fn is_about(data: &Map<String, Value>, names: &BTreeSet<String>) -> bool {
    let says = |field: &&str| data.get(*field).and_then(Value::as_str);
    ABOUT.iter().filter_map(says).any(|name| names.contains(name))
}

fn names_any(data: &Map<String, Value>, names: &BTreeSet<String>) -> bool {
    data.values().any(|value| has_name(value, names))
}

fn has_name(value: &Value, names: &BTreeSet<String>) -> bool {
    match value {
        Value::String(text) => names.contains(text),
        Value::Array(items) => items.iter().any(|item| has_name(item, names)),
        Value::Object(members) => names_any(members, names),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::event_log::{EventLog, Recorder as _};

    #[test]
    fn a_story_has_exactly_the_messages_about_its_subject() {
        let home = tempfile::tempdir().unwrap();
        let log = EventLog::open(home.path()).unwrap();
        for (kind, data) in [
            ("message.stored", json!({ "id": "m1", "task_id": "T1" })),
            ("message.stored", json!({ "id": "m2", "task_id": "T2" })),
            ("receipt.notified", json!({ "mailbox": "w", "ids": ["m2", "m1"] })),
            ("message.settled", json!({ "id": "m2" })),
            ("message.settled", json!({ "id": "m1" })),
            ("batch.told", json!({ "summary": { "tasks": [{ "id": "T1" }] } })),
            // The name in a sentence, or as a part of another name, is not a mention.
            ("message.dead", json!({ "id": "m3", "reason": "T1 is late" })),
            ("message.settled", json!({ "id": "m11" })),
        ] {
            log.record(kind, "lead", data);
        }
        log.record("message.stored", "worker", json!({ "id": "m4", "mailbox": "lead" }));
        let story = story(home.path(), "T1").unwrap();
        assert_eq!(story.names, BTreeSet::from(["T1".to_owned(), "m1".to_owned()]));
        let kinds: Vec<_> = story.records.iter().map(|record| record.kind.as_str()).collect();
        assert_eq!(kinds, ["message.stored", "receipt.notified", "message.settled", "batch.told"]);
        assert_eq!(story.bad_lines, 0);
        // Messages from an agent are part of its story.
        assert_eq!(super::story(home.path(), "worker").unwrap().records.len(), 1);
    }

    #[test]
    fn names_are_found_in_every_encoding_and_damage_is_counted() {
        let home = tempfile::tempdir().unwrap();
        let log = EventLog::open(home.path()).unwrap();
        for id in ["m1", "a \"quoted\" \u{7f} one", "grün/blau", "other"] {
            log.record("message.stored", "lead", json!({ "id": id }));
        }
        let path = log.segment_path().unwrap();
        let content = std::fs::read_to_string(&path).unwrap();
        // Another program may encode the same line differently.
        let line = content.lines().find(|line| line.contains("m1")).unwrap();
        let escaped = line.replace("\"m1\"", "\"\\u006d1\"");
        let torn = &line[..line.len() - 9];
        std::fs::write(&path, format!("{content}{escaped}\n{torn}\n")).unwrap();
        for (id, count) in
            [("m1", 2), ("a \"quoted\" \u{7f} one", 1), ("grün/blau", 1), ("blau", 0)]
        {
            let story = story(home.path(), id).unwrap();
            assert_eq!((story.records.len(), story.bad_lines), (count, 1), "{id}");
        }
    }
}
