//! FreeBSD. Never run: see [`super`].

use std::os::fd::AsFd;

use rustix::fs::{self, Stat};
use rustix::io::Errno;

pub(crate) fn sync_content(file: impl AsFd) -> Result<(), Errno> {
    fs::fdatasync(file)
}

pub(crate) fn sync_names(directory: impl AsFd) -> Result<(), Errno> {
    fs::fsync(directory)
}

/// Refuses with `NOSYS`: the system has no such rename.
pub(crate) fn rename_new(
    _: impl AsFd,
    _: &std::ffi::OsStr,
    _: impl AsFd,
    _: &str,
) -> Result<(), Errno> {
    Err(Errno::NOSYS)
}

pub(crate) fn device_of(stat: &Stat) -> u64 {
    stat.st_dev
}

/// Not known: the system's time of boot moves with its wall clock.
pub(crate) fn boot_id() -> String {
    String::new()
}
