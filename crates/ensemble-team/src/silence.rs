//! Since when the git remote, the team's servers or any worker have not answered, for those that report this without
//! asking before.
//!
//! Each question that fails writes it, and the first one that is answered removes it. A process that dies in between
//! leaves it, so it counts for `RECENT` only.

use std::path::Path;
use std::time::Duration;

use ensemble_core::Result;
use ensemble_core::durable::{Dir, Durability, write_document};
use ensemble_core::message::{Timestamp, yaml};
use serde::{Deserialize, Serialize};

/// How long after the last question a peer counts as silent: longer than an agent at work leaves it unasked.
const RECENT: Duration = Duration::from_secs(10 * 60);
const FILE_BYTES_MAX: usize = 64 * 1024;
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SilentPeer {
    /// The git remote of the team.
    Remote,
    /// The servers that have the mailboxes.
    Team,
    /// The workers for the tasks of `ensemble task dispatch`.
    Workers,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silence {
    /// Name of the remote, address of the servers, or who looks for workers.
    pub remote: String,
    pub since: Timestamp,
    /// When it was last asked in vain.
    pub at: Timestamp,
    pub detail: String,
}

impl SilentPeer {
    /// The file below the state directory.
    const fn file(self) -> &'static str {
        match self {
            Self::Remote => "remote.yaml",
            Self::Team => "servers.yaml",
            Self::Workers => "workers.yaml",
        }
    }

    pub fn read_silence(self, state_dir: &Path, now: Timestamp) -> Result<Option<Silence>> {
        let read = Dir::open(state_dir)?.read(self.file(), FILE_BYTES_MAX)?;
        let Some(content) = read else { return Ok(None) };
        let file = state_dir.join(self.file());
        let silence: Silence = yaml::parse(&String::from_utf8_lossy(&content), &file)?;
        Ok(Some(silence).filter(|it| it.at.plus(RECENT) > now))
    }

    pub fn end_silence(self, state_dir: &Path) {
        // A file that stays counts for a while only.
        let _ = Dir::open(state_dir).and_then(|dir| dir.remove(self.file()));
    }

    /// Notes that it has not answered. If the note cannot be written, the returned error still reports the silence.
    pub fn record_silence(self, state_dir: &Path, remote: &str, detail: &str) {
        let now = Timestamp::now();
        let before = self.read_silence(state_dir, now).ok().flatten();
        let since = before.filter(|before| before.remote == remote).map_or(now, |it| it.since);
        let (remote, detail) = (remote.to_owned(), detail.to_owned());
        let text = yaml::render(&Silence { remote, since, at: now, detail });
        let _ = write_document(&state_dir.join(self.file()), text.as_bytes(), Durability::Process);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_begins_with_the_first_question_and_is_over_with_an_answer() {
        let home = tempfile::tempdir().unwrap();
        let peer = SilentPeer::Remote;
        let read_at = |now: Timestamp| peer.read_silence(home.path(), now).unwrap();
        let read = || read_at(Timestamp::now());
        assert_eq!(read(), None);
        peer.record_silence(home.path(), "origin", "no route");
        let first = read().expect("it was asked in vain");
        peer.record_silence(home.path(), "origin", "timed out");
        let second = read().expect("it was asked in vain again");
        assert_eq!((second.since, second.detail.as_str()), (first.since, "timed out"));
        assert_eq!(read_at(second.at.plus(RECENT)), None, "it was not asked since");
        peer.end_silence(home.path());
        assert_eq!(read(), None);
    }
}
