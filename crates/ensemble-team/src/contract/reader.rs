//! Lenient reading: a field by any of its names, a value in any of its spellings. Other fields are
//! kept.

use ensemble_core::message::fields::plain_field;
use serde_json::{Map, Value as Json};

use super::node::{Field, Node, Value};
use super::problem::{PROBLEMS_MAX, Problem};

/// Longest excerpt of a wrong value in an error, in characters.
const EXCERPT_CHARS_MAX: usize = 40;

/// Normalizes a word for comparison: `Needs Fix`, `NEEDS-FIX` and `needsFix` become `needs_fix`.
pub(super) fn word(text: &str) -> String {
    if text.chars().any(char::is_lowercase) {
        plain_field(text)
    } else {
        plain_field(&text.to_lowercase())
    }
}

/// A value with its spellings: the written form first, then the others that are read.
pub(super) type Spelling<T> = (T, &'static [&'static str]);

/// The fields of one mapping, taken one after the other. Fields that remain are kept.
pub struct Reader<'a> {
    fields: Vec<(String, &'a Field)>,
    taken: Vec<bool>,
    problems: &'a mut Vec<Problem>,
    /// Prefix of a field's name in an error: `findings[2].`.
    prefix: String,
}

impl<'a> Reader<'a> {
    pub(super) fn new(fields: &'a [Field], problems: &'a mut Vec<Problem>) -> Self {
        Self::below(String::new(), fields, problems)
    }

    pub(super) fn below(
        prefix: String,
        fields: &'a [Field],
        problems: &'a mut Vec<Problem>,
    ) -> Self {
        let fields: Vec<_> = fields.iter().map(|field| (plain_field(&field.name), field)).collect();
        Self { taken: vec![false; fields.len()], fields, problems, prefix }
    }

