//! Which leases are extended for their holders, when, and until when.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ensemble_core::Error;
use ensemble_core::broker::Broker;
use ensemble_core::document::{read_json, write_json};
use ensemble_core::env::{self, Lease, Monotonic};
use ensemble_core::event_log::{Recorder, types};
use ensemble_core::message::Name;
use ensemble_project::status::ACTOR;
use ensemble_team::steps::StepStore;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::WorkingAgents;

/// How long a lease is known beyond twice its duration, after its holder was last seen working.
const FORGET_AFTER: Duration = Duration::from_secs(60);
/// How long what an earlier watcher has noted is kept for leases that are not seen again.
const REMEMBER_MAX: Duration = Duration::from_secs(60 * 60);
/// The largest file of an earlier watcher that is read, in bytes.
const REMEMBERED_BYTES_MAX: usize = 4 * 1024 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
struct KeptLease {
    holder: Name,
    evidence: String,
    since: Monotonic,
    /// When it was extended last, and for how long.
    last: Monotonic,
    seen: Monotonic,
    duration: Duration,
    is_over: bool,
    /// When it is to be extended next; `None` once its holder was not seen working with it at that time.
    next: Option<Monotonic>,
}

impl KeptLease {
    /// The holder was seen working: half of the duration after the last time it is extended again.
    fn await_next(&mut self) {
        let half = (self.duration / 2).max(Duration::from_secs(1));
        self.next = (!self.is_over).then(|| self.last + half);
    }
}

/// The leases that are kept, by a text that names kind, subject and epoch.
#[derive(Debug)]
pub(crate) struct KeptLeases {
    kept: BTreeMap<String, KeptLease>,
    /// Seconds for which leases were kept by an earlier watcher of this boot.
    remembered: BTreeMap<String, u64>,
    extend_max: Duration,
    opened: Monotonic,
    file: PathBuf,
    is_changed: bool,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct LeaseMemory {
    boot_id: String,
    kept: BTreeMap<String, u64>,
}

impl KeptLeases {
    /// Continues where a watcher of this boot with the same file has stopped.
    pub(crate) fn open(now: Monotonic, file: &Path, extend_max: Duration) -> Self {
        let remembered = read_json::<LeaseMemory>(file, REMEMBERED_BYTES_MAX)
            .ok()
            .flatten()
            .filter(|content| !content.boot_id.is_empty() && content.boot_id == env::boot_id())
            .map(|content| content.kept)
            .unwrap_or_default();
        let file = file.to_owned();
        Self { kept: BTreeMap::new(), remembered, extend_max, opened: now, file, is_changed: false }
    }

    /// Whether to extend a lease now: half of it has passed, and the ceiling is not reached.
    pub(crate) fn is_due(
        &mut self,
        now: Monotonic,
        (lease, holder): (&str, &Name),
        evidence: &str,
        duration: Duration,
        recorder: &dyn Recorder,
    ) -> bool {
        if self.extend_max.is_zero() {
            return false;
        }
        let data = |kept: Duration| json!({ "agent": holder, "lease": lease, "evidence": evidence, "kept_seconds": kept.as_secs() });
        if let Some(kept) = self.kept.get_mut(lease) {
            (kept.evidence, kept.duration, kept.seen) = (evidence.to_owned(), duration, now);
            let is_due = !kept.is_over && now >= kept.last + duration / 2;
            let so_far = now.since(kept.since);
            kept.is_over |= is_due && so_far >= self.extend_max;
            let is_extended = is_due && !kept.is_over;
            if is_extended {
                kept.last = now;
                self.is_changed = true;
            } else if is_due {
                recorder.record(types::LEASE_KEPT_ENOUGH, ACTOR, data(so_far));
            }
            kept.await_next();
            return is_extended;
        }
        let before = Duration::from_secs(self.remembered.remove(lease).unwrap_or(0));
        let since = Monotonic::from_duration(now.as_duration().saturating_sub(before));
        let mut kept = KeptLease {
            holder: holder.clone(),
            evidence: evidence.to_owned(),
            since,
            last: now,
            seen: now,
            duration,
            is_over: now.since(since) >= self.extend_max,
            next: None,
        };
        kept.await_next();
        let is_due = !kept.is_over;
        if before.is_zero() {
            recorder.record(types::LEASE_KEPT, ACTOR, data(before));
        }
        self.kept.insert(lease.to_owned(), kept);
        self.is_changed = true;
        is_due
    }

