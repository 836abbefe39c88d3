//! Makes spans of records: it follows each message, attempt and step until it has ended.
//!
//! | records | what they do |
//! |---|---|
//! | `message.stored`, `message.redriven` | begin a life of a message |
//! | `message.acked`, `message.released` | begin and end a delivery |
//! | `message.settled`, `message.withdrawn`, `message.dead` | end a life |
//! | `receipt.*`, `nudge.*` | are events of messages that are named, or that wait in the mailbox |
//! | `worker_assign`, `ladder.*`, `task_*`, `escalation` | are the attempt at a task that a message carries |
//! | `step.*` | are steps, in the trace of the message that prompted them, or of their task's last message |
//!
//! What has ended is handed out [`GRACE_MS`] later, in the order of ends, since records of several processes may change
//! places. A message that is moved by scripts alone has no records, and so no spans.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use ensemble_core::event_log::{LOG_LOCK_PATIENCE, Record, types};
use ensemble_core::message::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::life::{MessageLife, TraceOrigin};
use super::span::Span;
use super::steps::StepSpans;

/// How long a thing that has ended is kept for late records, in milliseconds: the patience of a log's writer.
const GRACE_MS: u64 = 1_000;
const _: () = assert!(GRACE_MS as u128 == LOG_LOCK_PATIENCE.as_millis());
/// Most waiting messages to which a nudge of their mailbox is noted, the oldest first.
const NUDGED_MAX: usize = 32;
/// A reason that begins so is not a failure: an attempt that another one replaced.
const SUPERSEDED: &str = "superseded by";

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RecordMark {
    session_id: String,
    seq: u64,
}

pub struct FinishedSpans {
    /// The record that ended it; `None` for what is still open.
    pub mark: Option<RecordMark>,
    pub at: Timestamp,
    pub spans: Vec<Span>,
}

impl FinishedSpans {
    #[cfg(feature = "otlp")]
    pub fn is_after(&self, mark: &RecordMark) -> bool {
        self.mark.as_ref().is_none_or(|own| own > mark)
    }

    /// The session in which it had ended; `None` for what is still open.
    pub fn session(&self) -> Option<&str> {
        self.mark.as_ref().map(|mark| mark.session_id.as_str())
    }
}

enum FinishedItem {
    Message(u64),
    Step(Box<Span>),
}

type MessageKey = (String, String);

#[derive(Default)]
pub struct SpanAssembler {
    /// All lives by number, in the order of their beginnings.
    lives: BTreeMap<u64, MessageLife>,
    begun: u64,
    current: HashMap<MessageKey, u64>,
    /// The dead messages that were handed out: a redrive continues with their traces.
    dead: HashMap<MessageKey, TraceOrigin>,
    /// The lives that wait for a holder, by mailbox.
    waiting: HashMap<String, BTreeSet<u64>>,
    /// The life that carries the attempt of a worker at a task.
    attempts: HashMap<MessageKey, u64>,
    steps: StepSpans,
    over: VecDeque<(u64, RecordMark, FinishedItem)>,
}

pub(super) fn text<'a>(record: &'a Record, member: &str) -> &'a str {
    record.data.get(member).and_then(Value::as_str).unwrap_or_default()
}

fn epoch(record: &Record) -> u64 {
    record.data.get("epoch").and_then(Value::as_u64).unwrap_or(0)
}

impl SpanAssembler {
    /// Takes the next record. `now_ms` is any clock that only grows.
    pub fn add_record(&mut self, record: &Record, now_ms: u64) {
        match record.kind.as_str() {
            types::MESSAGE_STORED => self.stored(record),
            types::MESSAGE_REDRIVEN => self.redriven(record),
            kind if kind.starts_with("message.") => self.moved(record, now_ms),
            types::RECEIPT_NOTIFIED | types::RECEIPT_SUBMITTED => self.receipt(record),
            types::NUDGE_SENT | types::NUDGE_DEFERRED | types::NUDGE_UNANSWERED => {
                self.nudged(record);
            }
            types::WORKER_ASSIGN | types::LADDER_BEGUN => self.assigned(record),
            types::TASK_START | types::TASK_COMPLETE | types::TASK_FAILED | types::ESCALATION => {
                self.tried(record);
            }
            kind if kind.starts_with("ladder.") => self.tried(record),
            kind if kind.starts_with("step.") => {
                let prompt = self.find(record).map(|(_, life)| life.below());
                if let Some(span) = self.steps.add_record(record, prompt) {
                    self.over.push_back((now_ms, mark(record), FinishedItem::Step(Box::new(span))));
                }
            }
            _ => {}
        }
    }