    /// Takes the field with the first of these names that is present and not empty. Two names of
    /// one field, such as `taskId` and `task_id`, must have equal values.
    pub(super) fn take(&mut self, names: &[&str]) -> Option<&'a Field> {
        let all_of = |name: &&str| {
            let fields = self.fields.iter().enumerate();
            let is_one = |(plain, field): &(String, &Field)| {
                plain == name && !matches!(field.node.value, Value::Null)
            };
            let all: Vec<usize> = fields.filter(|(_, f)| is_one(f)).map(|(at, _)| at).collect();
            (!all.is_empty()).then_some(all)
        };
        let all = names.iter().find_map(all_of)?;
        let first = self.fields[all[0]].1;
        for at in all {
            let again = self.fields[at].1;
            self.taken[at] = true;
            if again.node.to_json() != first.node.to_json() {
                let detail = format!("appears twice, and differs from line {}", first.line);
                self.problem(again.line, names[0], detail, "keep one of the two");
            }
        }
        Some(first)
    }

    pub(super) fn problem(
        &mut self,
        line: u64,
        field: &str,
        detail: impl Into<String>,
        hint: impl Into<String>,
    ) {
        if self.problems.len() < PROBLEMS_MAX {
            let field = format!("{}{field}", self.prefix);
            self.problems.push(Problem { line, field, detail: detail.into(), hint: hint.into() });
        }
    }

    fn wrong(&mut self, field: &Field, wanted: &str) {
        let is = field.node.kind();
        let detail = format!("is {is}, not {wanted}");
        self.problem(field.line, &field.name, detail, format!("write {wanted}"));
    }

    /// Takes a text; numbers and booleans are read as text.
    pub(super) fn text(&mut self, names: &[&str]) -> Option<String> {
        let field = self.take(names)?;
        let text = scalar(&field.node);
        if text.is_none() {
            self.wrong(field, "a text");
        }
        text.filter(|text| !text.trim().is_empty())
    }

    pub(super) fn required_text(&mut self, names: &[&str], hint: &str) -> String {
        let before = self.problems.len();
        let text = self.text(names);
        if text.is_none() && self.problems.len() == before {
            self.problem(0, names[0], "is missing", hint);
        }
        text.unwrap_or_default()
    }

    /// Takes a count; a list counts its items.
    pub(super) fn count(&mut self, names: &[&str]) -> Option<u64> {
        let field = self.take(names)?;
        let count = match &field.node.value {
            Value::Number(number) => number.as_u64(),
            Value::Text(text) => text.trim().parse().ok(),
            Value::List(items) => Some(items.len() as u64),
            Value::Null | Value::Bool(_) | Value::Map(_) => None,
        };
        if count.is_none() {
            self.wrong(field, "a number of 0 or more");
        }
        count
    }

    /// Takes texts: a list, a single text, or a text with commas or lines.
    pub(super) fn texts(&mut self, names: &[&str]) -> Vec<String> {
        let Some(field) = self.take(names) else { return Vec::new() };
        match &field.node.value {
            Value::List(items) => items.iter().map(line_of).collect(),
            Value::Text(text) if text.trim().is_empty() => Vec::new(),
            Value::Text(text) => text.lines().map(|line| line.trim().to_owned()).collect(),
            // `errors: 0` means that there were none.
            Value::Number(number) if number.as_u64() == Some(0) => Vec::new(),
            Value::Bool(false) => Vec::new(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Map(_) => {
                vec![line_of(&field.node)]
            }
        }
    }

    /// Takes one of a few words.
    pub(super) fn choice<T: Copy>(
        &mut self,
        names: &[&str],
        spellings: &[Spelling<T>],
    ) -> Option<T> {
        let field = self.take(names)?;
        let text = scalar(&field.node).unwrap_or_default();
        let wanted = word(&text);
        let found = spellings.iter().find(|(_, words)| words.contains(&wanted.as_str()));
        if found.is_none() {
            let is: String = text.chars().take(EXCERPT_CHARS_MAX).collect();
            let detail = match text.is_empty() {
                true => format!("is {}", field.node.kind()),
                false => format!("is `{}`", is.escape_debug()),
            };
            self.problem(field.line, &field.name, detail, hint_of(spellings));
        }
        found.map(|(value, _)| *value)
    }

    pub(super) fn required_choice<T: Copy>(
        &mut self,
        names: &[&str],
        spellings: &[Spelling<T>],
    ) -> Option<T> {
        let before = self.problems.len();
        let choice = self.choice(names, spellings);
        if choice.is_none() && self.problems.len() == before {
            self.problem(0, names[0], "is missing", hint_of(spellings));
        }
        choice
    }

    /// Takes the items of a list, each with its name for errors. A single value counts as a list of
    /// one, and 0 as an empty list.
    pub(super) fn items(&mut self, names: &[&str]) -> Vec<(String, &'a Node)> {
        let Some(field) = self.take(names) else { return Vec::new() };
        match &field.node.value {
            Value::List(items) => {
                let name = |index| format!("{}{}[{index}]", self.prefix, field.name);
                items.iter().enumerate().map(|(index, node)| (name(index), node)).collect()
            }
            Value::Number(number) if number.as_u64() == Some(0) => Vec::new(),
            Value::Text(text) if text.trim().is_empty() => Vec::new(),
            Value::Map(_) | Value::Text(_) => {
                vec![(format!("{}{}", self.prefix, field.name), &field.node)]
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {
                self.wrong(field, "a list");
                Vec::new()
            }
        }
    }

    /// Takes a value of any kind.
    pub(super) fn any(&mut self, names: &[&str]) -> Option<Json> {
        self.take(names).map(|field| field.node.to_json())
    }

    /// The problems so far, for readers of nested values.
    pub(super) fn problems(&mut self) -> &mut Vec<Problem> {
        self.problems
    }

    /// The fields that were not taken, under their own names.
    pub(super) fn rest(self) -> Map<String, Json> {
        let left = self.fields.iter().zip(&self.taken).filter(|(_, taken)| !**taken);
        left.filter(|((_, field), _)| !matches!(field.node.value, Value::Null))
            .map(|((_, field), _)| (field.name.clone(), field.node.to_json()))
            .collect()
    }
}

fn hint_of<T>(spellings: &[Spelling<T>]) -> String {
    let words: Vec<&str> =
        spellings.iter().filter_map(|(_, words)| words.first().copied()).collect();
    format!("write one of {}", words.join(", "))
}

/// A scalar as text.
pub(super) fn scalar(node: &Node) -> Option<String> {
    match &node.value {
        Value::Text(text) => Some(text.trim().to_owned()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(value) => Some(value.to_string()),
        Value::Null | Value::List(_) | Value::Map(_) => None,
    }
}

/// A node of any kind as one text.
pub(super) fn line_of(node: &Node) -> String {
    scalar(node).unwrap_or_else(|| match node.value {
        Value::Null => String::new(),
        _ => node.to_json().to_string(),
    })
}
