//! Measures publish, and receive with settle, in one process. The comparison is the bare system
//! calls that move the same bytes at the same durability.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use ensemble_core::durable::Durability;
use ensemble_core::event_log::EventLog;
use ensemble_core::message::{Envelope, Name};
use ensemble_core::spool::{Spool, SpoolOptions};
use rustix::fs::{self, Mode, OFlags, RenameFlags};

use crate::support::table::{self, Goal};
use crate::support::{Outcome, Pairs, go_on, micros, now_ns, place, size};

/// By the size of a message. The event log is written besides, by ours alone.
const SIZES: [(&str, usize, Goal); 2] =
    [("500 B", 500, Goal::AtLeast(0.8)), ("16 KiB", 16 * 1024, Goal::AtLeast(0.7))];
const LOGGED: Goal = Goal::AtLeast(0.65);

pub fn run() -> Outcome<()> {
    for (durability, rounds, count) in [(Durability::Process, 150, 20), (Durability::Power, 40, 10)]
    {
        table::heading(&format!("one process, durability {durability:?} (messages a second)"));
        for (what, bytes, goal) in SIZES {
            let rounds = size("ENSEMBLE_BENCH_ROUNDS", rounds);
            let measured = measure(durability, bytes, rounds, count)?;
            let [plain, logged] = measured;
            let batch = format!("{what}, {count} in a batch");
            for (row, pairs, goal) in [
                (format!("publish, {what}"), &plain.publish, goal),
                (format!("receive + settle, {what}"), &plain.receive, goal),
                (format!("publish, {batch}"), &plain.publish_batch, goal),
                (format!("receive + settle, {batch}"), &plain.receive_batch, goal),
                (format!("publish, {what}, with the event log"), &logged.publish, LOGGED),
                (format!("receive + settle, {what}, with the log"), &logged.receive, LOGGED),
            ] {
                table::pairs(&row, "/s", pairs, goal);
            }
        }
    }
    table::note("the limit writes no log");
    Ok(())
}

#[derive(Default)]
struct Measured {
    publish: Pairs,
    receive: Pairs,
    publish_batch: Pairs,
    receive_batch: Pairs,
}

/// Short batches, so that a busy neighbour spoils few of them. Measured without and with the event
/// log, each against the bare calls of the same round.
fn measure(
    durability: Durability,
    bytes: usize,
    rounds: usize,
    count: usize,
) -> Outcome<[Measured; 2]> {
    let home = place::on_disk()?;
    let (to, batched) = (Name::new("dispatch")?, Name::new("batched")?);
    let plain = SpoolOptions { durability, ..SpoolOptions::default() };
    let mut logged = plain.clone();
    logged.recorder = Arc::new(EventLog::open(&home.path().join("logs"))?);
    let spools = [("plain", plain), ("logged", logged)].map(|(name, options)| {
        let spool = Spool::create(&home.path().join(name), options)?;
        spool.add_mailbox(&to, &Default::default())?;
        spool.add_mailbox(&batched, &Default::default())?;
        Ok::<_, ensemble_core::Error>(spool)
    });
    let [plain, logged] = spools;
    let spools = [plain?, logged?];
    let mut bare = Bare::new(&home.path().join("bare"), durability)?;
    let text: String =
        "task 7 is done, see the report in reports/\n".chars().cycle().take(bytes).collect();
    let mut measured = [Measured::default(), Measured::default()];
    for round in 0..rounds {
        go_on()?;
        let mut published = [0.0; 4];
        let mut received = [0.0; 4];
        // Each subject goes first in turn; the last subject is the first one again, in batches.
        for turn in 0..4 {
            let subject = (turn + round) % 4;
            published[subject] = match subject {
                BARE => {
                    bare.prepare(&to, &text, count)?;
                    rate(count, || bare.publish())?
                }
                BATCHES => rate(count, || publish_batch(&spools[0], &batched, &text, count))?,
                _ => rate(count, || publish(&spools[subject], &to, &text, count))?,
            };
        }
        for turn in 0..4 {
            let subject = (turn + round) % 4;
            received[subject] = match subject {
                BARE => rate(count, || bare.receive())?,
                BATCHES => rate(count, || receive_batch(&spools[0], &batched, count))?,
                _ => rate(count, || receive(&spools[subject], &to, count))?,
            };
        }
        for (index, measured) in measured.iter_mut().enumerate() {
            measured.publish.push(vec![published[index]], vec![published[BARE]]);
            measured.receive.push(vec![received[index]], vec![received[BARE]]);
            measured.publish_batch.push(vec![published[BATCHES]], vec![published[BARE]]);
            measured.receive_batch.push(vec![received[BATCHES]], vec![received[BARE]]);
        }
    }
    Ok(measured)
}

