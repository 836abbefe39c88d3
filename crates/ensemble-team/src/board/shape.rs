//! Checks the kinds of all fields at once and reports violations with their paths.

use std::fmt;

use serde_json::{Map, Value};

use super::schema::{BOARD, Field, Kind};
use ensemble_core::message::{Name, Timestamp};
use ensemble_core::printable;

/// A violation of the board's format or rules.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Violation {
    /// Path of the field: `tasks[3].depends_on[0]`.
    pub path: String,
    /// Description of the problem.
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

/// Checks all known fields. Takes values that do not fit out of `board`, so that the rest can be
/// checked.
pub(super) fn check(board: &mut Value) -> Vec<Violation> {
    let mut found = Vec::new();
    object(board, BOARD, "", &mut found);
    found
}

fn object(value: &mut Value, fields: &[Field], path: &str, found: &mut Vec<Violation>) {
    let Value::Object(object) = value else {
        *value = wrong(value, path, "a mapping of fields", found);
        return;
    };
    let below =
        |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    for Field { name, kind, is_required } in fields {
        match object.get_mut(*name) {
            Some(Value::Null) | None if *is_required => {
                found.push(Violation::new(below(name), "is missing"));
            }
            Some(Value::Null) | None => {}
            Some(value) => check_value(value, *kind, &below(name), found),
        }
        if *is_required && object.get(*name).is_none_or(Value::is_null) {
            object.insert((*name).to_owned(), stand_in(*kind));
        }
    }
}

/// A placeholder for a missing required field, so that the rest can be checked.
fn stand_in(kind: Kind) -> Value {
    match kind {
        Kind::Name => "unknown".into(),
        Kind::Text => "".into(),
        Kind::Count => 0.into(),
        Kind::Flag => false.into(),
        Kind::Time => Timestamp::from_unix_millis(0).to_string().into(),
        Kind::Word(words) => words[0].into(),
        Kind::Names | Kind::Texts | Kind::Objects(_) | Kind::Values => Value::Array(Vec::new()),
        Kind::Object(_) | Kind::Named(_) => Value::Object(Map::new()),
        Kind::Any => Value::Null,
    }
}

fn check_value(value: &mut Value, kind: Kind, path: &str, found: &mut Vec<Violation>) {
    let expected = match kind {
        Kind::Any => return,
        Kind::Object(fields) => return object(value, fields, path, found),
        Kind::Objects(fields) => {
            return list(value, path, found, |item, path, found| {
                object(item, fields, path, found);
            });
        }
        Kind::Names => {
            return list(value, path, found, |item, path, found| {
                check_value(item, Kind::Name, path, found);
            });
        }
        Kind::Texts => {
            return list(value, path, found, |item, path, found| {
                check_value(item, Kind::Text, path, found);
            });
        }
        Kind::Values => return list(value, path, found, |_, _, _| ()),
        Kind::Named(fields) => return named(value, fields, path, found),
        Kind::Name => match value.as_str().map(Name::new) {
            Some(Ok(_)) => return,
            Some(Err(error)) => error.to_string(),
            None => "must be a name".to_owned(),
        },
        Kind::Text if value.is_string() || value.is_number() => return,
        Kind::Text => "must be a text".to_owned(),
        Kind::Count if value.is_u64() => return,
        Kind::Count => "must be a whole number of at least 0".to_owned(),
        Kind::Flag if value.is_boolean() => return,
        Kind::Flag => "must be true or false".to_owned(),
        Kind::Time if value.as_str().is_some_and(|text| text.parse::<Timestamp>().is_ok()) => {
            return;
        }
        Kind::Time => "must be a time such as 2026-01-15T09:30:00Z".to_owned(),
        Kind::Word(words) if value.as_str().is_some_and(|text| words.contains(&text)) => return,
        Kind::Word(words) => format!("is {}; it must be one of {}", shown(value), words.join(", ")),
    };
    found.push(Violation::new(path, expected));
    *value = Value::Null;
}

fn list(
    value: &mut Value,
    path: &str,
    found: &mut Vec<Violation>,
    check: impl Fn(&mut Value, &str, &mut Vec<Violation>),
) {
    let Value::Array(items) = value else {
        *value = wrong(value, path, "a list", found);
        return;
    };
    for (at, item) in items.iter_mut().enumerate() {
        check(item, &format!("{path}[{at}]"), found);
    }
}

fn named(value: &mut Value, fields: &[Field], path: &str, found: &mut Vec<Violation>) {
    let Value::Object(entries) = value else {
        *value = wrong(value, path, "a mapping from names", found);
        return;
    };
    let mut checked = Map::new();
    for (name, mut entry) in std::mem::take(entries) {
        let path = format!("{path}.{name}");
        match Name::new(name.clone()) {
            Ok(_) => {
                object(&mut entry, fields, &path, found);
                checked.insert(name, entry);
            }
            Err(error) => found.push(Violation::new(path, error.to_string())),
        }
    }
    *entries = checked;
}

fn wrong(value: &Value, path: &str, what: &str, found: &mut Vec<Violation>) -> Value {
    let path = if path.is_empty() { "file" } else { path };
    found.push(Violation::new(path, format!("is {}; it must be {what}", shown(value))));
    Value::Null
}

fn shown(value: &Value) -> String {
    let text: String = value.to_string().chars().take(60).collect();
    format!("`{}`", text.trim_matches('"').escape_debug())
}
