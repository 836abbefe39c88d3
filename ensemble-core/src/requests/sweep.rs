//! Forgetting: requests that were closed long ago, and what killed processes have left.

use std::time::Duration;

use super::Requests;
use super::ask::TMP_STEM;
use super::file::CLOSED_FILE;
use crate::Result;
use crate::durable::{self, Dir, Moved};
use crate::spool::TMP_AGE_MAX;

/// How long a closed request is kept.
pub const CLOSED_KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

impl Requests<'_> {
    /// Removes requests that were closed 30 days ago and that no gate names, gates whose request was
    /// never made, and directories of killed senders in `tmp/`. Says how much was removed.
    ///
    /// # Errors
    /// A directory cannot be listed or a file cannot be removed.
    pub fn sweep(&self) -> Result<usize> {
        let queue = self.spool.queue_dir()?;
        let tmp = queue.ensure_child("tmp", self.spool.options().modes)?;
        let mut removed = 0;
        for name in tmp.names()?.iter().filter(|name| name.starts_with(TMP_STEM)) {
            let is_directory = tmp.stat(name)?.is_some_and(|stat| stat.is_directory);
            if is_directory && self.is_older(&tmp, name, TMP_AGE_MAX) {
                tmp.remove_tree(name)?;
                removed += 1;
            }
        }
        let held = self.lock()?;
        removed += self.sweep_gates(&held, |dir, file| self.is_older(dir, file, TMP_AGE_MAX))?;
        let (requests, named) = (self.dir()?, self.gated_requests()?);
        for id in self.ids()?.into_iter().filter(|id| !named.contains(id)) {
            let Ok(home) = requests.open_child(id.as_str()) else { continue };
            if !self.is_older(&home, CLOSED_FILE, CLOSED_KEPT) {
                continue;
            }
            // At once for everybody who looks; what a crash leaves in `tmp/` is swept later.
            let name = durable::temporary_name(TMP_STEM);
            if requests.move_tree_new(id.as_str(), &tmp, &name)? == Moved::Done {
                tmp.remove_tree(&name)?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Whether an entry is there and was not changed for so long.
    fn is_older(&self, dir: &Dir, name: &str, age: Duration) -> bool {
        let age_ns = i128::try_from(age.as_nanos()).unwrap_or(i128::MAX);
        let oldest_kept = i128::from(self.now().unix_millis()) * 1_000_000 - age_ns;
        matches!(dir.stat(name), Ok(Some(stat)) if stat.changed_ns < oldest_kept)
    }
}
