//! The end of work that is on the servers: what ended agents held, tasks with reports, and `ack/` files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ensemble_core::broker::TaskEnd;
use ensemble_core::durable::{Durability, read_file, write_document};
use ensemble_core::env::{Lease, Monotonic};
use ensemble_core::event_log::types;
use ensemble_core::{Error, Result};
use ensemble_nats::NatsTransport;
use ensemble_project::status::ACTOR;
use serde_json::json;

use super::ServerFollower;
use crate::held_work::{GoneAgent, HoldingSource, held_by, return_all};
use crate::routing;
use crate::servers::{AckFile, EndingReport, ServerNews};
use crate::wakes::LoopWake;

const TASKS_MAX: usize = 1000;
/// The largest file of acked tasks that is read, in bytes: 1 KiB for each.
const LEASES_BYTES_MAX: usize = TASKS_MAX * 1024;

/// The leases that `ack/` files have received, by task, in a file: a later watcher settles them.
#[derive(Debug)]
pub(super) struct AckedTasks {
    path: PathBuf,
    leases: BTreeMap<String, Lease>,
}

impl AckedTasks {
    /// Reads the file. A missing or damaged one counts as empty: the leases then expire.
    pub(super) fn open(path: &Path) -> Self {
        let content = read_file(path, LEASES_BYTES_MAX).ok().flatten();
        let leases = content.and_then(|text| serde_json::from_slice(&text).ok());
        Self { path: path.to_owned(), leases: leases.unwrap_or_default() }
    }

    fn insert(&mut self, task: String, lease: Lease) {
        while self.leases.len() >= TASKS_MAX {
            self.leases.pop_first();
        }
        self.leases.insert(task, lease);
        self.write();
    }

    fn remove(&mut self, task: &str) -> Option<Lease> {
        let lease = self.leases.remove(task)?;
        self.write();
        Some(lease)
    }

    /// A file that cannot be written costs a later watcher the leases, which then expire.
    fn write(&self) {
        let text = serde_json::to_vec(&self.leases).unwrap_or_default();
        let made = self.path.parent().map_or(Ok(()), std::fs::create_dir_all);
        let written = made
            .map_err(|error| Error::io("create the directory of", &self.path, error))
            .and_then(|()| write_document(&self.path, &text, Durability::Process));
        if let Err(error) = written {
            tracing::warn!(%error, "cannot keep the acked tasks");
        }
    }
}

impl ServerFollower {
    /// Looks at the blackboard and at what stops the team.
    pub(super) fn look_at_board(
        &mut self,
        now: Monotonic,
        queue: &Arc<NatsTransport>,
    ) -> Result<()> {
        let working = self.sighted(|sight| sight.working.clone());
        let Self { board, project, recorder, kept, .. } = self;
        board.do_due_work(now, project, queue, recorder, (&working, kept))
    }

    /// Returns what ended agents hold, and settles the tasks of routed reports. A return that fails is not repeated:
    /// the leases expire. Reports wait for servers that do not answer.
    pub(super) fn end_what_was_seen(&mut self, queue: &NatsTransport) -> Result<()> {
        self.take_acks(queue)?;
        let ended = self.sighted(|sight| std::mem::take(&mut sight.ended));
        for GoneAgent { agent, why, .. } in ended {
            let leases = held_by(&agent, queue)?;
            let recorder = Arc::clone(&self.recorder);
            let mut hands = self.board.hands(&*recorder);
            let others: &mut [&mut dyn HoldingSource] = &mut [&mut hands];
            let returned = return_all(&agent, &why, &leases, queue, others, &*recorder);
            if let Some(alarm) = returned.alarm(&agent, &why) {
                self.waker.wake(LoopWake::Team(ServerNews::Gone(alarm)));
            }
        }
        self.end_reported(queue)
    }

    fn end_reported(&mut self, queue: &NatsTransport) -> Result<()> {
        let mut reports = self.sighted(|sight| std::mem::take(&mut sight.reports)).into_iter();
        while let Some(report) = reports.next() {
            let EndingReport { task, author, written_at, attempt } = &report;
            let (written_at, attempt) = (Some(*written_at), *attempt);
            self.acked.remove(task);
            let ends = self.project.task_ends();
            let named = ends.meant_task(queue, task, author);
            let task = &named.unwrap_or_else(|_| task.clone());
            let end = TaskEnd { task, author, written_at, attempt, only_in: None };
            match ends.settle_reported(queue, &end, &*self.recorder) {
                Err(error) if error.is_transient() => {
                    let kept: Vec<EndingReport> = std::iter::once(report).chain(reports).collect();
                    self.sighted(|sight| drop(sight.reports.splice(..0, kept)));
                    return Err(error);
                }
                Err(error) => tracing::warn!(%error, %task, "cannot settle a reported task"),
                Ok(_) => {}
            }
        }
        Ok(())
    }

    /// Receives the messages of tasks that workers have read by `ack/` files, and settles them after their reports.
    fn take_acks(&mut self, queue: &NatsTransport) -> Result<()> {
        let (acks, unsigned) = self.sighted(|sight| {
            (std::mem::take(&mut sight.acks), std::mem::take(&mut sight.unsigned))
        });
        for AckFile { task, content } in acks {
            let lease = match routing::acknowledge(&content, &task, queue) {
                Ok(acked) => acked,
                Err(error) if error.is_transient() => {
                    self.sighted(|sight| sight.acks.push(AckFile { task, content }));
                    return Err(error);
                }
                Err(error) => {
                    tracing::warn!(%error, %task, "cannot receive an acked task");
                    continue;
                }
            };
            let data = json!({ "task_id": task, "lease": lease.as_ref().map(ToString::to_string) });
            self.recorder.record(types::ACK_RECEIVED, ACTOR, data);
            if let Some(lease) = lease {
                self.acked.insert(task, lease);
            }
        }
        for task in unsigned {
            let Some(lease) = self.acked.remove(&task) else { continue };
            match routing::settle_acked(&lease, queue) {
                Ok(_) | Err(Error::LeaseLost { .. }) => {}
                Err(error) => tracing::warn!(%error, "cannot settle a reported task"),
            }
        }
        Ok(())
    }
}
