//! Steps: an epoch is one hand-out, and the records of the highest one decide.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{DifferenceKind, DiskState, RecordPlace, ReplayDifference, difference, number};
use ensemble_core::event_log::{Record, types};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StepTrail {
    epoch: u64,
    status: Option<&'static str>,
    last: RecordPlace,
}

impl StepTrail {
    pub(super) fn apply_record(&mut self, record: &Record) {
        let epoch = number(record, "epoch");
        let status = match record.kind.as_str() {
            types::STEP_TAKEN => "IN_PROGRESS",
            types::STEP_COMPLETED | types::STEP_SKIPPED | types::STEP_SPLIT => "COMPLETED",
            types::STEP_FAILED => "FAILED",
            types::STEP_BLOCKED => "BLOCKED",
            types::STEP_LEASE_ENDED => match record.data.get("stopped").and_then(Value::as_bool) {
                Some(true) => "FAILED",
                _ => "PENDING",
            },
            types::STEP_RETRIED | types::STEP_UNBLOCKED => "PENDING",
            // Prompts, refusals and failed notices change nothing.
            _ => return,
        };
        let is_old = epoch.is_some_and(|epoch| epoch < self.epoch);
        // The record of taking a step may follow the record of its outcome.
        let is_taken = record.kind.as_str() == types::STEP_TAKEN;
        let is_late = is_taken && epoch == Some(self.epoch) && self.status.is_some();
        if is_old || is_late {
            return;
        }
        (self.epoch, self.status) = (epoch.unwrap_or(self.epoch), Some(status));
        self.last = RecordPlace::of(record);
    }
}

pub(super) fn compare(
    trails: &BTreeMap<(String, u64), StepTrail>,
    disk: &DiskState,
    found: &mut Vec<ReplayDifference>,
) {
    let Some(steps) = &disk.steps else { return };
    for ((task, index), trail) in trails {
        let Some(status) = trail.status else { continue };
        let log = format!("{status}, epoch {}", trail.epoch);
        let (kind, is) = match steps.get(&(task.clone(), *index)) {
            None => (DifferenceKind::Contradiction, "not there".to_owned()),
            Some(now) => {
                let is = format!("{}, epoch {}", now.status, now.epoch);
                // A step that was handed out again is in progress or further. The same hand-out may
                // have ended, but does not start again.
                let went_on = now.epoch > trail.epoch
                    || (now.epoch == trail.epoch && is_ahead(status, &now.status));
                let kind = match went_on {
                    true => DifferenceKind::Unrecorded,
                    false => DifferenceKind::Contradiction,
                };
                (kind, is)
            }
        };
        if is != log {
            let id = format!("{task}/{index}");
            let path = format!(".ensemble/steps.db: task_steps {task} {index}");
            found.push(difference(kind, "step", &id, path, (log, is), &trail.last));
        }
    }
}

/// Whether a step of one hand-out can change from one status to the other.
fn is_ahead(from: &str, to: &str) -> bool {
    match from {
        "IN_PROGRESS" => to != "IN_PROGRESS",
        "PENDING" => to == "COMPLETED",
        "FAILED" | "BLOCKED" => matches!(to, "PENDING" | "COMPLETED"),
        _ => false,
    }
}
