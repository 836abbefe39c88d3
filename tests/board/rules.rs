//! Every rule has a board that breaks it, and is told by the path of the field.

use super::*;

/// A task with these lines instead of, or besides, its usual ones.
fn board(task: &str, rest: &str) -> String {
    let mut text = "version: 1\nepoch: 5\ntasks:\n  - id: done\n    status: MERGED\n    spec_ref: s\n    done_when: d\n".to_owned();
    let usual = [("spec_ref", "s"), ("done_when", "d")];
    text.push_str("  - id: task\n");
    for line in task.lines() {
        text.push_str(&format!("    {line}\n"));
    }
    for (field, value) in usual {
        if !task.contains(&format!("{field}:")) {
            text.push_str(&format!("    {field}: {value}\n"));
        }
    }
    text + rest
}

const CLAIMED: &str = "status: CLAIMED\nassigned_to: ann\nworktree: w\nbase_commit: c\nlease_expires: 2026-01-01T00:00:00Z";
const REVIEW: &str = "status: READY_FOR_REVIEW\nassigned_to: ann\nreview_commit: c";
const BLOCKED: &str = "status: BLOCKED\nblocked_reason: r\nblocked_questions: [q]";

#[test]
fn good_boards_are_good() {
    for task in [
        "status: UNCLAIMED",
        "status: READY",
        "status: UNCLAIMED\ndepends_on: [done]",
        CLAIMED,
        REVIEW,
        BLOCKED,
        "status: DRAFT\nspec_ref: null\ndone_when: ~",
        "status: APPROVED\napproved_by: rev\nassigned_to: ann",
        "status: REJECTED\nrejection_reason: no",
        "status: SUPERSEDED\nsuperseded_by: [done]\nrescope_reason: r",
        "status: ABANDONED",
        "status: INTEGRATION_FAILED",
    ] {
        assert_eq!(problems(&board(task, "")), Vec::<String>::new(), "{task}");
    }
}

