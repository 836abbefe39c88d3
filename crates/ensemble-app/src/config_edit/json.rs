//! Finding a place in a JSON text without touching the rest of it.

use serde::de::{DeserializeOwned, IgnoredAny};

/// The place behind the bracket that opens the value at a path of keys. The text is valid JSON.
pub fn inside(text: &str, path: &[&str]) -> Option<usize> {
    let at = value_at(text, after_space(text, 0), path)?;
    matches!(text.as_bytes().get(at)?, b'{' | b'[').then_some(at + 1)
}

fn value_at(text: &str, start: usize, path: &[&str]) -> Option<usize> {
    let Some((key, rest)) = path.split_first() else { return Some(start) };
    let bytes = text.as_bytes();
    if bytes.get(start)? != &b'{' {
        return None;
    }
    let (mut at, mut found) = (after_space(text, start + 1), None);
    while bytes.get(at)? == &b'"' {
        let (name, end): (String, usize) = read_value(text, at)?;
        let value = after_space(text, after_space(text, end) + 1);
        if name == *key {
            // The last one counts, as it does for JSON parsers.
            found = value_at(text, value, rest);
        }
        let (IgnoredAny, end) = read_value(text, value)?;
        at = after_space(text, end);
        if bytes.get(at)? == &b',' {
            at = after_space(text, at + 1);
        }
    }
    found
}

fn after_space(text: &str, at: usize) -> usize {
    let rest = &text[at..];
    at + (rest.len() - rest.trim_start().len())
}

/// The value that begins here, and the place behind it.
fn read_value<T: DeserializeOwned>(text: &str, start: usize) -> Option<(T, usize)> {
    let mut values = serde_json::Deserializer::from_str(text.get(start..)?).into_iter();
    let value = values.next()?.ok()?;
    Some((value, start + values.byte_offset()))
}
