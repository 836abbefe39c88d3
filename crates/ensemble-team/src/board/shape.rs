//! Checks the kinds of all fields at once and reports violations with their paths.

use std::fmt;

use serde_json::{Map, Value, json};

use super::schema::{BOARD, BoardField, FieldKind};
use ensemble_core::message::fields::{flag_of, is_absent, is_same_task, strip_quotes};
use ensemble_core::message::period::read_seconds;
use ensemble_core::message::{Name, Timestamp};
use ensemble_core::printable;

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Violation {
    /// Path of the field: `tasks[3].depends_on[0]`.
    pub path: String,
    pub problem: String,
}

impl Violation {
    pub(crate) fn new(path: impl Into<String>, problem: impl Into<String>) -> Self {
        // Both texts may contain keys that a person wrote, so make them printable.
        Self { path: printable(path.into()), problem: printable(problem.into()) }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.problem)
    }
}

#[derive(Debug, Default)]
pub(super) struct ShapeFindings {
    /// Values without which the board cannot be used.
    pub(super) violations: Vec<Violation>,
    /// Values that do not fit, and on which nothing depends. They are read as far as possible.
    pub(super) warnings: Vec<Violation>,
}

/// Checks all known fields. Takes values that do not fit out of `board`, or makes them fit, so that the rest can be
/// read.
pub(super) fn check(board: &mut Value) -> ShapeFindings {
    let mut checker = ShapeChecker { found: ShapeFindings::default(), is_note: false };
    checker.object(board, BOARD, "");
    checker.find_meant_tasks(board);
    checker.found
}

struct ShapeChecker {
    found: ShapeFindings,
    is_note: bool,
}

impl ShapeChecker {
    /// Dependencies that write the id of a task in another case are read as that id.
    fn find_meant_tasks(&mut self, board: &mut Value) {
        let Some(tasks) = board["tasks"].as_array_mut() else { return };
        let ids: Vec<String> =
            tasks.iter().filter_map(|task| task["id"].as_str()).map(str::to_owned).collect();
        for (at, task) in tasks.iter_mut().enumerate() {
            let Some(Value::Array(items)) = task.get_mut("depends_on") else { continue };
            for (index, item) in items.iter_mut().enumerate() {
                let Some(named) = item.as_str().filter(|id| !ids.iter().any(|it| it == id)) else {
                    continue;
                };
                if let Some(meant) = ids.iter().find(|id| is_same_task(id, named)) {
                    let problem = format!("there is no task `{named}`; it is read as {meant}");
                    self.warn(&format!("tasks[{at}].depends_on[{index}]"), problem);
                    *item = meant.as_str().into();
                }
            }
        }
    }

    fn push(&mut self, path: &str, problem: String) {
        let path = if path.is_empty() { "file" } else { path };
        let found =
            if self.is_note { &mut self.found.warnings } else { &mut self.found.violations };
        found.push(Violation::new(path, problem));
    }

    fn warn(&mut self, path: &str, problem: String) {
        self.found.warnings.push(Violation::new(path, problem));
    }

    fn object(&mut self, value: &mut Value, fields: &[BoardField], path: &str) {
        if !value.is_object() {
            self.wrong(value, path, "a mapping of fields");
            if !self.is_note {
                return;
            }
            *value = noted_text(value, fields);
        }
        let Value::Object(object) = value else { return };
        let outer = self.is_note;
        for BoardField { name, kind, is_required, is_note } in fields {
            let below = if path.is_empty() { (*name).to_owned() } else { format!("{path}.{name}") };
            self.is_note = outer || *is_note;
            match object.get_mut(*name) {
                Some(Value::Null) | None if *is_required => {
                    self.push(&below, "is missing".to_owned());
                }
                Some(Value::Null) | None => {}
                Some(value) => self.value(value, *kind, &below),
            }
            if *is_required && object.get(*name).is_none_or(Value::is_null) {
                object.insert((*name).to_owned(), stand_in(*kind, path));
            }
        }
        self.is_note = outer;
    }

