//! The end of work that is on the servers: what ended agents held, tasks with reports, and `ack/` files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ensemble_core::broker::{Broker, TaskEnd};
use ensemble_core::document::{read_json, write_json};
use ensemble_core::env::{Clock as _, Lease, Monotonic, SystemClock};
use ensemble_core::event_log::types;
use ensemble_core::{Error, Result};
use ensemble_nats::NatsTransport;
use serde_json::json;

use super::ServerFollower;
use super::log::make_directory;
use crate::held_work::{GoneAgent, held_by, return_all};
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
        let leases = read_json(path, LEASES_BYTES_MAX).ok().flatten().unwrap_or_default();
        Self { path: path.to_owned(), leases }
    }

    fn insert(&mut self, task: String, lease: Lease) {
        while self.leases.len() >= TASKS_MAX {
            self.leases.pop_first();
        }
        self.leases.insert(task, lease);
        self.write();
    }

    fn remove(&mut self, task: &str) {
        if self.leases.remove(task).is_some() {
            self.write();
        }
    }

    /// Settles what was received for a task.
    ///
    /// # Errors
    /// It may be tried again, and the lease is still known.
    fn settle(&mut self, task: &str, queue: &dyn Broker) -> Result<()> {
        let Some(lease) = self.leases.get(task) else { return Ok(()) };
        match routing::settle_acked(lease, queue) {
            Err(error) if error.is_transient() => return Err(error),
            Ok(_) | Err(Error::LeaseLost { .. }) => {}
            Err(error) => tracing::warn!(%error, "cannot settle a reported task"),
        }
        self.remove(task);
        Ok(())
    }

    /// A file that cannot be written costs a later watcher the leases, which then expire.
    fn write(&self) {
        let made = make_directory(self.path.parent());
        if let Err(error) = made.and_then(|()| write_json(&self.path, &self.leases)) {
            tracing::warn!(%error, "cannot keep the acked tasks");
        }
    }
}

impl ServerFollower {
    pub(super) fn look_at_board(
        &mut self,
        now: Monotonic,
        queue: &Arc<NatsTransport>,
    ) -> Result<()> {
        let working = self.sighted(|sight| sight.working.clone());
        self.board.do_due_work(now, queue, (&working, &mut self.kept))
    }

    /// Returns what ended agents hold, and settles the tasks of routed reports. Both wait for servers that do not answer.
    /// A return that fails otherwise is not repeated: the leases expire.
    pub(super) fn end_what_was_seen(&mut self, queue: &NatsTransport) -> Result<()> {
        self.take_acks(queue)?;
        while let Some(gone) = self.sighted(|sight| sight.ended.pop()) {
            let leases = match held_by(&gone.agent, queue) {
                Err(error) if error.is_transient() => {
                    self.sighted(|sight| sight.ended.push(gone));
                    return Err(error);
                }
                held => held?,
            };
            let GoneAgent { agent, why, .. } = gone;
            let recorder = &*self.context.recorder;
            let take_others = || self.board.take_back(&agent);
            let returned = return_all(&agent, &why, &leases, queue, take_others, recorder);
            if let Some(alarm) = returned.alarm(&agent, &why) {
                self.waker.wake(LoopWake::Team(ServerNews::Gone(alarm)));
            }
        }
        self.end_reported(queue)
    }

    fn end_reported(&mut self, queue: &NatsTransport) -> Result<()> {
        while let Some(report) = self.sighted(|sight| sight.reports.first().cloned()) {
            let EndingReport { task, author, written_at, attempt } = &report;
            let (written_at, attempt) = (Some(*written_at), *attempt);
            self.acked.remove(task);
            let ends = self.context.project.task_ends();
            let named = ends.meant_task(queue, task, author);
            let task = &named.unwrap_or_else(|_| task.clone());
            let end = TaskEnd { task, author, written_at, attempt, only_in: None };
            match ends.settle_reported(queue, &end, &*self.context.recorder) {
                Err(error) if error.is_transient() => return Err(error),
                Err(error) => tracing::warn!(%error, %task, "cannot settle a reported task"),
                Ok(_) => {}
            }
            self.sighted(|sight| drop(sight.reports.remove(0)));
        }
        Ok(())
    }

