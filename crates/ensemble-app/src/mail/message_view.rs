//! A message as every door shows it: `--json`, the tools and the API have this one shape.
//!
//! | part | members |
//! |---|---|
//! | place | `id`, `mailbox`, `state`, with `holder`, `epoch`, `not_before` |
//! | header | that of the envelope: `type`, `from`, `to`, `task_id`, `correlation_id`, … |
//! | content | `bytes`; `body` and `body_text` of a message that is read, `preview` of one that is listed |
//! | delivery | `lease_seconds`, `held`, `waiting`, `head`, `commands`, `plan`, `attachment_path`, `remark` |

use std::path::PathBuf;

use ensemble_core::Result;
use ensemble_core::env::Delivery;
use ensemble_core::message::{BODY_BYTES_MAX, Envelope, MessageId, Name};
use ensemble_core::spool::{Found, State};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::App;
use crate::failure::Outcome;
use crate::mail::delivered::{DeliveryInstructions, body_json, needed_plan};
use crate::queue::ProjectQueue;

/// How much of the text of a listed message is shown, in characters.
const PREVIEW_CHARACTERS: usize = 200;
/// An attached text of at most this many bytes is shown in the place of the body.
const ATTACHED_BYTES_MAX: u64 = 512 * 1024;

#[derive(Debug, Serialize)]
pub struct MessageView {
    id: MessageId,
    mailbox: Name,
    #[serde(flatten)]
    state: Option<State>,
    #[serde(flatten)]
    header: Map<String, Value>,
    #[serde(flatten)]
    content: Option<ContentView>,
    #[serde(flatten)]
    delivery: Option<DeliveryView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attachment_path: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    commands: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum ContentView {
    Listed {
        bytes: u64,
        preview: String,
    },
    /// `body` is a mapping where the text is one.
    Read {
        bytes: u64,
        body: Value,
        body_text: String,
    },
}

#[derive(Debug, Serialize)]
struct DeliveryView {
    lease_seconds: u64,
    held: String,
    waiting: usize,
    head: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remark: Option<String>,
}

impl MessageView {
    fn of(id: &MessageId, mailbox: &Name, state: Option<State>) -> Self {
        Self {
            id: id.clone(),
            mailbox: mailbox.clone(),
            state,
            header: Map::new(),
            content: None,
            delivery: None,
            attachment_path: None,
            commands: None,
            error: None,
        }
    }

    /// A message of a list, with the beginning of its text.
    pub fn listed(found: &Found, envelope: Result<Envelope>) -> Self {
        let mut view = Self::of(&found.id, &found.mailbox, Some(found.state.clone()));
        match envelope {
            Ok(envelope) => {
                let preview = envelope.body.chars().take(PREVIEW_CHARACTERS).collect();
                view.header = header_of(&envelope);
                view.content = Some(ContentView::Listed { bytes: bytes_of(&envelope), preview });
            }
            Err(error) => view.error = Some(error.to_string()),
        }
        view
    }

    pub fn read(
        app: &App,
        queue: &ProjectQueue,
        (mailbox, state): (&Name, Option<State>),
        envelope: &Envelope,
    ) -> Outcome<Self> {
        let mut view = Self::of(&envelope.id, mailbox, state);
        view.header = header_of(envelope);
        let bytes = bytes_of(envelope);
        let mut text = envelope.body.clone();
        if let Some(attachment) = &envelope.attachment {
            view.attachment_path = Some(queue.attachment_path(app, attachment)?);
            if bytes <= ATTACHED_BYTES_MAX.max(BODY_BYTES_MAX as u64)
                && let Ok(attached) = queue.attached(attachment)
                && let Ok(attached) = String::from_utf8(attached)
            {
                text = attached;
            }
        }
        let body = body_json(&text);
        view.content = Some(ContentView::Read { bytes, body, body_text: text });
        Ok(view)
    }

    /// A message in the hands of its holder. `remark` is what it may not do.
    pub fn delivered(
        app: &App,
        queue: &ProjectQueue,
        delivery: &Delivery,
        remark: Option<String>,
    ) -> Outcome<Self> {
        let Delivery { envelope, lease, lease_duration, .. } = delivery;
        let state = State::Acked { holder: lease.holder.clone(), epoch: lease.epoch };
        let mut view = Self::read(app, queue, (&lease.mailbox, Some(state)), envelope)?;
        let told = DeliveryInstructions::new(app, queue, delivery)?;
        view = view.with_commands(&told.commands);
        view.delivery = Some(DeliveryView {
            lease_seconds: lease_duration.as_secs(),
            head: told.head.join("\n"),
            held: told.held,
            waiting: told.waiting,
            plan: needed_plan(app, queue, delivery)?,
            remark,
        });
        Ok(view)
    }

    pub fn with_commands(mut self, commands: &[(&'static str, String)]) -> Self {
        let commands = commands.iter().map(|(name, line)| ((*name).to_owned(), json!(line)));
        self.commands = Some(commands.collect::<Map<_, _>>().into());
        self
    }

    pub fn to_json(&self) -> Value {
        json!(self)
    }
}

fn header_of(envelope: &Envelope) -> Map<String, Value> {
    let mut header = json!(envelope).as_object().cloned().unwrap_or_default();
    header.retain(|member, _| !["id", "body"].contains(&&**member));
    header
}

fn bytes_of(envelope: &Envelope) -> u64 {
    envelope.attachment.as_ref().map_or(envelope.body.len() as u64, |attached| attached.bytes)
}
