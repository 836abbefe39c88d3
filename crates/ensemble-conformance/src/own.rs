//! The adapter for this library: makes the calls of the kit with a `Spool`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ensemble_core::env::Lease;
use ensemble_core::event_log::{EventLog, LogOptions};
use ensemble_core::message::{Envelope, MessageId, Name};
use ensemble_core::requests::{PlanGates, Requests};
use ensemble_core::spool::{Spool, SpoolOptions};
use ensemble_core::{Error, Result};
use serde_json::{Map, Value, json};

use super::cases::TestedClient;

#[derive(Debug)]
pub(crate) struct OwnClient {
    spool: Spool,
}

impl OwnClient {
    /// Opens the queue. Writes to the event log beside the queue, if there is one.
    pub(crate) fn open(queue: &Path) -> Result<Self, String> {
        let logs = queue.join("../.ensemble/logs");
        let mut options = SpoolOptions::default().with_admission(Arc::new(PlanGates));
        if logs.is_dir() {
            options =
                options.with_recorder(Arc::new(EventLog::deferred(&logs, LogOptions::default())));
        }
        let spool = Spool::open(queue, options).map_err(|error| error.to_string())?;
        Ok(Self { spool })
    }

    pub(crate) fn answer(&self, call: &Value) -> Value {
        match self.perform(call) {
            Ok(mut answer) => {
                answer.insert("ok".to_owned(), true.into());
                Value::Object(answer)
            }
            Err(error) => {
                json!({ "ok": false, "error": word(&error), "detail": error.to_string() })
            }
        }
    }

    fn perform(&self, call: &Value) -> Result<Map<String, Value>> {
        let text = |key: &str| call[key].as_str().unwrap_or_default();
        let mailbox = Name::new(text("mailbox"))?;
        match text("op") {
            "send" => self.send(mailbox, call),
            "receive" => {
                self.receive(&mailbox, &Name::new(text("holder"))?, Path::new(text("body_file")))
            }
            "state" => {
                let state = self.spool.state(&mailbox, &MessageId::new(text("id"))?)?;
                let word = state.as_ref().map_or("unknown", |state| match state.word() {
                    "queued" => "stored",
                    word => word,
                });
                Ok(object(json!({ "state": word })))
            }
            verb => {
                let lease = Lease {
                    mailbox,
                    id: MessageId::new(text("id"))?,
                    holder: Name::new(text("holder"))?,
                    epoch: call["epoch"].as_u64().unwrap_or(0),
                };
                let number = |key: &str| call[key].as_u64().unwrap_or(0);
                match verb {
                    "settle" => self.settle(&lease)?,
                    "release" => {
                        self.spool.release(&lease, Duration::from_millis(number("delay_ms")))?;
                    }
                    "extend" => {
                        self.spool.extend(&lease, Duration::from_secs(number("seconds")))?
                    }
                    _ => self.spool.dead_letter(&lease, text("reason"))?,
                }
                Ok(Map::new())
            }
        }
    }

    fn send(&self, mailbox: Name, call: &Value) -> Result<Map<String, Value>> {
        let text = |key: &str| call[key].as_str();
        let path = Path::new(text("body_file").unwrap_or_default());
        let body = std::fs::read_to_string(path).map_err(|error| Error::io("read", path, error))?;
        let mut envelope = Envelope::new(mailbox, body)
            .with_kind(Name::new(text("type").unwrap_or("message"))?)
            .from(Name::new(text("from").unwrap_or("unknown"))?)
            .with_priority(call["priority"].as_u64().and_then(|p| p.try_into().ok()).unwrap_or(0));
        envelope.task_id = text("task_id").map(str::to_owned);
        envelope.correlation_id = text("correlation_id").map(str::to_owned);
        if let Some(id) = text("id") {
            envelope = envelope.with_id(MessageId::new(id)?);
        }
        self.spool.publish(&envelope)?;
        Ok(object(json!({ "id": envelope.id })))
    }

    fn settle(&self, lease: &Lease) -> Result<()> {
        if let Ok(envelope) = self.spool.peek(&lease.mailbox, &lease.id) {
            Requests::new(&self.spool).refuse_unanswered(&envelope)?;
        }
        self.spool.settle(lease)
    }

    fn receive(&self, mailbox: &Name, holder: &Name, body: &Path) -> Result<Map<String, Value>> {
        let Some(delivery) = self.spool.receive(mailbox, holder)? else { return Ok(Map::new()) };
        std::fs::write(body, &delivery.envelope.body)
            .map_err(|error| Error::io("write", body, error))?;
        let mut answer = object(serde_json::to_value(&delivery.envelope).unwrap_or_default());
        answer.remove("body");
        answer.insert("holder".to_owned(), delivery.lease.holder.as_str().into());
        answer.insert("epoch".to_owned(), delivery.lease.epoch.into());
        Ok(answer)
    }
}

impl TestedClient for OwnClient {
    fn call(&mut self, call: &Value) -> Result<Value, String> {
        Ok(self.answer(call))
    }

    fn locks(&self) -> bool {
        true
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

/// The word of an error, as conformance/README.md lists them.
fn word(error: &Error) -> &'static str {
    match error {
        Error::LeaseLost { .. } => "lease_lost",
        Error::Conflict { .. } => "conflict",
        Error::Full { .. } | Error::Quota { .. } => "full",
        Error::TooLarge { .. } => "too_large",
        Error::Malformed { .. } => "invalid",
        Error::Locked { .. } => "busy",
        Error::Io { source, .. } if source.kind() != std::io::ErrorKind::PermissionDenied => "io",
        error if error.area::<ensemble_core::message::NameError>().is_some() => "invalid",
        _ => "refused",
    }
}
