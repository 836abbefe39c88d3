//! The right to supervise an agent, which at most one process holds.
//!
//! ```text
//! locks/supervise-<id>.lock     held by the live supervisor; others are rejected
//! supervise/<id>.yaml           its pid, registration and agent, for its successor
//! supervise/<id>.prompt         the prompt of its agent
//! ```
//!
//! All files are beside the board. The agent does not inherit the lock. A supervisor writes its
//! record before each step, so that the next supervisor can undo the step. The mark of an agent is
//! in the file before that agent is started, and the board's last epoch before the registration is
//! made. So the next supervisor finds and ends the agent of a killed one before it starts another,
//! and knows its registration.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::proto::shutdown::{KILL_ROUNDS, KILL_WAIT, TERMINATE_WAIT};
use crate::proto::supervise::FailureCounts;
use ensemble_core::durable::{Dir, Durability, FileLock, FileModes, write_document};
use ensemble_core::env::boot_id;
use ensemble_core::message::{Digest, Name, yaml};
use ensemble_core::{Result, allow_missing};
use ensemble_tmux::reaper::{ProcessSet, Reaper, ReaperError, Signal};

pub const SEATS: &str = "supervise";
const LOCKS: &str = "locks";
const BYTES_MAX: usize = 16 * 1024;
const VERSION: u32 = 1;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SupervisorRecord {
    pub version: u32,
    pub id: Name,
    pub role: String,
    pub pid: u32,
    pub boot_id: String,
    /// The board's last epoch before the registration.
    pub after_epoch: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark_sha256: Option<Digest>,
    /// The agent's pid and its start, in clock ticks since boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<(u32, Option<u64>)>,
    /// The task for which its agents were last started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Name>,
    #[serde(default)]
    pub loops: FailureCounts,
}

/// The right to supervise an agent, held until this is dropped.
#[derive(Debug)]
pub(crate) struct SupervisorLock {
    _lock: FileLock,
    directory: PathBuf,
    pub(crate) record: SupervisorRecord,
    pub(crate) before: Option<SupervisorRecord>,
    /// The board's last epoch before a registration of this supervisor whose outcome is not known: servers may have
    /// stored it without an answer.
    unsure_after: Option<u64>,
}

impl SupervisorLock {
    /// Takes the lock, and ends what an earlier supervisor's agent has left running.
    pub(crate) fn acquire_lock(directory: &Path, id: &Name, role: &str) -> Result<(Self, usize)> {
        let lock = lock(directory, id)?;
        let before = read(directory, id)?;
        let ended = before.as_ref().map_or(Ok(0), end_agent)?;
        let record = SupervisorRecord {
            version: VERSION,
            id: id.clone(),
            role: role.to_owned(),
            pid: std::process::id(),
            boot_id: boot_id().to_owned(),
            after_epoch: before.as_ref().map_or(0, |before| before.after_epoch),
            epoch: before.as_ref().and_then(|before| before.epoch),
            mark_sha256: None,
            agent: None,
            task: before.as_ref().and_then(|before| before.task.clone()),
            loops: before.as_ref().map(|before| before.loops).unwrap_or_default(),
        };
        let locked = Self {
            _lock: lock,
            directory: directory.to_owned(),
            record,
            before,
            unsure_after: None,
        };
        locked.write()?;
        Ok((locked, ended))
    }

    pub(crate) fn write(&self) -> Result<()> {
        let dir = Dir::open(&self.directory)?.ensure_child(SEATS, FileModes::default())?;
        let path = dir.path().join(format!("{}.yaml", self.record.id));
        write_document(&path, yaml::render(&self.record).as_bytes(), Durability::Process)
    }

    /// Writes that a registration begins: its epoch is a later one.
    pub(crate) fn begin_registration(&mut self, after_epoch: u64) -> Result<()> {
        (self.record.after_epoch, self.record.epoch) = (after_epoch, None);
        self.write()?;
        self.unsure_after.get_or_insert(after_epoch);
        Ok(())
    }

    pub(crate) fn end_registration(&mut self, epoch: u64) -> Result<()> {
        self.record.epoch = Some(epoch);
        (self.before, self.unsure_after) = (None, None);
        self.write()
    }

