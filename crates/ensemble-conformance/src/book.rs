//! The history of a load, and its checker.
//!
//! | claim | broken by |
//! |---|---|
//! | a delivery has one holder | two receives that answer the same id and epoch |
//! | a message is settled once | two settles of one id that answer `ok`; a receive with a higher epoch than that of the settle |
//! | nothing is lost | a send that answered `ok`, without its file in `done/` at the end |
//! | nothing is made up | a file in `done/` that no send has written, or two of one send |
//! | content is kept | another body than the one that was sent |

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use ensemble_core::message::Envelope;
use ensemble_core::spool::Spool;
use serde::Serialize;
use serde_json::Value;

use super::ProtocolRule;
use super::cases::MAILBOX;

/// A client died without being killed, or a message was lost.
pub(super) const RENAME: ProtocolRule =
    ("What survives", "A rename survives the death of every process.");
const ONE: ProtocolRule = (
    "States and moves",
    "Of several clients that try to move one file, one succeeds; the others get `ENOENT` and try the next message.",
);
const FENCE: ProtocolRule = ("States and moves", "A holder that slept cannot pass this fence.");
const IMMUTABLE: ProtocolRule =
    ("The envelope", "An envelope is immutable, at most 65,536 bytes, and YAML 1.2 in UTF-8.");
pub(super) const STATES: ProtocolRule =
    ("States and moves", "A message is in one of the states S1 to S5.");

/// Failures that are kept; a broken client repeats its own without end.
const WRONG_MAX: usize = 20;

#[derive(Clone, Debug, Default, Serialize)]
pub struct LoadFigures {
    pub processes: usize,
    pub sent: u64,
    /// Sends whose client was killed before its answer.
    pub sends_unknown: u64,
    pub settled: u64,
    pub settles_unknown: u64,
    pub done: u64,
    pub released: u64,
    pub extended: u64,
    pub abandoned: u64,
    pub leases_lost: u64,
    pub expired: u64,
    pub kills: u64,
    pub stops: u64,
    pub seconds: f64,
    pub by_client: HashMap<String, u64>,
}
#[derive(Debug, Default)]
pub(super) struct LoadHistory {
    seed: u64,
    pub(super) next: u64,
    pub(super) sending: u64,
    /// Id of each message whose send answered `ok`, by number.
    stored: BTreeMap<u64, String>,
    unknown: HashSet<u64>,
    deliveries: HashSet<(String, u64)>,
    settled: HashMap<String, u64>,
    pub(super) played: LoadFigures,
    pub(super) wrong: Vec<(ProtocolRule, String)>,
}

impl LoadHistory {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    pub(super) fn fail(&mut self, rule: ProtocolRule, text: String) {
        if self.wrong.len() < WRONG_MAX {
            self.wrong.push((rule, text));
        }
    }

    /// Messages that are known to be sent and not known to be settled. Those of killed senders count as settled.
    pub(super) fn open(&self) -> u64 {
        let unknown = self.played.settles_unknown + self.played.sends_unknown;
        self.next.saturating_sub(self.settled.len() as u64 + unknown)
    }

    pub(super) fn begin(&mut self) -> u64 {
        self.next += 1;
        self.sending += 1;
        self.next - 1
    }

    /// Body of a message: short or long, with rows that a literal block has to keep.
    pub(super) fn text(&self, seq: u64) -> String {
        let rows = (seq.wrapping_mul(self.seed | 1) >> 3) % 7;
        let more: String =
            (0..rows).map(|row| format!("{}row {row}: ä\n", "  ".repeat(row as usize))).collect();
        format!("message {seq} of {}\n{more}", self.seed)
    }

    pub(super) fn sent(&mut self, seq: u64, answer: &Result<Value, String>) {
        self.sending -= 1;
        match answer {
            Ok(answer) if answer["ok"] == true => {
                let id = answer["id"].as_str().unwrap_or_default().to_owned();
                self.stored.insert(seq, id);
                self.played.sent += 1;
            }
            Ok(answer) => self.fail(RENAME, format!("send: {answer}")),
            Err(_) => {
                self.unknown.insert(seq);
                self.played.sends_unknown += 1;
            }
        }
    }

