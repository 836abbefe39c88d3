//! JSON Schemas (feature `schema`) of types that validate themselves while they are read.

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

/// What is in the file of a message, for a schema; [`crate::message::Envelope`] reads and writes it.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "a description of a file; it is never constructed")]
pub struct EnvelopeFile {
    /// Format version (default 1).
    #[schemars(range(min = 1, max = 1))]
    version: Option<u32>,
    /// Id, unique in its mailbox; the file's name if missing.
    id: Option<Name>,
    /// Type of the message (default: message).
    #[schemars(rename = "type")]
    kind: Option<Name>,
    /// The sender, as the sender states it.
    from: Option<Name>,
    /// How the program that stored the message knew its sender: pass, pane or person. Readers drop other words.
    proof: Option<String>,
    /// The sender's project, if the message comes from the queue of another one.
    project: Option<Name>,
    /// The recipient's mailbox.
    to: Option<Name>,
    /// Creation time by the sender's clock; RFC 3339 with an offset.
    created_at: Option<String>,
    /// The request that the message belongs to; also read as `request_id` and `requestId`.
    #[schemars(length(min = 1, max = 256))]
    correlation_id: Option<String>,
    /// The message that caused this one.
    #[schemars(length(min = 1, max = 256))]
    causation_id: Option<String>,
    /// The sender's earlier message that this one replaces.
    replaces: Option<Name>,
    /// The task that the message is about.
    #[schemars(length(min = 1, max = 256))]
    task_id: Option<String>,
    /// Number of the attempt at the task.
    attempt: Option<u32>,
    /// Priority, from 0 (normal) to 9.
    #[schemars(range(max = 9))]
    priority: Option<u8>,
    /// When a working recipient reads it: interrupt, tool (default) or turn. Readers drop other words.
    when: Option<String>,
    /// Time after which the message is dead-lettered instead of received; RFC 3339.
    expires_at: Option<String>,
    /// The drop-box file that it was made from.
    #[schemars(length(min = 1, max = 256))]
    source: Option<String>,
    /// The sender's trace, as a W3C traceparent.
    #[schemars(length(min = 1, max = 256))]
    traceparent: Option<String>,
    /// Digest of the attachment in `attachments/`.
    attachment_sha256: Option<String>,
    /// Size of the attachment, in bytes.
    attachment_bytes: Option<u64>,
    /// Length of the body, in bytes.
    body_length: Option<u64>,
    /// SHA-256 of the body.
    body_sha256: Option<String>,
    /// Text of the message.
    #[schemars(length(max = 61440))]
    body: String,
}