#[test]
fn every_rule_of_tasks_is_told_by_its_path() {
    let without = |task: &str, field: &str| -> String {
        let lines = task.lines().filter(|line| !line.starts_with(field));
        lines.collect::<Vec<_>>().join("\n")
    };
    let cases = [
        ("status: DONE".to_owned(), "tasks[1].status: is `DONE`"),
        ("priority: 1".to_owned(), "tasks[1].status: is missing"),
        ("status: UNCLAIMED\npriority: high".to_owned(), "tasks[1].priority: must be a whole number"),
        ("status: UNCLAIMED\ncreated: yesterday".to_owned(), "tasks[1].created: must be a time"),
        ("status: UNCLAIMED\nassigned_to: ../x".to_owned(), "tasks[1].assigned_to: "),
        ("status: UNCLAIMED\nassigned_to: ann".to_owned(), "tasks[1].assigned_to: must not be there"),
        ("status: DRAFT\nassigned_to: ann".to_owned(), "tasks[1].assigned_to: must not be there"),
        (without(CLAIMED, "assigned_to"), "tasks[1].assigned_to: is missing"),
        (without(CLAIMED, "worktree"), "tasks[1].worktree: is missing"),
        (without(CLAIMED, "base_commit"), "tasks[1].base_commit: is missing"),
        (without(CLAIMED, "lease_expires"), "tasks[1].lease_expires: is missing"),
        (format!("{CLAIMED}\ndepends_on: [task2]"), "tasks[1].depends_on: is claimed, but `task2` is not merged"),
        (without(REVIEW, "review_commit"), "tasks[1].review_commit: is missing"),
        (format!("{REVIEW}\nreviewing_by: rev"), "tasks[1].review_lease_expires: is missing"),
        (format!("{REVIEW}\nreview_lease_expires: 2026-01-01T00:00:00Z"), "tasks[1].review_lease_expires: is there"),
        (format!("{REVIEW}\nreviewing_by: ann\nreview_lease_expires: 2026-01-01T00:00:00Z"), "tasks[1].reviewing_by: `ann` reviews its own work"),
        (format!("{CLAIMED}\nreviewing_by: rev\nreview_lease_expires: 2026-01-01T00:00:00Z"), "tasks[1].reviewing_by: must not be there"),
        ("status: APPROVED".to_owned(), "tasks[1].approved_by: is missing"),
        ("status: APPROVED\napproved_by: ann\nassigned_to: ann".to_owned(), "tasks[1].approved_by: `ann` approved its own work"),
        ("status: REJECTED".to_owned(), "tasks[1].rejection_reason: is missing"),
        ("status: MERGED\nworktree: w".to_owned(), "tasks[1].worktree: must not be there"),
        (without(BLOCKED, "blocked_reason"), "tasks[1].blocked_reason: is missing"),
        (without(BLOCKED, "blocked_questions"), "tasks[1].blocked_questions: is missing"),
        ("status: BLOCKED\nblocked_reason: r\nblocked_questions: [a, b, c, d]".to_owned(), "tasks[1].blocked_questions: has more than 3"),
        ("status: SUPERSEDED\nrescope_reason: r".to_owned(), "tasks[1].superseded_by: is missing"),
        ("status: SUPERSEDED\nsuperseded_by: [done]".to_owned(), "tasks[1].rescope_reason: is missing"),
        ("status: SUPERSEDED\nsuperseded_by: [nope]\nrescope_reason: r".to_owned(), "tasks[1].superseded_by[0]: there is no task `nope`"),
        ("status: UNCLAIMED\nsupersedes: nope".to_owned(), "tasks[1].supersedes: there is no task `nope`"),
        ("status: UNCLAIMED\ndone_when: null".to_owned(), "tasks[1].done_when: is missing"),
        ("status: UNCLAIMED\nspec_ref: null".to_owned(), "tasks[1].spec_ref: is missing"),
        ("status: UNCLAIMED\ndepends_on: [done, nope]".to_owned(), "tasks[1].depends_on[1]: there is no task `nope`"),
        ("status: UNCLAIMED\ndepends_on: [done, done]".to_owned(), "tasks[1].depends_on[1]: `done` is there twice"),
        ("status: UNCLAIMED\ndepends_on: [task]".to_owned(), "tasks[1].depends_on: depends on itself: task -> task"),
        ("status: UNCLAIMED\ndepends_on: [task2]".to_owned(), "tasks[1].depends_on: depends on itself: task -> task2 -> task"),
        ("status: UNCLAIMED\nfailed_by: [a, a]".to_owned(), "tasks[1].failed_by[1]: `a` is there twice"),
        ("status: UNCLAIMED\nintegration_fix: true".to_owned(), "tasks[1].integration_fix: is true, but"),
        (format!("{CLAIMED}\nlease_epoch: 6"), "tasks[1].lease_epoch: is ahead of the board's epoch 5"),
        ("status: UNCLAIMED\nhistory: [{event: created}]".to_owned(), "tasks[1].history[0].time: is missing"),
    ];
    let rest = "  - {id: task2, status: UNCLAIMED, depends_on: [task], spec_ref: s, done_when: d}\n";
    for (task, expected) in cases {
        let found = problems(&board(&task, rest));
        assert!(found.iter().any(|found| found.starts_with(expected)), "{task}\n{expected}\n{found:#?}");
    }
}

