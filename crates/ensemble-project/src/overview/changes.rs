//! What may have changed between two looks, according to events of the file system.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ensemble_core::watch::FsEvent;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProjectChanges {
    /// Everywhere: each part is asked for its stamps.
    Anywhere,
    /// Only in these, of all that are watched: each directory that the last look has read.
    In(BTreeSet<PathBuf>),
}

impl ProjectChanges {
    pub const fn none() -> Self {
        Self::In(BTreeSet::new())
    }

    pub fn add(&mut self, event: FsEvent) {
        let Self::In(dirs) = self else { return };
        match event {
            FsEvent::Landed { dir, .. } | FsEvent::Strange { dir } | FsEvent::Left { dir } => {
                dirs.insert(dir);
            }
            _ => *self = Self::Anywhere,
        }
    }

    /// Whether none of these files and directories has changed. A file changes in its directory.
    pub(super) fn spare(&self, places: &[PathBuf]) -> bool {
        let Self::In(dirs) = self else { return false };
        let is_spared = |place: &Path| !dirs.contains(place);
        places.iter().all(|place| is_spared(place) && place.parent().is_none_or(is_spared))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ensemble_core::watch::Landing;

    #[test]
    fn events_name_directories_and_lost_ones_all() {
        let mut changes = ProjectChanges::none();
        let home = PathBuf::from("/queue/new");
        let landed = FsEvent::Landed { dir: home.clone(), name: "a".into(), how: Landing::Renamed };
        let places = |all: &[&str]| all.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert!(changes.spare(&places(&["/queue/new", "/queue/held"])));
        changes.add(landed);
        assert!(!changes.spare(&places(&["/queue/new"])));
        assert!(!changes.spare(&places(&["/queue/held", "/queue/new/file"])));
        assert!(changes.spare(&places(&["/queue/held", "/queue"])));
        changes.add(FsEvent::Overflow);
        assert_eq!(changes, ProjectChanges::Anywhere);
        assert!(!changes.spare(&places(&["/queue/held"])));
    }
}
