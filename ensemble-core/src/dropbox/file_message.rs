//! The message that a drop-box file becomes: one rule for the watcher and for the library's own.

use serde_json::Value;

use super::{CompleteFile, Entry};
use crate::Result;
use crate::message::{BODY_BYTES_MAX, Envelope, Name};
use crate::spool::Spool;

/// The fields of a report in which its author may be named, best first.
pub const AUTHOR_FIELDS: [&str; 6] =
    ["worker_id", "workerId", "executed_by", "reviewer", "agent", "from"];
/// The longest `source`, in bytes.
const SOURCE_BYTES_MAX: usize = 200;
/// The longest id of a task that a message takes over, in bytes.
const TASK_BYTES_MAX: usize = 128;

impl CompleteFile {
    /// Who has written it, as it says. The seed's workers are numbers: `1` is `worker-1`.
    #[must_use]
    pub fn author(&self) -> Option<Name> {
        author_in(&self.fields)
    }

    /// The message for one recipient of its route: the file's text, or its attachment where it is too large. `kind`
    /// and `stem` are those of the route.
    ///
    /// # Errors
    /// The attachment cannot be stored.
    pub fn to_envelope(
        &self,
        entry: &Entry,
        to: Name,
        kind: Option<&Name>,
        stem: Option<&str>,
        spool: &Spool,
    ) -> Result<Envelope> {
        let (id, path) = (entry.message_id(&to), self.path());
        let text = std::str::from_utf8(&self.content).ok();
        let envelope = match text.filter(|text| text.len() <= BODY_BYTES_MAX) {
            Some(text) => Envelope::new(to, text),
            None => {
                let attachment = spool.attach(&self.content)?;
                Envelope::new(to, format!("{path} is attached: {} bytes\n", attachment.bytes))
                    .with_attachment(attachment)
            }
        };
        let mut envelope = envelope.with_id(id).with_source(message_source(&path));
        envelope = kind.cloned().into_iter().fold(envelope, Envelope::with_kind);
        envelope.task_id = self.task(&envelope.kind, stem);
        envelope.traceparent = self.field("traceparent").and_then(|text| text.parse().ok());
        Ok(self.author().into_iter().fold(envelope, Envelope::from))
    }

    /// The task that it is about: as it says, otherwise by its name.
    fn task(&self, kind: &Name, stem: Option<&str>) -> Option<String> {
        let is_task = &*self.box_name == "tasks" || kind.as_str() == "task";
        let named = self.field(if is_task { "id" } else { "task_id" });
        let task = named.or(stem)?;
        let is_id =
            !task.is_empty() && task.len() <= TASK_BYTES_MAX && !task.contains(char::is_control);
        is_id.then(|| task.to_owned())
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name)?.as_str()
    }
}

/// The author that these fields name.
fn author_in(fields: &Value) -> Option<Name> {
    AUTHOR_FIELDS.iter().find_map(|field| match fields.get(field)? {
        Value::String(text) => author_of_text(text),
        Value::Number(number) => author_of_text(&number.to_string()),
        _ => None,
    })
}

/// The author that a field's text names.
#[must_use]
pub fn author_of_text(text: &str) -> Option<Name> {
    let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    Name::new(if is_number { format!("worker-{text}") } else { text.to_owned() }).ok()
}

/// The field `source` of a message: the path, without control characters, as far as there is room.
#[must_use]
pub fn message_source(path: &str) -> String {
    let mut source = String::with_capacity(path.len());
    for c in path.chars().filter(|c| !c.is_control()) {
        if source.len() + c.len_utf8() > SOURCE_BYTES_MAX {
            break;
        }
        source.push(c);
    }
    source
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_author_is_found_in_fields() {
        let found = |fields: Value| author_in(&fields).map(|name| name.to_string());
        assert_eq!(found(serde_json::json!({"worker_id": 1})).as_deref(), Some("worker-1"));
        let two = serde_json::json!({"from": "a", "executed_by": "b"});
        assert_eq!(found(two).as_deref(), Some("b"));
        assert_eq!(found(serde_json::json!({"worker_id": "../x", "agent": [1]})), None);
    }
}