    /// Whether a registration on the board belongs to an earlier, dead supervisor of this id. So does an attempt of
    /// this one that got no answer.
    pub(crate) fn is_left_over(&self, epoch: u64) -> bool {
        if self.unsure_after.is_some_and(|after| epoch > after) {
            return true;
        }
        match &self.before {
            None => false,
            Some(SupervisorRecord { epoch: Some(known), .. }) if *known == epoch => true,
            // It was killed before it could write the epoch of its registration.
            Some(before) => before.epoch.is_none() && epoch > before.after_epoch,
        }
    }

    pub(crate) fn prompt_path(&self) -> PathBuf {
        self.directory.join(SEATS).join(format!("{}.prompt", self.record.id))
    }

    /// Releases the lock and removes the record: a successor needs nothing from it.
    pub(crate) fn leave(self) -> Result<()> {
        let dir = Dir::open(&self.directory)?.ensure_child(SEATS, FileModes::default())?;
        dir.remove(&format!("{}.prompt", self.record.id))?;
        dir.remove(&format!("{}.yaml", self.record.id))
    }
}

/// Ends the agent of a dead supervisor; returns the number of its processes. Does nothing if that
/// supervisor had another registration than `epoch`.
pub fn end_orphan(directory: &Path, id: &Name, epoch: u64) -> Result<usize> {
    if read(directory, id)?.is_none_or(|seated| seated.epoch.is_some_and(|known| known != epoch)) {
        return Ok(0);
    }
    let _lock = lock(directory, id)?;
    read(directory, id)?.map_or(Ok(0), |seated| end_agent(&seated))
}

/// The current or last supervisor of an agent, and whether that process lives.
pub fn seated(directory: &Path, id: &Name) -> Result<Option<(SupervisorRecord, bool)>> {
    let Some(seated) = read(directory, id)? else { return Ok(None) };
    let lives = FileLock::is_held(&lock_path(directory, id))?;
    Ok(Some((seated, lives)))
}

fn lock_path(directory: &Path, id: &Name) -> PathBuf {
    directory.join(LOCKS).join(format!("supervise-{id}.lock"))
}

fn lock(directory: &Path, id: &Name) -> Result<FileLock> {
    Dir::open(directory)?.ensure_child(LOCKS, FileModes::default())?;
    FileLock::acquire(&lock_path(directory, id), Duration::ZERO)
}

fn read(directory: &Path, id: &Name) -> Result<Option<SupervisorRecord>> {
    let Some(dir) = allow_missing(Dir::open(directory)?.open_child(SEATS))? else {
        return Ok(None);
    };
    let name = format!("{id}.yaml");
    let Some(bytes) = dir.read(&name, BYTES_MAX)? else { return Ok(None) };
    let path = dir.path().join(&name);
    yaml::parse(yaml::decode_text(&bytes, &path)?, &path).map(Some)
}

/// Ends what an agent has left running, if it was started in this boot.
fn end_agent(seated: &SupervisorRecord) -> Result<usize> {
    match seated.mark_sha256 {
        Some(mark) if seated.boot_id == boot_id() => end_all(mark, seated.agent),
        _ => Ok(0),
    }
}

/// Ends every process with a mark, and verifies that none is left; returns their number.
pub(super) fn end_all(mark: Digest, root: Option<(u32, Option<u64>)>) -> Result<usize> {
    let mut processes = ProcessSet::new().with_mark(mark);
    if let Some((pid, started)) = root {
        processes = processes.with_root(pid, started);
    }
    let mut reaper = Reaper::new(processes);
    let ended = reaper.sweep(Signal::Terminate)?;
    if ended == 0 {
        return Ok(0);
    }
    reaper.wait(TERMINATE_WAIT);
    for _ in 0..KILL_ROUNDS {
        if reaper.sweep(Signal::Kill)? == 0 {
            return Ok(ended);
        }
        reaper.wait(KILL_WAIT);
    }
    match reaper.find()?.first() {
        None => Ok(ended),
        Some(left) => Err(ReaperError::Survivor { pid: left.pid }.into()),
    }
}
