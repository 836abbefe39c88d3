//! macOS. Never run: see [`super`].

use std::os::fd::AsFd;

use rustix::fs::{self, RenameFlags, Stat};
use rustix::io::Errno;
use sysctl::Sysctl as _;

/// Makes the content of a file survive a power cut. `fsync` alone leaves it in the cache of the drive.
pub(crate) fn sync_content(file: impl AsFd) -> Result<(), Errno> {
    match fs::fcntl_fullfsync(&file) {
        // A file system without that command, such as one of another machine.
        Err(Errno::NOTSUP | Errno::INVAL | Errno::NOTTY) => fs::fsync(file),
        other => other,
    }
}

pub(crate) fn sync_names(directory: impl AsFd) -> Result<(), Errno> {
    sync_content(directory)
}

/// Renames, and fails with `EXIST` if the new name is taken. `NOSYS` says that the file system cannot.
pub(crate) fn rename_new(
    from: impl AsFd,
    name: &std::ffi::OsStr,
    to: impl AsFd,
    new_name: &str,
) -> Result<(), Errno> {
    match fs::renameat_with(from, name, to, new_name, RenameFlags::NOREPLACE) {
        Err(Errno::NOTSUP) => Err(Errno::NOSYS),
        other => other,
    }
}

pub(crate) fn device_of(stat: &Stat) -> u64 {
    // The same bits: the number is only compared.
    u64::from(stat.st_dev.cast_unsigned())
}

/// Id of this boot of the machine; empty if the system does not provide it.
pub(crate) fn boot_id() -> String {
    let id = sysctl::Ctl::new("kern.bootsessionuuid").and_then(|id| id.value_string());
    id.unwrap_or_default().trim().to_owned()
}