    /// Receives the messages of tasks that workers have read by `ack/` files, and settles them after their reports.
    fn take_acks(&mut self, queue: &NatsTransport) -> Result<()> {
        let mut at = 0;
        while let Some(ack) = self.sighted(|sight| sight.acks.get(at).cloned()) {
            let waits = match routing::acknowledge(&ack.file.content, &ack.task, queue) {
                Ok(lease) => self.note_acked(&ack, lease),
                Err(error) if error.is_transient() => return Err(error),
                Err(error) => {
                    tracing::warn!(%error, task = %ack.task, "cannot receive its task");
                    false
                }
            };
            self.sighted(|sight| match waits {
                true => sight.acks[at].is_recorded = true,
                false => drop(sight.acks.remove(at)),
            });
            at += usize::from(waits);
        }
        while let Some(task) = self.sighted(|sight| sight.unsigned.last().cloned()) {
            self.acked.settle(&task, queue)?;
            self.sighted(|sight| sight.unsigned.retain(|it| *it != task));
        }
        Ok(())
    }

    /// An ack without an open task waits for it, as in a directory. Returns whether it does.
    fn note_acked(&mut self, ack: &AckFile, lease: Option<Lease>) -> bool {
        if lease.is_some() || !ack.is_recorded {
            let lease = lease.as_ref().map(ToString::to_string);
            let data = json!({ "task_id": ack.task, "lease": lease });
            self.context.record(types::ACK_RECEIVED, data);
        }
        match lease {
            Some(lease) => self.acked.insert(ack.task.clone(), lease),
            None if self.acked.leases.contains_key(&ack.task) => {}
            None if ack.may_wait(SystemClock.monotonic()) => return true,
            None => self.waker.wake(LoopWake::Team(ServerNews::UnfitAck(Box::new(ack.clone())))),
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use ensemble_core::durable::Dir;
    use ensemble_core::message::{Envelope, MessageId, Name};
    use ensemble_core::spool::{Admission, Spool, SpoolOptions};

    use super::*;

    #[derive(Debug)]
    struct AbsentServers(AtomicBool);

    impl Admission for AbsentServers {
        fn concerns(&self, _: &Dir, _: &Name) -> Result<bool> {
            Ok(false)
        }

        fn refusal(&self, _: &Dir, _: &Name, _: &Envelope) -> Result<Option<Error>> {
            Ok(None)
        }

        fn unfinished(&self, _: &Dir, _: &MessageId) -> Result<Option<Error>> {
            let (server, detail) = ("nats".to_owned(), "away".to_owned());
            let away = Error::Server { operation: "settle", server, detail, unreachable: true };
            if self.0.load(Ordering::SeqCst) { Err(away) } else { Ok(None) }
        }
    }

    #[test]
    fn an_acked_task_is_settled_once_the_servers_are_back() {
        let home = tempfile::tempdir().unwrap();
        let servers = Arc::new(AbsentServers(AtomicBool::new(true)));
        let admission: Arc<dyn Admission> = Arc::<AbsentServers>::clone(&servers);
        let options = SpoolOptions { admission: Some(admission), ..SpoolOptions::default() };
        let spool = Spool::create(&home.path().join("queue"), options).unwrap();
        let worker = Name::new("w1").unwrap();
        spool.add_mailbox(&worker, &Default::default()).unwrap();
        spool.publish(&Envelope::new(worker.clone(), "do it")).unwrap();
        let lease = spool.receive(&worker, &worker).unwrap().unwrap().lease;
        let mut acked = AckedTasks::open(&home.path().join("acked.json"));
        acked.insert("t".to_owned(), lease);
        assert!(acked.settle("t", &spool).unwrap_err().is_transient());
        servers.0.store(false, Ordering::SeqCst);
        acked.settle("t", &spool).unwrap();
        let counts = spool.counts(&worker).unwrap();
        assert_eq!((counts.settled, acked.leases.len()), (1, 0));
    }
}
