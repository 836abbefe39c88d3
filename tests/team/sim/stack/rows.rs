//! Counts the visited rows of the machines' tables, and rejects transitions that are in no row.
//!
//! A row has patterns for a machine's state before, the event, the state after, and one effect, all
//! in `Debug` format. `a|b` matches either; `a&b` matches a text that begins with `a` and contains
//! `b`. An empty effect matches anything but a refusal, and `-` matches no effect. Rows are in the
//! order of the table in the machine's module, and there are as many.

use std::fmt::{Debug, Write};

use super::*;

/// Patterns: before, event, after, effect.
type Row = (&'static str, &'static str, &'static str, &'static str);

const OPEN: &str = "Waiting|Inspecting|Opening|Pausing";
const CLIMBING: &str = "Phase|Looking|Waiting";

/// Each machine: its name, its module and its rows.
const MACHINES: [(&str, &str, &[Row]); 7] = [
    ("ready", include_str!("../../../../ensemble-core/src/proto/ready/mod.rs"), READY),
    ("ack", include_str!("../../../../ensemble-core/src/proto/ack/mod.rs"), ACK),
    ("request", include_str!("../../../../ensemble-core/src/proto/request/mod.rs"), REQUEST),
    ("lease", include_str!("../../../../ensemble-core/src/proto/lease/mod.rs"), LEASE),
    ("task", include_str!("../../../../crates/ensemble-team/src/proto/task/mod.rs"), TASK),
    ("step", include_str!("../../../../crates/ensemble-team/src/proto/step/mod.rs"), STEP),
    ("reconcile", include_str!("../../../../ensemble-core/src/proto/reconcile.rs"), RECONCILE),
];

const READY: &[Row] = &[
    ("Idle", "Started", "Waiting", "SendPing"),
    ("Waiting", "SendFailed", "Waiting", ""),
    ("Waiting", "Time", "Inspecting", "Inspect"),
    ("Inspecting", "Inspected", "Opening", "SendOpen"),
    ("Inspecting", "Inspected", "Pausing", "Record"),
    ("Inspecting", "Inspected", "Failed", "Failed"),
    ("Inspecting", "Time", "Pausing|Failed", ""),
    ("Opening", "OpenDone|Time", "Pausing", "Record"),
    ("Pausing", "Time", "Waiting", "SendPing"),
    (OPEN, "Pong", "Ready", "Ready"),
    (OPEN, "Pong", OPEN, "Record"),
    ("Ready|Failed", "", "Ready|Failed", "-"),
];

const ACK: &[Row] = &[
    ("Idle", "Started", "Phase", "Deliver"),
    ("Phase", "Time", "Looking", "Inspect"),
    ("Looking", "Seen(Idle", "Phase", "Nudge"),
    ("Looking", "Seen(Idle", "Escalated", "Escalate"),
    ("Looking", "Seen(Unknown|Time", "Phase|Escalated", ""),
    ("Looking", "Seen(Busy|Seen(Asking|Seen(Limited|Seen(Human", "Waiting", "Record"),
    ("Looking", "Seen", "Escalated", "Escalate"),
    ("Waiting", "Time", "Waiting", "Inspect"),
    ("Waiting", "Seen(Busy|Seen(Asking|Seen(Limited|Seen(Human", "Waiting", ""),
    ("Waiting&Limited", "Seen(Idle|Seen(Unknown", "Waiting", "-"),
    ("Waiting", "Seen(Idle|Seen(Unknown", "Phase", "Nudge"),
    ("Waiting", "Seen|Time", "Escalated", "Escalate"),
    (CLIMBING, "Ack", "Acked", "Acked"),
    (CLIMBING, "Ack", CLIMBING, "Record"),
    (CLIMBING, "Undeliverable", "Escalated", "Escalate"),
    ("Idle|Phase|Looking|Waiting", "Expired", "Expired", ""),
    ("Escalated", "Ack", "Acked", "Record(LateAck"),
];

const REQUEST: &[Row] = &[
    ("New", "Opened", "Pending", "Announce"),
    ("Pending", "Decide", "Pending", "Close"),
    ("Pending", "Decide", "Pending", "Refused"),
    ("Pending", "Cancel", "Pending", "Close"),
    ("Pending", "Cancel", "Pending", "Refused"),
    ("Pending", "Time", "Pending", "Remind"),
    ("Pending", "Time", "Pending", "Close"),
    ("Pending", "Standing", "Closed", "Closed"),
    ("Pending", "Absent", "Pending", "Close"),
    ("New", "Standing", "Closed", "Closed"),
    ("New", "Decide|Cancel", "New", "Refused"),
    ("Closed", "Decide|Cancel", "Closed", "Refused"),
    ("Closed", "Opened|Standing|Absent", "Closed", "-"),
];

