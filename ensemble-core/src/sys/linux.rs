//! Linux.

use std::ffi::CStr;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::fs::{self, FileType, Mode, RawDir, RenameFlags, Stat};
use rustix::io::Errno;
use rustix::time::ClockId;

use super::SyncReach;

/// Bytes of directory entries that are read at once. A buffer of 64 KiB would make the allocator tidy its whole heap
/// each time the buffer is freed.
const LISTING_BUFFER_BYTES: usize = 32 * 1024;
/// The numbers by which `statfs` knows a file system.
const EXT_MAGIC: i64 = 0xef53;
const XFS_MAGIC: i64 = 0x5846_5342;
const BTRFS_MAGIC: i64 = 0x9123_683e;
/// How the kernel names that option of a mounted ext4: by the name of another one that sets the same bit.
const FAST_COMMIT: [&str; 2] = ["fast_commit", "fc_debug_force"];
/// How the kernel names an ext4 that has stopped writing after an error.
const EMERGENCY: &str = "emergency_ro";
/// How often the kernel's lock table is read for the holder of a lock that is certainly held.
const LOCK_TABLE_LOOKS: usize = 5;

/// Makes the content of a file survive a power cut.
pub(crate) fn sync_content(file: impl AsFd) -> Result<(), Errno> {
    fs::fdatasync(file)
}

/// Makes the content and the name of a file survive a power cut, where its [`SyncReach`] says so.
pub(crate) fn sync_content_and_name(file: impl AsFd) -> Result<(), Errno> {
    fs::fsync(file)
}

/// Makes all of a file's file system survive a power cut.
pub(crate) fn sync_file_system(file: impl AsFd) -> Result<(), Errno> {
    fs::syncfs(file)
}

/// How much [`sync_file_system`] may have to write for others; `None` if it would not report that this failed, which
/// Linux does since 5.8.
pub(crate) fn find_unwritten_bytes() -> Option<u64> {
    static REPORTS_FAILURES: OnceLock<bool> = OnceLock::new();
    let reports_failures = REPORTS_FAILURES.get_or_init(|| {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let mut numbers = release.split(['.', '-']).map_while(|number| number.parse().ok());
        (numbers.next(), numbers.next()) >= (Some(5), Some(8))
    });
    let memory = reports_failures.then(|| std::fs::read_to_string("/proc/meminfo").ok())??;
    let dirty = memory.lines().find_map(|line| line.strip_prefix("Dirty:"))?;
    Some(dirty.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

/// What is known of the journal of an ext4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ext4Journal {
    /// It commits the names and contents of a moment together.
    Whole,
    /// `fast_commit` adds records for single files.
    Fast,
    Missing,
    Unknown,
}

/// How far the sync of a file in this directory reaches. A journal that commits whole transactions in their order has
/// the names of before with it; btrfs logs one file.
pub(crate) fn find_sync_reach(directory: impl AsFd) -> SyncReach {
    match file_system_of(&directory) {
        XFS_MAGIC => SyncReach::EarlierNames,
        BTRFS_MAGIC => SyncReach::Name,
        EXT_MAGIC if journal_of(directory) == Ext4Journal::Whole => SyncReach::EarlierNames,
        _ => SyncReach::Content,
    }
}

/// Why a power cut may harm more in this directory than what was not synced.
pub(crate) fn find_power_cut_risk(directory: impl AsFd) -> Option<&'static str> {
    if file_system_of(&directory) != EXT_MAGIC {
        return None;
    }
    match journal_of(directory) {
        Ext4Journal::Missing => Some("without a journal, ext4 may lose anything in a power cut"),
        Ext4Journal::Fast => Some("with `fast_commit`, ext4 may not mount after a power cut"),
        Ext4Journal::Whole | Ext4Journal::Unknown => None,
    }
}

#[allow(clippy::useless_conversion, reason = "the width of the number differs by platform")]
fn file_system_of(directory: impl AsFd) -> i64 {
    fs::fstatfs(directory).map_or(0, |stat| i64::from(stat.f_type))
}

/// Whether an ext4 has stopped writing after an error. `statvfs` does not say so.
pub(crate) fn is_stopped_by_error(directory: impl AsFd) -> bool {
    file_system_of(&directory) == EXT_MAGIC
        && read_ext4(directory, "/proc/fs", "options")
            .is_some_and(|options| options.lines().any(|line| line == EMERGENCY))
}

