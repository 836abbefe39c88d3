//! The blackboard's file.

use std::path::Path;

use ensemble_team::board;
use ensemble_team::fuzzing::{board_comments, board_update, board_value};
use serde_json::{Value, json};

/// A parsed board can be changed in place to exactly the intended state, with all its comments, or
/// the change is refused. Writing the present state again changes no byte.
pub fn check(data: &[u8]) {
    let Ok(source) = std::str::from_utf8(data) else { return };
    if let Err(error) = board::check(source, Path::new("state.yaml")) {
        super::check_error(&error.to_string());
    }
    let Ok(value) = board_value(source) else { return };
    let same = board_update(source, &value).expect("writing the present state");
    assert_eq!(same.trim_end_matches('\n'), source.trim_end_matches('\n'));
    for changed in changes(&value) {
        let Ok(text) = board_update(source, &changed) else { continue };
        assert_eq!(board_value(&text).expect("what was written"), changed);
        assert_eq!(board_comments(&text).ok(), board_comments(source).ok());
        // And back again.
        if let Ok(back) = board_update(&text, &value) {
            assert_eq!(board_value(&back).expect("what was written"), value);
        }
    }
}

/// Typical changes of a board.
fn changes(value: &Value) -> Vec<Value> {
    let mut changes = Vec::new();
    let Value::Object(fields) = value else { return changes };
    let mut with = |name: &str, new: Value| {
        let mut changed = fields.clone();
        changed.insert(name.to_owned(), new);
        changes.push(Value::Object(changed));
    };
    with("revision", json!(7));
    with("goal", json!({ "id": "g", "description": "two\nlines: #no comment\n", "status": null }));
    let task = json!({ "id": "t-new", "status": "DRAFT", "depends_on": [], "done_when": " x " });
    let mut tasks = fields.get("tasks").and_then(Value::as_array).cloned().unwrap_or_default();
    for old in &mut tasks {
        if let Value::Object(old) = old {
            old.insert("status".to_owned(), json!("CLAIMED"));
            old.remove("assigned_to");
        }
    }
    tasks.push(task);
    with("tasks", Value::Array(tasks.clone()));
    with("tasks", Value::Array(tasks.split_off(tasks.len() - 1)));
    if let Some((first, _)) = fields.iter().next() {
        let mut without = fields.clone();
        without.shift_remove(&first.clone());
        changes.push(Value::Object(without));
    }
    changes
}
