//! Counts and durations from the log. They only grow while the log is kept, so a counter begins again with its log.

use std::collections::{BTreeMap, HashMap};

use ensemble_core::event_log::{Record, types};
use ensemble_core::message::Timestamp;

use super::assembler::text;
use super::exposition::{MetricKind, MetricSample};

/// The upper bounds of the durations' buckets, in seconds.
const BUCKETS: [f64; 9] = [0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0];

/// A counter: the record that it counts, its name, its help, and the member of the record that is its label.
type LogCounter = (&'static str, &'static str, &'static str, &'static str);

const COUNTERS: [LogCounter; 9] = [
    (
        types::MESSAGE_STORED,
        "ensemble_messages_stored_total",
        "Messages that were stored.",
        "mailbox",
    ),
    (
        types::MESSAGE_ACKED,
        "ensemble_messages_acked_total",
        "Deliveries of messages to holders.",
        "mailbox",
    ),
    (
        types::MESSAGE_SETTLED,
        "ensemble_messages_settled_total",
        "Messages that were settled.",
        "mailbox",
    ),
    (
        types::MESSAGE_RELEASED,
        "ensemble_messages_released_total",
        "Deliveries that ended without a settle.",
        "mailbox",
    ),
    (
        types::MESSAGE_DEAD,
        "ensemble_messages_dead_total",
        "Messages that became dead letters.",
        "mailbox",
    ),
    (
        types::MAILBOX_FULL,
        "ensemble_messages_refused_total",
        "Messages that a full mailbox refused.",
        "mailbox",
    ),
    (
        types::ESCALATION,
        "ensemble_escalations_total",
        "Deliveries that no worker took.",
        "worker_id",
    ),
    (
        types::TASK_COMPLETE,
        "ensemble_tasks_completed_total",
        "Tasks that ended with success.",
        "worker_id",
    ),
    (
        types::TASK_FAILED,
        "ensemble_tasks_failed_total",
        "Tasks that ended without success.",
        "worker_id",
    ),
];

const NUDGES: [(&str, &str); 3] = [
    (types::NUDGE_SENT, "sent"),
    (types::NUDGE_DEFERRED, "deferred"),
    (types::NUDGE_UNANSWERED, "unanswered"),
];

#[derive(Default)]
struct DurationHistogram {
    buckets: [u64; BUCKETS.len()],
    count: u64,
    sum: f64,
}

impl DurationHistogram {
    fn add(&mut self, seconds: f64) {
        for (bucket, bound) in self.buckets.iter_mut().zip(BUCKETS) {
            *bucket += u64::from(seconds <= bound);
        }
        self.count += 1;
        self.sum += seconds;
    }
}

#[derive(Default)]
pub struct LogMeter {
    counts: BTreeMap<(usize, String), u64>,
    nudges: BTreeMap<(String, &'static str), u64>,
    /// When a message was stored, until it is settled; whether it was acked.
    stored: HashMap<(String, String), (Timestamp, bool)>,
    until_ack: BTreeMap<String, DurationHistogram>,
    until_settle: BTreeMap<String, DurationHistogram>,
    records: u64,
}

impl LogMeter {
    pub fn count_record(&mut self, record: &Record) {
        self.records += 1;
        let kind = record.kind.as_str();
        if let Some(index) = COUNTERS.iter().position(|(counted, ..)| *counted == kind) {
            let label = text(record, COUNTERS[index].3).to_owned();
            *self.counts.entry((index, label)).or_default() += 1;
        }
        if let Some((_, result)) = NUDGES.iter().find(|(counted, _)| *counted == kind) {
            *self.nudges.entry((text(record, "agent").to_owned(), result)).or_default() += 1;
        }
        let mailbox = text(record, "mailbox").to_owned();
        let key = (mailbox.clone(), text(record, "id").to_owned());
        match kind {
            types::MESSAGE_STORED => drop(self.stored.insert(key, (record.timestamp, false))),
            types::MESSAGE_ACKED => {
                if let Some((stored, is_acked @ false)) = self.stored.get_mut(&key) {
                    *is_acked = true;
                    let seconds = record.timestamp.since(*stored).as_secs_f64();
                    self.until_ack.entry(mailbox).or_default().add(seconds);
                }
            }
            types::MESSAGE_SETTLED => {
                if let Some((stored, _)) = self.stored.remove(&key) {
                    let seconds = record.timestamp.since(stored).as_secs_f64();
                    self.until_settle.entry(mailbox).or_default().add(seconds);
                }
            }
            _ => {}
        }
    }

    pub fn samples(&self) -> Vec<MetricSample> {
        let counter = |name, help, labels, count: u64| {
            MetricSample::new(MetricKind::Counter, name, help, labels, count as f64)
        };
        let mut samples = Vec::new();
        for (index, (_, name, help, label)) in COUNTERS.iter().enumerate() {
            let counted = self.counts.iter().filter(|((counter, _), _)| *counter == index);
            samples.extend(counted.map(|((_, value), count)| {
                counter(*name, *help, vec![(*label, value.clone())], *count)
            }));
        }
        for ((agent, result), count) in &self.nudges {
            let labels = vec![("agent", agent.clone()), ("result", (*result).to_owned())];
            let (name, help) = ("ensemble_nudges_total", "Nudges, by their outcome.");
            samples.push(counter(name, help, labels, *count));
        }
        let (name, help) = ("ensemble_log_records_total", "Records of the event log.");
        samples.push(counter(name, help, Vec::new(), self.records));
        let help = "Time from the publish of a message to its first ack.";
        histogram(&mut samples, "ensemble_message_ack_seconds", help, &self.until_ack);
        let help = "Time from the publish of a message to its settle.";
        histogram(&mut samples, "ensemble_message_settle_seconds", help, &self.until_settle);
        samples
    }
}

fn histogram(
    samples: &mut Vec<MetricSample>,
    name: &'static str,
    help: &'static str,
    all: &BTreeMap<String, DurationHistogram>,
) {
    for (mailbox, durations) in all {
        let mut add = |part, bound: Option<String>, value| {
            let mut labels = vec![("mailbox", mailbox.clone())];
            labels.extend(bound.map(|bound| ("le", bound)));
            let sample = MetricSample::new(MetricKind::Histogram, name, help, labels, value);
            samples.push(MetricSample { part, ..sample });
        };
        for (bound, count) in BUCKETS.iter().zip(durations.buckets) {
            add("_bucket", Some(bound.to_string()), count as f64);
        }
        add("_bucket", Some("+Inf".to_owned()), durations.count as f64);
        add("_sum", None, durations.sum);
        add("_count", None, durations.count as f64);
    }
}
