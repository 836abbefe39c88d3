//! The alarms that a board raises, and the boundary between two occurrences.

use ensemble_team::board::{
    Alarm, AlarmCondition, AlarmGraces, AlarmKey, LEASE_RAN_OUT, conditions, stale,
};

use super::*;

fn found(bed: &Bed) -> Vec<AlarmCondition> {
    conditions(&bed.state(), AlarmGraces::default())
}

fn keys(bed: &Bed) -> Vec<(Alarm, String, String)> {
    let key = |AlarmCondition { key: AlarmKey { alarm, about, mark }, .. }| (alarm, about, mark);
    found(bed).into_iter().map(key).collect()
}

fn key(alarm: Alarm, about: &str, mark: &str) -> (Alarm, String, String) {
    (alarm, about.to_owned(), mark.to_owned())
}

/// Each line is a task's fields, and the alarms that it raises.
const TABLE: &str = "
status: UNCLAIMED =>
status: DRAFT => stale_draft
status: BLOCKED; blocked_reason: r; blocked_questions: [q] => blocked
status: INTEGRATION_FAILED => integration_failed
status: REJECTED; rejection_reason: r; assigned_to: ann =>
status: REJECTED; rejection_reason: r; assigned_to: gone => orphaned_rejected
status: REJECTED; rejection_reason: r; assigned_to: ann; review_cycles_current: 2 =>
status: REJECTED; rejection_reason: r; assigned_to: ann; review_cycles_current: 3 => review_loop
CLAIMED; iteration: 7 => stalled
CLAIMED; iteration: 8 => stalled approaching_limit
CLAIMED; iteration: 3; max_iterations: 5 => stalled approaching_limit
status: UNCLAIMED; failed_by: [x] =>
status: UNCLAIMED; failed_by: [x, y] => hypothesis_exhaustion
status: UNCLAIMED; history: [{time: 2026-01-01T00:00:00Z, event: coder_claim_released, agent: x, reason: the lease ran out}] => lease_expired
status: UNCLAIMED; history: [{time: 2026-01-01T00:00:00Z, event: coder_claim_released, agent: x, reason: given back}] =>
status: READY_FOR_REVIEW; review_commit: c; history: [{time: 2026-01-01T00:00:00Z, event: review_claim_released, reason: the lease ran out}] => review_lease_expired
CLAIMED; history: [{time: 2026-01-01T00:00:00Z, event: reassigned_after_rejection, agent: ann}] => reassigned stalled
status: MERGED; merge_commit: c; failed_by: [x, y]; review_cycles_current: 4 =>
status: ABANDONED =>
";

#[test]
fn each_alarm_has_a_board_that_raises_it() {
    for case in TABLE.trim().lines() {
        let (task, expected) = case.split_once(" =>").unwrap();
        let claimed = "status: CLAIMED\n    assigned_to: ann\n    worktree: w\n    base_commit: c\n    lease_expires: 2026-01-01T00:00:00Z";
        let fields = task.replace("; ", "\n    ");
        let fields = match fields.strip_prefix("CLAIMED") {
            Some(rest) => format!("{claimed}{rest}"),
            None => fields,
        };
        let text = format!(
            "version: 1\ntasks:\n  - id: t\n    {fields}\n    spec_ref: s\n    done_when: d\nagents: {{ann: {{status: IDLE}}}}\n"
        );
        let state = check(&text, Path::new("state.yaml")).unwrap_or_else(|e| panic!("{case}: {e}"));
        let names: Vec<String> = conditions(&state, AlarmGraces::default())
            .iter()
            .map(|found| serde_json::json!(found.key.alarm).as_str().unwrap().to_owned())
            .collect();
        assert_eq!(names.join(" "), expected.trim(), "{case}");
    }
}

#[test]
fn an_expired_lease_is_an_occurrence_of_its_own_each_time() {
    let bed = Bed::new();
    bed.task("task-1", &[]);
    let mut marks = Vec::new();
    for coder in ["ann", "bob"] {
        let coder = bed.agent(coder, "coder");
        let claim = bed.claim("task-1", &coder);
        let lease =
            BoardLease::Claim { task: name("task-1"), by: coder.by, epoch: claim.holder.epoch };
        bed.change(|board| board.expire(&lease, 0));
        let expired = found(&bed);
        assert_eq!(expired.len(), 1, "{expired:?}");
        assert_eq!(expired[0].key.alarm, Alarm::LeaseExpired);
        assert_eq!(
            expired[0].text,
            format!("task task-1: its coder stopped renewing the lease ({})", lease.by())
        );
        marks.push(expired[0].key.clone());
    }
    assert_ne!(marks[0], marks[1]);
    assert_ne!(marks[0].digest(), marks[1].digest());
    let last = bed.state().tasks[0].history.last().unwrap().clone();
    assert_eq!(last.more["reason"], LEASE_RAN_OUT);
}

