//! Fields of files as people and models write them: which name means which field, and whom a text names. The router, the
//! contracts and the readers of acks ask here, so that a field means the same to each of them.

use serde_json::Value;

use super::Name;

/// The names of the field with the task of a report.
pub const TASK_FIELDS: [&str; 3] = ["task_id", "task", "taskid"];
/// The same of a task itself.
pub const TASK_ID_FIELDS: [&str; 2] = ["id", "task_id"];
/// The names of the field with the agent that answers for a report.
pub const WORKER_FIELDS: [&str; 5] = ["worker_id", "worker", "workerid", "agent", "agent_id"];
/// The same with the agent that has done the work.
pub const EXECUTOR_FIELDS: [&str; 2] = ["executed_by", "executor"];
/// The same with the agent that has reviewed it.
pub const REVIEWER_FIELDS: [&str; 2] = ["reviewer", "reviewed_by"];

/// A field's name in the form in which names are compared: `taskId`, `task-id` and `Task_ID` become `task_id`.
pub fn plain_field(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 4);
    let mut was_lower = false;
    for c in name.trim().chars() {
        if matches!(c, '-' | ' ' | '_') {
            out.push('_');
        } else {
            if c.is_uppercase() && was_lower {
                out.push('_');
            }
            out.extend(c.to_lowercase());
        }
        was_lower = c.is_lowercase() || c.is_ascii_digit();
    }
    out
}

/// A value without the blanks, quotes and byte order mark around it: they are only how it was written, at each door.
pub fn strip_quotes(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || ['"', '\'', '`', '\u{feff}'].contains(&c))
}

/// A switch as people and models write it; `None` if the text is not one.
pub fn read_flag(text: &str) -> Option<bool> {
    match &*strip_quotes(text).to_ascii_lowercase() {
        "true" | "yes" | "y" | "on" | "1" | "1.0" => Some(true),
        "false" | "no" | "n" | "off" | "0" | "0.0" => Some(false),
        _ => None,
    }
}

/// The first of these fields that has a text, a number or a truth value, perhaps alone in a list, as text.
pub fn field_text(fields: &Value, names: &[&str]) -> Option<String> {
    let fields = fields.as_object()?;
    names.iter().find_map(|name| {
        let mut values = fields.iter().filter(|(field, _)| plain_field(field) == *name);
        values.find_map(|(_, value)| scalar_text(value))
    })
}

fn scalar_text(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => strip_quotes(text).to_owned(),
        Value::Number(number) => number.to_string(),
        Value::Bool(value) => value.to_string(),
        Value::Array(items) if items.len() == 1 => return scalar_text(&items[0]),
        Value::Null | Value::Array(_) | Value::Object(_) => return None,
    };
    (!text.is_empty()).then_some(text)
}

/// The fields that may name the author of a file whose messages have this type, best first. A task and an escalation
/// name a worker as well, who has not written them.
pub fn author_fields(kind: Option<&str>) -> Vec<&'static str> {
    let work = [&WORKER_FIELDS[..], &EXECUTOR_FIELDS];
    match kind {
        Some("task" | "report.escalation") => vec!["from", "escalated_by", "created_by"],
        Some("report.review") => [&REVIEWER_FIELDS[..], work[0], work[1], &["from"]].concat(),
        _ => [work[0], work[1], &REVIEWER_FIELDS, &["from"]].concat(),
    }
}

/// The agent that a text names: seed 002's workers are numbers, and `1` is `worker-1`. Quotes around it do not count.
pub fn agent_of_text(text: &str) -> Option<Name> {
    let text = bare(text);
    Name::new(if is_number(text) { format!("worker-{text}") } else { text.to_owned() }).ok()
}

/// The same among the names of mailboxes, in any case.
pub fn agent_among<'a>(text: &str, mailboxes: &'a [Name]) -> Option<&'a Name> {
    let text = bare(text);
    let find = |name: &str| mailboxes.iter().find(|it| it.as_str().eq_ignore_ascii_case(name));
    find(text).or_else(|| find(&format!("worker-{text}")).filter(|_| is_number(text)))
}

fn bare(text: &str) -> &str {
    let is_mark = |c: char| {
        c.is_whitespace() || ['"', '\'', '`', '.', '!', ',', '@', '\u{feff}'].contains(&c)
    };
    text.trim_matches(is_mark)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_is_found_by_each_of_its_spellings() {
        for fields in [
            json!({ "task_id": "7" }),
            json!({ "taskId": 7 }),
            json!({ "Task-ID": " 7 " }),
            json!({ "task_id": null, "task": "7" }),
            json!({ "task_id": "", "taskId": 7 }),
            json!({ "task_id": [7] }),
        ] {
            assert_eq!(field_text(&fields, &TASK_FIELDS).as_deref(), Some("7"), "{fields}");
        }
        assert_eq!(field_text(&json!({ "task_id": [7, 8] }), &TASK_FIELDS), None);
    }

    #[test]
    fn an_agent_is_named_by_name_or_number_in_any_case() {
        let mailboxes = ["worker-1", "Cora"].map(|name| Name::new(name).unwrap());
        let among = |text| agent_among(text, &mailboxes).map(Name::as_str);
        for text in ["worker-1", "Worker-1", "1", "\"worker-1\"", "@worker-1", " `1` "] {
            assert_eq!(among(text), Some("worker-1"), "{text:?}");
        }
        assert_eq!((among("CORA"), among("2"), among("")), (Some("Cora"), None, None));
        assert_eq!(agent_of_text(" 3").unwrap().as_str(), "worker-3");
        assert_eq!(agent_of_text("../x"), None);
    }
}
