//! Since when the git remote has not answered, for those that report this without asking it.
//!
//! Each question that fails writes it, and the first one that is answered removes it, both under the lock for
//! fetching. A process that dies in between leaves it, so it counts for [`RECENT`] only.

use std::path::Path;
use std::time::Duration;

use ensemble_core::Result;
use ensemble_core::durable::{Dir, Durability, write_document};
use ensemble_core::message::{Timestamp, yaml};
use serde::{Deserialize, Serialize};

/// How long after its last question a remote counts as silent: longer than an agent at work leaves it unasked.
const RECENT: Duration = Duration::from_secs(10 * 60);
/// The largest file that is read, in bytes.
const FILE_BYTES_MAX: usize = 64 * 1024;
/// The file below the state directory.
const FILE: &str = "remote.yaml";

/// A git remote that does not answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Silence {
    /// Name of the remote.
    pub remote: String,
    /// When it was first asked in vain.
    pub since: Timestamp,
    /// When it was last asked in vain.
    pub at: Timestamp,
    /// Git's message about it.
    pub detail: String,
}

impl Silence {
    /// The silence of a project's remote, by its state directory.
    pub fn of(state_dir: &Path, now: Timestamp) -> Result<Option<Self>> {
        let file = state_dir.join(FILE);
        let read = Dir::open(state_dir)?.read(FILE, FILE_BYTES_MAX)?;
        let Some(content) = read else { return Ok(None) };
        let silence: Self = yaml::parse(&String::from_utf8_lossy(&content), &file)?;
        Ok(Some(silence).filter(|it| it.at.plus(RECENT) > now))
    }
}

/// Notes that the remote has answered.
pub(super) fn end(state_dir: &Path) {
    // A file that stays counts for a while only.
    let _ = Dir::open(state_dir).and_then(|dir| dir.remove(FILE));
}

/// Notes that the remote has not answered. If the note cannot be written, the returned error still reports the
/// silence.
pub(super) fn record_silence(state_dir: &Path, remote: &str, detail: &str) {
    let now = Timestamp::now();
    let before = Silence::of(state_dir, now).ok().flatten();
    let since = before.filter(|before| before.remote == remote).map_or(now, |it| it.since);
    let (remote, detail) = (remote.to_owned(), detail.to_owned());
    let text = yaml::render(&Silence { remote, since, at: now, detail });
    let _ = write_document(&state_dir.join(FILE), text.as_bytes(), Durability::Process);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_begins_with_the_first_question_and_is_over_with_an_answer() {
        let home = tempfile::tempdir().unwrap();
        let read = || Silence::of(home.path(), Timestamp::now()).unwrap();
        assert_eq!(read(), None);
        record_silence(home.path(), "origin", "no route");
        let first = read().expect("it was asked in vain");
        record_silence(home.path(), "origin", "timed out");
        let second = read().expect("it was asked in vain again");
        assert_eq!((second.since, second.detail.as_str()), (first.since, "timed out"));
        let late = second.at.plus(RECENT);
        assert_eq!(Silence::of(home.path(), late).unwrap(), None, "it was not asked since");
        end(home.path());
        assert_eq!(read(), None);
    }
}
