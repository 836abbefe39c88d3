//! A message that is being written.

use std::time::Duration;

use serde::Serialize;

use super::name::invalid_name;
use super::{IntoName, Message, Queue};
use crate::message::{
    Envelope, MessageId, Name, PRIORITY_MAX, Timestamp, check_headers, fill_body,
};
use crate::{Error, Result};

/// A message that is being written: text, bytes or JSON, with the headers that its reader needs.
///
/// Text is a draft by itself: `inbox.send("hello")`. A mistake, such as a name that is not valid, is reported by the
/// call that sends.
///
/// ```
/// use std::time::Duration;
/// use ensemble_core::{Draft, Queue};
/// # let home = tempfile::tempdir()?;
/// # let queue = Queue::open_or_create(home.path())?;
/// let worker = queue.mailbox("worker-1")?;
/// let task = Draft::json(&serde_json::json!({ "file": "src/main.rs" }))
///     .sender("lead")
///     .kind("task")
///     .task("task-7")
///     .priority(5)
///     .expires_in(Duration::from_secs(3600));
/// worker.send(task)?;
/// let message = worker.try_recv()?.expect("the task");
/// assert_eq!(message.json::<serde_json::Value>()?["file"], "src/main.rs");
/// # message.settle()?;
///
/// worker.send(Draft::new("ping").id("ping-7").correlation("health"))?; // the same id is stored once
/// worker.send(Draft::bytes([0xff, 0xd8]).delay(Duration::from_secs(60)))?; // not before a minute has passed
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "it is sent by `Queue::send` or `Mailbox::send`"]
pub struct Draft {
    content: DraftContent,
    sender: Option<Name>,
    kind: Option<Name>,
    pub(super) id: Option<MessageId>,
    task: Option<String>,
    priority: u8,
    expires_in: Option<Duration>,
    expires_at: Option<Timestamp>,
    delay: Duration,
    correlation: Option<String>,
    causation: Option<String>,
    mistake: Option<Error>,
}

#[derive(Debug)]
enum DraftContent {
    Text(String),
    /// The body if they fit there, otherwise an attachment.
    Bytes(Vec<u8>),
}

