//! Places to measure: directories removed when dropped, on the disk and in memory.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::Outcome;

/// A directory on the disk that holds the build, or on the disk that ENSEMBLE_BENCH_DIR names.
pub fn on_disk() -> Outcome<TempDir> {
    let base = std::env::var_os("ENSEMBLE_BENCH_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    std::fs::create_dir_all(&base)?;
    Ok(tempfile::Builder::new().prefix("bench-").tempdir_in(base)?)
}

/// A directory in memory, where the system has one.
pub fn in_memory() -> Option<TempDir> {
    tempfile::Builder::new().prefix("ensemble-bench-").tempdir_in("/dev/shm").ok()
}

/// In memory where possible: for rows whose many files would change the disk's state.
pub fn in_memory_or_on_disk() -> Outcome<(TempDir, &'static str)> {
    match in_memory() {
        Some(dir) => Ok((dir, "tmpfs")),
        None => Ok((on_disk()?, "disk")),
    }
}

/// In memory if it has room for this many bytes, as files and for the processes that use them.
/// Otherwise on the disk.
pub fn with_room_for(bytes: u64) -> Outcome<(TempDir, &'static str)> {
    let has_room = |dir: &TempDir| {
        let free = rustix::fs::statvfs(dir.path()).ok()?;
        let memory = std::fs::read_to_string("/proc/meminfo").ok()?;
        let row = memory.lines().find_map(|row| row.strip_prefix("MemAvailable:"))?;
        let available: u64 = row.split_whitespace().next()?.parse().ok()?;
        Some(free.f_bavail * free.f_frsize > bytes && available * 1024 > bytes + bytes / 2)
    };
    match in_memory() {
        Some(dir) if has_room(&dir) == Some(true) => Ok((dir, "tmpfs")),
        _ => Ok((on_disk()?, "disk")),
    }
}

/// Directory of this build's programs; this one is in `deps/` below it.
pub fn beside_this_program() -> Outcome<PathBuf> {
    let this = std::env::current_exe()?;
    Ok(this.ancestors().nth(2).ok_or("this program has no directory")?.to_owned())
}

/// Makes a directory below another.
pub fn child(parent: &Path, name: &str) -> Outcome<PathBuf> {
    let path = parent.join(name);
    std::fs::create_dir_all(&path)?;
    Ok(path)
}
