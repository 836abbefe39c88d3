//! Puts a record of the event log into words: the one place for `why`, `top`, the page and the demo.
//!
//! ```text
//! operator -> gem  please count the lines of main.rs     what was said, by whom, to whom
//! gem  idle -> working                                   what an agent does
//! gem received "please count the lines of main.rs"       what happened to a message
//! ```
//!
//! A message is named by its task or by its first words, which are read from the queue for as long as it is kept there.

mod families;

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use ensemble_core::broker::Broker;
use ensemble_core::event_log::{Record, types};
use ensemble_core::message::{MessageId, MessagePurpose, Name, Timestamp};
use serde_json::Value;

use crate::mail::delivered::PLAIN_TYPE;
use crate::text::one_line;
use families::{
    fallback, of_agent, of_event, of_message, of_notice, of_request, of_work, shortened, word,
};

/// The first words of a message where it is sent, in characters.
const SENT_CHARS_MAX: usize = 200;
const NAMED_CHARS_MAX: usize = 40;
/// Most messages whose words are kept.
const KNOWN_MAX: usize = 20_000;
/// How many sentences are compared, so that what two processes have recorded is said once.
const RECENT_MAX: usize = 12;
/// How long after a sentence the same one says nothing new.
const RECENT_FOR: Duration = Duration::from_secs(30);
/// How long before its cause an effect may be recorded.
const EFFECT_WITHIN: Duration = Duration::from_secs(1);
const ID_CHARS: usize = 36;

/// How much a sentence matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SentenceWeight {
    /// Someone said something.
    Talk,
    /// Work or an agent has changed.
    Change,
    /// Something went wrong.
    Trouble,
    /// A detail of how something was done.
    Detail,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sentence {
    pub weight: SentenceWeight,
    /// The words, in one line.
    pub text: String,
}

#[derive(Clone, Debug, Default)]
struct NamedMessage {
    from: String,
    kind: String,
    task: Option<String>,
    words: String,
}

