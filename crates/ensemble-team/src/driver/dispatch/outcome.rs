//! How an attempt at a task ends: by a report, or by what happens to its message. Reports of workers on other hosts come
//! by mail, since their files are on those hosts.

use ensemble_core::driver::{LadderFile, LadderState, LadderStore};
use ensemble_core::message::fields::is_same_task;
use ensemble_core::message::{Envelope, MessageId, Name};
use ensemble_core::{Error, Result, allow_no_mailbox, spool};
use ensemble_reports::contract::{Instruction, TaskReport, read_whole};

use super::{
    DispatchFile, DispatchRun, Event, OpenBatch, TaskBatch, TaskHandout, event_of, is_of,
    task_message, version_of,
};

/// For how long a report of a settled message is waited for, in milliseconds: some workers settle a task first and work
/// then, and another host may still have to mail the report.
const SETTLED_PATIENCE_MS: u64 = 600_000;

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

    /// How an attempt has ended, if it has. A report takes precedence.
    pub(super) fn outcome(
        &self,
        OpenBatch { batch, file, .. }: &mut OpenBatch<'_>,
        (task, hand): (&str, &TaskHandout),
    ) -> Result<Option<Event>> {
        if let Some((stat, report)) = self.report(task)?
            && hand.report_before.as_ref() != Some(&version_of(&stat))
            && is_of(&report, hand.attempt)
        {
            self.settle_attempt(task, hand, &stat)?;
            return Ok(Some(event_of(report)));
        }
        let mailbox = self.queue.mailbox_of(&hand.worker);
        let id = task_message(&batch.id, task, hand.attempt);
        let lost = |reason: String| Ok(Some(Event::Lost { reason }));
        match allow_no_mailbox(self.queue.state(&mailbox, &id))?.flatten() {
            Some(spool::State::Dead) => {
                let letters = self.queue.dead_letters(&mailbox)?;
                let letter = letters.into_iter().find(|letter| letter.id == id);
                let reason = letter.map(|letter| letter.reason).unwrap_or_default();
                lost(format!("its message is a dead letter: {reason}"))
            }
            None => lost("its message was removed".to_owned()),
            Some(spool::State::Queued { epoch, .. })
                if self.is_given_up(&mailbox, (&id, epoch))? =>
            {
                let reason = format!("{} did not take it", hand.worker);
                match self.queue.set_aside(&mailbox, &id, &reason) {
                    Ok(()) => lost(reason),
                    // It was received after all.
                    Err(Error::NoMessage { .. }) => Ok(None),
                    Err(error) => Err(error),
                }
            }
            Some(spool::State::Settled) => self.settled_alone(file, id),
            Some(spool::State::Queued { .. } | spool::State::Acked { .. }) => Ok(None),
        }
    }

    /// A worker that settles its message and reports nothing has done the task, as everywhere.
    fn settled_alone(&self, file: &mut DispatchFile, id: MessageId) -> Result<Option<Event>> {
        let now = self.now_ms();
        let Some(since) = file.settled_ms.get(&id) else {
            file.settled_ms.insert(id, now);
            self.write(file)?;
            return Ok(None);
        };
        let is_over = now.saturating_sub(*since) >= SETTLED_PATIENCE_MS;
        let summary = Some("it was settled without a report".to_owned());
        Ok(is_over.then_some(Event::Reported { is_success: true, summary }))
    }

    fn is_given_up(&self, mailbox: &Name, (id, epoch): (&MessageId, u64)) -> Result<bool> {
        let is_it = |file: &LadderFile| {
            file.state == LadderState::Escalated && file.message == *id && file.epoch == epoch
        };
        let own = LadderStore::new(&self.state_dir).of_mailbox(mailbox)?;
        Ok(own.iter().any(|(_, file)| is_it(file))
            || self.hands.given_up(mailbox)?.iter().any(is_it))
    }
}
