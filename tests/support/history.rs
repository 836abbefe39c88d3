//! History of a process, one line for each operation, outside the queue under test. The process
//! writes a line with one `write(2)` after the operation has returned. So a killed process may have
//! done one operation without a line, never the reverse.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use ensemble_core::env::Lease;

#[derive(Debug)]
pub struct Writer(File);

impl Writer {
    pub fn open(path: &Path) -> Self {
        let file = OpenOptions::new().create(true).append(true).open(path);
        Self(file.expect("a history can be written"))
    }

    pub fn note(&mut self, what: &str, id: &str, epoch: u64) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let now_ns = now.tv_sec * 1_000_000_000 + now.tv_nsec;
        let line = format!("{what} {id} {epoch} {now_ns}\n");
        self.0.write_all(line.as_bytes()).expect("a history can be written");
    }

    pub fn note_lease(&mut self, what: &str, lease: &Lease) {
        self.note(what, lease.id.as_str(), lease.epoch);
    }
}

#[derive(Debug, Default)]
pub struct History {
    pub notes: BTreeMap<String, Vec<(String, u64)>>,
}

impl History {
    /// Reads every history in a directory. A last line without a newline was cut off when its process was killed, and
    /// does not count.
    pub fn read(directory: &Path) -> Self {
        Self::read_before(directory, i64::MAX)
    }

    /// The notes that were made before this time of the monotonic clock.
    pub fn read_before(directory: &Path, before_ns: i64) -> Self {
        let mut history = Self::default();
        for path in super::files(directory) {
            history.read_file_before(&path, before_ns);
        }
        history
    }

    pub fn read_file(&mut self, path: &Path) {
        self.read_file_before(path, i64::MAX);
    }

    fn read_file_before(&mut self, path: &Path, before_ns: i64) {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            let mut words = line.split(' ');
            let (what, id) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let epoch = words.next().and_then(|word| word.parse().ok());
            let epoch = epoch.unwrap_or_else(|| panic!("a line of the history: {line}"));
            if words.next().is_some_and(|made_ns| {
                made_ns.parse::<i64>().is_ok_and(|made_ns| made_ns >= before_ns)
            }) {
                continue;
            }
            self.notes.entry(what.to_owned()).or_default().push((id.to_owned(), epoch));
        }
    }

    pub fn of(&self, what: &str) -> &[(String, u64)] {
        self.notes.get(what).map_or(&[], Vec::as_slice)
    }

    pub fn count(&self, what: &str) -> usize {
        self.of(what).len()
    }

    pub fn ids(&self, what: &str) -> BTreeSet<&str> {
        self.of(what).iter().map(|(id, _)| id.as_str()).collect()
    }

    /// The notes that were made more than once for the same id.
    pub fn repeated(&self, what: &str) -> Vec<&str> {
        let mut seen = BTreeSet::new();
        self.of(what).iter().map(|(id, _)| id.as_str()).filter(|id| !seen.insert(*id)).collect()
    }
}
