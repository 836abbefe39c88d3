//! Code that macOS and FreeBSD share. Never run: see [`super`].

use std::ffi::CStr;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::fs::{Dir, FileType, Mode, RawMode, Stat};
use rustix::io::Errno;
use rustix::time::ClockId;

/// Passes each entry of a directory and its kind to `visit` until it breaks, `.` and `..` among them.
pub(crate) fn list(
    directory: impl AsFd,
    mut visit: impl FnMut(&CStr, FileType) -> ControlFlow<()>,
) -> Result<(), Errno> {
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        if visit(entry.file_name(), entry.file_type()).is_break() {
            break;
        }
    }
    Ok(())
}

pub(crate) fn sync_content_and_name(file: impl AsFd) -> Result<(), Errno> {
    super::sync_content(file)
}

/// Not supported.
pub(crate) fn sync_file_system(_: impl AsFd) -> Result<(), Errno> {
    Err(Errno::NOSYS)
}

/// There is no such sync.
pub(crate) fn find_unwritten_bytes() -> Option<u64> {
    None
}

/// Not known of any file system here.
pub(crate) fn find_sync_reach(_: impl AsFd) -> super::SyncReach {
    super::SyncReach::Content
}

/// What is known of the file systems of Linux is not known here.
pub(crate) fn find_power_cut_risk(_: impl AsFd) -> Option<&'static str> {
    None
}

pub(crate) fn is_stopped_by_error(_: impl AsFd) -> bool {
    false
}

/// Permissions for a new file or directory. They fit into the system's narrower number.
pub(crate) fn mode(bits: u32) -> Mode {
    Mode::from_raw_mode(RawMode::try_from(bits).unwrap_or(0))
}

pub(crate) fn mode_of(stat: &Stat) -> u32 {
    u32::from(stat.st_mode)
}

/// The monotonic clock; see the limits of [`super`].
pub(crate) fn boottime() -> Duration {
    super::read_clock(ClockId::Monotonic)
}

/// Name of a running process's program. Not implemented, because this crate does without the system calls for it.
pub(crate) fn process_name(_: u32) -> Option<String> {
    None
}

/// The system has no table of locks.
pub(crate) fn lock_holder(_: impl AsFd) -> Option<u32> {
    None
}

/// The system says nothing about the locks of a process.
pub(crate) fn holds_lock(_: u32, _: impl AsFd) -> bool {
    false
}
