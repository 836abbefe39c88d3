//! The effects of routed files besides their messages.
//!
//! | an effect of a routed file | that fails |
//! |---|---|
//! | its messages are stored | the file is read and routed again |
//! | its reported task ends: the record, and settling its messages; a review is counted; its author is advised | it is tried again, also after the file is gone; the ledger learns of the file when all are done |
//! | an `ack/` file receives its task | the file is read again |
//! | the notice of a file that is set aside | the file stays, and is tried again |
//!
//! Where the mailboxes are on servers, the thread that follows them receives or ends the task. A watcher that is killed
//! before has not entered the file into the ledger, so the next one begins again.

use ensemble_core::dropbox::{CompleteFile, LedgerEntry};
use ensemble_core::env::Monotonic;
use ensemble_core::message::Name;
use ensemble_core::{Error, Result};
use ensemble_team::admission::is_refusal;
use ensemble_team::driver::TaskEnds;

use super::{DropBoxes, EngineMail, ROUTE_RETRY};
use crate::routing;
use crate::work_file::{is_report, reported_task};

/// How many files with effects that are not done are remembered; more are found again by a listing.
const UNDONE_MAX: usize = 1_000;

/// A routed file with effects that have failed, or that are left to the thread that follows the servers.
pub(super) struct UndoneFile {
    pub(super) due: Monotonic,
    pub(super) file: CompleteFile,
    pub(super) entry: LedgerEntry,
    pub(super) is_left: bool,
}

impl DropBoxes {
    /// Takes the effects of routed files, and those that are due for a retry. Returns the lines of the files that have
    /// had all of them.
    pub(super) fn take_effects(
        &mut self,
        now: Monotonic,
        routed: Vec<(CompleteFile, LedgerEntry)>,
        mail: &mut EngineMail,
    ) -> Vec<LedgerEntry> {
        // After the line of a newer version, that of an older one would make the newer one look new.
        let is_old = |it: &UndoneFile| routed.iter().any(|(new, _)| new.path() == it.file.path());
        self.undone.retain(|it| !it.is_left || !is_old(it));
        let undone = std::mem::take(&mut self.undone).into_iter();
        let (due, later): (Vec<UndoneFile>, _) = undone.partition(|undone| undone.due <= now);
        self.undone = later;
        let again = due.into_iter().map(|undone| (undone.file, undone.entry, undone.is_left));
        let routed = routed.into_iter().map(|(file, entry)| (file, entry, false));
        let mut entries = Vec::new();
        for (file, entry, is_left) in again.chain(routed) {
            let taken = if is_left { Ok(Vec::new()) } else { self.take_effect(&file, mail) };
            let is_left = taken.is_ok();
            if let Err(error) = &taken {
                self.record_waiting(&file.path(), error);
            }
            mail.changed(taken.unwrap_or_default());
            if is_left && !mail.remote.has_end(TaskEnds::written_at(&file.stat)) {
                entries.push(entry);
            } else {
                self.remember_undone(UndoneFile { due: now + ROUTE_RETRY, file, entry, is_left });
            }
        }
        entries
    }

    pub(super) fn remember_undone(&mut self, undone: UndoneFile) {
        if self.undone.len() < UNDONE_MAX {
            self.undone.push(undone);
        }
    }

    pub(super) fn is_undone(&self, file: &CompleteFile) -> bool {
        let is_same = |it: &UndoneFile| it.file.path() == file.path() && it.file.stat == file.stat;
        self.undone.iter().any(is_same)
    }

    fn take_effect(&mut self, file: &CompleteFile, mail: &EngineMail) -> Result<Vec<Name>> {
        let mut changed = self.feedback.end_task(file, &mail.remote)?;
        self.settle_acked(file, mail)?;
        changed.extend(self.feedback.advise_author(file)?);
        Ok(changed)
    }

    /// A report without an author settles the task that its writer has read by an `ack/` file.
    fn settle_acked(&self, file: &CompleteFile, mail: &EngineMail) -> Result<()> {
        let Some(task) = reported_task(file).filter(|_| is_report(file)) else { return Ok(()) };
        mail.remote.share_observation(|sight| sight.unsigned.push(task.clone()));
        let Some(lease) = routing::acked_lease(&task, &self.ledger) else { return Ok(()) };
        match routing::settle_acked(&lease, &*self.context.spool) {
            Ok(_) | Err(Error::LeaseLost { .. }) => Ok(()),
            Err(error) if is_refusal(&error) => {
                tracing::warn!(%task, %error, "a reported task is not settled");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
