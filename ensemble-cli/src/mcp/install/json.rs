//! Putting a member into an object of a JSON text without touching the rest of it.

use ensemble_app::config_edit::inside;
use ensemble_app::hook_entries::describe_unread_settings;
use serde_json::Value;

use super::TextInsertion;

/// Puts `"name": value` as the first member into the object that is the member `outer` of the text's
/// object; makes what is missing. `None` if it already exists with this value.
pub(super) fn insertion(
    text: &str,
    outer: &str,
    name: &str,
    value: &Value,
) -> Result<Option<TextInsertion>, String> {
    // All lines but the first are moved to the right.
    let entry = format!("\"{name}\": {value:#}").replace('\n', "\n    ");
    let outer_entry = format!("\n  \"{outer}\": {{\n    {entry}\n  }}");
    if text.trim().is_empty() {
        let whole = format!("{{{outer_entry}\n}}\n");
        return Ok(Some(TextInsertion { at: text.len(), text: whole }));
    }
    let root: Value =
        serde_json::from_str(text).map_err(|error| describe_unread_settings(&error))?;
    let root = root.as_object().ok_or("is not an object, so nothing was changed")?;
    let Some(inner) = root.get(outer) else {
        let at = text.find('{').map_or(0, |brace| brace + 1);
        let comma = if root.is_empty() { "\n" } else { "," };
        return Ok(Some(TextInsertion { at, text: format!("{outer_entry}{comma}") }));
    };
    let inner = inner.as_object().ok_or_else(|| format!("`{outer}` is not an object"))?;
    match inner.get(name) {
        Some(there) if there == value => return Ok(None),
        Some(_) => {
            return Err(format!("`{outer}.{name}` already exists and says something else"));
        }
        None => {}
    }
    let at = inside(text, &[outer]).ok_or_else(|| format!("cannot find `{outer}`"))?;
    let comma = if inner.is_empty() { "\n  " } else { "," };
    Ok(Some(TextInsertion { at, text: format!("\n    {entry}{comma}") }))
}