const LEASE: &[Row] = &[
    ("absent", "Seen", "Running", ""),
    ("Running", "Seen", "renewed", ""),
    ("Running", "ScanDone", "Expired", ""),
    ("Expired", "Seen", "Running", ""),
    ("Expired", "ScanDone", "Expired", ""),
    ("Running|Expired", "Gone", "absent", ""),
    ("Judging", "ClockGap", "Held", "Record(ClockGap"),
    ("Judging", "ScanDone", "Held", "Record(LateLook"),
    ("Held", "ClockGap", "Held", "-"),
    ("Held", "ScanDone", "Judging", ""),
    ("Held", "ScanDone", "Held", "Expire"),
    ("", "Time", "", "Look"),
];

const TASK: &[Row] = &[
    ("Draft", "Finalize", "Unclaimed", ""),
    ("Unclaimed", "Claim(", "Claimed", "FreshWorktree"),
    ("Rejected", "Claim(", "Claimed", "KeepWorktree"),
    ("Rejected", "Claim(", "Claimed", "FreshWorktree"),
    ("IntegrationFailed", "Claim(", "Claimed", "KeepWorktree"),
    ("Claimed", "Iterate", "Claimed", ""),
    ("Claimed", "Iterate", "Unclaimed|Rejected|IntegrationFailed", "GivenUp"),
    ("Claimed", "Submit", "ReadyForReview", ""),
    ("Claimed", "Expire", "Unclaimed|Rejected|IntegrationFailed", ""),
    ("Claimed", "Block", "Blocked", ""),
    ("ReadyForReview&review: None", "Review", "ReadyForReview", ""),
    ("ReadyForReview", "Expire", "ReadyForReview", ""),
    ("ReadyForReview", "Approve", "Approved", ""),
    ("ReadyForReview", "Reject", "Rejected", ""),
    ("Approved", "Merge", "Merged", ""),
    ("Approved", "FailIntegration", "IntegrationFailed", ""),
    ("Unclaimed|Rejected|IntegrationFailed", "Block(None", "Blocked", ""),
    ("Blocked", "Unblock", "Unclaimed", ""),
    ("Blocked", "Supersede", "Superseded", ""),
    ("Blocked", "Abandon", "Abandoned", ""),
    ("", "", "", "Refused"),
];

const STEP: &[Row] = &[
    ("Pending", "Taken", "InProgress", "Hand"),
    ("Failed&Due", "Taken", "InProgress", "Hand"),
    ("Failed&Ordered", "FixDone", "Failed&Due", "Advance"),
    ("InProgress", "Reported&Success", "Completed", "Advance"),
    ("InProgress", "Reported&Failure", "Failed&Due", "RequestFix"),
    ("InProgress", "Reported&Failure", "Failed&Ordered", "OrderFix"),
    ("InProgress", "Reported&Failure", "Failed&Exhausted", "Stop"),
    ("InProgress", "Reported&Failure { error: \"\" }", "InProgress", "Refused"),
    ("InProgress", "Reported&Blocked", "Blocked", "Stop"),
    ("InProgress", "Reported&reasons: []", "InProgress", "Refused"),
    ("InProgress", "Beat", "InProgress", "Beaten"),
    ("InProgress", "LeaseEnded", "Pending", "Advance"),
    ("InProgress", "LeaseEnded", "Failed&Exhausted", "Stop"),
    ("Pending", "Reported", "Completed|Failed|Blocked", ""),
    ("Failed&Exhausted", "Reported", "Completed|Failed|Blocked", ""),
    ("InProgress", "Retried", "Pending", "Advance"),
    ("Blocked", "Unblocked", "Pending", "Advance"),
    ("Failed", "Retried", "Pending", "Advance"),
    ("Pending", "Skipped|Split", "Completed", "Advance"),
    ("Failed", "Skipped|Split", "Completed", "Advance"),
    ("Blocked", "Skipped|Split", "Completed", "Advance"),
    ("Blocked", "Time", "Blocked", "Remind"),
    ("Failed&Exhausted", "Time", "Failed", "Remind"),
    ("", "Reported|Beat|Unblocked|Retried|Skipped|Split|Taken", "", "Refused"),
    ("", "LeaseEnded", "", "-"),
    ("", "FixDone", "", "-"),
];

const RECONCILE: &[Row] = &[
    ("Starting", "SourceUp", "Native", "Scan"),
    ("Starting", "SourceFailed", "Polling", "Scan"),
    ("Native", "Overflow", "Native", "Scan"),
    ("Native", "PathsReplaced", "Starting", "Rewatch"),
    ("Native", "SourceFailed", "Polling", "Degraded"),
    ("Native", "Time", "Native", "RingCanary"),
    ("Native", "CanarySeen", "Native", "-"),
    ("Native", "Time", "Starting", "SourceDead"),
    ("Polling", "Time", "Polling", "Scan"),
    ("Polling", "Time", "Starting", "Rewatch"),
    ("Polling", "PathsReplaced", "Starting", "Rewatch"),
    ("Polling", "SourceUp", "Native", "Recovered"),
    ("", "Time", "", "CheckPaths"),
];

