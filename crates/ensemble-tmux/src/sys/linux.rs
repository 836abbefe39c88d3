//! Linux.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ensemble_core::message::Digest;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// More than 52 numbers and a name of 16 bytes can take.
const STAT_BYTES_MAX: usize = 2048;
const COMMAND_LINE_BYTES_MAX: u64 = 16 * 1024;
/// How many threads of a process are asked for children.
const THREADS_MAX: usize = 64;
/// Links of `/proc/PID/task` while the process has one thread: two, and one for each thread.
const LINKS_OF_ONE_THREAD: u64 = 3;
/// Exists where the system lists the children of a process.
const CHILDREN_LISTED: &str = "/proc/thread-self/children";

/// Row of a process, in the form of `/proc/PID/stat`. One read, since the system makes the whole text again for each.
pub(crate) fn stat(pid: u32) -> Option<String> {
    let mut buffer = [0; STAT_BYTES_MAX];
    let bytes = File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut buffer).ok()?;
    Some(String::from_utf8_lossy(&buffer[..bytes]).into_owned())
}

pub(crate) fn all() -> std::io::Result<Vec<u32>> {
    let mut pids = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        pids.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    Ok(pids)
}

/// The children of process `pid`. Each thread has its own.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let tasks = PathBuf::from(format!("/proc/{pid}/task"));
    // Most programs have one thread, which needs no listing.
    if std::fs::metadata(&tasks).is_ok_and(|tasks| tasks.nlink() == LINKS_OF_ONE_THREAD) {
        return parse_pids(head(&tasks.join(pid.to_string()).join("children")).unwrap_or_default());
    }
    let threads = std::fs::read_dir(tasks);
    let threads = threads.into_iter().flatten().flatten().take(THREADS_MAX);
    let lists = threads.filter_map(|thread| head(&thread.path().join("children")));
    lists.flat_map(parse_pids).collect()
}

fn parse_pids(list: Vec<u8>) -> Vec<u32> {
    String::from_utf8_lossy(&list).split(' ').filter_map(|pid| pid.parse().ok()).collect()
}

/// Whether [`children`] finds all of them.
pub(crate) fn lists_children() -> bool {
    Path::new(CHILDREN_LISTED).exists()
}

/// The words that process `pid` was started with, each ended by a zero byte.
pub(crate) fn command_line(pid: u32) -> Option<Vec<u8>> {
    head(Path::new(&format!("/proc/{pid}/cmdline")))
}

/// The environment with which process `pid` was started, each variable ended by a zero byte.
pub(crate) fn environment(pid: u32) -> Option<Vec<u8>> {
    std::fs::read(format!("/proc/{pid}/environ")).ok()
}

/// The beginning of a file of the system.
fn head(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(COMMAND_LINE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// A hold on a process: its pid is not mistaken for that of a later process.
#[derive(Debug)]
pub(crate) struct ProcessHandle(OwnedFd);

impl ProcessHandle {
    /// `None` if the process has ended.
    pub(crate) fn open(pid: Pid) -> Option<Self> {
        pidfd_open(pid, PidfdFlags::empty()).ok().map(Self)
    }

    /// Sends a signal; `SRCH` if the process has ended.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Errno> {
        pidfd_send_signal(&self.0, signal)
    }
}

/// Waits at most `limit` for all processes to end, and removes those that have; returns whether all have.
pub(crate) fn wait_all(processes: &mut Vec<ProcessHandle>, limit: Duration) -> bool {
    let until = Instant::now() + limit;
    while !processes.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        let mut fds: Vec<PollFd<'_>> =
            processes.iter().map(|process| PollFd::new(&process.0, PollFlags::IN)).collect();
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) => return false,
            Ok(_) | Err(Errno::INTR) => {}
            // Without poll, the next search finds the remaining processes.
            Err(_) => return false,
        }
        let ended: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut ended = ended.into_iter();
        processes.retain(|_| !ended.next().unwrap_or(false));
    }
    true
}

/// A lock that is released when its process exits: a name in the abstract namespace of Unix sockets, which leaves no
/// file behind. A waiting process connects to it and sees the connection close.
#[derive(Debug)]
pub(crate) struct NamedLock {
    _held: UnixListener,
}

impl NamedLock {
    /// Waits for the lock of `path`; `None` after `limit`, or where there is no such namespace.
    pub(crate) fn wait_for_lock(path: &Path, limit: Duration) -> Option<Self> {
        let name = format!("ensemble-tmux-{}", Digest::of(path.as_os_str().as_bytes()));
        let address = SocketAddr::from_abstract_name(name).ok()?;
        let until = Instant::now() + limit;
        loop {
            match UnixListener::bind_addr(&address) {
                Ok(held) => return Some(Self { _held: held }),
                Err(error) if error.kind() != std::io::ErrorKind::AddrInUse => return None,
                Err(_) => {}
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            if let Ok(mut waiting) = UnixStream::connect_addr(&address)
                && waiting.set_read_timeout(Some(left)).is_ok()
            {
                // Each way in which this ends is a reason to try again.
                let _ = waiting.read(&mut [0]);
            }
        }
    }
}
