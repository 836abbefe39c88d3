//! Ends an agent with all processes that it has started, and verifies that none is left (seed 004:
//! "killing leaves files partially written"). It asks the processes to end first, and searches for
//! the rest afterwards.
//!
//! Marks of an agent's processes, as `/proc` shows them:
//!
//! | mark | finds |
//! |---|---|
//! | it descends from the first process of the pane | running processes |
//! | its session is that of the pane's first process | processes left in the background |
//! | it was started with the agent's own `ENSEMBLE_AGENT_PASS` | daemons in their own session |
//! | it was started with the `ENSEMBLE_AGENT_MARK` of its supervisor | the same, if the agent shares its supervisor's pass |
//!
//! Descendants of these processes belong to the agent, too. This process, its ancestors and other
//! agents' processes never do. A process is held by a descriptor (pidfd) from before its check
//! until after its signal. So a reused pid is not mistaken for the process that had it before.
//!
//! One kind of process escapes: it has left the session, all its ancestors have ended, and it
//! started with an emptied environment. Only control groups could find it.

mod error;
mod table;

use std::collections::BTreeSet;
use std::time::Duration;

use rustix::process::{Pid, Signal as Number};

use crate::provider::process::{self, variable};
use crate::provider::profile;
use crate::sys::{self, ProcessHandle};
use ensemble_core::message::Digest;
use ensemble_core::{Error, Result};
use table::{ProcessTable, read_row};

pub use error::ReaperError;
pub use table::{ProcessFate, fate, is_foreground_job};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Signal {
    /// `SIGHUP` and `SIGTERM`: the signal of a closed terminal, and a request to end.
    Terminate,
    /// `SIGKILL`.
    Kill,
}

/// The variable that every process of a spawned agent inherits. Agents filter their children's
/// environment by certain words; the name contains none of them.
pub const PASS_VARIABLE: &str = "ENSEMBLE_AGENT_PASS";

/// The variable that every process of a supervised agent inherits. Its value differs for each
/// spawned agent.
pub const MARK_VARIABLE: &str = "ENSEMBLE_AGENT_MARK";

