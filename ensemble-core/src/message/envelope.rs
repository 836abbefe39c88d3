//! The envelope: one message, immutable once written.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use super::canonical::{self, EnvelopeFields};
use super::json::JsonEnvelope;
use super::{
    DeliveryClass, Digest, MessageId, Name, PLAIN_TYPE, SenderProof, Timestamp, TraceParent, yaml,
};
use crate::{Error, Result};

/// The envelope format version of written files. Older versions are read, newer ones refused.
pub const FORMAT_VERSION: u32 = 1;
/// The largest envelope file, in bytes. Larger content travels as an [`Attachment`].
pub const ENVELOPE_BYTES_MAX: usize = 64 * 1024;
/// The largest body, in bytes. It is the rest of [`ENVELOPE_BYTES_MAX`] for a text's worst-case
/// form, after the largest other fields.
pub const BODY_BYTES_MAX: usize = ENVELOPE_BYTES_MAX - 4 * 1024;
/// The most urgent priority; 0 is the default.
pub const PRIORITY_MAX: u8 = 9;
/// Name of a sender or recipient that a message does not name.
const UNNAMED: &str = "unknown";
/// The longest free header (correlation, causation, task, source), in bytes.
pub(crate) const HEADER_BYTES_MAX: usize = 256;

/// Content too large for an envelope, stored beside the mailboxes under its digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// The SHA-256 of the content; also its file name in `attachments/`.
    pub sha256: Digest,
    /// Size of the content in bytes.
    pub bytes: u64,
}

/// One message. Build it with [`Envelope::new`] and the `with_*` methods.
///
/// [`Envelope::encode`] and [`Envelope::decode`] are its form on disk. As JSON (serde) it is handed from
/// program to program, as `ensemble recv --json` prints it; fields that it does not know are ignored there.
///
/// ```
/// use ensemble_core::message::{Envelope, Name};
/// let envelope = Envelope::new(Name::new("dispatch")?, "task 7 is done\n")
///     .with_kind(Name::new("report")?)
///     .from(Name::new("worker-1")?);
/// let file = envelope.encode()?;
/// assert_eq!(Envelope::decode(&file, "report.yaml".as_ref())?, envelope);
/// # Ok::<(), ensemble_core::Error>(())
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "JsonEnvelope")]
#[non_exhaustive]
pub struct Envelope {
    /// Id, unique in its mailbox. Publishing the same id again stores nothing.
    pub id: MessageId,
    /// Type of the message (`message`, `task`, `report.completed`, …).
    #[serde(rename = "type")]
    pub kind: Name,
    /// Sender's name, as the sender states it.
    pub from: Name,
    /// How the program that stored the message knew its sender; `None` if nothing but the name says who it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof: Option<SenderProof>,
    /// Project of the sender, if the message comes from the queue of another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<Name>,
    /// Mailbox of the recipient.
    pub to: Name,
    /// Creation time, by the sender's wall clock.
    pub created_at: Timestamp,
    /// Id of the request that the message belongs to (`request_id`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// Message or file that caused this message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub causation_id: Option<String>,
    /// The sender's earlier message that this one replaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaces: Option<MessageId>,
    /// Id of the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    /// Attempt number of the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// 0 (default) to [`PRIORITY_MAX`]; consumers receive higher priorities first.
    pub priority: u8,
    /// When a working recipient is to read it; `None` is [`DeliveryClass::Tool`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<DeliveryClass>,
    /// Wall-clock time after which the message is dead-lettered instead of received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Drop-box file that the message was made from, relative to the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Trace to which the sender's work belongs. Readers drop an invalid one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<TraceParent>,
    /// Content that did not fit into the body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attachment: Option<Attachment>,
    /// The content: text, often YAML or JSON.
    pub body: String,
    /// Set at the first attempt to publish, so that a retry searches for the id first.
    #[serde(skip)]
    offered: OfferMark,
    /// The generated id. `id` is a public field, so a publish compares the two to learn whether the
    /// id was replaced.
    #[serde(skip)]
    made_id: Option<MessageId>,
}

