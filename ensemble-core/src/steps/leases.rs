//! Leases of steps, watched by whoever looks.

use std::time::Duration;

use rusqlite::{OptionalExtension as _, params};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::rows::{self, StepKey};
use super::{StepStore, Trouble, working};
use crate::proto::Machine as _;
use crate::proto::lease::{Effect, Event, LeaseWatch, Record, Snapshot};
use crate::proto::step::State;
use crate::{Error, Result};

/// Who acts when a lease ends.
const ACTOR: &str = "steps";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A lease as the observer tells it from others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Key {
    step: StepKey,
    epoch: u64,
}

/// What a look has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Observed {
    /// Steps that somebody works on.
    pub held: usize,
    /// Steps whose lease has ended: they wait again, or have stopped.
    pub returned: Vec<StepKey>,
    /// When the next lease may end at the earliest, from now; `None` if there is none.
    pub next_in: Option<Duration>,
}

impl StepStore {
    /// Looks at all leases, and takes back the steps of workers that have shown no sign of life for
    /// as long as their lease runs. Call it every 30 s, or whenever something is done.
    ///
    /// What was seen is kept under the id of this boot, so short-lived processes observe together: a
    /// sign that is the same at two looks was the same in between, since none is ever repeated. Time
    /// is that of the monotonic clock, which stands still while the machine sleeps. After a boot
    /// everybody begins a new lease. Two that look at the same moment see the same: the later one's
    /// view is kept. A look that sees nothing new writes nothing, so observers do not wake each other.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub fn observe(&self) -> Result<Observed> {
        let boot_id = std::fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned();
        let (leases, snapshot) = self.leases(&boot_id)?;
        if leases.is_empty() && snapshot.is_none() {
            return Ok(Observed::default());
        }
        // After they were read: a step that is taken while this observer stands still must not look
        // older than it is. What changes from now on is noticed before anything is taken back.
        let now = self.options.clock.monotonic();
        let known = snapshot.as_ref().map(essence);
        let mut watch = match snapshot {
            Some(snapshot) => LeaseWatch::restore(now, &boot_id, snapshot),
            None => LeaseWatch::new(now),
        };
        let mut observed = Observed { held: leases.len(), ..Observed::default() };
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
                Effect::Record(Record::MassExpiry { late, of }) => {
                    let data = json!({ "late": late, "of": of });
                    self.options.recorder.record("lease.mass_expiry", ACTOR, data);
                }
                Effect::Record(other) => {
                    self.options.recorder.record("lease.noted", ACTOR, json!({ "what": other }));
                }
            }
        }
        observed.next_in = watch.poll_timeout().map(|at| at.since(now));
        let snapshot = watch.snapshot(now, &boot_id);
        if known != Some(essence(&snapshot)) {
            self.remember(&boot_id, &snapshot)?;
        }
        Ok(observed)
    }

    fn remember(&self, boot_id: &str, snapshot: &Snapshot<Key>) -> Result<()> {
        let snapshot = serde_json::to_string(snapshot).unwrap_or_default();
        self.write("remember leases in", |tx| {
            tx.prepare_cached("DELETE FROM lease_observations WHERE boot_id <> ?1")?
                .execute([boot_id])?;
            tx.prepare_cached(
                "INSERT INTO lease_observations (boot_id, snapshot) VALUES (?1, ?2) \
                 ON CONFLICT (boot_id) DO UPDATE SET snapshot = excluded.snapshot",
            )?
            .execute(params![boot_id, snapshot])?;
            Ok(())
        })
    }

    #[expect(clippy::type_complexity, reason = "three columns and what is beside them")]
    fn leases(&self, boot_id: &str) -> Result<(Vec<(Key, u64, Duration)>, Option<Snapshot<Key>>)> {
        self.read(|tx| {
            let mut held = tx.prepare_cached(
                "SELECT s.task_id, s.step_index, s.epoch, s.beat, q.lease_seconds \
                 FROM task_steps s JOIN task_queues q USING (task_id) WHERE s.holder IS NOT NULL",
            )?;
            let leases = held
                .query_map([], |row| {
                    let step = StepKey { task_id: row.get(0)?, step_index: row.get(1)? };
                    let key = Key { step, epoch: rows::number(row, 2)? };
                    let duration = Duration::from_secs(rows::number(row, 4)?);
                    Ok((key, rows::number(row, 3)?, duration))
                })?
                .collect::<rusqlite::Result<Vec<_>>>()?;
            let snapshot: Option<String> = tx
                .prepare_cached("SELECT snapshot FROM lease_observations WHERE boot_id = ?1")?
                .query_row([boot_id], |row| row.get(0))
                .optional()?;
            // One that cannot be read is worth nothing: the observation begins anew.
            let snapshot = snapshot.and_then(|text| serde_json::from_str(&text).ok());
            Ok((leases, snapshot))
        })
    }

    /// Takes a step back if it is still the one that was observed.
    fn expire(&self, key: &Key, sequence: u64) -> Result<bool> {
        let now = self.stamp();
        let expired = self.write("take a step back in", |tx| {
            let (queue, step, _) = match working::find(tx, &key.step) {
                Err(Trouble::Told(Error::NoStep { .. })) => return Ok(None),
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
        self.options.recorder.record("step.lease_ended", ACTOR, data);
        Ok(true)
    }
}

/// What an observation says, without the time that has passed since: that is counted again whenever it is
/// read, as the rest of a hold is.
fn essence(snapshot: &Snapshot<Key>) -> (Vec<(Key, u64)>, bool) {
    let leases = snapshot.leases.iter().map(|lease| (lease.key.clone(), lease.sequence)).collect();
    (leases, snapshot.hold_ms > 0)
}
