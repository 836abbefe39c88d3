//! Measures from a publish in one process to the waiting receive in another. Subjects are the
//! library as `ensemble recv --wait` uses it, and that command. The comparison is a process that
//! blocks in a raw inotify read, then renames and reads the file, and servers. Measured idle and
//! with every processor busy.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ensemble_core::durable::Durability;
use ensemble_core::message::{Envelope, Name};
use ensemble_core::spool::{Spool, SpoolOptions};
use ensemble_core::watch::Waiter;

use super::detect::each_rename;
use super::peers::{self, Peer};
use super::shared::Queue;
use super::watching::until_it_watches;
use crate::support::latency::{self, Latency};
use crate::support::peer::Lines;
use crate::support::process::{Guard, PATIENCE, Stamper, Stamps, end_with_parent, in_role};
use crate::support::{Outcome, Spread, go_on, micros, now_ns, place, size, table};

const ROUNDS: usize = 20;
const BODY: &str = "task 7 is done, see the report in reports/\n";

pub fn run() -> Outcome<()> {
    let each = size("ENSEMBLE_BENCH_WAITING", 400).div_ceil(ROUNDS);
    for durability in [Durability::Process, Durability::Power] {
        for loaded in [false, true] {
            let home = place::on_disk()?;
            let mut subjects = start(home.path(), durability)?;
            let _busy = if loaded { latency::load()? } else { Vec::new() };
            let how = if loaded { "every processor busy" } else { "idle (gaps 2-10 ms)" };
            latency::heading(&format!(
                "publish -> a waiting receive returns in another process, {durability:?}, {how}"
            ));
            measure(&mut subjects, each)?;
            for subject in &subjects {
                latency::line(subject.name, &subject.latency, &subjects[0].latency);
            }
        }
    }
    Ok(())
}

struct Subject {
    name: &'static str,
    way: Way,
    latency: Latency,
    _peer: Option<Peer>,
}

enum Way {
    /// A consumer that keeps running; it stamps the return of its receive.
    Running { sender: Sender, stamps: Stamps, _process: Guard },
    /// A command started for each message; the bench stamps its output on arrival.
    Command { program: PathBuf, sender: Sender, queue: PathBuf },
}

enum Sender {
    Ours(Spool, Name),
    Bare { home: PathBuf, power: bool },
    Peer(Box<dyn Queue>),
}

impl Sender {
    fn ours(queue: &Path, durability: Durability) -> Outcome<Self> {
        let spool = Spool::create(queue, SpoolOptions::default().with_durability(durability))?;
        let mailbox = Name::new("worker-1")?;
        spool.add_mailbox(&mailbox, &Default::default())?;
        Ok(Self::Ours(spool, mailbox))
    }

    /// Measures from before the publish to the return of the receive.
    fn publish(&mut self, number: usize) -> Outcome<u64> {
        match self {
            Self::Ours(spool, mailbox) => {
                let envelope = Envelope::new(mailbox.clone(), BODY);
                let began = now_ns();
                spool.publish(&envelope)?;
                Ok(began)
            }
            Self::Peer(queue) => {
                let began = now_ns();
                if queue.send(BODY)? { Ok(began) } else { Err("a message was refused".into()) }
            }
            Self::Bare { home, power } => {
                let name = format!("{number}.yaml");
                let tmp = home.join("tmp").join(&name);
                let new = std::fs::File::open(home.join("new"))?;
                let began = now_ns();
                let mut file = std::fs::File::create_new(&tmp)?;
                file.write_all(BODY.as_bytes())?;
                if *power {
                    file.sync_data()?;
                }
                std::fs::rename(&tmp, home.join("new").join(&name))?;
                if *power {
                    new.sync_all()?;
                }
                Ok(began)
            }
        }
    }
}

impl Subject {
    fn sample(&mut self, number: usize, spread: &mut Spread) -> Outcome<f64> {
        match &mut self.way {
            Way::Running { sender, stamps, .. } => {
                spread.pause(2_000, 10_000);
                let began = sender.publish(number)?;
                Ok(micros(began, stamps.next()?.0))
            }
            Way::Command { program, sender, queue } => {
                let mut command = Command::new(program);
                command.arg("--queue").arg(&*queue).args(["recv", "--as", "worker-1", "--wait"]);
                command.arg(format!("{}s", PATIENCE.as_secs()));
                let mut lines = Lines::start(command.env("XDG_CONFIG_HOME", &*queue))?;
                until_it_watches(lines.guard().id())?;
                spread.pause(2_000, 10_000);
                let began = sender.publish(number)?;
                let (stamp, _) = lines.next()?;
                lines.guard().wait()?;
                Ok(micros(began, stamp))
            }
        }
    }
}

