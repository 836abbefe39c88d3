//! Reports of workers on other hosts. Their files are on those hosts, and this one only receives mail.

use ensemble_core::Result;
use ensemble_core::message::Envelope;
use ensemble_core::message::fields::is_same_task;

use super::{DispatchRun, TaskBatch, event_of, is_of};
use ensemble_reports::contract::{Instruction, TaskReport, read_whole};

impl DispatchRun<'_> {
    /// Counts the report of a worker on another host. A report of this host is ignored, because it is read from its
    /// file. Settle the message afterwards: after a crash, counting it again changes nothing.
    pub fn take_mailed(
        &self,
        batch: &TaskBatch,
        instruction: &Instruction,
        envelope: &Envelope,
    ) -> Result<()> {
        let mut open = self.open(batch, instruction)?;
        let found =
            open.file.state.hands().find(|(task, _)| envelope.task_id.as_ref() == Some(*task));
        let Some((task, hand)) = found.map(|(task, hand)| (task.clone(), hand.clone())) else {
            return Ok(());
        };
        let is_known = open.file.mailed.get(&task) == Some(&envelope.id);
        if is_known || !self.hands.is_elsewhere(&hand.worker)? {
            return Ok(());
        }
        let read = read_whole::<TaskReport>(&envelope.body, "report.yaml".as_ref());
        let Some(report) = read else { return Ok(()) };
        // A worker whose report is a file on this host runs here: the mail is about that file or an earlier one.
        let is_here = self.report(&task)?.is_some_and(|(_, here)| {
            here == report || here.worker_id.is_some() && here.worker_id == report.worker_id
        });
        if !is_same_task(&report.task_id, &task) || !is_of(&report, hand.attempt) || is_here {
            return Ok(());
        }
        open.file.mailed.insert(task.clone(), envelope.id.clone());
        self.change(&mut open, &task, event_of(report))
    }
}
