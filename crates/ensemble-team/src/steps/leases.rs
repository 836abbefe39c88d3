//! Leases of steps, and the observation that expires them.

use super::db::{row_type, values};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::rows::StepKey;
use super::{DbFailure, StepError, StepStore, working};
use crate::proto::step::State;
use ensemble_core::Result;
use ensemble_core::env::{Monotonic, boot_id};
use ensemble_core::event_log::types;
use ensemble_core::leases::record_seen;
use ensemble_core::message::Name;
use ensemble_core::proto::Machine as _;
use ensemble_core::proto::lease::{Effect, Event, LOOK_INTERVAL, LeaseSnapshot, LeaseWatch};

const ACTOR: &str = "steps";

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct StepLeaseKey {
    step: StepKey,
    epoch: u64,
}

row_type! { StepLeaseKey: step, epoch }

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedSteps {
    pub held: usize,
    /// Steps whose lease has ended: they wait again, or have stopped.
    pub returned: Vec<StepKey>,
    /// Time until the next lease may end; `None` if no step is held.
    pub next_in: Option<Duration>,
}

impl StepStore {
    /// Observes all leases, and returns the steps of workers that gave no sign of life for a whole
    /// lease. Call it every 30 s, and whenever a step has changed.
    ///
    /// The observation is stored under the id of this boot, so short-lived processes observe
    /// together. Signs are never repeated, so a sign that is equal at two observations was
    /// unchanged in between. Time comes from the monotonic clock, which stops while the machine
    /// sleeps. After a boot every lease starts again. Two simultaneous observers see the same, and
    /// the later one's observation is kept. An observation without news writes nothing for
    /// [`LOOK_INTERVAL`], so observers do not wake each other.
    pub fn observe(&self) -> Result<ObservedSteps> {
        let boot_id = boot_id();
        let (leases, snapshot) = self.leases(boot_id)?;
        if leases.is_empty() && snapshot.is_none() {
            return Ok(ObservedSteps::default());
        }
        // Read the clock after the leases: a step that is taken while this observer is suspended
        // must not look older than it is. Later changes are detected before a step is returned.
        let now = self.options.clock.monotonic();
        let is_fresh = |snapshot: &LeaseSnapshot<_>| {
            let taken_at = Duration::from_millis(snapshot.taken_at_ms);
            now.since(Monotonic::from_duration(taken_at)) < LOOK_INTERVAL
        };
        let known = snapshot.as_ref().filter(|it| is_fresh(it)).map(essence);
        let mut watch = match snapshot {
            Some(snapshot) => LeaseWatch::restore(now, boot_id, snapshot),
            None => LeaseWatch::new(now),
        };
        let mut observed = ObservedSteps { held: leases.len(), ..ObservedSteps::default() };
        for (key, sequence, seconds) in leases {
            let duration = Duration::from_secs(seconds);
            watch.handle(now, Event::Seen { key, sequence, duration });
        }
        watch.handle(now, Event::ScanDone);
        while let Some(effect) = watch.poll_effect() {
            match effect {
                Effect::Look => {}
                Effect::Expire { key, sequence } => {
                    if self.expire(&key, sequence)? {
                        observed.returned.push(key.step);
                    }
                }
                Effect::Record(seen) => record_seen(&*self.options.recorder, ACTOR, &seen),
            }
        }
        observed.next_in = watch.poll_timeout().map(|at| at.since(now));
        let snapshot = watch.snapshot(now, boot_id);
        if known != Some(essence(&snapshot)) {
            self.remember(boot_id, &snapshot)?;
        }
        Ok(observed)
    }

    /// Returns the steps of an agent that is known to have exited to their queues. Returns them with their epochs.
    pub fn take_back(&self, agent: &Name) -> Result<Vec<(StepKey, u64)>> {
        let held: Vec<(StepLeaseKey, u64)> = self.read(|tx| {
            tx.all(
                "SELECT task_id, step_index, epoch, beat FROM task_steps WHERE holder = ?1",
                values![agent],
            )
        })?;
        let mut taken = Vec::new();
        for (key, sequence) in held {
            if self.expire(&key, sequence)? {
                taken.push((key.step, key.epoch));
            }
        }
        Ok(taken)
    }

    pub fn leases_of(&self, agent: &Name) -> Result<Vec<(StepKey, u64, Duration)>> {
        let found: Vec<(StepKey, u64, u64)> = self.read(|tx| {
            tx.all(
                "SELECT s.task_id, s.step_index, s.epoch, q.lease_seconds \
                 FROM task_steps s JOIN task_queues q USING (task_id) WHERE s.holder = ?1",
                values![agent],
            )
        })?;
        let lease = |(step, epoch, seconds)| (step, epoch, Duration::from_secs(seconds));
        Ok(found.into_iter().map(lease).collect())
    }

    fn remember(&self, boot_id: &str, snapshot: &LeaseSnapshot<StepLeaseKey>) -> Result<()> {
        let snapshot = serde_json::to_string(snapshot).unwrap_or_default();
        self.write("remember leases in", |tx| Ok(tx.store_observation(boot_id, &snapshot)?))
    }

    /// All leases with their signs and durations in seconds, and what was observed before.
    #[expect(clippy::type_complexity, reason = "three columns and the stored snapshot")]
    fn leases(
        &self,
        boot_id: &str,
    ) -> Result<(Vec<(StepLeaseKey, u64, u64)>, Option<LeaseSnapshot<StepLeaseKey>>)> {
        self.read(|tx| {
            let leases = tx.all(
                "SELECT s.task_id, s.step_index, s.epoch, s.beat, q.lease_seconds \
                 FROM task_steps s JOIN task_queues q USING (task_id) WHERE s.holder IS NOT NULL",
                &[],
            )?;
            let snapshot: Option<String> = tx.first(
                "SELECT snapshot FROM lease_observations WHERE boot_id = ?1",
                values![boot_id],
            )?;
            // Ignore an unreadable snapshot: the observation starts again.
            let snapshot = snapshot.and_then(|text| serde_json::from_str(&text).ok());
            Ok((leases, snapshot))
        })
    }

    fn expire(&self, key: &StepLeaseKey, sequence: u64) -> Result<bool> {
        let expired = self.write("take a step back in", |tx| {
            tx.lock_queue(&key.step.task_id)?;
            let (queue, step, _) = match working::find(tx, &key.step) {
                Err(DbFailure::Told(error)) if error.area().is_some_and(StepError::is_unknown) => {
                    return Ok(None);
                }
                found => found?,
            };
            if step.holder.is_none() || step.epoch != key.epoch || step.beat != sequence {
                return Ok(None);
            }
            self.lease_ended(tx, queue, step).map(Some)
        })?;
        let Some(changed) = expired else { return Ok(false) };
        let data = json!({
            "task_id": key.step.task_id, "step_index": key.step.step_index, "epoch": key.epoch,
            "holder": changed.before.holder,
            "stopped": matches!(changed.step.state(), State::Failed { .. }),
        });
        self.options.recorder.record(types::STEP_LEASE_ENDED, ACTOR, data);
        Ok(true)
    }
}

/// The content of an observation without the elapsed time. Readers add the elapsed time again.
fn essence(snapshot: &LeaseSnapshot<StepLeaseKey>) -> Vec<(StepLeaseKey, u64)> {
    snapshot.leases.iter().map(|lease| (lease.key.clone(), lease.sequence)).collect()
}
