//! Putting a member into an object of a JSON text without touching the rest of it.

use serde_json::Value;

/// A text, and where it is put in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Insertion {
    pub(crate) at: usize,
    pub(crate) text: String,
}

impl Insertion {
    pub(crate) fn apply(&self, text: &str) -> String {
        format!("{}{}{}", &text[..self.at], self.text, &text[self.at..])
    }
}

/// Puts `"name": value` as the first member into the object that is the member `outer` of the text's
/// object; makes what is missing. `None` if it is there already with this value.
pub(super) fn insertion(
    text: &str,
    outer: &str,
    name: &str,
    value: &Value,
) -> Result<Option<Insertion>, String> {
    let entry = indented(&format!("\"{name}\": {value:#}"), 4);
    let outer_entry = format!("\n  \"{outer}\": {{\n    {entry}\n  }}");
    if text.trim().is_empty() {
        let whole = format!("{{{outer_entry}\n}}\n");
        return Ok(Some(Insertion { at: text.len(), text: whole }));
    }
    let root: Value = serde_json::from_str(text)
        .map_err(|error| format!("is not plain JSON ({error}), so nothing was changed"))?;
    let root = root.as_object().ok_or("is no object, so nothing was changed")?;
    let Some(inner) = root.get(outer) else {
        let at = text.find('{').map_or(0, |brace| brace + 1);
        let comma = if root.is_empty() { "\n" } else { "," };
        return Ok(Some(Insertion { at, text: format!("{outer_entry}{comma}") }));
    };
    let inner = inner.as_object().ok_or_else(|| format!("`{outer}` is no object"))?;
    match inner.get(name) {
        Some(there) if there == value => return Ok(None),
        Some(_) => {
            return Err(format!("`{outer}.{name}` is there already and says something else"));
        }
        None => {}
    }
    let at = inside(text, outer).ok_or_else(|| format!("cannot find `{outer}`"))?;
    let comma = if inner.is_empty() { "\n  " } else { "," };
    Ok(Some(Insertion { at, text: format!("\n    {entry}{comma}") }))
}

/// All lines but the first, moved to the right.
fn indented(text: &str, columns: usize) -> String {
    text.replace('\n', &format!("\n{}", " ".repeat(columns)))
}

/// The place behind the brace that opens the member `key` of the outermost object. The text is valid
/// JSON in which there is such an object.
fn inside(text: &str, key: &str) -> Option<usize> {
    let (bytes, mut at, mut depth) = (text.as_bytes(), 0, 0_usize);
    let mut found = None;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => {
                let end = string_end(bytes, at)?;
                let is_key = depth == 1
                    && text[end..].trim_start().starts_with(':')
                    && serde_json::from_str::<String>(&text[at..end]).ok()? == key;
                at = end;
                if is_key {
                    // The last one counts, as it does for JSON parsers.
                    let brace = at + text[at..].find('{')?;
                    found = Some(brace + 1);
                }
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    found
}

/// The place behind the string that begins here.
fn string_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        match bytes.get(at)? {
            b'\\' => at += 2,
            b'"' => return Some(at + 1),
            _ => at += 1,
        }
    }
}
