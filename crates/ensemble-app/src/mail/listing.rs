//! Messages of a mailbox as they are listed.

use ensemble_core::Error;
use ensemble_core::message::Envelope;
use ensemble_core::spool::Found;
use serde_json::{Value, json};

/// A message of a mailbox as an object.
pub fn describe_listed(found: &Found, envelope: Result<Envelope, Error>) -> Value {
    let mut object = json!({ "id": found.id, "mailbox": found.mailbox });
    let state = serde_json::to_value(&found.state).unwrap_or_default();
    for (key, value) in state.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
    match envelope {
        Ok(envelope) => {
            object["from"] = json!(envelope.from);
            object["type"] = json!(envelope.kind);
            object["task_id"] = json!(envelope.task_id);
            object["priority"] = json!(envelope.priority);
            object["created_at"] = json!(envelope.created_at);
            object["bytes"] =
                json!(envelope.attachment.map_or(envelope.body.len() as u64, |a| a.bytes));
        }
        Err(error) => object["error"] = json!(error.to_string()),
    }
    object
}
