//! Where the last line of each path begins in the ledger: nine bytes a path, however long it is.

use std::collections::HashMap;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::os::unix::fs::FileExt as _;

use super::ledger::LedgerEntry;

/// The longest line that is read, in bytes: far more than a path and its lease take.
const LINE_BYTES_MAX: usize = 8 * 1024;
/// How much of a line is read at first, in bytes: most lines are shorter.
const LINE_BYTES_USUAL: usize = 512;
/// Number of parts of an index. Each grows by itself, so that none is copied as a whole.
const SHARDS: usize = 256;
/// A part that is full grows by one in this many.
const GROWTH_SHARE: usize = 8;

/// Offsets by path. Paths whose keys are equal are distinguished by reading their lines.
#[derive(Debug)]
pub(super) struct PathIndex {
    /// Pairs of a key and an offset, sorted by key, in the part that the key's last byte names.
    shards: Vec<Vec<(u32, u32)>>,
    /// Paths whose key another path has.
    by_path: HashMap<String, u32>,
}

impl Default for PathIndex {
    fn default() -> Self {
        Self { shards: vec![Vec::new(); SHARDS], by_path: HashMap::new() }
    }
}

impl PathIndex {
    /// Notes that the last line of a path begins there.
    pub(super) fn insert(&mut self, file: &File, path: &str, at: u64) {
        let Ok(at) = u32::try_from(at) else { return };
        if let Some(known) = self.by_path.get_mut(path) {
            *known = at;
            return;
        }
        let key = key(path);
        let shard = &mut self.shards[key as usize % SHARDS];
        match shard.binary_search_by_key(&key, |(known, _)| *known) {
            Ok(place) => {
                let known = &mut shard[place].1;
                if entry_at(file, *known).is_some_and(|other| other.path != path) {
                    self.by_path.insert(path.to_owned(), at);
                } else {
                    *known = at;
                }
            }
            Err(place) => {
                if shard.len() == shard.capacity() {
                    shard.reserve_exact(shard.len() / GROWTH_SHARE + 1);
                }
                shard.insert(place, (key, at));
            }
        }
    }

    pub(super) fn find(&self, file: &File, path: &str) -> Option<LedgerEntry> {
        let at = self.by_path.get(path).copied().or_else(|| self.offset(key(path)))?;
        entry_at(file, at).filter(|entry| entry.path == path)
    }

    fn offset(&self, key: u32) -> Option<u32> {
        let shard = &self.shards[key as usize % SHARDS];
        let place = shard.binary_search_by_key(&key, |(known, _)| *known).ok()?;
        Some(shard[place].1)
    }

    /// The offsets of all last lines, in the order of the file.
    pub(super) fn offsets(&self) -> Vec<u32> {
        let mut offsets = Vec::with_capacity(self.len());
        offsets.extend(self.shards.iter().flatten().map(|(_, at)| *at));
        offsets.extend(self.by_path.values());
        offsets.sort_unstable();
        offsets
    }

    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(Vec::len).sum::<usize>() + self.by_path.len()
    }
}

/// The key of a path, the same in every process.
pub(super) fn key(path: &str) -> u32 {
    // Its lower half is as good as the whole.
    (hash(path) & u64::from(u32::MAX)) as u32
}

/// A digest that is the same in every process.
pub(super) fn hash(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The entry whose line begins there.
pub(super) fn entry_at(file: &File, at: u32) -> Option<LedgerEntry> {
    let mut text = [0; LINE_BYTES_USUAL];
    let bytes = file.read_at(&mut text, u64::from(at)).ok()?;
    if let Some(end) = memchr::memchr(b'\n', &text[..bytes]) {
        return serde_json::from_slice(&text[..end]).ok();
    }
    let mut text = vec![0; LINE_BYTES_MAX];
    let bytes = file.read_at(&mut text, u64::from(at)).ok()?;
    let line = text[..bytes].split(|byte| *byte == b'\n').next()?;
    serde_json::from_slice(line).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dropbox::Ledger;
    use crate::durable::{Dir, FileModes};

    /// Two paths with one key, found by trying.
    fn twins() -> (String, String) {
        let mut seen = HashMap::new();
        for number in 0_u32.. {
            let path = format!("reports/{number}.yaml");
            if let Some(twin) = seen.insert(key(&path), path.clone()) {
                return (twin, path);
            }
        }
        unreachable!("there are more paths than keys")
    }

    #[test]
    fn files_that_are_gone_are_forgotten_after_their_time_and_those_that_lie_there_are_not() {
        use std::time::Duration;

        use crate::env::Monotonic;
        use crate::message::Timestamp;
        use crate::proto::calendar::{Calendar, ClockReading};

        let (home, week) = (tempfile::tempdir().unwrap(), Duration::from_secs(7 * 86_400));
        let dir = Dir::open(home.path()).unwrap();
        dir.write_new("file", b"x", FileModes::default(), crate::durable::Durability::Process)
            .unwrap();
        let stat = dir.stat("file").unwrap().unwrap();
        let mut ledger = Ledger::open(home.path()).unwrap();
        for path in ["reports/gone", "reports/here"] {
            let entry = ledger.next_version(path, &stat, b"x").unwrap();
            ledger.append(vec![entry]).unwrap();
        }
        // The calendar begins long after the file was made, so it cannot know how old that is.
        let begin = Timestamp::now().plus(week);
        let at = |passed| ClockReading::new("boot", Monotonic::ZERO + passed, begin.plus(passed));
        let mut calendar = Calendar::begin(&at(Duration::ZERO));
        assert_eq!(ledger.sweep(&mut calendar, week).unwrap(), 0);
        ledger.begin_listing();
        assert!(ledger.is_listed_routed("reports/here", &stat));
        ledger.end_listing();
        assert!(ledger.is_routed("reports/gone", &stat), "it is on disk");
        calendar.read_clocks(&at(2 * week));
        assert_eq!(ledger.sweep(&mut calendar, week).unwrap(), 0, "its time begins now");
        calendar.read_clocks(&at(4 * week));
        assert_eq!(ledger.sweep(&mut calendar, week).unwrap(), 1);
        for ledger in [&ledger, &Ledger::open(home.path()).unwrap()] {
            assert!(ledger.get("reports/gone").is_none());
            assert!(ledger.is_routed("reports/here", &stat));
        }
    }

    #[test]
    fn paths_with_one_key_are_told_apart() {
        let home = tempfile::tempdir().unwrap();
        let dir = Dir::open(home.path()).unwrap();
        dir.write_new("file", b"x", FileModes::default(), crate::durable::Durability::Process)
            .unwrap();
        let stat = dir.stat("file").unwrap().unwrap();
        let (first, second) = twins();
        let mut ledger = Ledger::open(home.path()).unwrap();
        for (path, content) in [(&first, "1"), (&second, "2"), (&first, "3"), (&second, "4")] {
            let entry = ledger.next_version(path, &stat, content.as_bytes()).unwrap();
            ledger.append(vec![entry]).unwrap();
        }
        for ledger in [&ledger, &Ledger::open(home.path()).unwrap()] {
            let versions = [&first, &second].map(|path| ledger.get(path).unwrap().version);
            assert_eq!(versions, [2, 2]);
            assert!(ledger.next_version(&first, &stat, b"3").is_none());
            assert!(ledger.next_version(&second, &stat, b"4").is_none());
        }
    }
}