/// Digest of the pass with which a process was started; `None` if it has none, has ended, or is
/// another user's.
pub fn pass_of(pid: u32) -> Option<Digest> {
    variable(pid, PASS_VARIABLE).filter(|pass| !pass.is_empty()).map(|pass| Digest::of(&pass))
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessSet {
    root: Option<(u32, Option<u64>)>,
    spare_root: bool,
    pass: Option<Digest>,
    mark: Option<Digest>,
    others: Vec<(u32, Option<u64>)>,
}

impl ProcessSet {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the first process of the agent's pane, and its start in clock ticks since boot.
    pub const fn with_root(mut self, pid: u32, started: Option<u64>) -> Self {
        self.root = Some((pid, started));
        self
    }

    /// Marks a pane that existed before the agent. If its first process is not the agent itself, it
    /// is a person's shell. That shell and its background processes stay.
    pub const fn sparing_the_root(mut self) -> Self {
        self.spare_root = true;
        self
    }

    /// Adds the SHA-256 of the agent's value of [`PASS_VARIABLE`].
    pub const fn with_pass(mut self, sha256: Digest) -> Self {
        self.pass = Some(sha256);
        self
    }

    /// Adds the SHA-256 of the agent's value of [`MARK_VARIABLE`].
    pub const fn with_mark(mut self, sha256: Digest) -> Self {
        self.mark = Some(sha256);
        self
    }

    /// Excludes another agent by the first process of its pane: none of its processes is touched.
    pub fn but_not(mut self, pid: u32, started: Option<u64>) -> Self {
        self.others.push((pid, started));
        self
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FoundProcess {
    pub pid: u32,
    /// Start time, in clock ticks since boot.
    pub started: u64,
}

#[derive(Debug)]
pub struct Reaper {
    processes: ProcessSet,
    signalled: Vec<ProcessHandle>,
}

impl Reaper {
    pub const fn new(processes: ProcessSet) -> Self {
        Self { processes, signalled: Vec::new() }
    }

    pub fn find(&self) -> Result<Vec<FoundProcess>> {
        let table = ProcessTable::read().map_err(|e| Error::io("list", "/proc", e))?;
        let ours = table.line_of(std::process::id());
        let walls = self.walls(&table, &ours);
        let mut seeds = self.by_root(&table);
        let worn = [(PASS_VARIABLE, self.processes.pass), (MARK_VARIABLE, self.processes.mark)];
        for (name, digest) in worn {
            let Some(digest) = digest else { continue };
            let has_it =
                |pid: &u32| variable(*pid, name).is_some_and(|value| Digest::of(&value) == digest);
            seeds.extend(table.rows.keys().copied().filter(has_it));
        }
        if let Some(pid) = ours.iter().find(|pid| seeds.contains(pid)) {
            return Err(ReaperError::EndsItself { pid: *pid }.into());
        }
        let found = table.with_descendants(&seeds, &walls);
        let alive = |pid: u32| {
            let row = table.rows.get(&pid).filter(|row| !row.zombie)?;
            Some(FoundProcess { pid, started: row.started })
        };
        Ok(found.into_iter().filter_map(alive).collect())
    }

    /// Processor time of each process by pid, in clock ticks. If two readings differ, the agent is
    /// active.
    pub fn activity(&self) -> Result<std::collections::BTreeMap<u32, u64>> {
        let used = |found: FoundProcess| Some((found.pid, read_row(found.pid)?.used));
        Ok(self.find()?.into_iter().filter_map(used).collect())
    }

    /// Signals all processes of the agent; returns their number.
    pub fn sweep(&mut self, signal: Signal) -> Result<usize> {
        let found = self.find()?;
        self.signalled.clear();
        for process in &found {
            self.signal(*process, signal)?;
        }
        Ok(found.len())
    }

    /// Waits at most `limit` for all signalled processes to end; returns whether they have.
    pub fn wait(&mut self, limit: Duration) -> bool {
        sys::wait_all(&mut self.signalled, limit)
    }

    /// Processes that are never touched: this process, its ancestors, and other agents.
    fn walls(&self, table: &ProcessTable, ours: &[u32]) -> BTreeSet<u32> {
        let mut walls: BTreeSet<u32> = ours.iter().copied().collect();
        walls.insert(1);
        for (pid, started) in &self.processes.others {
            let same = |started: &u64| table.rows.get(pid).is_some_and(|r| r.started == *started);
            if started.as_ref().is_none_or(same) {
                walls.insert(*pid);
            }
        }
        walls
    }

    fn by_root(&self, table: &ProcessTable) -> BTreeSet<u32> {
        let Some((root, started)) = self.processes.root else { return BTreeSet::new() };
        let row = table.rows.get(&root);
        // A pid is not reused while a session has it as its id. So if another process has the pid
        // now, nothing of the session is left. A root without a start time had ended before it
        // could be read.
        if row.is_some_and(|row| started != Some(row.started)) {
            return BTreeSet::new();
        }
        match row.filter(|_| self.processes.spare_root) {
            // A shell that has ended has no terminal. Its foreground group would be that of kernel threads.
            Some(row) if row.zombie || row.foreground == 0 => BTreeSet::new(),
            Some(row) if row.foreground == row.group => BTreeSet::new(),
            Some(row) => {
                let in_front = |(pid, r): (&u32, &table::ProcessRow)| {
                    (r.group == row.foreground).then_some(*pid)
                };
                table.rows.iter().filter_map(in_front).collect()
            }
            None if self.processes.spare_root => BTreeSet::new(),
            None => {
                let in_session =
                    |(pid, r): (&u32, &table::ProcessRow)| (r.session == root).then_some(*pid);
                table.rows.iter().filter_map(in_session).chain([root]).collect()
            }
        }
    }

    fn signal(&mut self, process: FoundProcess, signal: Signal) -> Result<()> {
        let Some(pid) = i32::try_from(process.pid).ok().and_then(Pid::from_raw) else {
            return Ok(());
        };
        // The process has ended in the meantime, as wanted.
        let Some(handle) = ProcessHandle::open(pid) else { return Ok(()) };
        if read_row(process.pid).is_none_or(|row| row.started != process.started) {
            return Ok(());
        }
        let numbers: &[Number] = match signal {
            // A stopped process handles signals only after it continues.
            Signal::Terminate => &[Number::HUP, Number::TERM, Number::CONT],
            Signal::Kill => &[Number::KILL],
        };
        for number in numbers {
            match handle.signal(*number) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(error) => {
                    return Err(Error::io("signal", format!("/proc/{}", process.pid), error));
                }
            }
        }
        self.signalled.push(handle);
        Ok(())
    }
}

pub fn is_shell(pid: u32) -> bool {
    let stat = sys::stat(pid);
    let name = stat.as_deref().and_then(process::name_of).unwrap_or_default();
    profile::is_shell(profile::program_name(name))
}

#[cfg(test)]
mod tests;
