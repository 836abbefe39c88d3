//! What the event log says of the demo: a line for each thing that happens, and at the end how
//! long each hop of each message took.

use std::collections::BTreeMap;

use ensemble_core::event_log::Record;
use ensemble_core::message::Timestamp;
use serde_json::{Value, json};

use crate::exit::Outcome;
use crate::output::Output;

/// One message's way.
#[derive(Clone, Debug, Default)]
struct Hop {
    kind: String,
    task: String,
    from: String,
    stored: Option<Timestamp>,
    submitted: Option<Timestamp>,
    acked: Option<Timestamp>,
    settled: Option<Timestamp>,
}

/// All messages' ways.
#[derive(Debug, Default)]
pub(super) struct Hops {
    start: Option<Timestamp>,
    by_message: BTreeMap<(String, String), Hop>,
    order: Vec<(String, String)>,
}

impl Hops {
    /// Takes a record; what is worth telling comes back as a line.
    pub(super) fn take(&mut self, record: &Record) -> Option<String> {
        self.start.get_or_insert(record.timestamp);
        let text =
            |key: &str| record.data.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let mailbox = text("mailbox");
        match record.kind.as_str() {
            "message.stored" => {
                let key = (mailbox.clone(), text("id"));
                let hop = self.by_message.entry(key.clone()).or_default();
                (hop.kind, hop.task, hop.from) =
                    (text("type"), text("task_id"), record.actor.clone());
                hop.stored.get_or_insert(record.timestamp);
                let line = format!("{} {} landed for {mailbox}", hop.kind, hop.task);
                self.order.push(key);
                Some(line.replace("  ", " "))
            }
            "nudge.sent" => Some(format!("{mailbox} was woken in pane {}", text("pane"))),
            "nudge.deferred" => Some(format!("{mailbox} is woken later: {}", text("detail"))),
            "receipt.submitted" => {
                let ids =
                    record.data.get("ids").and_then(Value::as_array).cloned().unwrap_or_default();
                for id in ids.iter().filter_map(Value::as_str) {
                    let hop = self.by_message.entry((mailbox.clone(), id.to_owned())).or_default();
                    hop.submitted.get_or_insert(record.timestamp);
                }
                None
            }
            "message.acked" => self.reached(
                &mailbox,
                &text("id"),
                |hop| hop.acked = Some(record.timestamp),
                "was received by",
            ),
            "message.settled" => self.reached(
                &mailbox,
                &text("id"),
                |hop| hop.settled = Some(record.timestamp),
                "was settled by",
            ),
            _ => None,
        }
    }

    fn reached(
        &mut self,
        mailbox: &str,
        id: &str,
        set: impl FnOnce(&mut Hop),
        what: &str,
    ) -> Option<String> {
        let hop = self.by_message.get_mut(&(mailbox.to_owned(), id.to_owned()))?;
        set(hop);
        Some(format!("{} {} {what} {mailbox}", hop.kind, hop.task).replace("  ", " "))
    }

    /// The summary was read and settled, and so was everything else.
    pub(super) fn is_complete(&self) -> bool {
        let summary =
            self.by_message.values().any(|h| h.kind == "report.summary" && h.settled.is_some());
        summary
            && self.by_message.values().filter(|h| h.stored.is_some()).all(|h| h.settled.is_some())
    }

    pub(super) fn seconds_since_start(&self, record: &Record) -> f64 {
        self.start.map_or(0.0, |start| record.timestamp.since(start).as_secs_f64())
    }

    /// One object a message, with what each hop took in milliseconds.
    pub(super) fn rows(&self) -> Vec<Value> {
        let row = |key: &(String, String)| {
            let hop = self.by_message.get(key)?;
            Some(json!({
                "id": key.1, "mailbox": key.0, "type": hop.kind, "task_id": hop.task, "from": hop.from,
                "stored_to_submitted_ms": millis(hop.stored, hop.submitted),
                "submitted_to_acked_ms": millis(hop.submitted, hop.acked),
                "acked_to_settled_ms": millis(hop.acked, hop.settled),
            }))
        };
        self.order.iter().filter_map(row).collect()
    }

    /// The same for people.
    pub(super) fn table(&self, out: &Output) -> Outcome {
        let shown =
            |from, to| millis(from, to).map_or_else(|| "-".to_owned(), |ms| format!("{ms} ms"));
        let mut rows = Vec::new();
        for key in &self.order {
            let Some(hop) = self.by_message.get(key) else { continue };
            rows.push(vec![
                hop.kind.clone(),
                hop.task.clone(),
                hop.from.clone(),
                key.0.clone(),
                shown(hop.stored, hop.submitted),
                shown(hop.submitted, hop.acked),
                shown(hop.acked, hop.settled),
            ]);
        }
        out.table(
            &[
                "message",
                "task",
                "from",
                "to",
                "landed > woken",
                "woken > received",
                "received > done",
            ],
            rows,
        )
    }
}

/// A message may be told of, and even received, before its sender has made it safe and recorded
/// it as stored: that is 0 ms.
fn millis(from: Option<Timestamp>, to: Option<Timestamp>) -> Option<u128> {
    Some(to?.since(from?).as_millis())
}