fn start(home: &Path, durability: Durability) -> Outcome<Vec<Subject>> {
    let power = durability == Durability::Power;
    let running = |role: &str, at: &Path, sender| {
        let stamps = Stamps::new(home, role)?;
        let process = in_role(role, &[at.as_os_str(), stamps.path().as_os_str()])?;
        stamps.next()?;
        Ok::<_, Box<dyn std::error::Error>>(Way::Running { sender, stamps, _process: process })
    };
    let subject = |name, way| Subject { name, way, latency: Latency::default(), _peer: None };
    let (own, bare) = (home.join("own/queue"), place::child(home, "bare")?);
    place::child(home, "own")?;
    for dir in ["tmp", "new", "cur"] {
        place::child(&bare, dir)?;
    }
    let sender = Sender::ours(&own, durability)?;
    let mut subjects =
        vec![subject("ours: receive of the library", running("consumer", &own, sender)?)];
    let sender = Sender::Bare { home: bare.clone(), power };
    subjects.push(subject("raw inotify, rename, read", running("bare-consumer", &bare, sender)?));
    let program = place::beside_this_program()?.join("ensemble");
    if program.is_file() {
        place::child(home, "command")?;
        let queue = home.join("command/queue");
        let sender = Sender::ours(&queue, durability)?;
        subjects
            .push(subject("ours: ensemble recv --wait", Way::Command { program, sender, queue }));
    } else {
        table::note("ensemble recv --wait is left out: cargo build --release -p ensemble-broker");
    }
    for peer in peers::servers(home, durability).into_iter().filter(Peer::can_wait) {
        match waiting_peer(home, peer) {
            Ok(subject) => subjects.push(subject),
            Err(why) => table::note(&format!("a server is left out: {why}")),
        }
    }
    Ok(subjects)
}

/// A server whose consumer waits; SQLite cannot wait.
fn waiting_peer(home: &Path, peer: Peer) -> Outcome<Subject> {
    let address = peer.address.to_str().ok_or("a path that is no text")?;
    let stamps = Stamps::new(home, &format!("wait-{}", peer.role()))?;
    let to = stamps.path().to_str().ok_or("a path that is no text")?;
    let process = in_role("peer-consumer", &[peer.role(), address, to])?;
    stamps.next()?;
    let sender = Sender::Peer(peers::open(peer.role(), address)?);
    let way = Way::Running { sender, stamps, _process: process };
    Ok(Subject { name: peer.name, way, latency: Latency::default(), _peer: Some(peer) })
}

pub fn peer_consumer(subject: &str, address: &str, stamps: &str) -> Outcome<()> {
    let stamps = Stamper::new(stamps)?;
    end_with_parent();
    let mut queue = peers::open(subject, address)?;
    stamps.ready();
    loop {
        queue.wait(&mut || stamps.send(now_ns(), "seen"))?;
    }
}

fn measure(subjects: &mut [Subject], each: usize) -> Outcome<()> {
    let mut spread = Spread::new();
    for round in 0..ROUNDS {
        for turn in 0..each {
            for subject in &mut *subjects {
                // Starting a command takes longer than all other steps.
                if matches!(subject.way, Way::Command { .. }) && turn % 4 != 0 {
                    continue;
                }
                go_on()?;
                let sample = subject.sample(round * each + turn, &mut spread)?;
                subject.latency.push(round, sample);
            }
        }
    }
    Ok(())
}

/// Waits as `ensemble recv --wait` does: watch, look, sleep.
pub fn consumer(queue: &str, stamps: &str) -> Outcome<()> {
    let stamps = Stamper::new(stamps)?;
    end_with_parent();
    let spool = Spool::open(Path::new(queue), SpoolOptions::default())?;
    let mailbox = Name::new("worker-1")?;
    let home = spool.root().join("mailbox").join(mailbox.as_str());
    let waiter = Waiter::new(&[home.join("new"), home.join("front")]);
    stamps.ready();
    loop {
        match spool.receive(&mailbox, &mailbox)? {
            Some(delivery) => {
                stamps.send(now_ns(), delivery.lease.id.as_str());
                spool.settle(&delivery.lease)?;
            }
            None => waiter.wait(Duration::from_secs(1)),
        }
    }
}

/// The limit: a blocking read, a rename and a read.
pub fn bare_consumer(home: &str, stamps: &str) -> Outcome<()> {
    let (home, stamps) = (Path::new(home), Stamper::new(stamps)?);
    end_with_parent();
    let (new, cur) = (home.join("new"), home.join("cur"));
    let dir = new.to_str().ok_or("a path that is no text")?.to_owned();
    each_rename(
        &dir,
        || stamps.ready(),
        |_, name| {
            let to = cur.join(name);
            let taken = std::fs::rename(new.join(name), &to).and_then(|()| std::fs::read(&to));
            if taken.is_ok_and(|content| content == BODY.as_bytes()) {
                stamps.send(now_ns(), name);
            }
        },
    )
}