impl Envelope {
    pub(crate) fn names_sender(&self) -> bool {
        self.from.as_str() != UNNAMED
    }

    /// Whether this id may already be stored: the sender chose it, or it was read from a file, or
    /// published before. Returns the state before this call and records the attempt.
    pub(crate) fn note_offer(&self) -> bool {
        let offered = self.offered.0.swap(true, Ordering::Relaxed);
        offered || self.made_id.as_ref() != Some(&self.id)
    }
}

#[cfg_attr(not(feature = "internals"), doc(hidden))]
impl Envelope {
    /// Creates a message with a new id, of kind `message`, from `unknown`, dated now.
    #[must_use]
    pub fn new(to: Name, body: impl Into<String>) -> Self {
        let id = MessageId::generate();
        Self {
            made_id: Some(id.clone()),
            id,
            kind: fixed_name(PLAIN_TYPE),
            from: fixed_name(UNNAMED),
            proof: None,
            project: None,
            to,
            created_at: Timestamp::now(),
            correlation_id: None,
            causation_id: None,
            replaces: None,
            task_id: None,
            attempt: None,
            priority: 0,
            when: None,
            expires_at: None,
            source: None,
            traceparent: None,
            attachment: None,
            body: body.into(),
            offered: OfferMark::default(),
        }
    }

    /// Sets an id chosen by the sender: publishing the same id again stores nothing.
    #[must_use]
    pub fn with_id(mut self, id: MessageId) -> Self {
        self.id = id;
        self.made_id = None;
        self
    }

    #[must_use]
    pub fn with_kind(mut self, kind: Name) -> Self {
        self.kind = kind;
        self
    }

    #[must_use]
    pub fn from(mut self, from: Name) -> Self {
        self.from = from;
        self
    }

    #[must_use]
    pub fn with_proof(mut self, proof: Option<SenderProof>) -> Self {
        self.proof = proof;
        self
    }

    #[must_use]
    pub fn with_task(mut self, task_id: impl Into<String>) -> Self {
        self.task_id = Some(task_id.into());
        self
    }

    #[must_use]
    pub fn with_attempt(mut self, attempt: u32) -> Self {
        self.attempt = Some(attempt);
        self
    }

    #[must_use]
    pub fn with_correlation(mut self, id: impl Into<String>) -> Self {
        self.correlation_id = Some(id.into());
        self
    }

    #[must_use]
    pub fn with_causation(mut self, id: impl Into<String>) -> Self {
        self.causation_id = Some(id.into());
        self
    }

    /// Sets the priority (at most [`PRIORITY_MAX`]).
    #[must_use]
    pub fn with_priority(mut self, priority: u8) -> Self {
        self.priority = priority;
        self
    }

    #[must_use]
    pub fn with_expiry(mut self, expires_at: Timestamp) -> Self {
        self.expires_at = Some(expires_at);
        self
    }

    #[must_use]
    pub fn with_source(mut self, source: impl Into<String>) -> Self {
        self.source = Some(source.into());
        self
    }

    #[must_use]
    pub fn with_attachment(mut self, attachment: Attachment) -> Self {
        self.attachment = Some(attachment);
        self
    }

    /// The same message for another mailbox (broadcast).
    #[must_use]
    pub fn addressed_to(&self, to: Name) -> Self {
        Self { to, ..self.clone() }
    }

    /// The sender as `--to` takes it: with its project if that is another one.
    #[must_use]
    pub fn sender_address(&self) -> String {
        match &self.project {
            None => self.from.to_string(),
            Some(project) => format!("{}@{project}", self.from),
        }
    }

