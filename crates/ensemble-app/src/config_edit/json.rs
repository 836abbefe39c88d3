//! Finding a place in a JSON text without touching the rest of it.

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
        let end = string_end(bytes, at)?;
        let name: String = serde_json::from_str(&text[at..end]).ok()?;
        let value = after_space(text, after_space(text, end) + 1);
        if name == *key {
            // The last one counts, as it does for JSON parsers.
            found = value_at(text, value, rest);
        }
        at = after_space(text, value_end(bytes, value)?);
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

/// The place behind the value that begins here.
fn value_end(bytes: &[u8], start: usize) -> Option<usize> {
    let (mut at, mut depth) = (start, 0_usize);
    loop {
        match bytes.get(at)? {
            b'"' => {
                at = string_end(bytes, at)?;
                if depth == 0 {
                    return Some(at);
                }
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth == 0 => return Some(at),
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            b',' if depth == 0 => return Some(at),
            _ => {}
        }
        at += 1;
    }
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
