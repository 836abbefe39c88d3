//! Which processes have files of a drop box open for writing, as `/proc` shows them.
//!
//! Processes of other users are not shown. They cannot write into a queue, which is private.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// How long a file that is not complete may stay unchanged while its writer has it open. After that time a valid one
/// that is still open is a need.
pub const WRITER_PATIENCE: Duration = Duration::from_secs(10 * 60);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileWriter {
    pub pid: u32,
    pub program: String,
}

/// The files of a directory that are open for writing, by name; `None` if the system does not show it.
pub fn files_being_written(directory: &Path) -> Option<HashMap<String, FileWriter>> {
    let directory = directory.canonicalize().ok()?;
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut found = HashMap::new();
    let mut is_shown = false;
    for process in processes {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let Ok(descriptors) = fs::read_dir(process.path().join("fd")) else { continue };
        is_shown = true;
        for descriptor in descriptors.flatten() {
            let Ok(path) = fs::read_link(descriptor.path()) else { continue };
            let name = path.strip_prefix(&directory).ok().and_then(Path::to_str);
            let Some(name) = name.filter(|name| !name.contains('/')) else { continue };
            let info = process.path().join("fdinfo").join(descriptor.file_name());
            if fs::read_to_string(info).is_ok_and(|info| is_writable(&info)) {
                let program = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
                let writer = FileWriter { pid, program: program.trim_end().to_owned() };
                found.insert(name.to_owned(), writer);
            }
        }
    }
    is_shown.then_some(found)
}

/// Whether the flags of an open file allow writing.
fn is_writable(info: &str) -> bool {
    const ACCESS: u32 = 0o3;
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & ACCESS != 0)
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_that_is_open_for_writing_is_found() {
        let home = tempfile::tempdir().unwrap();
        let [open, read, closed] = ["open", "read", "closed"].map(|name| home.path().join(name));
        for path in [&read, &closed] {
            fs::write(path, "").unwrap();
        }
        let _reader = fs::File::open(&read).unwrap();
        let _writer = fs::File::create(&open).unwrap();
        let found = files_being_written(home.path()).unwrap();
        assert_eq!(found.keys().collect::<Vec<_>>(), ["open"]);
        assert_eq!(found["open"].pid, std::process::id());
    }
}