    /// Encodes the message as a file.
    ///
    /// # Errors
    /// A field or the whole is too long, or a header has control characters.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let here = Path::new(self.id.as_str());
        check_headers(self, here)?;
        if self.body.len() > BODY_BYTES_MAX {
            return Err(Error::too_large("the body", self.body.len(), BODY_BYTES_MAX));
        }
        let file = canonical::write(self);
        if file.len() > ENVELOPE_BYTES_MAX {
            return Err(Error::too_large("the envelope", file.len(), ENVELOPE_BYTES_MAX));
        }
        Ok(file)
    }

    /// Decodes a file. `path` is for the error text; its stem is the id of a file that has none.
    ///
    /// # Errors
    /// [`Error::TooLarge`] or [`Error::Malformed`], which names the field.
    pub fn decode(file: &[u8], path: &Path) -> Result<Self> {
        if file.len() > ENVELOPE_BYTES_MAX {
            let what = path.display().to_string();
            return Err(Error::too_large(what, file.len(), ENVELOPE_BYTES_MAX));
        }
        let text = yaml::decode_text(file, path)?;
        let fields = match canonical::read(text) {
            Some(fields) => fields,
            None => yaml::parse::<EnvelopeFields>(text, path)?,
        };
        from_fields(fields, path)
    }
}

/// Puts content into the body of a message. Content that does not fit is returned, for an attachment.
///
/// # Errors
/// Another field of the message is too long, or has control characters.
pub fn fill_body(mut envelope: Envelope, content: Vec<u8>) -> Result<(Envelope, Option<Vec<u8>>)> {
    let rest = match String::from_utf8(content) {
        Ok(text) if text.len() <= BODY_BYTES_MAX => {
            envelope.body = text;
            // A text of many short lines or control characters is longer in its file form.
            match envelope.encode() {
                Err(Error::TooLarge { .. }) => std::mem::take(&mut envelope.body).into_bytes(),
                encoded => return encoded.map(|_| (envelope, None)),
            }
        }
        Ok(text) => text.into_bytes(),
        Err(error) => error.into_bytes(),
    };
    Ok((envelope, Some(rest)))
}

impl TryFrom<JsonEnvelope> for Envelope {
    type Error = Error;

    fn try_from(json: JsonEnvelope) -> Result<Self> {
        let envelope = Self {
            id: json.id,
            kind: json.kind.unwrap_or_else(|| fixed_name(PLAIN_TYPE)),
            from: json.from.unwrap_or_else(|| fixed_name(UNNAMED)),
            proof: json.proof.and_then(|word| word.parse().ok()),
            project: json.project,
            to: json.to,
            created_at: json.created_at,
            correlation_id: json.correlation_id,
            causation_id: json.causation_id,
            replaces: json.replaces,
            task_id: json.task_id,
            attempt: json.attempt,
            priority: json.priority,
            when: json.when.and_then(|word| word.parse().ok()),
            expires_at: json.expires_at,
            source: json.source,
            traceparent: json.traceparent.and_then(|text| text.parse().ok()),
            attachment: json.attachment,
            body: json.body,
            offered: OfferMark::default(),
            made_id: None,
        };
        check_headers(&envelope, Path::new(envelope.id.as_str()))?;
        Ok(envelope)
    }
}

/// Whether a publish was tried; a copy of the message knows that, too.
#[derive(Debug, Default)]
struct OfferMark(AtomicBool);

impl Clone for OfferMark {
    fn clone(&self) -> Self {
        Self(AtomicBool::new(self.0.load(Ordering::Relaxed)))
    }
}

/// The published mark is not part of the message.
impl PartialEq for Envelope {
    fn eq(&self, other: &Self) -> bool {
        canonical::write(self) == canonical::write(other)
    }
}

impl Eq for Envelope {}

fn fixed_name(name: &str) -> Name {
    Name::new(name).unwrap_or_else(|_| unreachable!("`{name}` is a name"))
}

