//! Putting a file aside, once its author was notified.

use std::path::Path;
use std::time::Duration;

use crate::env::Monotonic;

use super::{OpenBox, UnfitFile};

/// How soon setting a file aside is tried again if it failed, for instance because the disk is full.
const REJECT_RETRY: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct RejectedFile {
    /// The path below the queue: the box, then the file.
    pub path: String,
    /// New path of the file; `None` for one that stays: a directory, or one that its writer may still complete.
    pub kept_as: Option<String>,
    pub error: String,
}

impl OpenBox {
    /// Ignores an entry until another one replaces it; true the first time.
    pub(super) fn pass_over(&mut self, file: &str) -> bool {
        let Ok(Some(stat)) = self.drop_box.dir().stat(file) else { return false };
        self.unmatched.insert(file.to_owned(), stat.id).is_none()
    }

    /// Puts the judged version of a file aside; `None` if there is nothing to record.
    pub(super) fn set_aside(
        &mut self,
        now: Monotonic,
        unfit: &UnfitFile,
        queue: &Path,
    ) -> Option<RejectedFile> {
        let UnfitFile { file, stat, error, .. } = unfit;
        let kept_as = if stat.is_directory {
            // A directory stays where it is.
            if !self.pass_over(file) {
                return None;
            }
            None
        } else if !unfit.is_final {
            self.left.insert(file.clone(), stat.into());
            None
        } else {
            match self.drop_box.reject_version(queue, file, stat, error) {
                Ok(Some(kept_as)) => Some(kept_as),
                Ok(None) => {
                    // It is gone, or replaced by another version, which is examined by itself.
                    if matches!(self.drop_box.dir().stat(file), Ok(Some(_))) {
                        self.retry(now, file, Duration::ZERO);
                    }
                    return None;
                }
                Err(failure) => {
                    self.failures.push(failure);
                    self.retry(now, file, REJECT_RETRY);
                    return None;
                }
            }
        };
        Some(RejectedFile { path: unfit.path(), kept_as, error: error.clone() })
    }
}
