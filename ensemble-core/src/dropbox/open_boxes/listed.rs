//! The files of the last listing that were not examined yet, in as little memory as their names take.

use std::time::Duration;

use crate::env::Monotonic;

/// How long what was listed may wait behind events.
const LISTED_PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(super) struct ListedFiles {
    /// One behind the other.
    names: String,
    files: Vec<ListedFile>,
    /// Since when there are some.
    since: Option<Monotonic>,
}

#[derive(Debug)]
struct ListedFile {
    /// The box, by its place among the open ones.
    place: u16,
    /// Length of its name.
    bytes: u16,
    modified_ms: i64,
}

impl ListedFiles {
    /// Forgets all files, but not since when there are some.
    pub(super) fn begin(&mut self, now: Monotonic) {
        *self = Self { since: Some(self.since.unwrap_or(now)), ..Self::default() };
    }

    /// Adds a file of the box at `place`. A longer name than any file system has is left out.
    pub(super) fn push(&mut self, place: usize, file: &str, modified_ns: i128) {
        let (Ok(place), Ok(bytes)) = (u16::try_from(place), u16::try_from(file.len())) else {
            return;
        };
        let modified_ms = i64::try_from(modified_ns / 1_000_000).unwrap_or(i64::MAX);
        self.names.push_str(file);
        self.files.push(ListedFile { place, bytes, modified_ms });
    }

    /// Takes a file: the place of its box, its name, and when it was changed, in milliseconds since the Unix epoch.
    pub(super) fn pop(&mut self) -> Option<(usize, String, i64)> {
        let file = self.files.pop();
        if self.files.is_empty() {
            self.since = None;
        }
        let ListedFile { place, bytes, modified_ms } = file?;
        let name = self.names.split_off(self.names.len() - usize::from(bytes));
        if self.files.is_empty() {
            *self = Self::default();
        }
        Some((usize::from(place), name, modified_ms))
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    pub(super) fn count(&self, place: usize) -> usize {
        self.files.iter().filter(|file| usize::from(file.place) == place).count()
    }

    /// Whether the files have waited too long.
    pub(super) fn is_overdue(&self, now: Monotonic) -> bool {
        self.since.is_some_and(|since| now.since(since) >= LISTED_PATIENCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_is_taken_once_with_its_box_and_nothing_is_kept() {
        let (mut listed, begin) = (ListedFiles::default(), Monotonic::ZERO);
        listed.begin(begin);
        for (place, file) in [(0, "a.yaml"), (2, "\u{e4}.yaml"), (2, "b.yaml")] {
            listed.push(place, file, 5_000_000);
        }
        assert_eq!((listed.count(0), listed.count(1), listed.count(2)), (1, 0, 2));
        listed.begin(begin + LISTED_PATIENCE);
        assert!(listed.is_overdue(begin + LISTED_PATIENCE), "they wait since the first listing");
        listed.push(1, "c.yaml", 5_000_000);
        assert_eq!(listed.pop(), Some((1, "c.yaml".to_owned(), 5)));
        assert_eq!((listed.pop(), listed.names.capacity()), (None, 0));
        assert!(listed.is_empty() && !listed.is_overdue(begin + 3 * LISTED_PATIENCE));
    }
}