/// Checks what a sender may choose. `path` is that of the file, or the id of a message that has none yet.
pub(crate) fn check_headers(envelope: &Envelope, path: &Path) -> Result<()> {
    if envelope.priority > PRIORITY_MAX {
        let detail = format!("{} is above {PRIORITY_MAX}", envelope.priority);
        return Err(Error::malformed(path, "priority", detail));
    }
    let free = [
        ("correlation_id", &envelope.correlation_id),
        ("causation_id", &envelope.causation_id),
        ("task_id", &envelope.task_id),
        ("source", &envelope.source),
    ];
    for (field, value) in free {
        let Some(value) = value else { continue };
        if value.is_empty() || value.len() > HEADER_BYTES_MAX {
            let detail = format!("has {} bytes, allowed are 1 to {HEADER_BYTES_MAX}", value.len());
            return Err(Error::malformed(path, field, detail));
        }
        if let Some(c) = value.chars().find(|c| !canonical::is_plain(*c)) {
            return Err(Error::malformed(path, field, format!("has the control character {c:?}")));
        }
    }
    Ok(())
}

fn from_fields(fields: EnvelopeFields, path: &Path) -> Result<Envelope> {
    let bad = |field: &str, detail: String| Error::malformed(path, field, detail);
    let name = |field: &str, value: String| Name::new(value).map_err(|e| bad(field, e.to_string()));
    let stamp = |field: &str, value: String| {
        value.parse::<Timestamp>().map_err(|e| bad(field, e.to_string()))
    };
    if fields.version > FORMAT_VERSION {
        let detail = format!("{} is newer than {FORMAT_VERSION}: update ensemble", fields.version);
        return Err(bad("version", detail));
    }
    check_body(&fields, path)?;
    let stem = || path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
    let digest = fields.attachment_sha256.map(|text| text.parse::<Digest>()).transpose();
    let digest = digest.map_err(|e| bad("attachment_sha256", e.to_string()))?;
    let bytes = fields.attachment_bytes.unwrap_or(0);
    let attachment = digest.map(|sha256| Attachment { sha256, bytes });
    let envelope = Envelope {
        id: MessageId::new(fields.id.unwrap_or_else(stem)).map_err(|e| bad("id", e.to_string()))?,
        kind: name("type", fields.kind.unwrap_or_else(|| "message".to_owned()))?,
        from: name("from", fields.from.unwrap_or_else(|| UNNAMED.to_owned()))?,
        proof: fields.proof.and_then(|word| word.parse().ok()),
        project: fields.project.map(|project| name("project", project)).transpose()?,
        to: name("to", fields.to.unwrap_or_else(|| UNNAMED.to_owned()))?,
        created_at: fields
            .created_at
            .map_or(Ok(Timestamp::from_unix_millis(0)), |t| stamp("created_at", t))?,
        correlation_id: fields.correlation_id,
        causation_id: fields.causation_id,
        replaces: fields
            .replaces
            .map(|id| MessageId::new(id).map_err(|e| bad("replaces", e.to_string())))
            .transpose()?,
        task_id: fields.task_id,
        attempt: fields.attempt,
        priority: fields.priority,
        when: fields.when.and_then(|word| word.parse().ok()),
        expires_at: fields.expires_at.map(|t| stamp("expires_at", t)).transpose()?,
        source: fields.source,
        traceparent: fields.traceparent.and_then(|text| text.parse().ok()),
        attachment,
        body: fields.body,
        offered: OfferMark::default(),
        made_id: None,
    };
    check_headers(&envelope, path)?;
    Ok(envelope)
}

/// A file that was truncated or altered after writing is refused.
fn check_body(fields: &EnvelopeFields, path: &Path) -> Result<()> {
    if let Some(length) = fields.body_length
        && length != fields.body.len() as u64
    {
        let detail = format!(
            "says {length} bytes, the body has {}: the file was cut or altered",
            fields.body.len()
        );
        return Err(Error::malformed(path, "body_length", detail));
    }
    if let Some(expected) = &fields.body_sha256
        && *expected != Digest::of(fields.body.as_bytes()).to_string()
    {
        let detail = "the body was altered after it was written";
        return Err(Error::malformed(path, "body_sha256", detail));
    }
    Ok(())
}
