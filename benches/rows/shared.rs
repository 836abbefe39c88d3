//! Four senders and four consumers, a process each, at `power`: messages that were stored,
//! received and settled a second, against the floor and against peers at the same durability.
//!
//! The floor is what the disk gives to eight processes that append to one file and sync it; a
//! message needs two such appends, one to be stored and one to be settled.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use ensemble_core::message::{Envelope, Name};
use ensemble_core::spool::{Options, Spool};

use super::peers::{self, Beanstalkd, Peer, Redis};
use crate::support::process::{Guard, Stamper, Stamps, end_with_parent, in_role};
use crate::support::table::{self, Goal};
use crate::support::{Outcome, Pairs, Spread, go_on, now_ns, place, size};

const SIDES: usize = 4;
/// Time for eight processes to start.
const LEAD: Duration = Duration::from_millis(300);
const BODY: &str = "task 7 is done, see the report in reports/\n";

pub fn run() -> Outcome<()> {
    let rounds = size("ENSEMBLE_BENCH_SHARED_ROUNDS", 3);
    let window = Duration::from_millis(size("ENSEMBLE_BENCH_SHARED_MILLIS", 1_500) as u64);
    let home = place::on_disk()?;
    let spool = Spool::create(&home.path().join("queue"), Options::default())?;
    spool.add_mailbox(&Name::new("work")?, &Default::default())?;
    table::heading("4 + 4 processes, durability Power, 500 B (messages a second, end to end)");
    let peers: Vec<Peer> = peers::start(home.path());
    let mut others: Vec<(&str, Pairs)> = peers.iter().map(|p| (p.name, Pairs::default())).collect();
    let mut floor = Pairs::default();
    for _ in 0..rounds {
        let ours = eight(home.path(), "ours", &home.path().join("queue"), window)?;
        let appends = eight(home.path(), "append", &home.path().join("log"), window)?;
        floor.push(vec![ours], vec![appends / 2.0]);
        for (peer, (_, pairs)) in peers.iter().zip(&mut others) {
            let theirs = match peer.subject {
                "sqlite" => peers::sqlite(home.path(), window)?,
                subject => eight(home.path(), subject, &peer.address, window)?,
            };
            // Senders may keep takers from a lock for a whole round; that is no win of ours.
            if theirs > 0.0 {
                pairs.push(vec![ours], vec![theirs]);
            } else {
                table::note(&format!("{}: takers were starved, round left out", peer.name));
            }
        }
    }
    table::pairs("floor: two shared appends a message", "/s", &floor, Goal::None);
    for (name, pairs) in &others {
        table::pairs(name, "/s", pairs, Goal::AtLeast(1.0));
    }
    Ok(())
}

/// Runs four senders and four consumers for a while: what was done a second.
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

/// One of the eight. Only what happens in the window counts, and of messages only the last step.
pub fn load(subject: &str, side: &str, address: &str, until: u64, stamps: &str) -> Outcome<()> {
    end_with_parent();
    let stamps = Stamper::new(stamps)?;
    let window = Duration::from_millis(size("ENSEMBLE_BENCH_SHARED_MILLIS", 1_500) as u64);
    let from = until - window.as_nanos() as u64;
    // `ours:16384` has bodies of so many bytes.
    let (subject, bytes) = subject.split_once(':').unwrap_or((subject, "500"));
    let mut queue: Box<dyn Queue> = match subject {
        "ours" => Box::new(Ours::open(Path::new(address), false)?),
        "logged" => Box::new(Ours::open(Path::new(address), true)?),
        "append" => Box::new(Appender(OpenOptions::new().create(true).append(true).open(address)?)),
        "redis" => Box::new(Redis::connect(address)?),
        "beanstalkd" => Box::new(Beanstalkd::connect(address)?),
        other => return Err(format!("no subject {other}").into()),
    };
    let body: String = BODY.chars().cycle().take(bytes.parse()?).collect();
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
            done += 1;
        }
    }
    stamps.send(now_ns(), &done.to_string());
    Ok(())
}

/// What is compared: each call is safe from a power cut when it returns true.
pub trait Queue {
    fn send(&mut self, body: &str) -> Outcome<bool>;
    /// Takes a message and says that it is done; false if none waits.
    fn take(&mut self) -> Outcome<bool>;
}

struct Ours {
    spool: Spool,
    mailbox: Name,
}

impl Ours {
    fn open(queue: &Path, wal: bool) -> Outcome<Self> {
        let mut options = Options::default();
        options.wal = wal;
        Ok(Self { spool: Spool::open(queue, options)?, mailbox: Name::new("work")? })
    }
}

impl Queue for Ours {
    fn send(&mut self, body: &str) -> Outcome<bool> {
        self.spool.publish(&Envelope::new(self.mailbox.clone(), body))?;
        Ok(true)
    }

    fn take(&mut self) -> Outcome<bool> {
        let Some(delivery) = self.spool.receive(&self.mailbox, &self.mailbox)? else {
            return Ok(false);
        };
        self.spool.settle(&delivery.lease)?;
        Ok(true)
    }
}

/// The floor.
struct Appender(File);

impl Queue for Appender {
    fn send(&mut self, body: &str) -> Outcome<bool> {
        self.0.write_all(body.as_bytes())?;
        self.0.sync_data()?;
        Ok(true)
    }

    fn take(&mut self) -> Outcome<bool> {
        Err("the floor only appends".into())
    }
}
