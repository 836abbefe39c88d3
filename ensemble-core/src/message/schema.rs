//! JSON Schemas (feature `schema`) of types that check themselves while they are read.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::{NAME_BYTES_MAX, Name};

impl JsonSchema for Name {
    fn schema_name() -> Cow<'static, str> {
        "Name".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Letters, digits and . _ -, not beginning with a dot or a dash.",
            "type": "string",
            "pattern": "^[A-Za-z0-9_][A-Za-z0-9._-]*$",
            "maxLength": NAME_BYTES_MAX,
        })
    }
}

/// What stands in the file of a message, for a schema; [`crate::message::Envelope`] reads and writes it.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "a description of a file; nothing is made of it")]
pub struct EnvelopeFile {
    /// The format (default 1).
    #[schemars(range(min = 1, max = 1))]
    version: Option<u32>,
    /// Unique in its mailbox; the file's name if missing.
    id: Option<Name>,
    /// What kind of message it is (default: message).
    #[schemars(rename = "type")]
    kind: Option<Name>,
    /// Who sent it, as the sender says.
    from: Option<Name>,
    /// Which mailbox it is for.
    to: Option<Name>,
    /// When, by the sender's clock; RFC 3339 with an offset.
    created_at: Option<String>,
    /// The request it belongs to; also read as `request_id` and `requestId`.
    #[schemars(length(min = 1, max = 256))]
    correlation_id: Option<String>,
    /// What caused it.
    #[schemars(length(min = 1, max = 256))]
    causation_id: Option<String>,
    /// Which task it is about.
    #[schemars(length(min = 1, max = 256))]
    task_id: Option<String>,
    /// Which attempt at the task.
    attempt: Option<u32>,
    /// 0 (everyday) to 9.
    #[schemars(range(max = 9))]
    priority: Option<u8>,
    /// After it the message is dead-lettered instead of received; RFC 3339.
    expires_at: Option<String>,
    /// Which drop-box file it was made from.
    #[schemars(length(min = 1, max = 256))]
    source: Option<String>,
    /// The digest of content in `attachments/`.
    attachment_sha256: Option<String>,
    /// Its size.
    attachment_bytes: Option<u64>,
    /// Bytes of the body.
    body_length: Option<u64>,
    /// SHA-256 of the body.
    body_sha256: Option<String>,
    /// The text.
    #[schemars(length(max = 61440))]
    body: String,
}
