//! What fuzzers and their regressions reach (feature `fuzzing`): readers of what agents' programs write.

use serde_json::Value;

use super::EventInput;
use super::conversation::client::take_object;
use super::conversation::permission;

/// The texts of an event of a hook, as they are recorded and shown.
pub fn hook_texts(event: &[u8]) -> Result<Vec<String>, String> {
    let event = EventInput::parse(event).map_err(|failure| failure.text())?;
    let EventInput { name, session_id, source, reason, tool_name, .. } = event;
    let texts = [name, session_id, source, reason, tool_name];
    let more = [event.notification_type, event.message, event.error];
    Ok(texts.into_iter().chain(more).flatten().collect())
}

/// Each question for a permission in what an agent says by ACP: its command, its options, whether it is allowed without
/// a person, and the answer if it is.
pub fn acp_permissions(said: &[u8]) -> Vec<(String, Value, bool, Value)> {
    let mut unread = said.to_vec();
    let mut found = Vec::new();
    while let Some(mut said) = take_object(&mut unread) {
        let (tool, options) = (&said["params"]["toolCall"], &said["params"]["options"]);
        let is_everyday = permission::is_everyday(tool);
        let line = permission::command_of(tool).unwrap_or_default().to_owned();
        let answer = permission::outcome(options, is_everyday);
        found.push((line, said["params"]["options"].take(), is_everyday, answer));
    }
    found
}
