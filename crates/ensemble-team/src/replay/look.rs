//! Reads the state on disk for the comparison.

use std::path::Path;

use super::{DiskBoard, DiskMailbox, DiskMessage, DiskRequest, DiskState, DiskTask, MessagePlace};
use crate::board::{self, Board, BoardTask, TaskStatus};
use ensemble_core::Result;
use ensemble_core::mailboxes::{BadMailbox, visit_mailboxes};
use ensemble_core::message::Digest;
use ensemble_core::requests::Requests;
use ensemble_core::spool::{Spool, State};

impl DiskState {
    /// Adds all mailboxes of a queue. `root` is the project's directory; paths are relative to it.
    pub fn add_mailboxes(&mut self, spool: &Spool, root: &Path) -> Result<()> {
        let bad = visit_mailboxes(spool.mailboxes()?, |name| {
            let done_days = spool.settings(name)?.done_days;
            let mut mailbox = DiskMailbox { done_days, ..DiskMailbox::default() };
            for file in spool.message_files(name)? {
                let (place, path) = (place(&file.state), below(&file.path, root));
                let message = DiskMessage { place, path, extended: file.extended };
                mailbox.messages.entry(file.id.to_string()).or_default().push(message);
            }
            self.mailboxes.insert(name.to_string(), mailbox);
            Ok(())
        })?;
        for BadMailbox { name, error } in bad {
            self.add_unread(format!("queue/mailbox/{name}"), &error);
        }
        Ok(())
    }

    pub fn add_requests(&mut self, requests: &Requests<'_>) -> Result<()> {
        for id in requests.ids()? {
            match requests.find(id.as_str()) {
                Ok(Some(entry)) => {
                    let by = entry.decision.as_ref().map(|decision| decision.by.to_string());
                    let request = DiskRequest { state: entry.state().to_owned(), by };
                    self.requests.insert(id.to_string(), request);
                }
                Ok(None) => {}
                Err(error) => self.add_unread(format!("queue/requests/{id}"), &error),
            }
        }
        Ok(())
    }

    pub fn add_board(&mut self, board: &Board, root: &Path) -> Result<()> {
        let text = board.read_text()?;
        let state = board::check(&text, board.path())?;
        let task = |task: &BoardTask| {
            let epoch = task.lease_epoch.filter(|_| task.status == TaskStatus::Claimed);
            let holder = task.assigned_to.as_ref().map(ToString::to_string);
            DiskTask { status: task.status.as_str().to_owned(), holder, epoch }
        };
        self.board = Some(DiskBoard {
            path: below(board.path(), root),
            revision: state.revision,
            sha256: Digest::of(text.as_bytes()).to_string(),
            tasks: state.tasks.iter().map(|t| (t.id.to_string(), task(t))).collect(),
            agents: state
                .agents
                .iter()
                .map(|(id, agent)| (id.to_string(), agent.epoch.unwrap_or_default()))
                .collect(),
        });
        Ok(())
    }

    #[cfg(feature = "steps")]
    pub fn add_steps(&mut self, store: &crate::steps::StepStore) -> Result<()> {
        let steps = self.steps.get_or_insert_default();
        for queue in store.queues()? {
            for step in store.steps(&queue.task_id)? {
                let key = (step.key.task_id, u64::from(step.key.step_index));
                let status = step.status;
                steps.insert(key, super::DiskStep { status, epoch: step.epoch });
            }
        }
        Ok(())
    }
}

fn place(state: &State) -> MessagePlace {
    match state {
        State::Queued { epoch, .. } => MessagePlace::Queued { epoch: *epoch },
        State::Acked { holder, epoch } => {
            MessagePlace::Held { holder: holder.to_string(), epoch: *epoch }
        }
        State::Settled => MessagePlace::Settled,
        State::Dead => MessagePlace::Dead,
    }
}

fn below(path: &Path, root: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}
