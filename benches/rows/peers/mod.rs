//! Other queues at the same durability, each measured only if it is installed.

mod beanstalkd;
mod driven;
mod line;
mod nats;
mod redis;
mod sqlite;

use std::path::{Path, PathBuf};
use std::time::Duration;

use ensemble_core::durable::Durability;

use super::shared::{Queue, eight};
use crate::support::process::{Guard, PATIENCE};
use crate::support::{Outcome, now_ns, peer, place, table};

pub use driven::Driven;
pub use line::connect;

/// How the bench drives a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// In this program, in the role of this name.
    Direct(&'static str),
    /// By a program in its language that measures itself; this is its first argument.
    Driven(&'static str),
    /// With one process for each message.
    Spawned,
}

pub struct Peer {
    pub name: &'static str,
    pub kind: Kind,
    /// A socket, an address or a directory.
    pub address: PathBuf,
    durability: Durability,
    _server: Option<Guard>,
}

type Started = Outcome<(PathBuf, Option<Guard>)>;
type Tried = (&'static str, Kind, fn(&Path) -> Started);

const AT_PROCESS: [Tried; 9] = [
    ("Redis list, everysec", Kind::Direct("redis"), |home| redis::start(home, "everysec")),
    ("beanstalkd -F", Kind::Direct("beanstalkd"), |home| beanstalkd::start(home, "-F")),
    ("NATS JetStream, file", Kind::Direct("nats"), |home| nats::start(home, None)),
    ("SQLite WAL NORMAL", Kind::Direct("sqlite-normal"), |home| sqlite::start(home, "normal")),
    ("dirq", Kind::Driven("dirq"), |home| driven::start(home, "dirq")),
    ("SQLiteAckQueue, NORMAL", Kind::Driven("persist-ack"), |home| {
        driven::start(home, "persist-ack")
    }),
    ("persistqueue.Queue", Kind::Driven("persist-file"), |home| {
        driven::start(home, "persist-file")
    }),
    ("yaque", Kind::Driven("yaque"), |home| driven::start(home, "yaque")),
    ("nq (it runs them, too)", Kind::Spawned, |home| {
        peer::find("nq")?;
        Ok((place::child(home, "nq")?, None))
    }),
];

const AT_POWER: [Tried; 5] = [
    ("Redis list, always", Kind::Direct("redis"), |home| redis::start(home, "always")),
    ("beanstalkd -f0", Kind::Direct("beanstalkd"), |home| beanstalkd::start(home, "-f0")),
    ("NATS JetStream, sync always", Kind::Direct("nats"), |home| nats::start(home, Some("always"))),
    ("SQLite WAL FULL", Kind::Direct("sqlite-full"), |home| sqlite::start(home, "full")),
    ("SQLiteAckQueue, FULL", Kind::Driven("persist-ack"), |home| {
        driven::start(home, "persist-ack")
    }),
];

/// Starts the installed peers and prints the missing ones.
pub fn start(home: &Path, durability: Durability) -> Vec<Peer> {
    let tried: &[Tried] = if durability == Durability::Power { &AT_POWER } else { &AT_PROCESS };
    let mut peers = Vec::new();
    for (name, kind, start) in tried {
        let started = place::child(home, &format!("{durability:?}-peers")).and_then(|h| start(&h));
        match started {
            Ok((address, server)) => {
                peers.push(Peer { name, kind: *kind, address, durability, _server: server });
            }
            Err(why) => table::note(&format!("{name} is left out: {why}")),
        }
    }
    peers
}

/// Peers that this program drives itself.
pub fn servers(home: &Path, durability: Durability) -> Vec<Peer> {
    let mut all = start(home, durability);
    all.retain(|peer| matches!(peer.kind, Kind::Direct(_)));
    all
}

impl Peer {
    /// The name under which [`open`] knows the peer.
    pub fn role(&self) -> &'static str {
        match self.kind {
            Kind::Direct(role) | Kind::Driven(role) => role,
            Kind::Spawned => "",
        }
    }

    /// Whether a consumer can sleep until a message arrives, without polling.
    pub fn can_wait(&self) -> bool {
        matches!(self.role(), "redis" | "beanstalkd" | "nats")
    }

    /// Measures the peer in one process.
    pub fn alone(&self) -> Outcome<Box<dyn Alone>> {
        Ok(match self.kind {
            Kind::Direct(subject) => {
                let address = self.address.to_str().ok_or("a path that is no text")?;
                Box::new(Direct(open(subject, address)?))
            }
            Kind::Driven(kind) => Box::new(Driven::start(kind, &self.address, self.durability)?),
            Kind::Spawned => Box::new(driven::Nq(self.address.clone())),
        })
    }

    /// Messages a second of four senders and four consumers; `None` where unsupported.
    pub fn together(&self, home: &Path, bytes: usize, window: Duration) -> Outcome<Option<f64>> {
        Ok(match self.kind {
            Kind::Direct(subject) => {
                Some(eight(home, &format!("{subject}:{bytes}"), &self.address, window)?)
            }
            // yaque allows only one sender and one receiver, and persistqueue.Queue has no locks.
            Kind::Driven("yaque" | "persist-file") | Kind::Spawned => None,
            Kind::Driven(kind) => {
                Some(driven::eight(kind, &self.address, self.durability, bytes, window)?)
            }
        })
    }
}

/// The peers that this program drives, by the name of their role.
pub fn open(subject: &str, address: &str) -> Outcome<Box<dyn Queue>> {
    Ok(match subject {
        "redis" => Box::new(redis::Redis::connect(address)?),
        "beanstalkd" => Box::new(beanstalkd::Beanstalkd::connect(address)?),
        "nats" => Box::new(nats::Nats::connect(address)?),
        "sqlite-normal" => Box::new(sqlite::Sqlite::open(address, "normal")?),
        "sqlite-full" => Box::new(sqlite::Sqlite::open(address, "full")?),
        other => return Err(format!("no subject {other}").into()),
    })
}

/// Operations in one process. Each returns the nanoseconds it took, or `None` if it is not supported.
pub trait Alone {
    fn publish(&mut self, count: usize, bytes: usize) -> Outcome<Option<u64>>;
    fn batch(&mut self, count: usize, bytes: usize) -> Outcome<Option<u64>>;
    /// Each message is received and settled.
    fn receive(&mut self, count: usize) -> Outcome<Option<u64>>;
}

struct Direct(Box<dyn Queue>);

impl Alone for Direct {
    fn publish(&mut self, count: usize, bytes: usize) -> Outcome<Option<u64>> {
        let text = body(bytes);
        let began = now_ns();
        for _ in 0..count {
            if !self.0.send(&text)? {
                return Err("a message was refused".into());
            }
        }
        Ok(Some(now_ns() - began))
    }

    fn batch(&mut self, count: usize, bytes: usize) -> Outcome<Option<u64>> {
        let text = body(bytes);
        let began = now_ns();
        let done = self.0.send_batch(&text, count)?;
        Ok(done.then(|| now_ns() - began))
    }

    fn receive(&mut self, count: usize) -> Outcome<Option<u64>> {
        let began = now_ns();
        for _ in 0..count {
            // A stored message may take a moment to become visible.
            while !self.0.take()? {
                if now_ns() - began > PATIENCE.as_nanos() as u64 {
                    return Err("a message is missing".into());
                }
            }
        }
        Ok(Some(now_ns() - began))
    }
}

/// The body that all subjects send.
pub fn body(bytes: usize) -> String {
    "task 7 is done, see the report in reports/\n".chars().cycle().take(bytes).collect()
}