#[derive(Clone, Debug, Default)]
pub(super) struct Rows(BTreeMap<(&'static str, usize), u64>);

impl Rows {
    /// Records one event of a machine.
    ///
    /// # Errors
    /// The transition is in no row of the machine's table.
    pub(super) fn note(
        &mut self,
        machine: &'static str,
        (before, event, after): (&str, &str, &str),
        effects: &[String],
    ) -> Result<(), String> {
        let (_, _, rows) = MACHINES.iter().find(|m| m.0 == machine).expect("a machine");
        let mut is_known = before == after;
        for (index, row) in rows.iter().enumerate() {
            let fits = is(row.0, before) && is(row.1, event) && is(row.2, after);
            if fits && has(row.3, effects) {
                is_known = true;
                *self.0.entry((machine, index)).or_default() += 1;
            }
        }
        match is_known {
            true => Ok(()),
            false => {
                Err(format!("{machine}: in no row: {before} + {event} -> {after} {effects:?}"))
            }
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (row, count) in &other.0 {
            *self.0.entry(*row).or_default() += count;
        }
    }

    /// The rows that were never visited, and the number of all rows.
    pub(super) fn unvisited(&self) -> (Vec<String>, usize) {
        let mut missing = Vec::new();
        for (machine, _, rows) in MACHINES {
            let never =
                rows.iter().enumerate().filter(|(i, _)| !self.0.contains_key(&(machine, *i)));
            missing.extend(never.map(|(i, row)| format!("{machine} {}: {row:?}", i + 1)));
        }
        (missing, MACHINES.iter().map(|(_, _, rows)| rows.len()).sum())
    }
}

fn is(pattern: &str, text: &str) -> bool {
    pattern.split('|').any(|choice| {
        let (first, rest) = choice.split_once('&').unwrap_or((choice, ""));
        text.starts_with(first) && text.contains(rest)
    })
}

fn has(pattern: &str, effects: &[String]) -> bool {
    match pattern {
        "-" => effects.is_empty(),
        "" => !effects.iter().any(|effect| effect.starts_with("Refused")),
        pattern => effects.iter().any(|effect| effect.starts_with(pattern)),
    }
}

/// How much of a machine is printed: its state is among its first fields.
const PRINTED_BYTES_MAX: usize = 800;

/// A writer that keeps only the beginning and stops the formatting after that.
struct Beginning(String);

impl Write for Beginning {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.push_str(text);
        if self.0.len() < PRINTED_BYTES_MAX { Ok(()) } else { Err(std::fmt::Error) }
    }
}

pub(super) fn state_of(machine: &impl Debug) -> String {
    let mut beginning = Beginning(String::new());
    // The formatting ends early on purpose.
    let _ = write!(beginning, "{machine:?}");
    let text = beginning.0;
    let Some((_, rest)) = text.split_once(" state: ") else { return text };
    let mut depth = 0_i32;
    let end = rest.char_indices().find(|(_, c)| {
        depth += i32::from("{([".contains(*c)) - i32::from("})]".contains(*c));
        depth < 0 || (depth == 0 && *c == ',')
    });
    rest[..end.map_or(rest.len(), |(at, _)| at)].trim_end().to_owned()
}

pub(super) fn drain<M: Machine>(machine: &mut M) -> Vec<M::Effect> {
    std::iter::from_fn(|| machine.poll_effect()).collect()
}

pub(super) fn printed(effects: &[impl Debug]) -> Vec<String> {
    effects.iter().map(|effect| format!("{effect:?}")).collect()
}

#[test]
fn row_counts_match_the_tables() {
    for (machine, page, rows) in MACHINES {
        let table = page.split("```").nth(1).expect("a table");
        let arrows = table.lines().filter(|line| line.contains(" -> ")).count();
        let heads = table.lines().filter(|line| line.contains("-> state")).count();
        assert_eq!(rows.len(), arrows - heads, "{machine}: {table}");
    }
}

#[test]
fn transition_outside_the_table_is_an_error() {
    let mut rows = Rows::default();
    assert!(rows.note("task", ("Draft", "Claim(x", "Claimed"), &[]).is_err());
    assert!(rows.note("task", ("Draft", "Finalize", "Unclaimed"), &[]).is_ok());
    assert!(rows.note("task", ("Draft", "Claim(x", "Draft"), &["Refused(x)".to_owned()]).is_ok());
    assert_eq!(rows.unvisited().0.len(), rows.unvisited().1 - 2);
    assert_eq!(state_of(&Some(1)), "Some(1)");
}