    pub fn finished(&mut self, now_ms: u64) -> Vec<FinishedSpans> {
        let mut finished = Vec::new();
        while let Some((seen, ..)) = self.over.front()
            && seen.saturating_add(GRACE_MS) <= now_ms
        {
            let Some((_, mark, over)) = self.over.pop_front() else { break };
            finished.extend(self.hand_out(mark, over));
        }
        finished
    }

    /// Returns everything that has ended, and with `open` also what has not, in its current state.
    pub fn rest(mut self, open: bool) -> Vec<FinishedSpans> {
        let mut finished = self.finished(u64::MAX);
        if open {
            let lives = self.lives.into_values();
            finished.extend(lives.map(|life| {
                let at = life.until();
                FinishedSpans { mark: None, at, spans: life.spans() }
            }));
        }
        finished
    }

    fn hand_out(&mut self, mark: RecordMark, over: FinishedItem) -> Option<FinishedSpans> {
        let number = match over {
            FinishedItem::Message(number) => number,
            FinishedItem::Step(span) => {
                return Some(FinishedSpans { mark: Some(mark), at: span.to, spans: vec![*span] });
            }
        };
        let life = self.lives.remove(&number)?;
        let key = (life.origin.mailbox.clone(), life.origin.id.clone());
        if self.current.get(&key) == Some(&number) {
            self.current.remove(&key);
            if life.is_dead() {
                self.dead.insert(key, life.origin.clone());
            }
        }
        if let Some(attempt) = life.tried()
            && self.attempts.get(&attempt) == Some(&number)
        {
            self.attempts.remove(&attempt);
        }
        Some(FinishedSpans { mark: Some(mark), at: life.until(), spans: life.spans() })
    }

    fn key(record: &Record) -> MessageKey {
        (text(record, "mailbox").to_owned(), text(record, "id").to_owned())
    }

    fn find(&mut self, record: &Record) -> Option<(u64, &mut MessageLife)> {
        let number = *self.current.get(&Self::key(record))?;
        Some((number, self.lives.get_mut(&number)?))
    }

    fn begin(&mut self, origin: TraceOrigin, epoch: u64, at: Timestamp) -> u64 {
        self.begun += 1;
        let number = self.begun;
        self.current.insert((origin.mailbox.clone(), origin.id.clone()), number);
        self.waiting.entry(origin.mailbox.clone()).or_default().insert(number);
        self.lives.insert(number, MessageLife::begin(origin, epoch, at));
        number
    }

    fn stored(&mut self, record: &Record) {
        let (mailbox, id) = Self::key(record);
        let known =
            self.find(record).map(|(number, life)| (number, life.is_stored(), life.is_over()));
        let number = match known {
            // The records of its holder were faster.
            Some((number, false, _)) => number,
            // Other hosts' logs may repeat a record.
            Some((_, true, false)) => return,
            Some((_, true, true)) | None => {
                self.begin(TraceOrigin::new(mailbox, id), 0, record.timestamp)
            }
        };
        let Some(life) = self.lives.get_mut(&number) else { return };
        life.store(record);
        self.steps.stored(text(record, "task_id"), life.below());
    }

    fn redriven(&mut self, record: &Record) {
        let (mailbox, id) = Self::key(record);
        let before = self.find(record).map(|(_, life)| life.origin.clone());
        let before = before.or_else(|| self.dead.remove(&(mailbox.clone(), id.clone())));
        let origin = before.unwrap_or_else(|| TraceOrigin::new(mailbox, id));
        let number = self.begin(origin, epoch(record).max(1), record.timestamp);
        if let Some(life) = self.lives.get_mut(&number) {
            life.add_event(record);
        }
    }