    fn value(&mut self, value: &mut Value, kind: FieldKind, path: &str) {
        let expected = match kind {
            FieldKind::Any => return,
            FieldKind::Object(fields) => return self.object(value, fields, path),
            FieldKind::Objects(fields) => return self.list(value, FieldKind::Object(fields), path),
            FieldKind::Names => return self.list(value, FieldKind::Name, path),
            FieldKind::Texts => return self.list(value, FieldKind::Text, path),
            FieldKind::Values => return self.list(value, FieldKind::Any, path),
            FieldKind::Named(fields) => return self.named(value, fields, path),
            FieldKind::Name => match value.as_str().map(Name::new) {
                // Programs write `None` for a task that no agent has.
                Some(Ok(name)) if !is_absent(name.as_str()) || is_id(path) => return,
                Some(Ok(_)) => "must be a name, or null".to_owned(),
                Some(Err(error)) => error.to_string(),
                None => "must be a name".to_owned(),
            },
            FieldKind::Text if value.is_string() || value.is_number() || value.is_boolean() => {
                return;
            }
            FieldKind::Text => "must be a text".to_owned(),
            FieldKind::Count | FieldKind::Seconds if value.is_u64() => return,
            FieldKind::Count => "must be a whole number of at least 0".to_owned(),
            FieldKind::Seconds => "must be a whole number of seconds".to_owned(),
            FieldKind::Flag if value.is_boolean() => return,
            FieldKind::Flag => "must be true or false".to_owned(),
            FieldKind::Time => return self.time(value, path),
            FieldKind::Word(words) | FieldKind::Label(words) => {
                if value.as_str().is_some_and(|text| words.contains(&text)) {
                    return;
                }
                format!("is {}; it must be one of {}", shown(value), words.join(", "))
            }
        };
        let read = self.read_as(value, kind);
        match (kind, &read) {
            (FieldKind::Word(_), Value::String(word)) => {
                self.warn(path, format!("{expected}; it is read as {word}"));
            }
            (FieldKind::Name, Value::Null)
                if !is_id(path) && value.as_str().is_some_and(is_absent) =>
            {
                self.warn(path, format!("{expected}; it is read as null"));
            }
            (
                FieldKind::Count | FieldKind::Seconds | FieldKind::Flag,
                Value::Number(_) | Value::Bool(_),
            )
            | (FieldKind::Name, Value::String(_)) => {
                self.warn(path, format!("{expected}; it is read as {read}"));
            }
            _ => self.push(path, expected),
        }
        *value = read;
    }

    fn read_as(&self, value: &Value, kind: FieldKind) -> Value {
        match (kind, value) {
            (FieldKind::Label(_), Value::String(text)) => text.as_str().into(),
            (FieldKind::Name, Value::String(text)) if !is_absent(text) => {
                text.parse::<Name>().map_or(Value::Null, |name| name.as_str().into())
            }
            (FieldKind::Name, Value::Number(number)) => {
                Name::new(number.to_string()).map_or(Value::Null, |name| name.as_str().into())
            }
            (FieldKind::Word(words), Value::String(text)) => {
                let plain =
                    |text: &str| strip_quotes(text).replace(['-', ' '], "_").to_ascii_uppercase();
                let meant = words.iter().find(|word| plain(word) == plain(text));
                meant.map_or(Value::Null, |word| (*word).into())
            }
            (FieldKind::Count, value) => {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                let text = strip_quotes(&text);
                // Only in a note may the number be about right.
                let text = if self.is_note { text.trim_end_matches('%').trim_end() } else { text };
                let number = text.parse::<f64>().ok().filter(|count| *count >= 0.0);
                let number = number.filter(|count| self.is_note || count.fract() == 0.0);
                number.map_or(Value::Null, whole)
            }
            (FieldKind::Seconds, value) => read_seconds(value).map_or(Value::Null, Value::from),
            (FieldKind::Flag, value) => flag_of(value).map_or(Value::Null, Value::from),
            (FieldKind::Text, Value::Array(items)) if self.is_note => {
                let texts = items.iter().map(|item| item.as_str().unwrap_or_default());
                texts.collect::<Vec<_>>().join("; ").into()
            }
            _ => Value::Null,
        }
    }

    /// Times are for people: one without an offset, or with a blank as other programs write it, is read as UTC.
    fn time(&mut self, value: &mut Value, path: &str) {
        let text = value.as_str().unwrap_or_default();
        if text.parse::<Timestamp>().is_ok() {
            return;
        }
        let joined = text.trim().replacen(' ', "T", 1);
        let read = [joined.clone(), format!("{joined}Z"), format!("{joined}T00:00:00Z")]
            .into_iter()
            .find_map(|text| text.parse::<Timestamp>().ok());
        let expected = "must be a time such as 2026-01-15T09:30:00Z";
        match read {
            Some(at) => {
                self.warn(path, format!("{expected}; it is read as {at}"));
                *value = at.to_string().into();
            }
            None => {
                self.warn(path, expected.to_owned());
                *value = Value::Null;
            }
        }
    }