impl Draft {
    /// A message with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            content: DraftContent::Text(text.into()),
            sender: None,
            kind: None,
            id: None,
            task: None,
            priority: 0,
            expires_in: None,
            expires_at: None,
            delay: Duration::ZERO,
            correlation: None,
            causation: None,
            mistake: None,
        }
    }

    /// A message with these bytes; [`Message::bytes`] reads them. Text that fits is the message's body; anything
    /// else, up to 256 MiB, is stored beside the mailboxes, and the body is empty.
    pub fn bytes(content: impl Into<Vec<u8>>) -> Self {
        Self { content: DraftContent::Bytes(content.into()), ..Self::new("") }
    }

    /// A message with this value as JSON; [`Message::json`] reads it.
    pub fn json(value: &impl Serialize) -> Self {
        match serde_json::to_string(value) {
            Ok(text) => Self::bytes(text),
            Err(error) => {
                let detail = error.to_string();
                Self { mistake: Some(invalid("body", detail)), ..Self::new("") }
            }
        }
    }

    /// Who sends it. Without it, the holder of the [`Mailbox`](super::Mailbox) handle that sends, or `unknown`.
    pub fn sender(self, name: impl IntoName) -> Self {
        self.named(name.into_name(), |draft, name| draft.sender = Some(name))
    }

    /// The type of message; `message` by default.
    pub fn kind(self, kind: impl IntoName) -> Self {
        self.named(kind.into_name(), |draft, kind| draft.kind = Some(kind))
    }

    /// An id that you choose: sending the same id again stores nothing.
    pub fn id(self, id: impl Into<String>) -> Self {
        self.named(MessageId::new(id).map_err(invalid_name), |draft, id| draft.id = Some(id))
    }

    /// The task it is about.
    pub fn task(mut self, id: impl Into<String>) -> Self {
        self.task = Some(id.into());
        self
    }

    /// 0 (default) to 9: consumers receive higher priorities first.
    pub fn priority(mut self, priority: u8) -> Self {
        if priority > PRIORITY_MAX {
            let detail = format!("{priority} is not in 0 to {PRIORITY_MAX}");
            self.mistake.get_or_insert_with(|| invalid("priority", detail));
        }
        self.priority = priority;
        self
    }

    /// After this time it becomes a dead letter instead of being received.
    pub fn expires_in(mut self, time: Duration) -> Self {
        self.expires_in = Some(time);
        self
    }

    /// It cannot be received before this time has passed.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// The conversation or request it belongs to.
    pub fn correlation(mut self, id: impl Into<String>) -> Self {
        self.correlation = Some(id.into());
        self
    }

    /// The same draft as an answer to `message`: its correlation, its cause and its task, where they are not set.
    pub(super) fn answering(mut self, message: &Message) -> Self {
        let asked = message.envelope();
        let thread = || asked.correlation_id.clone().unwrap_or_else(|| asked.id.to_string());
        self.correlation = self.correlation.or_else(|| Some(thread()));
        self.causation = Some(asked.id.to_string());
        // An answer that comes too late is not read.
        self.expires_at = asked.expires_at;
        self.task = self.task.or_else(|| asked.task_id.clone());
        self
    }

    /// The same draft, of this type where it has none.
    pub(super) fn with_kind_unless_set(self, kind: &str) -> Result<Self> {
        let kind = self.kind.clone().map_or_else(|| kind.into_name(), Ok)?;
        Ok(Self { kind: Some(kind), ..self })
    }

    /// The same draft, which must not be delayed.
    pub(super) fn without_delay(self) -> Result<Self> {
        match self.delay {
            Duration::ZERO => Ok(self),
            _ => Err(invalid("delay", "send delayed messages one by one".to_owned())),
        }
    }

    /// The same draft as a question, and the correlation by which its answer is found.
    pub(super) fn asking(mut self, patience: Duration) -> (Self, String) {
        self.expires_in = self.expires_in.or(Some(patience));
        let id = self.correlation.clone().unwrap_or_else(|| MessageId::generate().to_string());
        self.correlation = Some(id.clone());
        (self, id)
    }

    fn named<T>(mut self, named: Result<T>, set: impl FnOnce(&mut Self, T)) -> Self {
        match named {
            Ok(value) => set(&mut self, value),
            Err(error) => {
                self.mistake.get_or_insert(error);
            }
        }
        self
    }

    /// Stores it; `holder` is the sender where it names none.
    pub(super) fn send_to(
        self,
        queue: &Queue,
        to: Name,
        holder: Option<&Name>,
    ) -> Result<MessageId> {
        let delay = self.delay;
        let envelope = self.into_envelope(queue, to, holder)?;
        if delay.is_zero() {
            queue.spool().publish(&envelope)?;
        } else {
            queue.spool().publish_delayed(&envelope, delay)?;
        }
        Ok(envelope.id)
    }

    /// The envelope; its attachment is stored.
    pub(super) fn into_envelope(
        self,
        queue: &Queue,
        to: Name,
        holder: Option<&Name>,
    ) -> Result<Envelope> {
        self.mistake.map_or(Ok(()), Err)?;
        let (text, bytes) = match self.content {
            DraftContent::Text(text) => (text, None),
            DraftContent::Bytes(content) => (String::new(), Some(content)),
        };
        let mut envelope = Envelope::new(to, text).with_priority(self.priority);
        envelope =
            self.sender.or_else(|| holder.cloned()).into_iter().fold(envelope, Envelope::from);
        envelope = self.kind.into_iter().fold(envelope, Envelope::with_kind);
        envelope = self.id.into_iter().fold(envelope, Envelope::with_id);
        let expires_at = self.expires_in.map(|time| {
            let now = queue.spool().options().clock.wall().unix_millis();
            let time = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
            Timestamp::from_unix_millis(now.saturating_add(time))
        });
        envelope.expires_at = expires_at.or(self.expires_at);
        envelope.task_id = self.task;
        (envelope.correlation_id, envelope.causation_id) = (self.correlation, self.causation);
        if let Err(Error::Malformed { field, detail, .. }) = check_headers(&envelope, "".as_ref()) {
            return Err(invalid(&field, detail));
        }
        let Some(content) = bytes else { return Ok(envelope) };
        let (mut envelope, rest) = fill_body(envelope, content)?;
        envelope.attachment = rest.map(|rest| queue.spool().attach(&rest)).transpose()?;
        Ok(envelope)
    }
}

fn invalid(field: &str, detail: String) -> Error {
    Error::invalid("the draft", field, detail)
}

impl From<&str> for Draft {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for Draft {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl From<&String> for Draft {
    fn from(text: &String) -> Self {
        Self::new(text.as_str())
    }
}