#[test]
fn a_changed_condition_is_another_occurrence() {
    let bed = Bed::new();
    bed.task("task-1", &[]);
    let (ann, rev) = (bed.agent("ann", "coder"), bed.agent("rev", "code-reviewer"));
    let questions = ["why?".to_owned()];
    let block = || bed.change(|board| board.block(&name("task-1"), None, "r", &questions));
    block();
    assert_eq!(keys(&bed), [key(Alarm::Blocked, "task-1", "1")]);
    bed.change(|board| board.unblock(&name("task-1")));
    assert_eq!(keys(&bed), []);
    block();
    assert_eq!(keys(&bed), [key(Alarm::Blocked, "task-1", "2")]);
    bed.change(|board| board.unblock(&name("task-1")));
    // Work that continues is not stalled: each iteration is a sign of life.
    let claim = bed.claim("task-1", &ann);
    let before = found(&bed)[0].clone();
    assert_eq!((before.key.alarm, before.grace), (Alarm::Stalled, Duration::from_secs(1_800)));
    bed.change(|board| board.iterate(&name("task-1"), &claim.holder));
    assert_ne!(found(&bed)[0].key, before.key);
    bed.change(|board| board.submit(&name("task-1"), &claim.holder, "c"));
    let review = bed.change(|board| board.claim_review(&name("task-1"), &rev));
    bed.change(|board| board.reject(&name("task-1"), &review.holder, "c", "no"));
    assert_eq!(keys(&bed), [], "its coder is there");
    bed.change(|board| board.unregister(&ann, "gone"));
    let orphaned = found(&bed)[0].clone();
    assert_eq!(
        (orphaned.key.alarm, orphaned.grace),
        (Alarm::OrphanedRejected, Duration::from_secs(30))
    );
}

/// Tasks behind a blocked one wait in silence: its own alarm says how many.
#[test]
fn a_blocked_task_tells_how_many_wait_for_it() {
    let bed = Bed::new();
    for (id, before) in [("a", ""), ("b", "a"), ("c", "b"), ("d", "a"), ("e", "")] {
        bed.task(id, if before.is_empty() { &[] } else { std::slice::from_ref(&before) });
    }
    let questions = ["why?".to_owned()];
    let block = |id: &str| bed.change(|board| board.block(&name(id), None, "r", &questions));
    let abandon = |id: &str| {
        block(id);
        bed.change(|board| board.abandon(&name(id), "useless"));
    };
    block("a");
    let text = || found(&bed)[0].text.clone();
    assert_eq!(text(), "task a is blocked, and 3 tasks wait for it: r");
    abandon("d");
    abandon("c");
    assert_eq!(text(), "task a is blocked, and 1 task waits for it: r");
    abandon("b");
    assert_eq!(text(), "task a is blocked: r");
}

#[test]
fn control_files_are_stale_in_stages() {
    let since: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let file = |file| ActiveControl::parse(file, "2026-01-01T00:00:00Z\n", since);
    let all = ControlFile::ALL.map(file);
    let at = |minutes: u64| {
        let now = since.plus(Duration::from_secs(60 * minutes));
        stale(&all, now).into_iter().map(|found| found.key).collect::<Vec<_>>()
    };
    assert_eq!(at(29), []);
    let first = at(30);
    let alarms: Vec<_> = first.iter().map(|key| key.alarm).collect();
    assert_eq!(alarms, [Alarm::PauseStale, Alarm::CheckpointStale], "and not ABORT");
    assert_eq!(first, at(119));
    assert!(at(120).iter().all(|key| !first.contains(key)));
    assert_eq!(at(8 * 60).len(), 2);
}

#[test]
fn alarm_keys_are_unambiguous() {
    let digest = |about: &str, mark: &str| {
        let (about, mark) = (about.to_owned(), mark.to_owned());
        AlarmKey { alarm: Alarm::Blocked, about, mark }.digest()
    };
    assert_ne!(digest("task-1", "2"), digest("task-", "12"));
    assert_ne!(digest("task-1", "2"), digest("task-12", ""));
}
