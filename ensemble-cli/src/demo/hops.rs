//! Reads the event log of the demo. There is a line for each thing that happens, and at the end how long each hop of
//! each message took.

use std::collections::BTreeMap;

use ensemble_app::failure::Outcome;
use ensemble_app::sentences::{SentenceMaker, SentenceWeight};
use ensemble_core::event_log::{Record, types};
use ensemble_core::message::Timestamp;
use serde_json::{Value, json};

use crate::output::Output;

#[derive(Clone, Debug, Default)]
struct MessageHop {
    kind: String,
    task: String,
    from: String,
    stored: Option<Timestamp>,
    submitted: Option<Timestamp>,
    acked: Option<Timestamp>,
    settled: Option<Timestamp>,
}

#[derive(Debug, Default)]
pub(super) struct MessageHops {
    start: Option<Timestamp>,
    by_message: BTreeMap<(String, String), MessageHop>,
    order: Vec<(String, String)>,
    maker: SentenceMaker,
}

impl MessageHops {
    /// Takes a record, and returns it in words if it matters.
    pub(super) fn describe_record(&mut self, record: &Record) -> Option<String> {
        self.note_hop(record);
        let sentence = self.maker.describe(record, None);
        sentence.filter(|it| it.weight != SentenceWeight::Detail).map(|it| it.text)
    }

    fn note_hop(&mut self, record: &Record) {
        self.start.get_or_insert(record.timestamp);
        let text =
            |key: &str| record.data.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let mailbox = text("mailbox");
        match record.kind.as_str() {
            types::MESSAGE_STORED => {
                let key = (mailbox.clone(), text("id"));
                let hop = self.by_message.entry(key.clone()).or_default();
                (hop.kind, hop.task, hop.from) =
                    (text("type"), text("task_id"), record.actor.clone());
                hop.stored.get_or_insert(record.timestamp);
                self.order.push(key);
            }
            types::RECEIPT_SUBMITTED => {
                let ids =
                    record.data.get("ids").and_then(Value::as_array).cloned().unwrap_or_default();
                for id in ids.iter().filter_map(Value::as_str) {
                    let hop = self.by_message.entry((mailbox.clone(), id.to_owned())).or_default();
                    hop.submitted.get_or_insert(record.timestamp);
                }
            }
            // Its sender may be slower to say that it is stored than its recipient to take it.
            types::MESSAGE_ACKED | types::MESSAGE_SETTLED => {
                let hop = self.by_message.entry((mailbox, text("id"))).or_default();
                let is_ack = record.kind.as_str() == types::MESSAGE_ACKED;
                let reached = if is_ack { &mut hop.acked } else { &mut hop.settled };
                *reached = Some(record.timestamp);
            }
            _ => {}
        }
    }

    /// Whether the summary and all other messages were settled. A message may be received before its `message.stored`
    /// is in the log; that record is waited for, too.
    pub(super) fn is_complete(&self) -> bool {
        let hops = || self.by_message.values();
        let summary = hops().any(|h| h.kind == "report.summary" && h.settled.is_some());
        let mut known = hops().filter(|h| h.stored.is_some() || h.acked.is_some());
        summary && known.all(|h| h.stored.is_some() && h.settled.is_some())
    }

    pub(super) fn seconds_since_start(&self, record: &Record) -> f64 {
        self.start.map_or(0.0, |start| record.timestamp.since(start).as_secs_f64())
    }

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

/// A message may be announced, and even received, before its sender has synced it and recorded it as stored. That
/// counts as 0 ms.
fn millis(from: Option<Timestamp>, to: Option<Timestamp>) -> Option<u128> {
    Some(to?.since(from?).as_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(seq: u64, kind: &str, data: &Value) -> Record {
        let line = json!({
            "timestamp": "2026-11-21T10:00:00.000Z", "session_id": "session-20261121-100000",
            "seq": seq, "type": kind, "actor": "worker", "data": data,
        });
        Record::parse(line.to_string().as_bytes()).unwrap()
    }

    /// On a disk that is slow to sync, a recipient can take a message, and even settle it, before its sender records
    /// it as stored. Any order of the records gives the same result.
    #[test]
    fn a_message_that_is_taken_before_its_sender_says_that_it_is_stored_is_told_whole() {
        let place = json!({ "mailbox": "conductor", "id": "m1", "epoch": 1 });
        let stored = json!({ "mailbox": "conductor", "id": "m1", "type": "report.summary" });
        let all =
            [("message.stored", &stored), ("message.acked", &place), ("message.settled", &place)];
        for order in [[0, 1, 2], [1, 0, 2], [1, 2, 0]] {
            let mut hops = MessageHops::default();
            for (seq, at) in (1..).zip(order) {
                assert!(!hops.is_complete(), "{order:?}");
                hops.describe_record(&record(seq, all[at].0, all[at].1));
            }
            assert!(hops.is_complete(), "{order:?}");
            let rows = hops.rows();
            assert_eq!(rows.len(), 1, "{order:?}");
            assert!(rows[0]["acked_to_settled_ms"].is_u64(), "{order:?}: {rows:?}");
        }
    }

    #[test]
    fn what_was_taken_and_is_not_told_to_be_stored_is_waited_for() {
        let place = |id: &str| json!({ "mailbox": "conductor", "id": id, "epoch": 1 });
        let stored =
            |id: &str| json!({ "mailbox": "conductor", "id": id, "type": "report.summary" });
        let mut hops = MessageHops::default();
        for (seq, kind, data) in [
            (1, "message.acked", place("late")),
            (2, "message.settled", place("late")),
            (3, "message.stored", stored("summary")),
            (4, "message.acked", place("summary")),
            (5, "message.settled", place("summary")),
        ] {
            hops.describe_record(&record(seq, kind, &data));
        }
        assert!(!hops.is_complete());
        hops.describe_record(&record(6, "message.stored", &stored("late")));
        assert!(hops.is_complete());
        assert_eq!(hops.rows().len(), 2);
    }
}
