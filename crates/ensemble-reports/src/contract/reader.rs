//! Lenient reading: a field by any of its names, a value in any of its spellings. Other fields are
//! kept.

use ensemble_core::message::fields::{
    TASK_FIELDS, is_absent, plain_field, strip_quotes, unwrap_value,
};
use serde_json::{Map, Value as Json};

use super::node::{DocumentNode, MappingField, NodeValue};
use super::problem::{FieldProblem, PROBLEMS_MAX};

/// Longest excerpt of a wrong value in an error, in characters.
const EXCERPT_CHARS_MAX: usize = 40;

/// Normalizes a word for comparison: `Needs Fix`, `NEEDS-FIX` and `needsFix` become `needs_fix`. What decorates it does
/// not count: `**done** ✅`. A sign alone is its own word.
pub(super) fn word(text: &str) -> String {
    let sign = text.trim_matches(|c: char| c.is_whitespace() || c == '\u{fe0f}');
    let text = unwrap_value(text).trim_matches(|c: char| !c.is_alphanumeric());
    if text.is_empty() {
        return sign.to_owned();
    }
    let is_mixed = text.chars().any(char::is_lowercase);
    if is_mixed { plain_field(text) } else { plain_field(&text.to_lowercase()) }
}

/// A value with its spellings: the written form first, then the others that are read.
pub(super) type ValueSpelling<T> = (T, &'static [&'static str]);

/// The fields of one mapping, taken one after the other. Fields that remain are kept.
pub struct FieldReader<'a> {
    fields: Vec<(String, &'a MappingField)>,
    taken: Vec<bool>,
    problems: &'a mut Vec<FieldProblem>,
    /// Prefix of a field's name in an error: `findings[2].`.
    prefix: String,
}

impl<'a> FieldReader<'a> {
    pub(super) fn new(fields: &'a [MappingField], problems: &'a mut Vec<FieldProblem>) -> Self {
        Self::below(String::new(), fields, problems)
    }

    pub(super) fn below(
        prefix: String,
        fields: &'a [MappingField],
        problems: &'a mut Vec<FieldProblem>,
    ) -> Self {
        let fields: Vec<_> = fields.iter().map(|field| (plain_field(&field.name), field)).collect();
        Self { taken: vec![false; fields.len()], fields, problems, prefix }
    }

    /// Takes the field with the first of these names that is present and not empty. Two names of
    /// one field, such as `taskId` and `task_id`, must have equal values.
    pub(super) fn take_field(&mut self, names: &[&str]) -> Option<&'a MappingField> {
        for ((plain, field), taken) in self.fields.iter().zip(&mut self.taken) {
            *taken |= names.contains(&plain.as_str()) && is_empty(&field.node);
        }
        let all_of = |name: &&str| {
            let fields = self.fields.iter().enumerate();
            let is_one =
                |(plain, field): &(String, &MappingField)| plain == name && !is_empty(&field.node);
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
            let (detail, hint) = (detail.into(), hint.into());
            self.problems.push(FieldProblem { line, field, detail, hint });
        }
    }

    fn wrong(&mut self, field: &MappingField, wanted: &str) {
        let detail = format!("is {}, not {wanted}", field.node.kind());
        self.problem(field.line, &field.name, detail, format!("write {wanted}"));
    }

    /// Takes a text; numbers, booleans and a list of one are read as text.
    pub(super) fn text(&mut self, names: &[&str]) -> Option<String> {
        self.text_of(names, |_| None).map(|text| unwrap_value(&text).to_owned())
    }

    /// Takes a text that only people read; a list has its lines.
    pub(super) fn prose(&mut self, names: &[&str]) -> Option<String> {
        self.text_of(names, |items| {
            items.iter().map(scalar).collect::<Option<Vec<_>>>().map(|lines| lines.join("\n"))
        })
    }

    fn text_of(
        &mut self,
        names: &[&str],
        listed: impl Fn(&[DocumentNode]) -> Option<String>,
    ) -> Option<String> {
        let field = self.take_field(names)?;
        let text = match &field.node.value {
            NodeValue::List(items) if items.len() != 1 => listed(items),
            _ => scalar(only(&field.node)),
        };
        if text.is_none() {
            self.wrong(field, "a text");
        }
        text.filter(|text| !text.trim().is_empty())
    }

    /// Takes the task; without the field it is that of the file's name.
    pub(super) fn task_id(&mut self, from_name: Option<String>) -> String {
        let task = self.text(&TASK_FIELDS).or(from_name);
        task.unwrap_or_else(|| {
            self.problem(0, "task_id", "is missing", "name the task, as in `task_id: task-001`");
            String::new()
        })
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
        let field = self.take_field(names)?;
        let count = node_count(&field.node);
        if count.is_none() {
            self.wrong(field, "a whole number of 0 or more");
        }
        count
    }

    /// Takes texts: a list, a single text, or a text with lines, or with commas between words.
    pub(super) fn texts(&mut self, names: &[&str]) -> Vec<String> {
        let Some(field) = self.take_field(names) else { return Vec::new() };
        match &field.node.value {
            NodeValue::List(items) => items.iter().map(line_of).collect(),
            NodeValue::Text(text) => listed_in(text).into_iter().map(str::to_owned).collect(),
            // `errors: 0` means that there were none.
            NodeValue::Number(number) if number.as_u64() == Some(0) => Vec::new(),
            NodeValue::Bool(false) => Vec::new(),
            NodeValue::Null | NodeValue::Bool(_) | NodeValue::Number(_) | NodeValue::Map(_) => {
                vec![line_of(&field.node)]
            }
        }
    }

    pub(super) fn choice<T: Copy>(
        &mut self,
        names: &[&str],
        spellings: &[ValueSpelling<T>],
    ) -> Option<T> {
        let field = self.take_field(names)?;
        let text = scalar(only(&field.node)).unwrap_or_default();
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
        spellings: &[ValueSpelling<T>],
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
    pub(super) fn items(&mut self, names: &[&str]) -> Vec<(String, &'a DocumentNode)> {
        let Some(field) = self.take_field(names) else { return Vec::new() };
        match &field.node.value {
            NodeValue::List(items) => {
                let name = |index| format!("{}{}[{index}]", self.prefix, field.name);
                items.iter().enumerate().map(|(index, node)| (name(index), node)).collect()
            }
            NodeValue::Number(number) if number.as_u64() == Some(0) => Vec::new(),
            NodeValue::Text(text) if text.trim().is_empty() => Vec::new(),
            NodeValue::Map(_) | NodeValue::Text(_) => {
                vec![(format!("{}{}", self.prefix, field.name), &field.node)]
            }
            NodeValue::Null | NodeValue::Bool(_) | NodeValue::Number(_) => {
                self.wrong(field, "a list");
                Vec::new()
            }
        }
    }

    pub(super) fn any(&mut self, names: &[&str]) -> Option<Json> {
        self.take_field(names).map(|field| field.node.to_json())
    }

    pub(super) fn problems(&mut self) -> &mut Vec<FieldProblem> {
        self.problems
    }

    /// The fields that were not taken, under their own names.
    pub(super) fn rest(&self) -> Map<String, Json> {
        let left = self.fields.iter().zip(&self.taken).filter(|(_, taken)| !**taken);
        left.filter(|((_, field), _)| !matches!(field.node.value, NodeValue::Null))
            .map(|((_, field), _)| (field.name.clone(), field.node.to_json()))
            .collect()
    }
}

