//! Where hooks go in the configuration of an agent, without touching the rest of it.
//!
//! | the file has | install |
//! |---|---|
//! | no hooks, or none for an event | adds ours |
//! | hooks of others for an event | puts ours before them |
//! | ours | changes nothing |

use std::path::Path;

use ensemble_core::message::describe_json_fault;
use serde_json::{Map, Value};

use crate::config_edit::{ConfigEdit, ConfigInsert, inside};

/// Notes of what was installed, below the state directory.
const NOTES: &str = "hooks";

const HOOKS: &str = "hooks";

/// Our hooks in the configuration of this name, such as `claude-user`.
pub fn guest(state: &Path, name: &str) -> ConfigInsert {
    ConfigInsert {
        what: "the hooks",
        by_hand: "take out the hooks that run `ensemble hook` by hand",
        note: state.join(NOTES).join(format!("{name}.json")),
    }
}

pub fn describe_unread_settings(error: &serde_json::Error) -> String {
    format!("is not plain JSON ({}), so nothing was changed", describe_json_fault(error))
}

/// The text with hooks for these events added. `None` if it has all of them.
pub fn with_hooks(text: &str, events: &Map<String, Value>) -> Result<Option<ConfigEdit>, String> {
    if text.trim().is_empty() {
        let whole = format!("{:#}\n", serde_json::json!({ HOOKS: events }));
        return Ok(Some(ConfigEdit { after: format!("{text}{whole}"), inserted: vec![whole] }));
    }
    let root: Value =
        serde_json::from_str(text).map_err(|error| describe_unread_settings(&error))?;
    let root = root.as_object().ok_or("is not an object, so nothing was changed")?;
    let Some(hooks) = root.get(HOOKS) else {
        let entry =
            format!("\n  \"{HOOKS}\": {}{}", Value::from(events.clone()), comma(root.len()));
        let at = inside(text, &[]).ok_or("has no place for hooks")?;
        return Ok(Some(ConfigEdit { after: put(text, at, &entry), inserted: vec![entry] }));
    };
    let hooks = hooks.as_object().ok_or("`hooks` is not an object, so nothing was changed")?;
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
            Some(_) => {
                return Err(format!("`hooks.{event}` is not a list, so nothing was changed"));
            }
        };
        let at = at.ok_or_else(|| format!("has no place for hooks of {event}"))?;
        after = put(&after, at, &entry);
        inserted.push(entry);
    }
    Ok((!inserted.is_empty()).then_some(ConfigEdit { after, inserted }))
}

/// The text with an entry in the list of this name. `None` if it exists.
pub fn with_entry(text: &str, list: &str, entry: &str) -> Result<Option<ConfigEdit>, String> {
    if text.trim().is_empty() {
        return whole("", &format!("{:#}\n", serde_json::json!({ list: [entry] })));
    }
    let root: Value =
        serde_json::from_str(text).map_err(|error| describe_unread_settings(&error))?;
    let root = root.as_object().ok_or("is not an object, so nothing was changed")?;
    let entry = Value::from(entry);
    let (at, inserted) = match root.get(list) {
        None => {
            let inserted = format!("\n  \"{list}\": [{entry}]{}", comma(root.len()));
            (inside(text, &[]), inserted)
        }
        Some(Value::Array(theirs)) if theirs.contains(&entry) => return Ok(None),
        Some(Value::Array(theirs)) => {
            (inside(text, &[list]), format!("{entry}{}", comma(theirs.len())))
        }
        Some(_) => return Err(format!("`{list}` is not a list, so nothing was changed")),
    };
    let at = at.ok_or_else(|| format!("has no place for `{list}`"))?;
    Ok(Some(ConfigEdit { after: put(text, at, &inserted), inserted: vec![inserted] }))
}

pub fn whole(text: &str, ours: &str) -> Result<Option<ConfigEdit>, String> {
    match text {
        "" => Ok(Some(ConfigEdit { after: ours.to_owned(), inserted: vec![ours.to_owned()] })),
        _ if text == ours => Ok(None),
        _ => Err("is not ours, so nothing was changed".to_owned()),
    }
}

/// Whether this is our plugin, in any version.
pub fn is_ours(text: &str) -> bool {
    text.contains("`ensemble hook")
}

const fn comma(others: usize) -> &'static str {
    if others == 0 { "" } else { "," }
}

fn put(text: &str, at: usize, entry: &str) -> String {
    format!("{}{entry}{}", &text[..at], &text[at..])
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
            let ConfigEdit { after, .. } = with_hooks(text, &ours()).unwrap().unwrap();
            let value: Value = serde_json::from_str(&after).unwrap();
            let before: Value = serde_json::from_str(text).unwrap();
            for (event, groups) in &ours() {
                let now = value["hooks"][event].as_array().unwrap();
                assert_eq!(now[0], groups[0], "{after}");
                let others = before["hooks"][event].as_array().map_or(0, Vec::len);
                assert_eq!(now.len(), 1 + others, "{after}");
            }
            assert_eq!(with_hooks(&after, &ours()).unwrap(), None, "a second time nothing is done");
            // A person's change elsewhere stays, and ours is taken out.
            let home = tempfile::tempdir().unwrap();
            let (file, guest) = (home.path().join("settings.json"), guest(home.path(), "x"));
            std::fs::write(&file, text).unwrap();
            // Hooks of another version are replaced.
            let older = Map::from_iter([("Stop".to_owned(), serde_json::json!([{ "v": 1 }]))]);
            assert!(guest.put_in(&file, |text| with_hooks(text, &older)).unwrap());
            assert!(guest.put_in(&file, |text| with_hooks(text, &ours())).unwrap());
            assert_eq!(std::fs::read_to_string(&file).unwrap(), after);
            // By now, it is in a directory of settings that a link leads to.
            let kept = home.path().join("kept.json");
            std::fs::write(&kept, format!("{after}\n")).unwrap();
            std::fs::remove_file(&file).unwrap();
            std::os::unix::fs::symlink(&kept, &file).unwrap();
            assert_eq!(guest.take_out().unwrap(), (file.clone(), true));
            assert_eq!(std::fs::read_to_string(&kept).unwrap(), format!("{text}\n"));
            assert!(file.is_symlink());
        }
    }

    #[test]
    fn what_cannot_be_changed_safely_is_left() {
        for text in
            ["[]", "7", "{", "// a comment\n{}", "{\"hooks\": []}", "{\"hooks\": {\"Stop\": {}}}"]
        {
            assert!(with_hooks(text, &ours()).is_err(), "{text}");
        }
    }
}
