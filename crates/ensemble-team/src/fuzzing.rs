//! What fuzzers and their regressions reach (feature `fuzzing`): readers of hostile input that are
//! otherwise private. Nothing here is promised to other programs.

use std::path::Path;

use ensemble_core::Result;
use serde_json::Value;

use crate::board::text;

/// What a blackboard's text says, as the code reads it that changes it in place.
pub fn board_value(source: &str) -> Result<Value> {
    Ok(text::YamlText::parse(source, Path::new("state.yaml"))?.value())
}

/// The blackboard's text, changed in place until it says `value`.
pub fn board_update(source: &str, value: &Value) -> Result<String> {
    let path = Path::new("state.yaml");
    Ok(text::YamlText::parse(source, path)?.update(value, path)?.source().to_owned())
}

/// The comments of a blackboard's text, sorted.
pub fn board_comments(source: &str) -> Result<Vec<String>> {
    let text = text::YamlText::parse(source, Path::new("state.yaml"))?;
    Ok(text.comments().into_iter().map(str::to_owned).collect())
}