/// ext2 and ext4 without a journal have the same magic number, and order nothing.
fn journal_of(directory: impl AsFd) -> Ext4Journal {
    let task = read_ext4(&directory, "/sys/fs", "journal_task");
    if task.as_ref().is_some_and(|task| task.trim() == "<none>") {
        return Ext4Journal::Missing;
    }
    match (task, read_ext4(directory, "/proc/fs", "options")) {
        (Some(_), Some(options)) if options.lines().any(|line| FAST_COMMIT.contains(&line)) => {
            Ext4Journal::Fast
        }
        (Some(_), Some(_)) => Ext4Journal::Whole,
        _ => Ext4Journal::Unknown,
    }
}

/// What the kernel says below `place` of the ext4 of a directory.
fn read_ext4(directory: impl AsFd, place: &str, file: &str) -> Option<String> {
    let stat = fs::fstat(directory).ok()?;
    let device = format!("/sys/dev/block/{}:{}", fs::major(stat.st_dev), fs::minor(stat.st_dev));
    let device = std::fs::read_link(device).ok()?;
    let name = device.file_name()?.to_str()?;
    std::fs::read_to_string(format!("{place}/ext4/{name}/{file}")).ok()
}

/// Makes the names in a directory survive a power cut.
pub(crate) fn sync_names(directory: impl AsFd) -> Result<(), Errno> {
    fs::fsync(directory)
}

/// Renames, and fails with `EXIST` if the new name is taken. `NOSYS` or `INVAL` say that the file system cannot.
pub(crate) fn rename_new(
    from: impl AsFd,
    name: &std::ffi::OsStr,
    to: impl AsFd,
    new_name: &str,
) -> Result<(), Errno> {
    fs::renameat_with(from, name, to, new_name, RenameFlags::NOREPLACE)
}

/// Passes each entry of a directory and its kind to `visit` until it breaks, `.` and `..` among
/// them. Begins at the descriptor's current offset.
pub(crate) fn list(
    directory: impl AsFd,
    mut visit: impl FnMut(&CStr, FileType) -> ControlFlow<()>,
) -> Result<(), Errno> {
    let mut buffer: Vec<u8> = Vec::with_capacity(LISTING_BUFFER_BYTES);
    let mut listing = RawDir::new(directory, buffer.spare_capacity_mut());
    while let Some(entry) = listing.next() {
        let entry = entry?;
        if visit(entry.file_name(), entry.file_type()).is_break() {
            break;
        }
    }
    Ok(())
}

pub(crate) fn mode(bits: u32) -> Mode {
    Mode::from_raw_mode(bits)
}

pub(crate) fn mode_of(stat: &Stat) -> u32 {
    stat.st_mode
}

pub(crate) fn device_of(stat: &Stat) -> u64 {
    stat.st_dev
}

/// The time since the machine was started, suspended time included.
pub(crate) fn boottime() -> Duration {
    super::read_clock(ClockId::Boottime)
}

/// Id of this boot of the machine; empty if the system does not provide it.
pub(crate) fn boot_id() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    read.trim().to_owned()
}

pub(crate) fn process_name(pid: u32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim().to_owned())
}

/// Pid of the process that holds the `flock` of a file, if the system reveals it. The kernel
/// returns its table page by page and loses its position if locks change between two pages, so one
/// read may miss a row that was present throughout.
pub(crate) fn lock_holder(file: impl AsFd) -> Option<u32> {
    let stat = fs::fstat(file).ok()?;
    let inode = format!(":{}", stat.st_ino);
    (0..LOCK_TABLE_LOOKS).find_map(|_| holder_in(&std::fs::read("/proc/locks").ok()?, &inode))
}

/// Whether this process holds the `flock` of a file, from the kernel's page about each of its open files. Unlike the
/// table of all locks, no other process waits for that.
pub(crate) fn holds_lock(pid: u32, file: impl AsFd) -> bool {
    let Ok(stat) = fs::fstat(file) else { return false };
    let Ok(pages) = std::fs::read_dir(format!("/proc/{pid}/fdinfo")) else { return false };
    let inode = format!(":{}", stat.st_ino);
    let mut pages = pages.flatten().filter_map(|page| std::fs::read(page.path()).ok());
    pages.any(|page| holder_in(&page, &inode).is_some())
}

/// The holder in a table of locks. The page about an open file has a word before each row.
fn holder_in(table: &[u8], inode: &str) -> Option<u32> {
    let table = String::from_utf8_lossy(table);
    table.lines().filter(|row| !row.contains("->")).find_map(|row| {
        let row = row.strip_prefix("lock:").unwrap_or(row);
        let columns: Vec<&str> = row.split_whitespace().collect();
        let is_ours = columns.get(1) == Some(&"FLOCK")
            && columns.get(5).is_some_and(|id| id.ends_with(inode));
        columns.get(4).filter(|_| is_ours)?.parse().ok()
    })
}
