//! Determines from a directory's time stamp, without listing it, whether it is still empty.
//!
//! A stamp that has not changed means an unchanged directory only if it was old already when the
//! directory was listed. File systems count time in steps, and all changes within one step leave
//! the same stamp.

use super::mailbox::find;
use crate::Result;
use crate::durable::Dir;
use crate::env::{Clock as _, SystemClock};

/// How old a directory's stamp must be for an unchanged one to mean an unchanged directory. It is
/// far more than the steps in which file systems count time.
const STAMP_AGE_MIN_NS: i128 = 100_000_000;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Emptiness {
    listed_at: Option<i128>,
    is_empty: bool,
}

impl Emptiness {
    /// Whether the directory was found empty and has not changed since.
    pub(super) fn holds(&self, stamp: i128) -> bool {
        self.is_empty && self.listed_at == Some(stamp)
    }

    /// Notes what a listing has found. `trusted` is what [`trusted`] said before it.
    pub(super) fn record_listing(&mut self, trusted: Option<i128>, is_empty: bool) {
        self.listed_at = trusted;
        self.is_empty = is_empty;
    }

    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Lists the directory if that can yield new information, which is once for each of its stamps.
    pub(super) fn learn(&mut self, dir: &Dir, stamp: i128) -> Result<()> {
        let trusted = trusted(stamp);
        if trusted.is_some() && self.listed_at != trusted {
            self.record_listing(trusted, find(dir, |_| Some(()))?.is_none());
        }
        Ok(())
    }
}

/// The stamp, if it is old enough for a listing that is made now to hold as long as it does.
pub(super) fn trusted(stamp: i128) -> Option<i128> {
    let age = i128::from(SystemClock.wall().unix_millis()) * 1_000_000 - stamp;
    (age > STAMP_AGE_MIN_NS).then_some(stamp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durable::{Durability, FileModes};

    #[test]
    fn a_young_stamp_is_not_trusted_and_a_change_is_seen() {
        let home = tempfile::tempdir().unwrap();
        let dir = Dir::open(home.path()).unwrap();
        let mut known = Emptiness::default();
        let stamp = dir.changed_ns().unwrap();
        known.learn(&dir, stamp).unwrap();
        assert!(
            trusted(stamp).is_some() || !known.holds(stamp),
            "it may change within the same step"
        );
        while trusted(stamp).is_none() {
            std::thread::yield_now();
        }
        known.learn(&dir, stamp).unwrap();
        assert!(known.holds(stamp));
        dir.write_new("x", b"", FileModes::default(), Durability::Process).unwrap();
        let changed = dir.changed_ns().unwrap();
        assert!(!known.holds(changed));
        while trusted(changed).is_none() {
            std::thread::yield_now();
        }
        known.learn(&dir, changed).unwrap();
        assert!(!known.holds(changed), "something lies there");
    }
}
