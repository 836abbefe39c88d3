//! A part of the overview that is read again only once its files have changed.
//!
//! ```text
//! nothing has changed in its directories           what was read before, without reading stamps
//! stamps differ from those of the last reading     read
//! a stamp is younger than YOUNG                    read: a second change in the same tick of the clock has the same stamp
//! otherwise                                        what was read before
//! ```
//!
//! A stamp is identity, size and time of change. That of a directory changes with each name in it, so one stamp stands
//! for all files that are only ever replaced by a rename.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use ensemble_core::Result;
use ensemble_core::env::{Clock as _, SystemClock};

use super::changes::ProjectChanges;

/// A change may follow another with the same time stamp for that long: some ticks of the kernel's clock.
const YOUNG_NS: i128 = 50_000_000;

/// What distinguishes a changed file from an unchanged one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified_ns: i128,
}

/// A part, and the stamps of its files when it was read. `None` stands for a file that does not exist.
#[derive(Debug)]
pub(super) struct CachedPart<T> {
    places: Vec<PathBuf>,
    stamps: Vec<Option<FileStamp>>,
    value: Option<Arc<T>>,
}

impl<T> CachedPart<T> {
    /// A part that depends on these files and directories. Without any, it is read again each time.
    pub(super) const fn of(places: Vec<PathBuf>) -> Self {
        Self { places, stamps: Vec::new(), value: None }
    }

    /// The part, read again if needed.
    ///
    /// # Errors
    /// `read` has failed; the next call reads again.
    pub(super) fn get(
        &mut self,
        changes: &ProjectChanges,
        read: impl FnOnce() -> Result<T>,
    ) -> Result<Arc<T>> {
        let spared = |_: &&Arc<T>| changes.spare(&self.places);
        if let Some(value) = self.value.as_ref().filter(spared) {
            return Ok(Arc::clone(value));
        }
        // Before the reading: what changes in the meantime is read again.
        let stamps: Vec<Option<FileStamp>> = self.places.iter().map(stamp).collect();
        if let Some(value) = self.value.as_ref().filter(|_| stamps == self.stamps) {
            return Ok(Arc::clone(value));
        }
        let value = Arc::new(read()?);
        let now_ns = i128::from(SystemClock.wall().unix_millis()) * 1_000_000;
        let settled_until = now_ns - YOUNG_NS;
        let is_settled =
            |stamp: &Option<FileStamp>| stamp.is_none_or(|it| it.modified_ns < settled_until);
        let is_kept = !stamps.is_empty() && stamps.iter().all(is_settled);
        self.value = is_kept.then(|| Arc::clone(&value));
        self.stamps = stamps;
        Ok(value)
    }

    pub(super) fn forget(&mut self) {
        self.value = None;
    }
}

fn stamp(place: &PathBuf) -> Option<FileStamp> {
    let found = fs::metadata(place).ok()?;
    let modified_ns = i128::from(found.mtime()) * 1_000_000_000 + i128::from(found.mtime_nsec());
    Some(FileStamp { device: found.dev(), inode: found.ino(), bytes: found.len(), modified_ns })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, FileTimes};
    use std::time::{Duration, SystemTime};

    fn age(file: &PathBuf, by: Duration) {
        let times = FileTimes::new().set_modified(SystemTime::now() - by);
        File::open(file).unwrap().set_times(times).unwrap();
    }

    #[test]
    fn a_part_is_read_once_for_each_change_of_its_files() {
        let home = tempfile::tempdir().unwrap();
        let (dir, file) = (home.path().to_owned(), home.path().join("a"));
        let mut kept = CachedPart::of(vec![dir.clone(), file.clone()]);
        let mut reads = 0;
        let mut look = |kept: &mut CachedPart<u32>| {
            *kept
                .get(&ProjectChanges::Anywhere, || {
                    reads += 1;
                    Ok(reads)
                })
                .unwrap()
        };
        age(&dir, Duration::from_secs(9));
        assert_eq!((look(&mut kept), look(&mut kept)), (1, 1), "a missing file is no change");
        fs::write(&file, "x").unwrap();
        assert_eq!(
            (look(&mut kept), look(&mut kept)),
            (2, 3),
            "a young change may not be the last"
        );
        age(&dir, Duration::from_secs(8));
        age(&file, Duration::from_secs(8));
        assert_eq!((look(&mut kept), look(&mut kept)), (4, 4));
        kept.forget();
        assert_eq!(look(&mut kept), 5);
    }

    #[test]
    fn a_part_in_whose_directories_nothing_has_changed_is_not_looked_at() {
        let home = tempfile::tempdir().unwrap();
        let mut kept = CachedPart::of(vec![home.path().to_owned()]);
        age(&home.path().to_owned(), Duration::from_secs(9));
        assert_eq!(*kept.get(&ProjectChanges::none(), || Ok(1)).unwrap(), 1, "never read");
        fs::write(home.path().join("a"), "x").unwrap();
        assert_eq!(*kept.get(&ProjectChanges::none(), || Ok(2)).unwrap(), 1);
        let here = ProjectChanges::In([home.path().to_owned()].into());
        assert_eq!(*kept.get(&here, || Ok(3)).unwrap(), 3);
    }

    #[test]
    fn a_part_without_files_is_read_each_time() {
        let mut kept = CachedPart::of(Vec::new());
        assert_eq!(*kept.get(&ProjectChanges::none(), || Ok(1)).unwrap(), 1);
        assert_eq!(*kept.get(&ProjectChanges::none(), || Ok(2)).unwrap(), 2);
    }
}
