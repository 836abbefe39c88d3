//! Where hooks go in a JSON text, without touching the rest of it.

use serde_json::{Map, Value};

/// The member that has the hooks of all events.
const HOOKS: &str = "hooks";

/// The text with hooks for these events, and what was inserted. `None` if all of them are there.
pub(super) fn with_hooks(
    text: &str,
    events: &Map<String, Value>,
) -> Result<Option<(String, Vec<String>)>, String> {
    if text.trim().is_empty() {
        let whole = format!("{:#}\n", serde_json::json!({ HOOKS: events }));
        return Ok(Some((format!("{text}{whole}"), vec![whole])));
    }
    let root: Value = serde_json::from_str(text)
        .map_err(|error| format!("is not plain JSON ({error}), so nothing was changed"))?;
    let root = root.as_object().ok_or("is no object, so nothing was changed")?;
    let Some(hooks) = root.get(HOOKS) else {
        let entry =
            format!("\n  \"{HOOKS}\": {}{}", Value::from(events.clone()), comma(root.len()));
        let at = inside(text, &[]).ok_or("has no place for hooks")?;
        return Ok(Some((put(text, at, &entry), vec![entry])));
    };
    let hooks = hooks.as_object().ok_or("`hooks` is no object, so nothing was changed")?;
    let (mut after, mut inserted, mut members) = (text.to_owned(), Vec::new(), hooks.len());
    for (event, ours) in events {
        let groups = ours.as_array().cloned().unwrap_or_default();
        let (at, entry) = match hooks.get(event) {
            None => {
                let entry = format!("\n    \"{event}\": {ours}{}", comma(members));
                members += 1;
                (inside(&after, &[HOOKS]), entry)
            }
            Some(Value::Array(theirs)) => {
                if groups.iter().all(|group| theirs.contains(group)) {
                    continue;
                }
                let groups: Vec<String> = groups.iter().map(Value::to_string).collect();
                let entry = format!("{}{}", groups.join(","), comma(theirs.len()));
                (inside(&after, &[HOOKS, event]), entry)
            }
            Some(_) => return Err(format!("`hooks.{event}` is no list, so nothing was changed")),
        };
        let at = at.ok_or_else(|| format!("has no place for hooks of {event}"))?;
        after = put(&after, at, &entry);
        inserted.push(entry);
    }
    Ok((!inserted.is_empty()).then_some((after, inserted)))
}

/// The text without what was inserted; `None` if that is not there any more, or more often than it was put in.
pub(super) fn without(text: &str, inserted: &[String]) -> Option<String> {
    let mut rest = text.to_owned();
    for entry in inserted {
        let count = inserted.iter().filter(|other| *other == entry).count();
        if text.matches(entry.as_str()).count() != count {
            return None;
        }
        rest = rest.replacen(entry.as_str(), "", 1);
    }
    serde_json::from_str::<Value>(&rest).is_ok().then_some(rest)
}

const fn comma(others: usize) -> &'static str {
    if others == 0 { "" } else { "," }
}

fn put(text: &str, at: usize, entry: &str) -> String {
    format!("{}{entry}{}", &text[..at], &text[at..])
}

/// The place behind the bracket that opens the value at a path of keys. The text is valid JSON.
fn inside(text: &str, path: &[&str]) -> Option<usize> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn ours() -> Map<String, Value> {
        let hook = |word: &str| serde_json::json!([{ "hooks": [{ "type": "command", "command": format!("ensemble hook {word}") }] }]);
        Map::from_iter([("Stop".to_owned(), hook("stop")), ("Start".to_owned(), hook("start"))])
    }

    #[test]
    fn hooks_are_merged_and_taken_out_byte_for_byte() {
        let theirs = r#"{"hooks": [{"type": "command", "command": "echo \"}]\" , [{"}]}"#;
        for text in [
            "{}",
            " {\n}\n",
            "{\"model\": \"x\"}",
            "{ \"a\": {\"hooks\": []}, \"hooks\" : { } }",
            &format!("{{\"hooks\": {{\"Stop\": [{theirs}]}}, \"z\": [1, {{}}]}}\n"),
            &format!(
                "{{\"hooks\": {{\"Other\": [{theirs}], \"Stop\": [], \"Start\":[{theirs}]}}}}"
            ),
        ] {
            let (after, inserted) = with_hooks(text, &ours()).unwrap().unwrap();
            let value: Value = serde_json::from_str(&after).unwrap();
            let before: Value = serde_json::from_str(text).unwrap();
            for (event, groups) in &ours() {
                let now = value["hooks"][event].as_array().unwrap();
                assert_eq!(now[0], groups[0], "{after}");
                let others = before["hooks"][event].as_array().map_or(0, Vec::len);
                assert_eq!(now.len(), 1 + others, "{after}");
            }
            assert_eq!(without(&after, &inserted).as_deref(), Some(text));
            assert_eq!(with_hooks(&after, &ours()).unwrap(), None, "a second time nothing is done");
        }
    }

    #[test]
    fn what_cannot_be_changed_safely_is_left() {
        for text in
            ["[]", "7", "{", "// a comment\n{}", "{\"hooks\": []}", "{\"hooks\": {\"Stop\": {}}}"]
        {
            assert!(with_hooks(text, &ours()).is_err(), "{text}");
        }
        let (after, inserted) = with_hooks("{}", &ours()).unwrap().unwrap();
        assert_eq!(without(&after.replace("hook stop", "hook other"), &inserted), None);
        assert_eq!(without(&format!("{after}{after}"), &inserted), None);
    }
}
