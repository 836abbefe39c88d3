//! Measures four senders and four consumers, one process each, at `power` and at `process`. The
//! unit is messages stored, received and settled a second, against the floor and peers at the same
//! durability.
//!
//! At `power`, the floor is the rate at which eight processes append to one file and sync it. A
//! message needs two such appends: one to be stored, one to be settled. At `process`, the limit is
//! the set of system calls required when each message is a file.

use std::path::Path;
use std::time::Duration;

use ensemble_core::durable::Durability;
use ensemble_core::message::Name;
use ensemble_core::spool::{Spool, SpoolOptions};

use super::peers::{self, Peer, body};
use super::subjects::{Appender, Batches, Files, Ours};
use crate::support::process::{Guard, Stamper, Stamps, end_with_parent, in_role};
use crate::support::table::{self, Goal};
use crate::support::{Outcome, Pairs, Spread, go_on, now_ns, place, size};

const SIDES: usize = 4;
/// Messages of a batch that is stored, received and settled at once.
const BATCH: usize = 10;
/// Time limit for eight processes to start.
const LEAD: Duration = Duration::from_millis(300);
const SIZES: [(&str, usize); 2] = [("500 B", 500), ("60 KiB", 60 * 1024)];

pub fn run() -> Outcome<()> {
    for (what, bytes) in SIZES {
        let goal = if bytes == 500 { Goal::AtLeast(1.0) } else { Goal::None };
        together(Durability::Power, what, bytes, goal)?;
        together(Durability::Process, what, bytes, Goal::None)?;
    }
    Ok(())
}

fn together(durability: Durability, what: &str, bytes: usize, goal: Goal) -> Outcome<()> {
    let rounds = size("ENSEMBLE_BENCH_SHARED_ROUNDS", 3);
    let window = Duration::from_millis(size("ENSEMBLE_BENCH_SHARED_MILLIS", 1_500) as u64);
    let home = place::on_disk()?;
    let queue = home.path().join("queue");
    let spool = Spool::create(&queue, SpoolOptions::default().with_durability(durability))?;
    spool.add_mailbox(&Name::new("work")?, &Default::default())?;
    table::heading(&format!(
        "4 + 4 processes, durability {durability:?}, {what} (messages a second, end to end)"
    ));
    let peers: Vec<Peer> = peers::start(home.path(), durability);
    let mut others: Vec<(&str, Pairs)> = peers.iter().map(|p| (p.name, Pairs::default())).collect();
    let (mut limit, mut batches) = (Pairs::default(), Pairs::default());
    let is_power = durability == Durability::Power;
    let (subject, batched) =
        if is_power { ("ours", "batches") } else { ("ours-process", "batches-process") };
    let (bare, what, bare_at) = if is_power {
        ("append", "floor: two shared appends a message", home.path().join("log"))
    } else {
        ("files", "limit: bare calls", place::child(home.path(), "files")?)
    };
    for _ in 0..rounds {
        let eight = |subject, at| eight(home.path(), &format!("{subject}:{bytes}"), at, window);
        let ours = eight(subject, &queue)?;
        let bare = eight(bare, &bare_at)?;
        limit.push(vec![ours], vec![if is_power { bare / 2.0 } else { bare }]);
        batches.push(vec![eight(batched, &queue)?], vec![ours]);
        for (peer, (name, pairs)) in peers.iter().zip(&mut others) {
            match peer.together(home.path(), bytes, window) {
                // Senders may starve the peer's consumers of a lock for a whole round. Such a round proves nothing.
                Ok(Some(theirs)) if theirs > 0.0 => pairs.push(vec![ours], vec![theirs]),
                Ok(Some(_)) => {
                    table::note(&format!("{name}: consumers were starved, round left out"));
                }
                Ok(None) => {}
                Err(why) => table::note(&format!("{name}: round left out: {why}")),
            }
        }
    }
    table::pairs(what, "/s", &limit, Goal::None);
    table::pairs(&format!("in batches of {BATCH}, to one by one"), "/s", &batches, Goal::None);
    for (name, pairs) in others.iter().filter(|(_, pairs)| pairs.len() > 0) {
        table::pairs(name, "/s", pairs, goal);
    }
    Ok(())
}

/// Runs four senders and four consumers for a while. Returns the rate a second.
pub fn eight(home: &Path, subject: &str, address: &Path, window: Duration) -> Outcome<f64> {
    go_on()?;
    let stamps = Stamps::new(home, &format!("{subject}-{}", now_ns()))?;
    let until = now_ns() + (LEAD + window).as_nanos() as u64;
    let mut running: Vec<Guard> = Vec::new();
    for side in ["send", "take"].repeat(SIDES) {
        let until = until.to_string();
        let (address, to) = (address.as_os_str(), stamps.path().as_os_str());
        running.push(in_role(
            "load",
            &[subject.as_ref(), side.as_ref(), address, until.as_ref(), to],
        )?);
    }
    let mut done = 0;
    for _ in 0..running.len() {
        done += stamps.next()?.1.parse::<u64>()?;
    }
    for process in &mut running {
        process.wait()?;
    }
    Ok(done as f64 / window.as_secs_f64())
}

/// One of the eight processes. Only work inside the window counts, and only a message's last step.
pub fn load(subject: &str, side: &str, address: &str, until: u64, stamps: &str) -> Outcome<()> {
    end_with_parent();
    let stamps = Stamper::new(stamps)?;
    let window = Duration::from_millis(size("ENSEMBLE_BENCH_SHARED_MILLIS", 1_500) as u64);
    let from = until - window.as_nanos() as u64;
    // `ours:16384` has bodies of this many bytes.
    let (subject, bytes) = subject.split_once(':').unwrap_or((subject, "500"));
    let mut queue: Box<dyn Queue> = match subject {
        "ours" => Box::new(Ours::open(Path::new(address), Durability::Power)?),
        "ours-process" => Box::new(Ours::open(Path::new(address), Durability::Process)?),
        "batches" => Box::new(Batches::open(Path::new(address), Durability::Power, BATCH)?),
        "batches-process" => {
            Box::new(Batches::open(Path::new(address), Durability::Process, BATCH)?)
        }
        "files" => Box::new(Files::open(Path::new(address))?),
        "append" => Box::new(Appender::open(Path::new(address))?),
        peer => peers::open(peer, address)?,
    };
    let body = body(bytes.parse()?);
    let counts = side == "take" || subject == "append";
    let mut spread = Spread::new();
    let mut done = 0_u64;
    while now_ns() < until {
        let did = if side == "send" || subject == "append" {
            queue.send(&body)?
        } else {
            queue.take()?
        };
        if !did {
            spread.pause(100, 300);
        } else if counts && (from..until).contains(&now_ns()) {
            done += queue.at_once();
        }
    }
    stamps.send(now_ns(), &done.to_string());
    Ok(())
}

/// The compared interface. When a call returns true, its work is as durable as the row says.
pub trait Queue {
    fn send(&mut self, body: &str) -> Outcome<bool>;
    /// Stores several messages at once; false if the subject has no batches.
    fn send_batch(&mut self, _body: &str, _count: usize) -> Outcome<bool> {
        Ok(false)
    }
    /// Receives a message and settles it; false if none waits.
    fn take(&mut self) -> Outcome<bool>;
    /// Messages handled by one call.
    fn at_once(&self) -> u64 {
        1
    }
    /// Waits for a message, reports it, and settles it. May return without a message.
    fn wait(&mut self, _seen: &mut dyn FnMut()) -> Outcome<()> {
        Err("it cannot wait".into())
    }
}
