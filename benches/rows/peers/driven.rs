//! Peers driven and measured by a program in their own language: benches/peers/queues.py and
//! benches/peers/yaque. Also nq, which starts a process for each message.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use ensemble_core::durable::Durability;

use super::{Alone, Started, body};
use crate::support::peer::{self, Lines};
use crate::support::{Outcome, now_ns};

/// Time limit for eight interpreters to start.
const LEAD: Duration = Duration::from_millis(200);
const SIDES: usize = 4;

/// Holds only a directory; the measuring code starts the program.
pub fn start(home: &Path, kind: &str) -> Started {
    let address = home.join(kind);
    // Reports a missing program at once.
    Driven::start(kind, &home.join(format!("{kind}-try")), Durability::Process)?;
    Ok((address, None))
}

pub struct Driven(Lines);

impl Driven {
    pub fn start(kind: &str, address: &Path, durability: Durability) -> Outcome<Self> {
        let durability = if durability == Durability::Power { "power" } else { "process" };
        let mut command = match kind {
            "yaque" => peer::command("yaque-driver")?,
            kind => {
                let mut command = peer::script("queues.py")?;
                command.arg(kind);
                command
            }
        };
        let driven = Self(Lines::start(command.arg(address).arg(durability))?);
        match driven.0.next()?.1 {
            line if line == "ready" => Ok(driven),
            line => Err(line.into()),
        }
    }

    fn tell(&mut self, order: &str) -> Outcome<()> {
        Ok(self.0.guard().input()?.write_all(format!("{order}\n").as_bytes())?)
    }

    /// A measurement, or `None` for an unsupported operation.
    fn answer(&self) -> Outcome<Option<u64>> {
        let line = self.0.next()?.1;
        if line == "none" {
            return Ok(None);
        }
        line.parse().map(Some).map_err(|_| line.into())
    }

    fn ask(&mut self, order: &str) -> Outcome<Option<u64>> {
        self.tell(order)?;
        self.answer()
    }
}

impl Alone for Driven {
    fn publish(&mut self, count: usize, bytes: usize) -> Outcome<Option<u64>> {
        self.ask(&format!("publish {count} {bytes}"))
    }

    fn batch(&mut self, count: usize, bytes: usize) -> Outcome<Option<u64>> {
        self.ask(&format!("batch {count} {bytes}"))
    }

    fn receive(&mut self, count: usize) -> Outcome<Option<u64>> {
        self.ask(&format!("receive {count}"))
    }
}

/// Messages taken a second by four consumers while four senders send.
pub fn eight(
    kind: &str,
    address: &Path,
    durability: Durability,
    bytes: usize,
    window: Duration,
) -> Outcome<f64> {
    let mut running = Vec::new();
    for side in ["send", "take"].repeat(SIDES) {
        running.push((side, Driven::start(kind, address, durability)?));
    }
    let from = now_ns() + LEAD.as_nanos() as u64;
    let until = from + window.as_nanos() as u64;
    for (side, driven) in &mut running {
        driven.tell(&format!("load {side} {from} {until} {bytes}"))?;
    }
    let mut done = 0;
    for (_, driven) in &running {
        done += driven.answer()?.unwrap_or_default();
    }
    Ok(done as f64 / window.as_secs_f64())
}

/// A message is a job: a command line that receives the body as its argument and does nothing.
pub struct Nq(pub PathBuf);

impl Nq {
    fn run(&self, arguments: &[&str]) -> Outcome<()> {
        let mut command = peer::command("nq")?;
        command.env("NQDIR", &self.0).args(arguments).stdin(Stdio::null());
        let done = command.stdout(Stdio::null()).stderr(Stdio::null()).status()?;
        if done.success() { Ok(()) } else { Err("nq has failed".into()) }
    }
}

impl Alone for Nq {
    fn publish(&mut self, count: usize, bytes: usize) -> Outcome<Option<u64>> {
        let text = body(bytes);
        let began = now_ns();
        for _ in 0..count {
            self.run(&["-q", "-c", "true", &text])?;
        }
        Ok(Some(now_ns() - began))
    }

    fn batch(&mut self, _count: usize, _bytes: usize) -> Outcome<Option<u64>> {
        Ok(None)
    }

    /// nq runs its jobs itself, so only wait until they have finished.
    fn receive(&mut self, _count: usize) -> Outcome<Option<u64>> {
        self.run(&["-w"])?;
        Ok(None)
    }
}