    pub(super) fn received(&mut self, answer: &Value, body: &str) {
        let (id, epoch) = delivery_of(answer);
        if self.settled.get(&id).is_some_and(|settled| epoch > *settled) {
            self.fail(
                FENCE,
                format!("{id} was delivered after it was settled, in delivery {epoch}"),
            );
        }
        match number(body) {
            Some(seq) if self.text(seq) == body => {}
            _ => self.fail(IMMUTABLE, format!("{id} has the body {body:?}")),
        }
        if !self.deliveries.insert((id.clone(), epoch)) {
            self.fail(ONE, format!("{id} was delivered twice in delivery {epoch}"));
        }
    }

    pub(super) fn extended(&mut self, answer: &Value) {
        if self.has_succeeded("extend", answer) {
            self.played.extended += 1;
        }
    }

    pub(super) fn released(&mut self, answer: &Result<Value, String>) {
        if answer.as_ref().is_ok_and(|answer| self.has_succeeded("release", answer)) {
            self.played.released += 1;
        }
    }

    /// Whether a call under a lease was made. A lost lease is counted; any other refusal is a failure.
    fn has_succeeded(&mut self, call: &str, answer: &Value) -> bool {
        let is_made = answer["ok"] == true;
        match answer["error"] == "lease_lost" {
            _ if is_made => {}
            true => self.played.leases_lost += 1,
            false => self.fail(FENCE, format!("{call}: {answer}")),
        }
        is_made
    }

    pub(super) fn settled(
        &mut self,
        client: &str,
        received: &Value,
        answer: &Result<Value, String>,
    ) {
        let Ok(answer) = answer else {
            self.played.settles_unknown += 1;
            return;
        };
        let (id, epoch) = delivery_of(received);
        if !self.has_succeeded(&format!("settle of {id}"), answer) {
            return;
        }
        self.played.settled += 1;
        *self.played.by_client.entry(client.to_owned()).or_default() += 1;
        if let Some(before) = self.settled.insert(id.clone(), epoch) {
            self.fail(FENCE, format!("{id} was settled twice, in deliveries {before} and {epoch}"));
        }
    }

    pub(super) fn compare(&mut self, queue: &Path, spool: &Spool) {
        let done = queue.join("mailbox").join(MAILBOX).join("done");
        let mut found: HashMap<u64, String> = HashMap::new();
        for name in super::cases::names(&done) {
            let id = name.trim_end_matches(".yaml").to_owned();
            let content = std::fs::read(done.join(&name)).unwrap_or_default();
            let Ok(envelope) = Envelope::decode(&content, Path::new(&name)) else {
                self.fail(IMMUTABLE, format!("done/{name} cannot be read"));
                continue;
            };
            let seq = number(&envelope.body).filter(|seq| self.text(*seq) == envelope.body);
            let Some(seq) =
                seq.filter(|seq| self.stored.contains_key(seq) || self.unknown.contains(seq))
            else {
                self.fail(IMMUTABLE, format!("done/{name} was sent by no client"));
                continue;
            };
            self.played.done += 1;
            if let Some(other) = found.insert(seq, id) {
                self.fail(STATES, format!("message {seq} is done twice: done/{name} and {other}"));
            }
        }
        let lost = self.stored.iter().filter(|(seq, id)| found.get(seq) != Some(id));
        let lost = lost.map(|(seq, id)| (RENAME, format!("message {seq} ({id}) is lost")));
        let left = self.settled.keys().filter(|id| !done.join(format!("{id}.yaml")).exists());
        let left = left.map(|id| (FENCE, format!("{id} was settled and is not in done/")));
        let failures: Vec<_> = lost.chain(left).collect();
        failures.into_iter().for_each(|(rule, text)| self.fail(rule, text));
        // Side files of former holders are left to the sweep.
        if let Err(error) = spool.sweep() {
            self.fail(STATES, format!("sweep: {error}"));
        }
        match spool.fsck(false) {
            Ok(findings) => {
                findings.iter().for_each(|it| self.fail(STATES, format!("fsck: {it:?}")));
            }
            Err(error) => self.fail(STATES, format!("fsck: {error}")),
        }
    }
}

/// The id and the epoch that a receive has answered.
fn delivery_of(answer: &Value) -> (String, u64) {
    let id = answer["id"].as_str().unwrap_or_default();
    (id.to_owned(), answer["epoch"].as_u64().unwrap_or(0))
}

fn number(body: &str) -> Option<u64> {
    body.strip_prefix("message ")?.split(' ').next()?.parse().ok()
}