#[test]
fn every_other_rule_is_told_by_its_path() {
    let ok = "status: UNCLAIMED";
    let cases = [
        ("  - {id: TASK, status: ABANDONED}\n", "tasks[2].id: `TASK` is the name of tasks[1], too"),
        ("agents: {coder-1: {status: WORKING}}\n", "agents.coder-1.current_task: is missing"),
        ("agents: {coder-1: {status: REVIEWING, current_task: task}}\n", "agents.coder-1.lease_expires: is missing"),
        ("agents: {coder-1: {status: IDLE, current_task: nope}}\n", "agents.coder-1.current_task: there is no task"),
        ("agents: {coder-1: {status: ASLEEP}}\n", "agents.coder-1.status: is `ASLEEP`"),
        ("agents: {coder-1: {status: IDLE, role: boss}}\n", "agents.coder-1.role: is `boss`"),
        ("agents: {coder-1: {status: IDLE, epoch: 9}}\n", "agents.coder-1.epoch: is ahead"),
        ("agents: {../x: {status: IDLE}}\n", "agents.../x: "),
        ("agents: [a]\n", "agents: is "),
        ("handoff: {task: {summary: s}}\n", "handoff.task.next_action: is missing"),
        ("handoff: {nope: {summary: s, next_action: n}}\n", "handoff.nope: there is no such task"),
        ("discovered: [{id: d, urgency: soon}]\n", "discovered[0].urgency: is `soon`"),
        ("discovered: [{id: d, converted_to_task: nope}]\n", "discovered[0].converted_to_task: there is no task"),
        ("anomalies: [{type: bad_mood}]\n", "anomalies[0].type: is `bad_mood`"),
        ("anomalies: [{type: retry_loop, details: {count: 3}}]\n", "anomalies[0].details.error_pattern: is missing"),
        ("anomalies: [{type: trade_off}]\n", "anomalies[0].details.what: is missing"),
        ("anomalies: [{type: external_blocker}]\n", "anomalies[0].details.blocker_service: is missing"),
        ("anomalies: [{type: assumption_violated, details: {assumption: a}}]\n", "anomalies[0].details.reality: is missing"),
        ("anomalies: [{type: system_ambiguity}]\n", "anomalies[0].details.protocol_section: is missing"),
        ("goal: {id: g}\nsprint: {id: s, goal_ref: h, timeline: {started: 2026-01-01T00:00:00Z}}\n", "sprint.goal_ref: `h` is not the goal"),
        ("sprint: {id: s}\n", "sprint.timeline.started: is missing"),
        ("sprint: {id: s, status: LATE}\n", "sprint.status: is `LATE`"),
        ("sprint: {id: s, scope: {planned: [nope]}}\n", "sprint.scope.planned[0]: there is no task"),
        ("sprint: {id: s, scope: {stretch: [task, nope]}}\n", "sprint.scope.stretch[1]: there is no task"),
        ("goal: {status: DONE}\n", "goal.id: is missing"),
        ("circuit_breaker: {status: MAYBE}\n", "circuit_breaker.status: is `MAYBE`"),
    ];
    for (rest, expected) in cases {
        let found = problems(&board(ok, rest));
        assert!(found.iter().any(|found| found.starts_with(expected)), "{rest}\n{expected}\n{found:#?}");
    }
    assert_eq!(problems("tasks: []\n"), ["version: is missing"]);
    assert_eq!(problems("version: 0\ntasks: []\n"), Vec::<String>::new(), "older ones are read");
    let newer = problems("version: 2\ntasks: {}\n");
    assert_eq!(newer, ["state.yaml: version: is 2, this program reads 1: update it"]);
}

#[test]
fn all_violations_are_told_and_not_only_the_first() {
    let found = problems(&board(
        "status: CLAIMED\npriority: high\ndepends_on: [nope, task]",
        "agents: {a: {status: WORKING}}\nanomalies: [{type: trade_off}]\n",
    ));
    assert_eq!(found.len(), 14, "{found:#?}");
    let bed = Bed::with(".ensemble", &board("status: CLAIMED", ""));
    let error = bed.board.read().unwrap_err().to_string();
    assert!(error.contains("state.yaml breaks its rules:\n  tasks[1].assigned_to: is missing"), "{error}");
    assert!(matches!(bed.board.lock().unwrap_err(), Error::Invalid { .. }));
}

#[test]
fn a_cycle_of_any_length_is_named() {
    let mut text = "version: 1\ntasks:\n".to_owned();
    for at in 0..2_000 {
        let next = (at + 1) % 2_000;
        text.push_str(&format!("  - {{id: t{at}, status: DRAFT, depends_on: [t{next}]}}\n"));
    }
    let found = problems(&text);
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("tasks[0].depends_on: depends on itself: t0 -> t1 -> t2"));
    assert!(found[0].ends_with("t1999 -> t0"));
}

#[test]
fn missing_files_are_told_to_who_asks_for_them() {
    let text = board(CLAIMED, "");
    let state = check(&text, Path::new("state.yaml")).unwrap();
    let found = ensemble_core::board::missing_files(&state, |path| path == "s");
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].to_string(), "tasks[1].worktree: there is no directory w");
}