fn hint_of<T>(spellings: &[ValueSpelling<T>]) -> String {
    let words: Vec<&str> =
        spellings.iter().filter_map(|(_, words)| words.first().copied()).collect();
    format!("write one of {}", words.join(", "))
}

/// Whether a value says that there is none: null, or `None`, `n/a` and the like.
fn is_empty(node: &DocumentNode) -> bool {
    match &node.value {
        NodeValue::Null => true,
        NodeValue::Text(text) => !text.trim().is_empty() && is_absent(text),
        _ => false,
    }
}

fn only(node: &DocumentNode) -> &DocumentNode {
    match &node.value {
        NodeValue::List(items) if items.len() == 1 => &items[0],
        _ => node,
    }
}

/// A count as people and models write it, such as `5.0`; `None` if the text is not a whole number.
pub fn read_count(text: &str) -> Option<u64> {
    let count = strip_quotes(text).parse::<f64>().ok()?;
    (count.fract() == 0.0 && (0.0..1e15).contains(&count)).then_some(count as u64)
}

pub fn count_of(value: &Json) -> Option<u64> {
    value.as_str().map_or_else(|| read_count(&value.to_string()), read_count)
}

/// The items of a list that was written as one text: its lines, or the words of a line that has commas between words.
pub fn listed_in(text: &str) -> Vec<&str> {
    let mut items = Vec::new();
    for line in text.lines().map(str::trim) {
        let words = line.split(", ");
        match words.clone().any(|word| word.contains(char::is_whitespace)) {
            true => items.push(line),
            false => items.extend(words),
        }
    }
    items.retain(|item| !item.is_empty());
    items
}

pub(super) fn node_count(node: &DocumentNode) -> Option<u64> {
    match &node.value {
        NodeValue::List(items) => Some(items.len() as u64),
        _ => read_count(&scalar(node)?),
    }
}

pub(super) fn scalar(node: &DocumentNode) -> Option<String> {
    match &node.value {
        NodeValue::Text(text) => Some(text.trim().to_owned()),
        NodeValue::Number(number) => Some(number.to_string()),
        NodeValue::Bool(value) => Some(value.to_string()),
        NodeValue::Null | NodeValue::List(_) | NodeValue::Map(_) => None,
    }
}

pub(super) fn line_of(node: &DocumentNode) -> String {
    scalar(node).unwrap_or_else(|| match node.value {
        NodeValue::Null => String::new(),
        _ => node.to_json().to_string(),
    })
}
