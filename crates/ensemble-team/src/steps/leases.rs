//! Leases of steps, and the observation that expires them.

use super::db::values;
use super::error::is_unknown;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::rows::{self, StepKey};
use super::{DbFailure, StepStore, working};
use crate::proto::step::State;
use ensemble_core::Result;
use ensemble_core::env::{Monotonic, boot_id};
use ensemble_core::event_log::types;
use ensemble_core::leases::record_seen;
use ensemble_core::message::Name;
use ensemble_core::proto::Machine as _;
use ensemble_core::proto::lease::{Effect, Event, LOOK_INTERVAL, LeaseSnapshot, LeaseWatch};

/// Actor recorded when a lease ends.
const ACTOR: &str = "steps";

/// Identity of a lease for the observer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct StepLeaseKey {
    step: StepKey,
    epoch: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedSteps {
    /// Number of steps that workers hold.
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
        for (key, sequence, duration) in leases {
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
        let held = self.read(|tx| {
            tx.all(
                "SELECT task_id, step_index, epoch, beat FROM task_steps WHERE holder = ?1",
                values![agent.as_str()],
                |row| {
                    let step = StepKey { task_id: row.get(0)?, step_index: row.get(1)? };
                    Ok((StepLeaseKey { step, epoch: rows::number(row, 2)? }, rows::number(row, 3)?))
                },
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

    /// The leases of an agent's steps, with their durations.
    pub fn leases_of(&self, agent: &Name) -> Result<Vec<(StepKey, u64, Duration)>> {
        self.read(|tx| {
            tx.all(
                "SELECT s.task_id, s.step_index, s.epoch, q.lease_seconds \
                 FROM task_steps s JOIN task_queues q USING (task_id) WHERE s.holder = ?1",
                values![agent.as_str()],
                |row| {
                    let step = StepKey { task_id: row.get(0)?, step_index: row.get(1)? };
                    let duration = Duration::from_secs(rows::number(row, 3)?);
                    Ok((step, rows::number(row, 2)?, duration))
                },
            )
        })
    }

    fn remember(&self, boot_id: &str, snapshot: &LeaseSnapshot<StepLeaseKey>) -> Result<()> {
        let snapshot = serde_json::to_string(snapshot).unwrap_or_default();
        self.write("remember leases in", |tx| {
            tx.store_observation(boot_id, &snapshot)?;
            Ok(())
        })
    }

    #[expect(clippy::type_complexity, reason = "three columns and the stored snapshot")]
    fn leases(
        &self,
        boot_id: &str,
    ) -> Result<(Vec<(StepLeaseKey, u64, Duration)>, Option<LeaseSnapshot<StepLeaseKey>>)> {
        self.read(|tx| {
            let leases = tx.all(
                "SELECT s.task_id, s.step_index, s.epoch, s.beat, q.lease_seconds \
                 FROM task_steps s JOIN task_queues q USING (task_id) WHERE s.holder IS NOT NULL",
                &[],
                |row| {
                    let step = StepKey { task_id: row.get(0)?, step_index: row.get(1)? };
                    let key = StepLeaseKey { step, epoch: rows::number(row, 2)? };
                    let duration = Duration::from_secs(rows::number(row, 4)?);
                    Ok((key, rows::number(row, 3)?, duration))
                },
            )?;
            let snapshot: Option<String> = tx.first(
                "SELECT snapshot FROM lease_observations WHERE boot_id = ?1",
                values![boot_id],
                |row| row.get(0),
            )?;
            // Ignore an unreadable snapshot: the observation starts again.
            let snapshot = snapshot.and_then(|text| serde_json::from_str(&text).ok());
            Ok((leases, snapshot))
        })
    }

    /// Returns a step to its queue if it is still the observed one.
    fn expire(&self, key: &StepLeaseKey, sequence: u64) -> Result<bool> {
        let now = self.stamp();
        let expired = self.write("take a step back in", |tx| {
            tx.lock_queue(&key.step.task_id)?;
            let (queue, step, _) = match working::find(tx, &key.step) {
                Err(DbFailure::Told(error)) if is_unknown(&error) => return Ok(None),
                found => found?,
            };
            if step.holder.is_none() || step.epoch != key.epoch || step.beat != sequence {
                return Ok(None);
            }
            self.lease_ended(tx, queue, step, &now).map(Some)
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::{ClaimOutcome, ClaimRequest, StepOptions, StepPlan};
    use super::*;

    #[test]
    fn steps_of_an_agent_that_has_ended_wait_again_at_once() {
        let home = tempfile::tempdir().unwrap();
        let options = StepOptions::new(home.path());
        let store = StepStore::open(&home.path().join("steps.db"), options).unwrap();
        for plan in [
            "{task_id: t-1, lease_seconds: 900, steps: [{agent: Devon, goal: g}]}",
            "{task_id: t-2, steps: [{agent: Tara, goal: g}]}",
        ] {
            store.add(&StepPlan::parse(plan, Path::new("plan.yaml")).unwrap()).unwrap();
        }
        let name = |name: &str| Name::new(name).unwrap();
        let take = |agent: &str| match store.claim_step(&ClaimRequest::of(name(agent))).unwrap() {
            ClaimOutcome::Handed(handed) => (handed.key, handed.epoch),
            ClaimOutcome::Nothing(nothing) => panic!("{nothing:?}"),
        };
        let (first, other) = (take("Devon"), take("Tara"));
        let leases = store.leases_of(&name("Devon")).unwrap();
        assert_eq!(leases, [(first.0.clone(), first.1, Duration::from_secs(900))]);
        let taken = store.take_back(&name("Devon")).unwrap();
        assert_eq!(taken, std::slice::from_ref(&first));
        assert_eq!(store.take_back(&name("Devon")).unwrap(), []);
        assert_eq!(store.step(&other.0).unwrap().status, "IN_PROGRESS");
        // The old holder is fenced; the attempt counts.
        assert!(store.beat(&first.0, &name("Devon"), Some(first.1)).is_err());
        assert_eq!(take("Devon"), (first.0, first.1 + 1));
    }
}
