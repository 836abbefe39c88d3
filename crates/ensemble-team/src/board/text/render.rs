//! Writes values as a person would, in the fewest lines that stay readable.

use ensemble_core::message::is_deceiving;
use serde_json::{Map, Value};

/// Longest line of a list or a small mapping on one line, in bytes.
const FLOW_BYTES_MAX: usize = 100;
const FLOW_FIELDS_MAX: usize = 6;
/// Smallest indentation at which a mapping in a list may be on one line. Tasks are never on one
/// line.
const FLOW_INDENT_MIN: usize = 4;
const STEP: usize = 2;

/// A value as written behind `key:` or `-`.
pub(super) enum RenderedValue {
    Inline(String),
    /// `header` (`|-`, or empty) behind the key or dash, then these lines, indented.
    Lines {
        header: &'static str,
        lines: Vec<String>,
    },
}

pub(super) fn document(fields: &Map<String, Value>) -> String {
    let mut text = mapping(fields, 0).join("\n");
    text.push('\n');
    text
}

/// A value whose key or dash is at column `indent`.
pub(super) fn value(value: &Value, indent: usize, in_list: bool) -> RenderedValue {
    if let Some(inline) = inline(value, indent, in_list) {
        return RenderedValue::Inline(inline);
    }
    match value {
        Value::String(text) => literal(text, indent + STEP),
        Value::Array(items) => {
            let lines = items.iter().flat_map(|item| item_lines(item, indent + STEP)).collect();
            RenderedValue::Lines { header: "", lines }
        }
        Value::Object(fields) => {
            RenderedValue::Lines { header: "", lines: mapping(fields, indent + STEP) }
        }
        other => RenderedValue::Inline(other.to_string()),
    }
}

/// The lines of `key: value` at column `indent`.
pub(super) fn entry_lines(key: &str, content: &Value, indent: usize) -> Vec<String> {
    with_lead(format!("{}{}:", " ".repeat(indent), scalar(key)), value(content, indent, false))
}

/// The lines of `- value` at column `indent`.
pub(super) fn item_lines(content: &Value, indent: usize) -> Vec<String> {
    let lead = format!("{}-", " ".repeat(indent));
    match value(content, indent, true) {
        // The first field shares the line of the dash.
        RenderedValue::Lines { header: "", mut lines } if !lines.is_empty() => {
            let first = lines[0].trim_start().to_owned();
            lines[0] = format!("{lead} {first}");
            lines
        }
        rendered => with_lead(lead, rendered),
    }
}

fn with_lead(lead: String, rendered: RenderedValue) -> Vec<String> {
    match rendered {
        RenderedValue::Inline(text) => vec![format!("{lead} {text}")],
        RenderedValue::Lines { header: "", lines } => std::iter::once(lead).chain(lines).collect(),
        RenderedValue::Lines { header, lines } => {
            std::iter::once(format!("{lead} {header}")).chain(lines).collect()
        }
    }
}

fn mapping(fields: &Map<String, Value>, indent: usize) -> Vec<String> {
    fields.iter().flat_map(|(key, value)| entry_lines(key, value, indent)).collect()
}

/// The value on one line, if it is short and simple enough.
fn inline(value: &Value, indent: usize, in_list: bool) -> Option<String> {
    match value {
        Value::String(text) if text.trim_end_matches('\n').contains('\n') && is_literal(text) => {
            None
        }
        Value::Array(items) if items.is_empty() => Some("[]".to_owned()),
        Value::Object(fields) if fields.is_empty() => Some("{}".to_owned()),
        Value::Array(items) if items.iter().all(is_short_scalar) => {
            Some(flow(value)).filter(|text| text.len() <= FLOW_BYTES_MAX)
        }
        Value::Object(fields)
            if in_list
                && indent >= FLOW_INDENT_MIN
                && fields.len() <= FLOW_FIELDS_MAX
                && fields.values().all(is_short_scalar) =>
        {
            Some(flow(value)).filter(|text| text.len() <= FLOW_BYTES_MAX)
        }
        Value::Array(_) | Value::Object(_) => None,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Some(flow(value)),
    }
}

fn is_short_scalar(value: &Value) -> bool {
    match value {
        Value::String(text) => text.len() <= FLOW_BYTES_MAX && !text.contains('\n'),
        Value::Array(_) | Value::Object(_) => false,
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
    }
}

/// The value on one line, in any case.
pub(super) fn flow(value: &Value) -> String {
    match value {
        Value::String(text) => scalar(text),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", "))
        }
        Value::Object(fields) if fields.is_empty() => "{}".to_owned(),
        Value::Object(fields) => {
            let field =
                |(key, value): (&String, &Value)| format!("{}: {}", scalar(key), flow(value));
            format!("{{ {} }}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// Plain if every reader treats it as text, otherwise quoted.
fn scalar(text: &str) -> String {
    if is_bare(text) { text.to_owned() } else { quoted(text) }
}

/// Words that some version of YAML reads as another type than text.
const SPOKEN_FOR: [&str; 12] =
    ["null", "true", "false", "yes", "no", "on", "off", "y", "n", ".inf", ".nan", "none"];

fn is_bare(text: &str) -> bool {
    let mut bytes = text.bytes();
    let begins = match bytes.next() {
        Some(b'.') => bytes.next().is_some_and(|second| second.is_ascii_alphabetic()),
        Some(first) => first.is_ascii_alphabetic() || first == b'_',
        None => false,
    };
    begins
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'/' | b'-'))
        && !SPOKEN_FOR.contains(&text.to_ascii_lowercase().as_str())
}

/// Quotes with JSON's escapes. Also escapes every character that YAML forbids or a terminal could
/// act upon.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if is_unprintable(c) => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn is_unprintable(c: char) -> bool {
    is_deceiving(c) || matches!(c, '\u{fffe}' | '\u{ffff}')
}

/// Whether a literal block has exactly this text.
fn is_literal(text: &str) -> bool {
    let body = text.strip_suffix('\n').unwrap_or(text);
    !body.ends_with('\n')
        && !body.starts_with([' ', '\t', '\n'])
        && body.lines().all(|line| !line.ends_with([' ', '\t']))
        && !body.chars().any(|c| c != '\n' && (is_unprintable(c) || c == '\t'))
}

fn literal(text: &str, indent: usize) -> RenderedValue {
    let (header, body) = match text.strip_suffix('\n') {
        Some(body) => ("|", body),
        None => ("|-", text),
    };
    let lead = " ".repeat(indent);
    let line = |line: &str| if line.is_empty() { String::new() } else { format!("{lead}{line}") };
    RenderedValue::Lines { header, lines: body.split('\n').map(line).collect() }
}
