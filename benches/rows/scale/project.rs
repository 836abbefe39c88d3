//! A project with a queue, the commands that are run in it, and its watcher.

use std::path::{Path, PathBuf};
use std::process::Command;

use ensemble_core::durable::Durability;
use ensemble_core::message::Name;
use ensemble_core::spool::{Options, Spool};
use tempfile::TempDir;

use crate::rows::start::{clean, start};
use crate::support::peak::{self, Usage};
use crate::support::points::At;
use crate::support::process::{Guard, watcher};
use crate::support::{Outcome, go_on, micros, now_ns, place};

/// How often a command is started for one point.
const STARTS: usize = 9;
/// How often the watcher is.
const WATCHER_STARTS: usize = 3;

/// A project that vanishes with its owner. Its files are not synced, neither by the commands nor here.
pub struct Project {
    home: TempDir,
    /// `tmpfs` or `disk`.
    pub place: &'static str,
    ensemble: PathBuf,
}

impl Project {
    /// Where there is room for so many bytes.
    pub fn new(bytes: u64) -> Outcome<Self> {
        let ensemble = place::beside_this_program()?.join("ensemble");
        if !ensemble.is_file() {
            return Err("build it first: cargo build --profile bench --package ensemble-cli".into());
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

    /// The queue as a process finds it that has just begun.
    pub fn spool(&self) -> Outcome<Spool> {
        Ok(Spool::open(&self.queue(), options())?)
    }

    /// A mailbox as anybody may make it. (`add_mailbox` compares with all others.)
    pub fn mailbox(&self, name: &str) -> Outcome<Name> {
        std::fs::create_dir(self.queue().join("mailbox").join(name))?;
        Ok(Name::new(name)?)
    }

    /// The time and the memory of a command. `before` comes before each start.
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

    /// The time from the watcher's start until it is ready, and its memory by then; the last one goes on.
    pub fn watcher(&self, at: &mut At<'_>) -> Outcome<Guard> {
        let (mut times, mut last) = (Vec::new(), None);
        for _ in 0..WATCHER_STARTS {
            go_on()?;
            // One at a time: the one before ends here.
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

fn options() -> Options {
    let mut options = Options::default();
    options.durability = Durability::Process;
    options
}

/// The microseconds that something takes.
pub fn timed<T>(work: impl FnOnce() -> Outcome<T>) -> Outcome<(f64, T)> {
    let began = now_ns();
    let done = work()?;
    Ok((micros(began, now_ns()), done))
}
