//! Files that the hosts of a team share, as keys of the team's bucket. They are the blackboard, its lock, that of merges,
//! beats, and what stops the team.
//!
//! | file | key |
//! |---|---|
//! | `board/state.yaml` | `board.state=yaml` |
//! | `merge/lock` | `merge.lock` |
//! | `leases/coder-1@3.beat` | `leases.coder-1/3=beat` |
//! | `control/PAUSE` | `control.PAUSE` |
//!
//! A key without content is a missing file. A file's note is the header `Ensemble-Note` of the same version, so both are
//! written in one step. A connection that follows the bucket remembers what stops the team until it hears of a change.

use std::time::Duration;

use super::NatsTransport;
use super::bucket::NamedFiles;
use super::server_time::{millis, timestamp};
use super::subject::TeamSubjects;
use super::versions::{ListedVersion, PutOutcome};
use ensemble_core::document::{SharedFile, SharedFiles};
use ensemble_core::{Error, Result};

const NOTE: &str = "Ensemble-Note";
/// Bytes of a message that headers and the subject may need in addition to the note.
const HEADERS_MAX: usize = 1024;
pub(super) const CONTROL: &str = "control";
const LEASES: &str = "leases/";

impl SharedFiles for NatsTransport {
    fn place_of(&self, path: &str) -> String {
        format!("{} {path}", self.wire.server)
    }

    fn read_file(&self, path: &str) -> Result<SharedFile> {
        let found = self.last_key("read a shared file", self.subjects.shared(path))?;
        let Some(found) = found else { return Ok(SharedFile::default()) };
        self.bucket.note_there();
        let note = found.headers.get(NOTE).map_or_else(String::new, |note| note.to_string());
        Ok(SharedFile {
            content: found.payload.to_vec(),
            note,
            revision: found.sequence,
            at: Some(timestamp(millis(found.time))),
        })
    }

    fn list_files(&self, directory: &str) -> Result<NamedFiles> {
        if directory == CONTROL {
            return self.controls();
        }
        self.list_shared(directory)
    }

    fn write_file(
        &self,
        path: &str,
        content: &[u8],
        note: &str,
        expected: u64,
    ) -> Result<Option<u64>> {
        // A beat that has ended leaves nothing.
        if content.is_empty() && path.starts_with(LEASES) {
            self.purge_key(self.subjects.shared(path), expected)?;
            return Ok(Some(0));
        }
        let payload_max = self.wire.client.server_info().max_payload;
        let limit = payload_max.saturating_sub(note.len() + HEADERS_MAX);
        if content.len() > limit {
            let what =
                format!("{} (its server takes messages up to `max_payload`)", self.place_of(path));
            let (bytes, limit) = (content.len() as u64, limit as u64);
            return Err(Error::TooLarge { what, bytes, limit });
        }
        let subject = self.subjects.shared(path);
        let put = self.write_noted(subject, expected, content.to_vec(), (NOTE, note))?;
        if path.starts_with(CONTROL)
            && let Some(pages) = self.followed()
        {
            pages.control.forget();
        }
        Ok(match put {
            PutOutcome::Done(revision) => Some(revision),
            PutOutcome::Stale => None,
        })
    }

    fn may_have_changed(&self) -> bool {
        self.shared_has_changed()
    }

    fn rest(&self, duration: Duration) {
        std::thread::sleep(duration);
        // Time spent by another process is not the servers' delay.
        self.wire.patience.renew();
    }
}

impl NatsTransport {
    /// What stops the team. It costs no question if the bucket is followed and has not changed there.
    fn controls(&self) -> Result<NamedFiles> {
        let Some(pages) = self.followed() else { return self.list_shared(CONTROL) };
        if let Some(known) = pages.control.known() {
            return Ok(known);
        }
        let heard = pages.control.heard();
        let files = self.list_shared(CONTROL)?;
        pages.control.remember(heard, files.clone());
        Ok(files)
    }

    fn list_shared(&self, directory: &str) -> Result<NamedFiles> {
        let listed = self.list_keys(self.subjects.all_shared(directory))?;
        let file = |found: ListedVersion| {
            let name = TeamSubjects::shared_name(&found.subject)?;
            let content = found.payload.to_vec();
            let (revision, at) = (found.seq, Some(timestamp(found.at)));
            let file = SharedFile { content, note: String::new(), revision, at };
            (!file.content.is_empty()).then_some((name, file))
        };
        Ok(listed.into_iter().filter_map(file).collect())
    }

    /// Whether the blackboard or what stops the team has changed since the last call; true at first, and if
    /// the bucket is not followed.
    pub fn shared_has_changed(&self) -> bool {
        self.followed().is_none_or(|pages| pages.shared_changed())
    }
}
