//! macOS and FreeBSD. Never run: see [`super`].

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use ensemble_core::durable::FileLock;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpgid, getsid, kill_process};
use sysinfo::{ProcessRefreshKind, ProcessStatus, ProcessesToUpdate, System, UpdateKind};

/// How often to check whether processes have exited, if there are no events.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// What the system says of one process, in the order of `/proc/PID/stat`. Its terminal is not known.
pub(crate) fn stat(pid: u32) -> Option<String> {
    let system = read(pid, ProcessRefreshKind::nothing().with_cpu());
    let process = system.process(sysinfo::Pid::from_u32(pid))?;
    let state = if process.status() == ProcessStatus::Zombie { 'Z' } else { 'S' };
    let parent = process.parent().map_or(0, sysinfo::Pid::as_u32);
    let id = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let number = |found: Result<Pid, Errno>| found.map_or(0, |pid| pid.as_raw_pid());
    let (group, session) = (number(getpgid(id)), number(getsid(id)));
    let (used, started) = (process.accumulated_cpu_time(), process.start_time());
    let name = process.name().to_string_lossy();
    Some(format!(
        "{pid} ({name}) {state} {parent} {group} {session} 0 -1 0 0 0 0 0 {used} 0 0 0 0 0 0 0 {started} 0"
    ))
}

#[allow(clippy::unnecessary_wraps, reason = "on Linux it can fail")]
pub(crate) fn all() -> std::io::Result<Vec<u32>> {
    Ok(every(ProcessRefreshKind::nothing()).processes().keys().map(|pid| pid.as_u32()).collect())
}

pub(crate) fn children(pid: u32) -> Vec<u32> {
    let system = every(ProcessRefreshKind::nothing());
    let parent = sysinfo::Pid::from_u32(pid);
    let below = system.processes().iter().filter(|(_, process)| process.parent() == Some(parent));
    below.map(|(pid, _)| pid.as_u32()).collect()
}

/// Whether [`children`] finds all of them.
pub(crate) fn lists_children() -> bool {
    true
}

/// The words that process `pid` was started with, each ended by a zero byte.
pub(crate) fn command_line(pid: u32) -> Option<Vec<u8>> {
    let system = read(pid, ProcessRefreshKind::nothing().with_cmd(UpdateKind::Always));
    Some(joined(system.process(sysinfo::Pid::from_u32(pid))?.cmd()))
}

/// The environment with which process `pid` was started, each variable ended by a zero byte.
pub(crate) fn environment(pid: u32) -> Option<Vec<u8>> {
    let system = read(pid, ProcessRefreshKind::nothing().with_environ(UpdateKind::Always));
    Some(joined(system.process(sysinfo::Pid::from_u32(pid))?.environ()))
}

fn joined(words: &[OsString]) -> Vec<u8> {
    words.iter().flat_map(|word| word.as_bytes().iter().copied().chain([0])).collect()
}

fn read(pid: u32, what: ProcessRefreshKind) -> System {
    let mut system = System::new();
    let pids = [sysinfo::Pid::from_u32(pid)];
    system.refresh_processes_specifics(ProcessesToUpdate::Some(&pids), true, what);
    system
}

fn every(what: ProcessRefreshKind) -> System {
    let mut system = System::new();
    system.refresh_processes_specifics(ProcessesToUpdate::All, true, what);
    system
}

#[derive(Debug)]
pub(crate) struct StartedProcess {
    pid: Pid,
    started: u64,
}

impl StartedProcess {
    /// `None` if the process has ended.
    pub(crate) fn open(pid: Pid) -> Option<Self> {
        Some(Self { pid, started: start(pid)? })
    }

    /// Sends a signal; `SRCH` if the process has ended.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Errno> {
        if self.has_ended() { Err(Errno::SRCH) } else { kill_process(self.pid, signal) }
    }

    fn has_ended(&self) -> bool {
        start(self.pid) != Some(self.started)
    }
}

fn start(pid: Pid) -> Option<u64> {
    let pid = pid.as_raw_pid().unsigned_abs();
    let system = read(pid, ProcessRefreshKind::nothing());
    let process = system.process(sysinfo::Pid::from_u32(pid))?;
    (process.status() != ProcessStatus::Zombie).then(|| process.start_time())
}

/// Waits at most `limit` for all processes to end, and removes those that have; returns whether all have.
pub(crate) fn wait_all(processes: &mut Vec<StartedProcess>, limit: Duration) -> bool {
    let until = Instant::now() + limit;
    loop {
        processes.retain(|process| !process.has_ended());
        let left = until.saturating_duration_since(Instant::now());
        if processes.is_empty() || left.is_zero() {
            return processes.is_empty();
        }
        std::thread::sleep(left.min(LOOK_INTERVAL));
    }
}

/// A lock that is released when its process exits: that of a file beside `path`.
#[derive(Debug)]
pub(crate) struct FileNamedLock {
    _held: FileLock,
}

impl FileNamedLock {
    /// Waits for the lock of `path`; `None` after `limit`, or where no file can be made.
    pub(crate) fn wait_for_lock(path: &Path, limit: Duration) -> Option<Self> {
        let mut name = path.file_name()?.to_owned();
        name.push(".ensemble.lock");
        FileLock::acquire(&path.with_file_name(name), limit).ok().map(|held| Self { _held: held })
    }
}