/// Indexes of a round's subjects: the bare calls, and batches.
const BARE: usize = 2;
const BATCHES: usize = 3;

pub fn rate(count: usize, work: impl FnOnce() -> Outcome<()>) -> Outcome<f64> {
    let began = now_ns();
    work()?;
    Ok(count as f64 * 1e6 / micros(began, now_ns()))
}

/// Builds and publishes messages; the time to build them counts.
pub fn publish(spool: &Spool, to: &Name, text: &str, count: usize) -> Outcome<()> {
    for _ in 0..count {
        spool.publish(&Envelope::new(to.clone(), text))?;
    }
    Ok(())
}

pub fn receive(spool: &Spool, mailbox: &Name, count: usize) -> Outcome<()> {
    for _ in 0..count {
        let delivery = spool.receive(mailbox, mailbox)?.ok_or("a message is missing")?;
        spool.settle(&delivery.lease)?;
    }
    Ok(())
}

fn publish_batch(spool: &Spool, to: &Name, text: &str, count: usize) -> Outcome<()> {
    let batch: Vec<_> = (0..count).map(|_| Envelope::new(to.clone(), text)).collect();
    spool.publish_batch(&batch)?;
    Ok(())
}

fn receive_batch(spool: &Spool, mailbox: &Name, count: usize) -> Outcome<()> {
    let taken = spool.receive_batch(mailbox, mailbox, count)?;
    let leases: Vec<_> = taken.into_iter().map(|delivery| delivery.lease).collect();
    let settled = spool.settle_batch(&leases)?;
    if settled.iter().filter(|outcome| outcome.is_ok()).count() == count {
        Ok(())
    } else {
        Err("a message is missing".into())
    }
}

/// Moves the same files with only the required system calls.
pub struct Bare {
    durability: Durability,
    tmp: OwnedFd,
    new: OwnedFd,
    cur: OwnedFd,
    done: OwnedFd,
    messages: Vec<(String, Vec<u8>)>,
}

impl Bare {
    pub fn new(home: &Path, durability: Durability) -> Outcome<Self> {
        let open = |name: &str| -> Outcome<OwnedFd> {
            let path = place::child(home, name)?;
            Ok(fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
        };
        let (tmp, new, cur, done) = (open("tmp")?, open("new")?, open("cur")?, open("done")?);
        Ok(Self { durability, tmp, new, cur, done, messages: Vec::new() })
    }

    pub fn prepare(&mut self, to: &Name, text: &str, count: usize) -> Outcome<()> {
        self.messages.clear();
        for _ in 0..count {
            let envelope = Envelope::new(to.clone(), text);
            self.messages.push((format!("{}.yaml", envelope.id), envelope.encode()?));
        }
        Ok(())
    }

    pub fn publish(&self) -> Outcome<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        for (name, content) in &self.messages {
            let mut file = std::fs::File::from(fs::openat(
                &self.tmp,
                name,
                flags,
                Mode::from_raw_mode(0o600),
            )?);
            file.write_all(content)?;
            if self.durability == Durability::Power {
                fs::fdatasync(&file)?;
            }
            fs::renameat_with(&self.tmp, name, &self.new, name, RenameFlags::NOREPLACE)?;
            drop(file);
            self.sync(&self.new)?;
        }
        Ok(())
    }

    pub fn receive(&self) -> Outcome<()> {
        let mut buffer = vec![0; 64 * 1024];
        for (name, content) in &self.messages {
            fs::renameat_with(&self.new, name, &self.cur, name, RenameFlags::NOREPLACE)?;
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let mut file = std::fs::File::from(fs::openat(&self.cur, name, flags, Mode::empty())?);
            if file.read(&mut buffer)? != content.len() {
                return Err("a message was cut".into());
            }
            drop(file);
            fs::renameat_with(&self.cur, name, &self.done, name, RenameFlags::NOREPLACE)?;
            self.sync(&self.done)?;
        }
        Ok(())
    }

    fn sync(&self, dir: &OwnedFd) -> Outcome<()> {
        if self.durability == Durability::Power {
            fs::fsync(dir)?;
        }
        Ok(())
    }
}
