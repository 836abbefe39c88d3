//! Files that land again with the content that was routed before.

use ensemble_core::dropbox::{CompleteFile, LedgerEntry};
use ensemble_core::env::Monotonic;
use ensemble_core::event_log::types;
use ensemble_reports::contract::ContractKind;
use serde_json::json;

use super::{DropBoxes, EngineMail};
use crate::rejection_notice;
use crate::routing;
use crate::work_file::{TASK_BOX, promised_contract, reported_task};

impl DropBoxes {
    /// A file that counts although its content was routed before, with the line of its next version. The author of a
    /// task is notified that it does not count again.
    pub(super) fn counted_again(
        &mut self,
        now: Monotonic,
        mut file: CompleteFile,
        entry: LedgerEntry,
        mail: &mut EngineMail,
    ) -> Option<(CompleteFile, LedgerEntry)> {
        // Without it the author is taken as the file names it.
        let _ = file.find_signer(&self.context.spool);
        if self.counts_again(&file, &entry, mail) {
            return Some((file, entry.counted_again()));
        }
        let is_task = &*file.box_name == TASK_BOX;
        let (path, unfit) = (file.path(), file.into_unfit(String::new()));
        let told = match is_task {
            true => rejection_notice::tell_again(&unfit, &self.context.spool),
            false => Ok(Vec::new()),
        };
        match told {
            Ok(told) => {
                self.context.record(types::FILE_AGAIN, json!({ "file": path, "told": told }));
                mail.changed(told);
                if let Err(error) = self.ledger.append(vec![entry]) {
                    tracing::warn!(%error, "cannot enter a repeated file into the ledger");
                }
            }
            Err(error) => self.wait(now, &unfit.box_name, &unfit.file, &error),
        }
        None
    }

    /// Whether a file that has landed again with the same content is another event: a report while its task is
    /// open again, or a summary or escalation that was written again.
    fn counts_again(&self, file: &CompleteFile, entry: &LedgerEntry, mail: &EngineMail) -> bool {
        let routed = self.ledger.get(&entry.path);
        let is_new = routed.is_some_and(|routed| entry.is_new_file(&routed));
        match promised_contract(file) {
            Some(ContractKind::Report) if mail.remote.is_alone() => {
                let author = file.author();
                let task = reported_task(file);
                task.is_some_and(|task| {
                    routing::is_open(&task, author.as_ref(), &*self.context.spool)
                })
            }
            Some(ContractKind::Report | ContractKind::Summary | ContractKind::Escalation) => is_new,
            Some(ContractKind::Review | ContractKind::Task | ContractKind::Instruction) | None => {
                false
            }
        }
    }
}