    /// Forgets leases that have ended: their holders were not seen working with them for twice their duration.
    fn forget_old(&mut self, now: Monotonic) {
        let before = self.kept.len();
        self.kept.retain(|_, kept| now.since(kept.seen) <= kept.duration * 2 + FORGET_AFTER);
        self.is_changed |= self.kept.len() != before;
        if !self.remembered.is_empty() && now.since(self.opened) > REMEMBER_MAX {
            self.remembered.clear();
            self.is_changed = true;
        }
    }

    /// When an extended lease is to be checked again; `None` if none is kept.
    pub(crate) fn next_timeout(&self) -> Option<Monotonic> {
        self.kept.values().filter_map(|kept| kept.next).min()
    }

    /// Ends a scan of all leases, and writes what a later watcher needs, if it has changed.
    pub(crate) fn remember(&mut self, now: Monotonic) {
        self.forget_old(now);
        // It is not held any more, or its holder rests: no reason to look at once again.
        for kept in self.kept.values_mut() {
            kept.next = kept.next.filter(|at| *at > now);
        }
        if !std::mem::take(&mut self.is_changed) {
            return;
        }
        let seconds = |kept: &KeptLease| now.since(kept.since).as_secs().max(1);
        let mut kept = self.remembered.clone();
        kept.extend(self.kept.iter().map(|(lease, kept)| (lease.clone(), seconds(kept))));
        let content = LeaseMemory { boot_id: env::boot_id().to_owned(), kept };
        if let Err(error) = write_json(&self.file, &content) {
            // The next scan tries it again.
            self.is_changed = true;
            tracing::warn!(%error, "cannot remember which leases are kept");
        }
    }

    pub(crate) fn summary(&self, now: Monotonic) -> Vec<serde_json::Value> {
        let row = |(lease, kept): (&String, &KeptLease)| {
            json!({
                "agent": kept.holder, "lease": lease, "why": kept.evidence,
                "kept_seconds": now.since(kept.since).as_secs(), "ceiling_reached": kept.is_over,
            })
        };
        self.kept.iter().map(row).collect()
    }
}

pub(crate) fn keep_mail(
    now: Monotonic,
    held: &[(Lease, Duration)],
    working: &WorkingAgents,
    kept: &mut KeptLeases,
    queue: &dyn Broker,
    recorder: &dyn Recorder,
) {
    for (lease, duration) in held {
        let Some(evidence) = working.get(&lease.holder) else { continue };
        let named = format!("mail {lease}");
        if !kept.is_due(now, (&named, &lease.holder), evidence, *duration, recorder) {
            continue;
        }
        match queue.extend(lease, *duration) {
            // It has finished or given it back in the meantime.
            Ok(()) | Err(Error::LeaseLost { .. }) => {}
            Err(error) => tracing::warn!(%error, %lease, "cannot extend a working agent's lease"),
        }
    }
}

pub(crate) fn keep_steps(
    store: &StepStore,
    now: Monotonic,
    working: &WorkingAgents,
    kept: &mut KeptLeases,
    recorder: &dyn Recorder,
) {
    for (agent, evidence) in working {
        for (step, epoch, duration) in store.leases_of(agent).unwrap_or_default() {
            let named = format!("step {}#{}@{epoch}", step.task_id, step.step_index);
            if kept.is_due(now, (&named, agent), evidence, duration, recorder)
                && let Err(error) = store.beat(&step, agent, Some(epoch))
            {
                tracing::warn!(%error, %agent, "cannot renew the step of a working agent");
            }
        }
    }
}
