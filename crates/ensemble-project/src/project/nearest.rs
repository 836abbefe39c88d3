//! The project around a working directory, searched upwards as git does.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::QUEUE_DEFAULT;

/// A directory that every queue has, and hardly any other directory of its name.
const MAILBOXES: &str = "mailbox";

/// The queue of the nearest project at or above a directory.
///
/// A configuration names commands that run as its reader. So above the directory itself only a project of the same user
/// counts, and none that another user made in `/tmp`.
pub(super) fn nearest(from: &Path) -> Option<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let is_ours = |path: &Path| path.metadata().is_ok_and(|metadata| metadata.uid() == user);
    let found = from.ancestors().enumerate().find(|(height, directory)| {
        let queue = directory.join(QUEUE_DEFAULT);
        queue.join(MAILBOXES).is_dir() && (*height == 0 || is_ours(directory) && is_ours(&queue))
    });
    found.map(|(_, directory)| directory.join(QUEUE_DEFAULT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_queue_at_or_above_is_found() {
        let home = tempfile::tempdir().unwrap();
        let (root, below) = (home.path().join("project"), home.path().join("project/src/deep"));
        std::fs::create_dir_all(&below).unwrap();
        assert_eq!(nearest(&below), None);
        std::fs::create_dir_all(root.join("queue/mailbox")).unwrap();
        assert_eq!(nearest(&below), Some(root.join("queue")));
        assert_eq!(nearest(&root), Some(root.join("queue")));
        // A directory that is only called so is none.
        std::fs::create_dir(below.join("queue")).unwrap();
        assert_eq!(nearest(&below), Some(root.join("queue")));
        std::fs::create_dir(below.join("queue/mailbox")).unwrap();
        assert_eq!(nearest(&below), Some(below.join("queue")));
    }
}
