//! Finds tasks that were settled although their plan was not approved, and notifies their reviewers.
//!
//! ```text
//! no gates in the queue            nothing is read
//! a mailbox whose done/ changed    the messages that came there since the last look are compared with the gates
//! ```
//!
//! The commands refuse to settle such a task. A worker in shell settles by `mv`, and nothing asks it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, SystemTime};

use ensemble_core::durable::Dir;
use ensemble_core::env::Monotonic;
use ensemble_core::mailboxes::visit_all_mailboxes;
use ensemble_core::message::{MessageId, Name, Timestamp};
use ensemble_core::requests::Requests;
use ensemble_core::spool::Spool;
use ensemble_core::{Result, allow_missing};

const INTERVAL_MAX: Duration = Duration::from_secs(5);

pub(crate) struct UnplannedTasks {
    next: Monotonic,
    interval: Duration,
    mailboxes: BTreeMap<Name, SettledMail>,
}

#[derive(Default)]
struct SettledMail {
    changed: Option<SystemTime>,
    files: BTreeSet<String>,
}

impl UnplannedTasks {
    pub(crate) fn new(now: Monotonic, poll_interval: Duration) -> Self {
        let interval = poll_interval.min(INTERVAL_MAX);
        Self { next: now, interval, mailboxes: BTreeMap::new() }
    }

    pub(crate) const fn next_timeout(&self) -> Monotonic {
        self.next
    }

    pub(crate) fn drive(&mut self, now: Monotonic, spool: &Spool) {
        if now < self.next {
            return;
        }
        self.next = now + self.interval;
        if let Err(error) = self.find_unplanned(spool) {
            tracing::warn!(%error, "cannot compare settled tasks with their plans");
        }
    }

    fn find_unplanned(&mut self, spool: &Spool) -> Result<()> {
        let Some(oldest_gate) = oldest_file(&spool.root().join("gates"))? else {
            // Without gates, no task can have bypassed one.
            self.mailboxes.clear();
            return Ok(());
        };
        visit_all_mailboxes(spool.mailboxes()?, |mailbox| {
            let done = spool.root().join("mailbox").join(mailbox.as_str()).join("done");
            let changed = std::fs::metadata(&done).and_then(|data| data.modified()).ok();
            let known = self.mailboxes.entry(mailbox.clone()).or_default();
            if changed.is_none() || known.changed == changed {
                return Ok(());
            }
            let done = Dir::open(&done)?;
            let settled: BTreeSet<String> = done.names()?.into_iter().collect();
            for file in settled.difference(&known.files) {
                let Some(stat) = done.stat(file)?.filter(|it| it.changed_ns >= oldest_gate) else {
                    continue;
                };
                let Ok(id) = MessageId::new(file.trim_end_matches(".yaml")) else { continue };
                // It may be damaged, or gone by now.
                let Ok(envelope) = spool.peek(mailbox, &id) else { continue };
                let at = i64::try_from(stat.changed_ns / 1_000_000).unwrap_or(i64::MAX);
                let at = Timestamp::from_unix_millis(at);
                Requests::new(spool).report_unplanned(&envelope, mailbox, at)?;
            }
            *known = SettledMail { changed, files: settled };
            Ok(())
        })
    }
}

/// When the oldest file of a directory was changed, in nanoseconds; `None` if there is none.
fn oldest_file(path: &Path) -> Result<Option<i128>> {
    let Some(dir) = allow_missing(Dir::open(path))? else { return Ok(None) };
    let mut oldest = None;
    for file in dir.names()? {
        let changed = dir.stat(&file)?.map(|stat| stat.changed_ns);
        oldest = oldest.into_iter().chain(changed).min();
    }
    Ok(oldest)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ensemble_core::message::Envelope;
    use ensemble_core::sim::SimClock;
    use ensemble_core::spool::SpoolOptions;

    use super::*;

    #[test]
    fn a_mailbox_that_cannot_be_read_hides_no_task_without_a_plan() {
        let home = tempfile::tempdir().unwrap();
        let clock = Arc::new(SimClock::new(Timestamp::from_unix_millis(1)));
        let options = SpoolOptions { clock, ..SpoolOptions::default() };
        let spool = Spool::create(&home.path().join("queue"), options).unwrap();
        let [bad, worker, lead] = ["bad", "worker", "lead"].map(|name| Name::new(name).unwrap());
        for mailbox in [&bad, &worker, &lead] {
            spool.add_mailbox(mailbox, &Default::default()).unwrap();
        }
        let mailboxes = spool.root().join("mailbox");
        std::fs::remove_dir(mailboxes.join("bad/done")).unwrap();
        std::fs::write(mailboxes.join("bad/done"), "").unwrap();
        Requests::new(&spool).demand_plan("t", &lead).unwrap();
        let task = Envelope::new(worker, "do it").with_kind(Name::new("task").unwrap());
        let task = task.with_task("t").with_id(MessageId::new("m").unwrap());
        spool.publish(&task).unwrap();
        let worker = mailboxes.join("worker");
        std::fs::rename(worker.join("new/m.yaml"), worker.join("done/m.yaml")).unwrap();
        UnplannedTasks::new(Monotonic::ZERO, INTERVAL_MAX).drive(Monotonic::ZERO, &spool);
        assert_eq!(spool.counts(&lead).unwrap().queued, 1);
    }
}
