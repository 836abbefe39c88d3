//! Who supervises an agent: one process, or nobody.
//!
//! ```text
//! locks/supervise-<id>.lock     held by the supervisor as long as it lives; another one is refused
//! supervise/<id>.yaml           who that is, its registration, its agent: for whoever comes after it
//! supervise/<id>.prompt         what its agent was told
//! ```
//!
//! All beside the board. The lock is not inherited by the agent. What was written down before a step
//! lets the next supervisor undo it: the mark of an agent is in the file before that agent is started,
//! and the board's last number before the registration is made. So an agent of a supervisor that was
//! killed is found and ended before another one is started for its id, and its registration is known.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::durable::{Dir, Durability, FileLock, Modes, write_document};
use crate::message::{Digest, Name, yaml};
use crate::proto::shutdown::{KILL_ROUNDS, KILL_WAIT, Signal, TERMINATE_WAIT};
use crate::proto::supervise::Loops;
use crate::provider::process;
use crate::reaper::{Quarry, Reaper};
use crate::{Error, Result};

/// The directory, beside the board.
pub const SEATS: &str = "supervise";
const LOCKS: &str = "locks";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// The largest such file, in bytes.
const BYTES_MAX: usize = 16 * 1024;
const VERSION: u32 = 1;

/// What is known of a supervisor and its agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Seated {
    /// The format, 1.
    pub version: u32,
    /// Whose supervisor.
    pub id: Name,
    /// Its agent's role.
    pub role: String,
    /// The supervisor's process.
    pub pid: u32,
    /// In which boot all this was so.
    pub boot_id: String,
    /// The board's last number before it registered.
    pub after_epoch: u64,
    /// Its registration's number, once it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// The SHA-256 of its agent's mark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark_sha256: Option<Digest>,
    /// Its agent's process and when that started, in clock ticks since boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<(u32, Option<u64>)>,
    /// What its agents were last started for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Name>,
    /// What came of them.
    #[serde(default)]
    pub loops: Loops,
}

/// The right to supervise an agent, held until this is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    _lock: FileLock,
    directory: PathBuf,
    pub(crate) record: Seated,
    /// What an earlier supervisor of this id has left.
    pub(crate) before: Option<Seated>,
}

impl Seat {
    /// Takes it, and ends what an earlier supervisor's agent has left running.
    ///
    /// # Errors
    /// [`Error::Locked`] names who has it; or something that was left cannot be ended.
    pub(crate) fn take(directory: &Path, id: &Name, role: &str) -> Result<(Self, usize)> {
        let lock = lock(directory, id)?;
        let before = read(directory, id)?;
        let ended = before.as_ref().map_or(Ok(0), end_agent)?;
        let record = Seated {
            version: VERSION,
            id: id.clone(),
            role: role.to_owned(),
            pid: std::process::id(),
            boot_id: boot_id(),
            after_epoch: before.as_ref().map_or(0, |before| before.after_epoch),
            epoch: before.as_ref().and_then(|before| before.epoch),
            mark_sha256: None,
            agent: None,
            task: before.as_ref().and_then(|before| before.task.clone()),
            loops: before.as_ref().map(|before| before.loops).unwrap_or_default(),
        };
        let seat = Self { _lock: lock, directory: directory.to_owned(), record, before };
        seat.write()?;
        Ok((seat, ended))
    }

    /// Writes down what is so now.
    pub(crate) fn write(&self) -> Result<()> {
        let dir = Dir::open(&self.directory)?.ensure_child(SEATS, Modes::default())?;
        let path = dir.path().join(format!("{}.yaml", self.record.id));
        write_document(&path, yaml::render(&self.record).as_bytes(), Durability::Process)
    }

    /// Whether a registration on the board is an earlier supervisor's of this id, which is dead.
    pub(crate) fn is_left_over(&self, epoch: u64) -> bool {
        match &self.before {
            None => false,
            Some(Seated { epoch: Some(known), .. }) if *known == epoch => true,
            // It was killed before it could write down the number it had got.
            Some(before) => before.epoch.is_none() && epoch > before.after_epoch,
        }
    }

