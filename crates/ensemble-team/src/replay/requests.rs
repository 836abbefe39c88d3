//! Requests: one question, one decision.

use std::collections::BTreeMap;

use super::{DifferenceKind, DiskState, RecordPlace, ReplayDifference, difference, text};
use ensemble_core::event_log::{Record, types};

/// State of one request according to the log. A repeated record changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestTrail {
    is_opened: bool,
    outcome: Option<String>,
    by: Option<String>,
    /// An invalid decision was moved aside since, so the request is open again.
    last: RecordPlace,
}

impl RequestTrail {
    pub(super) fn apply_record(&mut self, record: &Record) {
        match record.kind.as_str() {
            types::REQUEST_OPENED => self.is_opened = true,
            types::REQUEST_DECIDED | types::REQUEST_EXPIRED | types::REQUEST_CANCELLED => {
                self.outcome = text(record, "outcome").map(str::to_owned);
                self.by = text(record, "by").map(str::to_owned);
            }
            _ => return,
        }
        self.last = RecordPlace::of(record);
    }

    fn words(&self) -> String {
        match (&self.outcome, &self.by, self.is_opened) {
            (Some(outcome), by, _) => words(outcome, by.as_deref()),
            (None, _, true) => "pending".to_owned(),
            (None, _, false) => "nothing".to_owned(),
        }
    }
}

fn words(outcome: &str, by: Option<&str>) -> String {
    by.map_or_else(|| outcome.to_owned(), |by| format!("{outcome} by {by}"))
}

pub(super) fn compare(
    trails: &BTreeMap<String, RequestTrail>,
    disk: &DiskState,
    found: &mut Vec<ReplayDifference>,
) {
    use DifferenceKind::{Contradiction, Unrecorded};
    let mut tell = |kind, id: &str, sides: (String, String), last: &RecordPlace| {
        let path = format!("queue/requests/{id}");
        found.push(difference(kind, "request", id, path, sides, last));
    };
    for (id, trail) in trails {
        let told = trail.words();
        match (disk.requests.get(id), &trail.outcome) {
            // The log may have only the refusal, and the sweep removes decided requests after a
            // month.
            (None, Some(_)) => {}
            (None, None) if !trail.is_opened => {}
            (None, None) => tell(Contradiction, id, (told, "not there".to_owned()), &trail.last),
            (Some(now), outcome) => {
                let is = words(&now.state, now.by.as_deref());
                let kind = match outcome {
                    None if now.state == "pending" => continue,
                    Some(_) if is == told => continue,
                    None => Unrecorded,
                    Some(_) => Contradiction,
                };
                tell(kind, id, (told, is), &trail.last);
            }
        }
    }
    for (id, now) in disk.requests.iter().filter(|(id, _)| !trails.contains_key(*id)) {
        let is = words(&now.state, now.by.as_deref());
        tell(Unrecorded, id, ("nothing".to_owned(), is), &RecordPlace::default());
    }
}