impl NamedMessage {
    fn subject(&self) -> String {
        match &self.task {
            // The reader of a notice does not have its task.
            Some(task) if MessagePurpose::of(&self.kind) == MessagePurpose::Notice => {
                format!("{} about task {}", one_line(&self.kind), one_line(task))
            }
            Some(task) => format!("task {}", one_line(task)),
            None if !self.words.is_empty() && self.kind == PLAIN_TYPE => {
                format!("\"{}\"", shortened(&self.words, NAMED_CHARS_MAX))
            }
            None if self.kind == PLAIN_TYPE => format!("a message from {}", self.from),
            None if self.from.is_empty() => "a message".to_owned(),
            None => format!("{} from {}", self.kind, self.from),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct SentenceMaker {
    people: Vec<Name>,
    known: HashMap<(String, String), NamedMessage>,
    recent: VecDeque<SaidSentence>,
}

/// A sentence, and what it is about: message or request, and delivery. Not every record has all of these.
#[derive(Clone, Debug)]
struct SaidSentence {
    at: Timestamp,
    text: String,
    about: [Option<Value>; 2],
}

impl SentenceMaker {
    /// One that knows the people of the team. What they read needs no work.
    pub fn for_people(people: Vec<Name>) -> Self {
        Self { people, ..Self::default() }
    }

    /// A record in words; `None` if it says nothing to a person, or what was just said. `queue` is where the words of
    /// messages are.
    pub fn describe(&mut self, record: &Record, queue: Option<&dyn Broker>) -> Option<Sentence> {
        let (weight, text) = self.sentence(record, queue)?;
        let text = self.with_names(&one_line(&text));
        let named = |fields: &[&str]| fields.iter().find_map(|field| record.data.get(*field));
        let about = [named(&["id", "ids", "request_id"]), named(&["epoch"])];
        if about[0].or_else(|| named(&["task_id", "task"])).is_none() {
            return Some(Sentence { weight, text });
        }
        let at = record.timestamp;
        self.recent.retain(|said| at.since(said.at) < RECENT_FOR);
        let differ = |(said, now): (&Option<Value>, Option<&Value>)| {
            said.as_ref().zip(now).is_some_and(|(said, now)| said != now)
        };
        let agrees = |said: &&mut SaidSentence| {
            said.text == text && !said.about.iter().zip(about).any(differ)
        };
        if let Some(known) = self.recent.iter_mut().find(agrees) {
            for (known, now) in known.about.iter_mut().zip(about) {
                *known = known.take().or_else(|| now.cloned());
            }
            return None;
        }
        let about = about.map(Option::<&Value>::cloned);
        self.recent.push_back(SaidSentence { at, text: text.clone(), about });
        self.recent.drain(..self.recent.len().saturating_sub(RECENT_MAX));
        Some(Sentence { weight, text })
    }

    fn sentence(
        &mut self,
        record: &Record,
        queue: Option<&dyn Broker>,
    ) -> Option<(SentenceWeight, String)> {
        let message = self.message(record, queue);
        let kind = record.kind.as_str();
        let family = kind.split('.').next().unwrap_or_default();
        let told = match family {
            "message" => {
                let mailbox = word(record, "mailbox");
                let mut people = self.people.iter().map(Name::as_str);
                let is_person =
                    mailbox == Name::operator().as_str() || people.any(|it| it == mailbox);
                of_message(record, &message, is_person)
            }
            "receipt" | "nudge" | "ladder" | "ready" => of_notice(record, &message),
            "agent" | "worker" | "supervise" | "lease" => of_agent(record),
            "request" | "plan" => of_request(record),
            "step" | "steps" | "task" | "board" | "budget" | "control" => of_work(record),
            _ => of_event(record),
        };
        told.unwrap_or_else(|| fallback(record))
    }

    /// The message that a record is about, with its words if they are still stored.
    fn message(&mut self, record: &Record, queue: Option<&dyn Broker>) -> NamedMessage {
        let (mailbox, mut id) = (word(record, "mailbox"), word(record, "id"));
        if id.is_empty() {
            let ids = record.data.get("ids").and_then(Value::as_array);
            let first = ids.and_then(|ids| ids.first()).and_then(Value::as_str);
            id = first.unwrap_or_default().to_owned();
        }
        if mailbox.is_empty() || id.is_empty() {
            return NamedMessage::default();
        }
        let key = (mailbox, id);
        if let Some(known) = self.known.get(&key).filter(|known| !known.from.is_empty()) {
            return known.clone();
        }
        let mut message = NamedMessage::default();
        if record.kind.as_str() == types::MESSAGE_STORED {
            message.from = one_line(&record.actor);
            message.kind = word(record, "type");
            message.task = Some(word(record, "task_id")).filter(|task| !task.is_empty());
        }
        let place = Name::new(&key.0).ok().zip(MessageId::new(&key.1).ok());
        let kept =
            place.zip(queue).and_then(|((mailbox, id), queue)| queue.peek(&mailbox, &id).ok());
        if let Some(envelope) = kept {
            message.words = envelope.first_words(SENT_CHARS_MAX);
            message.from = envelope.sender_address();
            message.kind = envelope.kind.to_string();
            message.task = envelope.task_id;
        }
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.insert(key, message.clone());
        message
    }

    /// A text of a record with the names of messages in place of their ids.
    fn with_names(&self, text: &str) -> String {
        let is_id = |part: &str| part.len() == ID_CHARS && part.matches('-').count() == 4;
        let is_part = |c: char| c.is_ascii_hexdigit() || c == '-';
        let mut named = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find(is_part) {
            let (before, from) = rest.split_at(start);
            let end = from.find(|c| !is_part(c)).unwrap_or(from.len());
            let (part, after) = from.split_at(end);
            named.push_str(before);
            let known = || self.known.iter().find(|((_, id), _)| id == part);
            match is_id(part).then(known) {
                Some(Some((_, message))) => {
                    named.truncate(named.trim_end_matches("message ").len());
                    named.push_str(&message.subject());
                }
                Some(None) => named.push_str(&part[..13]),
                None => named.push_str(part),
            }
            rest = after;
        }
        named + rest
    }
}

/// Records in the order of cause and effect: what a message brings about follows its sending, although its recipient
/// may have recorded it first.
pub fn sort_causally(records: &mut [Record]) {
    let mut first: HashMap<String, usize> = HashMap::new();
    for (at, record) in records.iter().enumerate() {
        let ids = record.data.get("ids").and_then(Value::as_array).into_iter().flatten();
        let named = ids.chain(record.data.get("id")).filter_map(Value::as_str);
        for id in named {
            first.entry(id.to_owned()).or_insert(at);
        }
    }
    let mut taken: HashMap<String, usize> = HashMap::new();
    let mut settled: HashMap<String, (usize, usize)> = HashMap::new();
    let mut places: Vec<(usize, u8, usize, usize)> = Vec::with_capacity(records.len());
    for (at, record) in records.iter().enumerate() {
        let id = word(record, "id");
        let begun = first.get(&id).copied().unwrap_or(at);
        let place = match record.kind.as_str() {
            types::MESSAGE_STORED => (begun, 0, 2 * at, at),
            types::MESSAGE_ACKED => {
                let place = before_state(records, at, "working").max(begun);
                taken.insert(id, place);
                (place, 1, 2 * at, at)
            }
            types::MESSAGE_SETTLED => {
                let begun = taken.get(&id).copied().unwrap_or(begun);
                let place = before_state(records, at, "idle").max(begun);
                settled.insert(id, (place, at));
                (place, 1, 2 * at, at)
            }
            _ => (at, 2, 2 * at, at),
        };
        places.push(place);
    }
    // An answer settles what it answers; a later message of the conversation does not.
    for (place, record) in places.iter_mut().zip(records.iter()) {
        let is_stored = record.kind.as_str() == types::MESSAGE_STORED;
        let settled = settled.get(&word(record, "correlation_id")).filter(|(settled, at)| {
            let end = &records[*at];
            let is_close = record.timestamp.since(end.timestamp) < EFFECT_WITHIN;
            is_stored && is_close && record.actor == end.actor && *settled <= place.0
        });
        if let Some((settled, at)) = settled {
            (place.0, place.1, place.2) = (*settled, 1, 2 * at - 1);
        }
    }
    places.sort_unstable();
    let sorted: Vec<Record> = places.iter().map(|(_, _, _, at)| records[*at].clone()).collect();
    records.clone_from_slice(&sorted);
}

/// The place of the change of state that the record at `at` has brought about, if the watcher was quicker to record it.
fn before_state(records: &[Record], at: usize, to: &str) -> usize {
    let act = &records[at];
    let is_effect = |record: &&Record| {
        record.kind.as_str() == types::AGENT_STATE
            && word(record, "agent") == act.actor
            && word(record, "to") == to
            && matches!(&*word(record, "from"), "idle" | "working")
            && act.timestamp.since(record.timestamp) < EFFECT_WITHIN
    };
    let from = at.saturating_sub(RECENT_MAX);
    let near = records[from..at].iter().rposition(|record| is_effect(&record));
    near.map_or(at, |near| from + near)
}

#[cfg(test)]
mod tests {
    use ensemble_core::message::Envelope;
    use ensemble_core::spool::{Spool, SpoolOptions};
    use serde_json::json;

    use super::*;

    fn records(of: &[(&str, &str, Value)]) -> Vec<Record> {
        let record = |(at, (kind, actor, data)): (usize, &(&str, &str, Value))| {
            let line = json!({
                "timestamp": "2026-11-21T10:00:00.000Z", "session_id": "session-20261121-100000",
                "seq": at + 1, "type": kind, "actor": actor, "data": data,
            });
            Record::parse(line.to_string().as_bytes()).unwrap()
        };
        of.iter().enumerate().map(record).collect()
    }

    fn texts(records: &[Record], queue: Option<&dyn Broker>) -> Vec<String> {
        let mut maker = SentenceMaker::default();
        records.iter().filter_map(|record| Some(maker.describe(record, queue)?.text)).collect()
    }

    /// On a disk that is slow to sync, a recipient can take a message, and even settle it, before
    /// its sender records it as stored.
    #[test]
    fn a_message_is_sent_before_it_is_received_in_any_order_of_records() {
        let home = tempfile::tempdir().unwrap();
        let spool = Spool::create(&home.path().join("queue"), SpoolOptions::default()).unwrap();
        let gem = Name::new("gem").unwrap();
        spool.add_mailbox(&gem, &Default::default()).unwrap();
        let mut envelope = Envelope::new(gem.clone(), "please count\nthe lines");
        envelope.from = Name::operator();
        let id = envelope.id.to_string();
        spool.publish(&envelope).unwrap();
        let place = json!({ "mailbox": "gem", "id": id, "epoch": 1 });
        let stored = json!({ "mailbox": "gem", "id": id, "type": "message" });
        let notified =
            json!({ "mailbox": "gem", "ids": [id], "evidence": { "way": "keystrokes" } });
        let state = |from: &str, to: &str| json!({ "agent": "gem", "from": from, "to": to });
        let answer =
            json!({ "mailbox": "operator", "id": "r1", "type": "message", "correlation_id": id });
        let mut records = records(&[
            ("agent.state", "watcher", state("starting", "idle")),
            ("receipt.submitted", "watcher", notified),
            ("agent.state", "watcher", state("idle", "working")),
            ("message.acked", "gem", place.clone()),
            ("message.stored", "operator", stored),
            ("message.settled", "gem", place),
            ("message.stored", "gem", answer),
        ]);
        sort_causally(&mut records);
        let expected = [
            "gem  starting -> idle",
            "operator -> gem  please count the lines",
            "gem was notified by a line in its terminal",
            "gem received \"please count the lines\"",
            "gem  idle -> working",
            "gem -> operator  a message",
            "gem finished \"please count the lines\"",
        ];
        assert_eq!(texts(&records, Some(&spool)), expected);
        // Of a message that is no longer kept, the sender is known.
        assert_eq!(texts(&records, None)[3], "gem received a message from operator");
    }

    #[test]
    fn what_two_processes_record_is_said_once_and_ids_become_words() {
        let id = "01a22131-dd0c-7000-8000-000000000001";
        let stored = json!({ "mailbox": "w1", "id": id, "type": "task", "task_id": "auth" });
        let place = json!({ "mailbox": "w1", "id": id, "epoch": 1 });
        let again = json!({ "mailbox": "w1", "id": id, "epoch": 2 });
        let report =
            json!({ "mailbox": "lead", "id": "r1", "type": "report.done", "task_id": "auth" });
        let alarm =
            json!({ "told": "conductor", "text": format!("w1 is gone; message {id} went back") });
        let why = "its process has ended";
        let gone = json!({ "agent": "w1", "from": "idle", "to": "gone", "why": why });
        let work = json!({ "task_id": "auth", "worker_id": "w1", "id": id });
        let records = records(&[
            ("message.stored", "lead", stored),
            ("message.acked", "w1", place.clone()),
            ("task_start", "watcher", work),
            ("alarm.raised", "watcher", alarm),
            ("watch.overflow", "watcher", json!({})),
            ("agent.state", "watcher", json!({ "agent": "w1", "from": null, "to": "idle" })),
            ("agent.state", "watcher", gone),
            ("message.released", "w1", place),
            ("message.acked", "w1", again.clone()),
            ("message.settled", "w1", again),
            ("task_complete", "w1", json!({ "task_id": "auth", "worker_id": "w1" })),
            ("message.stored", "w1", report),
            ("message.acked", "lead", json!({ "mailbox": "lead", "id": "r1" })),
        ]);
        let expected = [
            "lead -> w1  task auth",
            "w1 received task auth",
            "watcher -> conductor  w1 is gone; task auth went back",
            "watcher: the system lost events, and the watcher scans",
            "w1  idle -> gone: its process has ended",
            "task auth is back in w1's mailbox",
            "w1 received task auth",
            "w1 finished task auth",
            "w1 -> lead  report.done about task auth",
            "lead received report.done about task auth",
        ];
        assert_eq!(texts(&records, None), expected);
    }

    /// No type of record is shown as its fields.
    #[test]
    fn each_type_of_record_has_words_or_says_nothing() {
        for row in types::TABLE {
            let records = records(&[(row.name, "watcher", json!({ "agent": "w1" }))]);
            let told = texts(&records, None);
            assert!(
                told.iter().all(|text| !text.contains(['=', '{', '`'])),
                "{}: {told:?}",
                row.name
            );
        }
    }
}
