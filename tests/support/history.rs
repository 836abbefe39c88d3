//! History of a process, one line for each operation, outside the queue under test. The process
//! writes a line with one `write(2)` after the operation has returned. So a killed process may have
//! done one operation without a line, never the reverse.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use ensemble_core::env::Lease;

/// The history that one process writes.
#[derive(Debug)]
pub struct Writer(File);

impl Writer {
    pub fn open(path: &Path) -> Self {
        let file = OpenOptions::new().create(true).append(true).open(path);
        Self(file.expect("a history can be written"))
    }

    pub fn note(&mut self, what: &str, id: &str, epoch: u64) {
        let line = format!("{what} {id} {epoch}\n");
        self.0.write_all(line.as_bytes()).expect("a history can be written");
    }

    pub fn note_lease(&mut self, what: &str, lease: &Lease) {
        self.note(what, lease.id.as_str(), lease.epoch);
    }
}

/// The notes of all processes together.
#[derive(Debug, Default)]
pub struct History {
    /// Every note of a kind: id and epoch.
    pub notes: BTreeMap<String, Vec<(String, u64)>>,
}

impl History {
    /// Reads every history in a directory. A last line without its end was being written when its
    /// process was killed; it does not count.
    pub fn read(directory: &Path) -> Self {
        let mut history = Self::default();
        for path in super::files(directory) {
            history.read_file(&path);
        }
        history
    }

    pub fn read_file(&mut self, path: &Path) {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            let mut words = line.split(' ');
            let (what, id) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let epoch = words.next().and_then(|word| word.parse().ok());
            let epoch = epoch.unwrap_or_else(|| panic!("a line of the history: {line}"));
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

    /// Deliveries of one id under one epoch that happened twice, and settlements under an epoch
    /// that was not the newest. Each would be a broken fence.
    pub fn broken_fences(&self, received: &str, settled: &str) -> Vec<String> {
        let mut newest: BTreeMap<&str, u64> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        let mut broken = Vec::new();
        for (id, epoch) in self.of(received) {
            if !seen.insert((id, epoch)) {
                broken.push(format!("{id} was delivered twice under epoch {epoch}"));
            }
            let newest = newest.entry(id).or_default();
            *newest = epoch.max(newest).to_owned();
        }
        for (id, epoch) in self.of(settled) {
            let newest = newest.get(id.as_str()).copied().unwrap_or_default();
            if *epoch != newest {
                broken
                    .push(format!("{id} was settled under epoch {epoch}, but {newest} had begun"));
            }
        }
        broken
    }
}
