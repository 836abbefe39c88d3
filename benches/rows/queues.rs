//! Compares publish, batched publish, and receive + settle in one process with other queues at the
//! same durability, in turns. An envelope of 64 KiB holds a body of at most 60 KiB.

use std::path::Path;

use ensemble_core::durable::Durability;
use ensemble_core::message::{Envelope, Name};
use ensemble_core::spool::{Spool, SpoolOptions};

use super::peers::{self, Alone, Peer, body};
use super::store;
use crate::support::table::{self, Goal};
use crate::support::{Outcome, Pairs, go_on, now_ns, place, size};

const SIZES: [(&str, usize); 2] = [("500 B", 500), ("60 KiB", 60 * 1024)];

pub fn run() -> Outcome<()> {
    for (durability, count) in [(Durability::Process, 20), (Durability::Power, 10)] {
        for (what, bytes) in SIZES {
            table::heading_against(
                &format!("one process, durability {durability:?}, {what} (messages a second)"),
                "peer",
            );
            let rounds = size("ENSEMBLE_BENCH_QUEUES_ROUNDS", 20);
            measure(durability, bytes, rounds, count)?;
        }
    }
    table::note(
        "a batch is 10 or 20 messages at `power` and `process`; no queue receives several at once",
    );
    Ok(())
}

const VERBS: [&str; 3] = ["publish", "publish a batch", "receive + settle"];

/// Results of one subject in one round.
type Rates = [Option<f64>; 3];

struct Other {
    name: &'static str,
    subject: Box<dyn Alone>,
    pairs: [Pairs; 3],
    failed: Option<String>,
    _peer: Peer,
}

fn others(home: &Path, durability: Durability) -> Vec<Other> {
    let mut others = Vec::new();
    for peer in peers::start(home, durability) {
        match peer.alone() {
            Ok(subject) => others.push(Other {
                name: peer.name,
                subject,
                pairs: Default::default(),
                failed: None,
                _peer: peer,
            }),
            Err(why) => table::note(&format!("{} is left out: {why}", peer.name)),
        }
    }
    others
}

fn measure(durability: Durability, bytes: usize, rounds: usize, count: usize) -> Outcome<()> {
    let home = place::on_disk()?;
    let mut ours = Ours::new(&home.path().join("queue"), durability)?;
    let mut others = others(home.path(), durability);
    // The first round warms up every subject.
    for round in 0..=rounds {
        go_on()?;
        let mut all: Vec<Option<Rates>> = vec![None; others.len() + 1];
        // Each subject goes first in turn.
        for turn in 0..all.len() {
            let at = (turn + round) % all.len();
            all[at] = match others.get_mut(at) {
                None => Some(rates(&mut ours, count, bytes)?),
                Some(other) if other.failed.is_some() => None,
                Some(other) => match rates(other.subject.as_mut(), count, bytes) {
                    Ok(rates) => Some(rates),
                    Err(why) => {
                        other.failed = Some(why.to_string());
                        None
                    }
                },
            };
        }
        let Some(Some(own)) = all.pop() else { return Err("ours was not measured".into()) };
        if round == 0 {
            continue;
        }
        for (other, theirs) in others.iter_mut().zip(all) {
            let Some(theirs) = theirs else { continue };
            for (pairs, (own, theirs)) in other.pairs.iter_mut().zip(own.iter().zip(theirs)) {
                if let (Some(own), Some(theirs)) = (own, theirs) {
                    pairs.push(vec![*own], vec![theirs]);
                }
            }
        }
    }
    for (at, verb) in VERBS.iter().enumerate() {
        for other in others.iter().filter(|other| other.pairs[at].len() > 0) {
            table::pairs(&format!("{verb}: {}", other.name), "/s", &other.pairs[at], Goal::None);
        }
    }
    for other in &others {
        if let Some(why) = &other.failed {
            table::note(&format!("{} is left out after a failed round: {why}", other.name));
        }
    }
    Ok(())
}

/// Receives every stored message, so that no backlog grows.
fn rates(subject: &mut dyn Alone, count: usize, bytes: usize) -> Outcome<Rates> {
    let rate = |count: usize, took: Option<u64>| took.map(|ns| count as f64 * 1e9 / ns as f64);
    let published = rate(count, subject.publish(count, bytes)?);
    let received = rate(count, subject.receive(count)?);
    let batch = rate(count, subject.batch(count, bytes)?);
    if batch.is_some() {
        subject.receive(count)?;
    }
    Ok([published, batch, received])
}

struct Ours {
    spool: Spool,
    mailbox: Name,
}

impl Ours {
    fn new(queue: &Path, durability: Durability) -> Outcome<Self> {
        let spool = Spool::create(queue, SpoolOptions::default().with_durability(durability))?;
        let mailbox = Name::new("work")?;
        spool.add_mailbox(&mailbox, &Default::default())?;
        Ok(Self { spool, mailbox })
    }
}

/// The time to build the messages counts.
impl Alone for Ours {
    fn publish(&mut self, count: usize, bytes: usize) -> Outcome<Option<u64>> {
        let text = body(bytes);
        let began = now_ns();
        store::publish(&self.spool, &self.mailbox, &text, count)?;
        Ok(Some(now_ns() - began))
    }

    fn batch(&mut self, count: usize, bytes: usize) -> Outcome<Option<u64>> {
        let text = body(bytes);
        let began = now_ns();
        let all: Vec<Envelope> =
            (0..count).map(|_| Envelope::new(self.mailbox.clone(), text.as_str())).collect();
        self.spool.publish_batch(&all)?;
        Ok(Some(now_ns() - began))
    }

    fn receive(&mut self, count: usize) -> Outcome<Option<u64>> {
        let began = now_ns();
        store::receive(&self.spool, &self.mailbox, count)?;
        Ok(Some(now_ns() - began))
    }
}