    /// Handles a move of a message, which begins a new life if the log does not have its publish.
    fn moved(&mut self, record: &Record, now_ms: u64) {
        let kind = record.kind.as_str();
        let begins = [types::MESSAGE_ACKED, types::MESSAGE_SETTLED, types::MESSAGE_DEAD];
        let number = match self.find(record) {
            Some((number, _)) => number,
            None if begins.contains(&kind) => {
                let (mailbox, id) = Self::key(record);
                self.begin(TraceOrigin::new(mailbox, id), 0, record.timestamp)
            }
            None => return,
        };
        let Some(life) = self.lives.get_mut(&number) else { return };
        let epoch = epoch(record);
        let end = match kind {
            types::MESSAGE_SETTLED => Some(("settled", None)),
            types::MESSAGE_WITHDRAWN => Some(("withdrawn", None)),
            types::MESSAGE_DEAD => {
                let reason = text(record, "reason");
                Some(("dead", (!reason.starts_with(SUPERSEDED)).then(|| reason.to_owned())))
            }
            _ => None,
        };
        let is_last = end.is_some_and(|(outcome, failure)| {
            life.end_delivery(record, epoch, outcome, failure.clone());
            life.end(record.timestamp, outcome, failure)
        });
        match kind {
            types::MESSAGE_SETTLED | types::MESSAGE_WITHDRAWN | types::MESSAGE_DEAD => {}
            types::MESSAGE_ACKED => life.ack(record, epoch),
            types::MESSAGE_EXTENDED => life.note_delivery(record, epoch),
            types::MESSAGE_RELEASED => life.end_delivery(record, epoch, "released", None),
            _ => life.add_event(record),
        }
        let (is_waiting, mailbox) = (life.is_waiting(), life.origin.mailbox.clone());
        let waiting = self.waiting.entry(mailbox).or_default();
        match is_waiting {
            true => waiting.insert(number),
            false => waiting.remove(&number),
        };
        if is_last {
            self.over.push_back((now_ms, mark(record), FinishedItem::Message(number)));
        }
    }

    fn receipt(&mut self, record: &Record) {
        let mailbox = text(record, "mailbox");
        let ids = record.data.get("ids").and_then(Value::as_array);
        for id in ids.into_iter().flatten().filter_map(Value::as_str) {
            let number = self.current.get(&(mailbox.to_owned(), id.to_owned()));
            if let Some(life) = number.and_then(|number| self.lives.get_mut(number)) {
                life.add_event(record);
            }
        }
    }

    fn nudged(&mut self, record: &Record) {
        let waiting = self.waiting.get(text(record, "mailbox"));
        for number in waiting.into_iter().flatten().take(NUDGED_MAX) {
            if let Some(life) = self.lives.get_mut(number) {
                life.add_event(record);
            }
        }
    }

    fn assigned(&mut self, record: &Record) {
        let (task, worker) = (text(record, "task_id"), text(record, "worker_id"));
        let Some((number, life)) = self.find(record) else { return };
        life.begin_attempt(record, task, worker);
        self.attempts.insert((task.to_owned(), worker.to_owned()), number);
    }

    fn tried(&mut self, record: &Record) {
        let key = (text(record, "task_id").to_owned(), text(record, "worker_id").to_owned());
        let number = self.attempts.get(&key);
        let Some(life) = number.and_then(|number| self.lives.get_mut(number)) else { return };
        match record.kind.as_str() {
            types::TASK_COMPLETE => life.end_attempt(record, None),
            types::TASK_FAILED => {
                let (status, reason) = (text(record, "status"), text(record, "reason"));
                let failure = if reason.is_empty() { status } else { reason };
                life.end_attempt(record, Some(failure.to_owned()));
            }
            types::ESCALATION => life.escalate(record),
            _ => life.note_attempt(record),
        }
    }
}

fn mark(record: &Record) -> RecordMark {
    RecordMark { session_id: record.session_id.clone(), seq: record.seq }
}
