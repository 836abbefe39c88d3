//! Steps in the log: each time that a worker has one is a span.

use std::collections::HashMap;

use ensemble_core::event_log::{Record, types};
use ensemble_core::message::Timestamp;
use serde_json::Value;

use super::assembler::text;
use super::conventions as names;
use super::span::{
    Span, SpanAttributes, SpanEvents, SpanHead, SpanKind, SpanPlace, SpanStatus, trace_id,
};

struct OpenStep {
    worker: String,
    from: Timestamp,
    prompt: Option<SpanPlace>,
    events: SpanEvents,
}

#[derive(Default)]
pub(super) struct StepSpans {
    open: HashMap<(String, u64), OpenStep>,
    tasks: HashMap<String, SpanPlace>,
}

impl StepSpans {
    pub(super) fn stored(&mut self, task: &str, below: SpanPlace) {
        if !task.is_empty() {
            self.tasks.insert(task.to_owned(), below);
        }
    }

    /// Takes a record of a step. Returns its span if it has ended. `prompt` is the place below the message that the
    /// record names.
    pub(super) fn add_record(
        &mut self,
        record: &Record,
        prompt: Option<SpanPlace>,
    ) -> Option<Span> {
        let number = |member: &str| record.data.get(member).and_then(Value::as_u64);
        let key = (text(record, "task_id").to_owned(), number("step_index")?);
        let kind = record.kind.as_str();
        if kind == types::STEP_TAKEN {
            let worker = record.actor.clone();
            let (from, events) = (record.timestamp, SpanEvents::default());
            self.open.insert(key, OpenStep { worker, from, prompt: None, events });
            return None;
        }
        let outcome = match kind {
            types::STEP_COMPLETED => "completed",
            types::STEP_FAILED => "failed",
            types::STEP_BLOCKED => "blocked",
            types::STEP_LEASE_ENDED => "lease_ended",
            types::STEP_SKIPPED => "skipped",
            types::STEP_SPLIT => "split",
            _ => {
                let open = self.open.get_mut(&key)?;
                open.events.add(record);
                open.prompt = open.prompt.or(prompt);
                return None;
            }
        };
        let open = self.open.remove(&key)?;
        Some(self.span(record, &key, open, outcome))
    }

    fn span(
        &self,
        record: &Record,
        (task, index): &(String, u64),
        open: OpenStep,
        outcome: &'static str,
    ) -> Span {
        let mut attributes = SpanAttributes::default();
        attributes.add(names::TASK_ID, task.as_str());
        attributes.add(names::STEP_INDEX, *index);
        attributes.add(names::WORKER_ID, open.worker.as_str());
        attributes.add_some(names::EPOCH, record.data.get("epoch").cloned());
        attributes.add(names::OUTCOME, outcome);
        let status = match outcome {
            "completed" => SpanStatus::Fine,
            "failed" | "blocked" | "lease_ended" => {
                attributes.add(names::ERROR_TYPE, outcome);
                SpanStatus::Error(format!("the step is {outcome}"))
            }
            _ => SpanStatus::Unset,
        };
        let alone =
            || SpanPlace { trace_id: trace_id(&["task", task]), parent_id: None, is_remote: false };
        let place = open.prompt.or_else(|| self.tasks.get(task).copied()).unwrap_or_else(alone);
        let taken = open.from.unix_millis().to_string();
        let head = SpanHead {
            place,
            span_id: place.child(&[names::STEP_SPAN, task, &index.to_string(), &taken]),
            name: format!("{} {}", names::STEP_SPAN, open.worker),
            kind: SpanKind::Internal,
        };
        let (from, to) = (open.from, record.timestamp.max(open.from));
        Span { head, from, to, attributes, events: open.events, status }
    }
}
