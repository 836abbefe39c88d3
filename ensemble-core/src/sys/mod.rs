//! Everything that the operating systems do differently for the broker.
//!
//! | what | Linux | macOS | FreeBSD |
//! |---|---|---|---|
//! | sync of a file's content | `fdatasync` | `F_FULLFSYNC`, for `fsync` leaves it in the drive | `fdatasync` |
//! | sync of a directory's names | `fsync` | `F_FULLFSYNC` | `fsync` |
//! | file systems in which a file's sync covers its name | ext4 with a journal, xfs, btrfs | not known | not known |
//! | one sync for several files | `syncfs` | none | none |
//! | rename that does not replace | `renameat2` | `renameatx_np` | refused, so the caller links and unlinks |
//! | listing | `getdents64` | `readdir` | `readdir` |
//! | clock that counts suspended time | `CLOCK_BOOTTIME` | `CLOCK_MONOTONIC` | `CLOCK_MONOTONIC` |
//! | id of the boot | `/proc` | `kern.bootsessionuuid` | not known |
//! | holder of a lock | `/proc/locks` | not known | not known |
//! | file notification (`watch`) | inotify | `notify` with FSEvents | `notify` with kqueue |
//!
//! # Limits
//!
//! All tests run on Linux. The other two are compiled by `make check-platforms` and were never run. On macOS
//! the monotonic clock continues while the machine is suspended. So a lease may end during the suspend.

#[cfg(not(target_os = "linux"))]
mod bsd;
#[cfg(target_os = "freebsd")]
mod freebsd;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;

#[cfg(not(any(target_os = "linux", target_os = "macos", target_os = "freebsd")))]
compile_error!(
    "Ensemble is written for Linux, macOS and FreeBSD; another system needs a module in `sys`."
);

#[cfg(not(target_os = "linux"))]
pub(crate) use bsd::*;
#[cfg(target_os = "freebsd")]
pub(crate) use freebsd::*;
#[cfg(target_os = "linux")]
pub(crate) use linux::*;
#[cfg(target_os = "macos")]
pub(crate) use macos::*;

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// What the sync of a file makes survive a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SyncReach {
    /// The content of the file.
    Content,
    /// The new name of the file, too, and that its former one is gone.
    Name,
    /// Every name that was changed before its own, too, but not the content of those files.
    EarlierNames,
}

/// Reads a clock as the time since its origin.
pub(crate) fn read_clock(id: ClockId) -> Duration {
    let time = clock_gettime(id);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Bits that no other process or thread has, for names; nothing is secret because of them.
///
/// The keys of a hash map come from the system's random source, so this needs no crate for it. The process is hashed
/// too, because a forked child has a copy of its parent's keys.
pub(crate) fn random_bits() -> u64 {
    RandomState::new().hash_one(std::process::id())
}