    fn list(&mut self, value: &mut Value, item_kind: FieldKind, path: &str) {
        if value.as_str().is_some_and(|text| text.trim().is_empty()) && !self.is_note {
            self.warn(path, "is empty; it is read as a list without items".to_owned());
            *value = json!([]);
        }
        let names = value
            .as_str()
            .filter(|_| !self.is_note)
            .map(|text| text.split(',').map(str::parse::<Name>).collect::<Result<Vec<_>, _>>());
        if let Some(Ok(names)) = names {
            self.warn(
                path,
                format!("is {}; it is read as a list of {}", shown(value), names.len()),
            );
            *value = json!(names);
        }
        self.contain(value, &json!([]), (path, "a list"));
        let Value::Array(items) = value else { return };
        for (at, item) in items.iter_mut().enumerate() {
            self.value(item, item_kind, &format!("{path}[{at}]"));
        }
    }

    fn named(&mut self, value: &mut Value, fields: &[BoardField], path: &str) {
        self.contain(value, &json!({}), (path, "a mapping from names"));
        let Value::Object(entries) = value else { return };
        let mut checked = Map::new();
        for (name, mut entry) in std::mem::take(entries) {
            let path = format!("{path}.{name}");
            match Name::new(name.clone()) {
                Ok(_) => {
                    self.object(&mut entry, fields, &path);
                    checked.insert(name, entry);
                }
                Err(error) => self.push(&path, error.to_string()),
            }
        }
        *entries = checked;
    }

    fn wrong(&mut self, value: &Value, path: &str, what: &str) {
        self.push(path, format!("is {}; it must be {what}", shown(value)));
    }

    /// A value in place of a list or mapping of notes is its only entry.
    fn contain(&mut self, value: &mut Value, empty: &Value, (path, what): (&str, &str)) {
        if !is_alike(value, empty) {
            self.wrong(value, path, what);
            *value = if self.is_note { with_only_entry(value.take(), empty) } else { Value::Null };
        }
    }
}

/// Whether a field is the id of an entry, which has one.
fn is_id(path: &str) -> bool {
    path.ends_with(".id")
}

pub(super) fn is_alike(value: &Value, other: &Value) -> bool {
    value.is_array() == other.is_array() && value.is_object() == other.is_object()
}

pub(super) fn with_only_entry(entry: Value, empty: &Value) -> Value {
    if empty.is_array() { json!([entry]) } else { json!({ "unnamed": entry }) }
}

/// A placeholder for a missing required field, so that the rest can be checked.
fn stand_in(kind: FieldKind, path: &str) -> Value {
    match kind {
        FieldKind::Name => match path.strip_suffix(']').and_then(|path| path.rsplit_once('[')) {
            Some((_, at)) => format!("unnamed-{at}").into(),
            None => "unnamed".into(),
        },
        FieldKind::Text => "".into(),
        FieldKind::Count | FieldKind::Seconds => 0.into(),
        FieldKind::Flag => false.into(),
        FieldKind::Time => Timestamp::from_unix_millis(0).to_string().into(),
        FieldKind::Word(words) => words[0].into(),
        FieldKind::Label(_) => "unknown".into(),
        FieldKind::Names | FieldKind::Texts | FieldKind::Objects(_) | FieldKind::Values => {
            Value::Array(Vec::new())
        }
        FieldKind::Object(_) | FieldKind::Named(_) => Value::Object(Map::new()),
        FieldKind::Any => Value::Null,
    }
}

const TEXT_FIELDS: [&str; 5] = ["message", "description", "summary", "details", "event"];

/// An entry that was written as a plain text, as a mapping.
fn noted_text(value: &Value, fields: &[BoardField]) -> Value {
    let mut entry = Map::new();
    let is_text = |field: &&BoardField| TEXT_FIELDS.contains(&field.name);
    if let (Value::String(_), Some(field)) = (value, fields.iter().find(is_text)) {
        entry.insert(field.name.to_owned(), value.clone());
    }
    Value::Object(entry)
}

fn whole(count: f64) -> Value {
    format!("{count:.0}").parse::<u64>().map_or(Value::Null, Into::into)
}

fn shown(value: &Value) -> String {
    let text: String = value.to_string().chars().take(60).collect();
    // JSON has escaped the quotes inside of a text already.
    format!("`{}`", text.trim_matches('"').escape_debug().to_string().replace("\\\"", "\""))
}
