//! Values that YAML or a person writes in another way than Rust reads them.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

pub(super) fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    d: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(d)?.unwrap_or_default())
}

/// YAML reads a commit of digits only as a number.
pub(super) fn text<'de, D: Deserializer<'de>>(d: D) -> Result<Option<String>, D::Error> {
    Ok(match Value::deserialize(d)? {
        Value::Null => None,
        Value::String(text) => Some(text),
        other => Some(other.to_string()),
    })
}

pub(super) fn texts<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<String>, D::Error> {
    let values: Vec<Value> = or_default(d)?;
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    Ok(values.iter().map(text).collect())
}

pub(super) fn event_name<'de, D: Deserializer<'de>>(d: D) -> Result<String, D::Error> {
    Ok(match text(d)?.unwrap_or_default() {
        drifted if drifted == "submitted_for_review" => "ready_for_review".to_owned(),
        name => name,
    })
}
