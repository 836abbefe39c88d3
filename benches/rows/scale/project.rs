//! A project with a queue, the commands run in it, and its watcher.

use std::path::{Path, PathBuf};
use std::process::Command;

use ensemble_core::durable::Durability;
use ensemble_core::message::Name;
use ensemble_core::spool::{Spool, SpoolOptions};
use tempfile::TempDir;

use crate::rows::start::{clean, start};
use crate::support::peak::{self, Usage};
use crate::support::points::At;
use crate::support::process::{Guard, watcher};
use crate::support::{Outcome, go_on, micros, now_ns, place};

const STARTS: usize = 9;
const WATCHER_STARTS: usize = 3;

/// A project that is removed when dropped. Neither the commands nor the bench sync its files.
pub struct Project {
    home: TempDir,
    /// `tmpfs` or `disk`.
    pub place: &'static str,
    ensemble: PathBuf,
}

impl Project {
    /// Chooses a place with room for this many bytes.
    pub fn new(bytes: u64) -> Outcome<Self> {
        let ensemble = place::beside_this_program()?.join("ensemble");
        if !ensemble.is_file() {
            return Err("build it first: cargo build --release --package ensemble-broker".into());
        }
        let (home, place) = place::with_room_for(bytes)?;
        std::fs::write(home.path().join("ensemble.yaml"), "durability: process\n")?;
        let project = Self { home, place, ensemble };
        Spool::create(&project.queue(), options())?;
        Ok(project)
    }

    pub fn home(&self) -> &Path {
        self.home.path()
    }

    pub fn queue(&self) -> PathBuf {
        self.home().join("queue")
    }

    pub fn logs(&self) -> PathBuf {
        self.home().join(".ensemble/logs")
    }

    /// Opens the queue as a newly started process does.
    pub fn spool(&self) -> Outcome<Spool> {
        Ok(Spool::open(&self.queue(), options())?)
    }

    /// Makes a mailbox without `add_mailbox`, which compares the name with all others.
    pub fn mailbox(&self, name: &str) -> Outcome<Name> {
        std::fs::create_dir(self.queue().join("mailbox").join(name))?;
        Ok(Name::new(name)?)
    }

    /// Time and memory of a command. `before` runs before each start.
    pub fn command(
        &self,
        at: &mut At<'_>,
        what: &str,
        arguments: &[&str],
        before: impl Fn() -> Outcome<()>,
    ) -> Outcome<()> {
        let mut times = Vec::new();
        for _ in 0..STARTS {
            go_on()?;
            before()?;
            times.push(start(&mut self.ensemble(arguments))? / 1e3);
        }
        before()?;
        let mut command = self.ensemble(arguments);
        clean(&mut command);
        at.add(&format!("command {what}"), "ms", &times)?;
        at.add_memory(&format!("command {what}"), peak::of_command(command)?)
    }

    fn ensemble(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.ensemble);
        command.args(arguments).current_dir(self.home()).env("XDG_CONFIG_HOME", self.home());
        command
    }

    /// Time from the watcher's start until it is ready, and its memory then. The last watcher keeps
    /// running.
    pub fn watcher(&self, at: &mut At<'_>) -> Outcome<Guard> {
        let (mut times, mut last) = (Vec::new(), None);
        for _ in 0..WATCHER_STARTS {
            go_on()?;
            // Only one watcher at a time: the previous one ends here.
            drop(last.take());
            let began = now_ns();
            last = Some(watcher(self.home())?);
            times.push(micros(began, now_ns()) / 1e3);
        }
        let watcher = last.ok_or("no watcher was started")?;
        at.add("watcher until ready", "ms", &times)?;
        at.add_memory("watcher when ready", Usage::of(watcher.id())?.peak_kib)?;
        Ok(watcher)
    }
}

fn options() -> SpoolOptions {
    SpoolOptions { durability: Durability::Process, ..SpoolOptions::default() }
}

/// Microseconds that a call takes.
pub fn timed<T>(work: impl FnOnce() -> Outcome<T>) -> Outcome<(f64, T)> {
    let began = now_ns();
    let done = work()?;
    Ok((micros(began, now_ns()), done))
}