    /// Where the agent's prompt is written.
    pub(crate) fn prompt_path(&self) -> PathBuf {
        self.directory.join(SEATS).join(format!("{}.prompt", self.record.id))
    }

    /// It is over: nothing is left that a successor would have to know.
    pub(crate) fn leave(self) -> Result<()> {
        let dir = Dir::open(&self.directory)?.ensure_child(SEATS, Modes::default())?;
        dir.remove(&format!("{}.prompt", self.record.id))?;
        dir.remove(&format!("{}.yaml", self.record.id))
    }
}

/// Ends the agent of a dead supervisor; returns how many processes there were. Nothing happens if
/// that supervisor had another registration than `epoch`.
///
/// # Errors
/// [`Error::Locked`] if the supervisor lives; or a process cannot be ended.
pub fn end_orphan(directory: &Path, id: &Name, epoch: u64) -> Result<usize> {
    if read(directory, id)?.is_none_or(|seated| seated.epoch.is_some_and(|known| known != epoch)) {
        return Ok(0);
    }
    let _lock = lock(directory, id)?;
    read(directory, id)?.map_or(Ok(0), |seated| end_agent(&seated))
}

/// Who supervises an agent, or did last, and whether that process lives.
///
/// # Errors
/// The file is none of a supervisor.
pub fn seated(directory: &Path, id: &Name) -> Result<Option<(Seated, bool)>> {
    let Some(seated) = read(directory, id)? else { return Ok(None) };
    let lives = FileLock::holder(&lock_path(directory, id)).is_some();
    Ok(Some((seated, lives)))
}

fn lock_path(directory: &Path, id: &Name) -> PathBuf {
    directory.join(LOCKS).join(format!("supervise-{id}.lock"))
}

fn lock(directory: &Path, id: &Name) -> Result<FileLock> {
    Dir::open(directory)?.ensure_child(LOCKS, Modes::default())?;
    FileLock::acquire(&lock_path(directory, id), Duration::ZERO)
}

fn read(directory: &Path, id: &Name) -> Result<Option<Seated>> {
    let dir = match Dir::open(directory)?.open_child(SEATS) {
        Ok(dir) => dir,
        Err(error) if error.io_kind() == Some(std::io::ErrorKind::NotFound) => return Ok(None),
        Err(error) => return Err(error),
    };
    let name = format!("{id}.yaml");
    let Some(bytes) = dir.read(&name, BYTES_MAX)? else { return Ok(None) };
    let path = dir.path().join(&name);
    let text = std::str::from_utf8(&bytes)
        .map_err(|error| Error::malformed(&path, "file", error.to_string()))?;
    yaml::parse(text, &path).map(Some)
}

fn boot_id() -> String {
    std::fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned()
}

/// Ends what an agent has left running, if it can be in this boot.
fn end_agent(seated: &Seated) -> Result<usize> {
    match seated.mark_sha256 {
        Some(mark) if seated.boot_id == boot_id() => end_all(mark, seated.agent),
        _ => Ok(0),
    }
}

/// Ends everything that wears a mark, and finds out that nothing is left; returns how many there were.
///
/// # Errors
/// Something of it survives, or may not be signalled.
pub(super) fn end_all(mark: Digest, root: Option<(u32, Option<u64>)>) -> Result<usize> {
    let mut quarry = Quarry::new().with_mark(mark);
    if let Some((pid, started)) = root {
        quarry = quarry.with_root(pid, started);
    }
    let mut reaper = Reaper::new(quarry);
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
        Some(left) => {
            let detail = "does not end, although it was killed: it hangs in the kernel, perhaps";
            Err(Error::malformed(format!("/proc/{}", left.pid), "process", detail))
        }
    }
}

/// When a process started.
pub(super) fn started(pid: u32) -> Option<u64> {
    process::start_time(pid)
}
