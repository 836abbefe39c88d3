//! Every rule has a board that breaks it; the violation names the field's path.

use ensemble_team::board::NewSprint;

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

/// A task, and the start of its error text, or after `~>` of its warning. `-field` leaves out that line.
const OF_TASKS: &str = "
status: DONE => status: is `DONE`
status: Unclaimed ~> status: is `Unclaimed`; it must be one of
status: “UNCLAIMED” ~> status: is `“UNCLAIMED”`; it must be one of
status: UNCLAIMED; assigned_to: None ~> assigned_to: must be a name, or null; it is read as null
status: UNCLAIMED; assigned_to: '' ~> assigned_to: `` has 0 bytes: a name has 1 to 64; it is read as null
status: UNCLAIMED; failed_by: '@a, #b' ~> failed_by: is `@a, #b`; it is read as a list of 2
status: UNCLAIMED; depends_on: done ~> depends_on: is `done`; it is read as a list
status: UNCLAIMED; depends_on: [DONE] ~> depends_on[0]: there is no task `DONE`; it is read as done
status: UNCLAIMED; depends_on: ['#done'] ~> depends_on[0]: `#done` has '#'
status: UNCLAIMED; depends_on: '' ~> depends_on: is empty; it is read as a list without
status: UNCLAIMED; lease_epoch: '3' ~> lease_epoch: must be a whole number of at least 0; it is read as 3
status: UNCLAIMED; lease_epoch: 2.0 ~> lease_epoch: must be a whole number of at least 0; it is read as 2
status: UNCLAIMED; lease_epoch: 2.5 => lease_epoch: must be a whole number
status: UNCLAIMED; integration_fix: 'Yes' ~> integration_fix: must be true or false; it is read as true
status: UNCLAIMED; done_when: [a, b] ~> done_when: must be a text
priority: 1 => status: is missing
status: UNCLAIMED; priority: high ~> priority: must be a whole number
status: UNCLAIMED; created: yesterday ~> created: must be a time
status: UNCLAIMED; assigned_to: ../x => assigned_to:
status: UNCLAIMED; assigned_to: ann ~> assigned_to: must be absent
status: DRAFT; assigned_to: ann ~> assigned_to: must be absent
CLAIMED; -assigned_to => assigned_to: is missing
CLAIMED; -worktree => worktree: is missing
CLAIMED; -base_commit => base_commit: is missing
CLAIMED; -lease_expires ~> lease_expires: is missing
CLAIMED; depends_on: [task2] => depends_on: is claimed, but `task2` is not merged
CLAIMED; reviewing_by: rev ~> reviewing_by: must be absent
CLAIMED; lease_epoch: 6 => lease_epoch: is ahead of the board's epoch 5
REVIEW; -review_commit ~> review_commit: is missing
REVIEW; reviewing_by: rev ~> review_lease_expires: is missing
REVIEW; review_lease_expires: 2026-01-01T00:00:00Z ~> review_lease_expires: is set
REVIEW; reviewing_by: ann => reviewing_by: `ann` reviews its own work
REVIEW; review_epoch: 6 => review_epoch: is ahead of the board's epoch 5
status: APPROVED ~> approved_by: is missing
status: APPROVED; approved_by: ann; assigned_to: ann => approved_by: `ann` approved its own work
status: REJECTED ~> rejection_reason: is missing
status: MERGED; worktree: w ~> worktree: must be absent
BLOCKED; -blocked_reason ~> blocked_reason: is missing
BLOCKED; -blocked_questions ~> blocked_questions: is missing
BLOCKED; -blocked_questions; blocked_questions: [a, b, c, d] ~> blocked_questions: has more than 3
status: SUPERSEDED; rescope_reason: r ~> superseded_by: is missing
status: SUPERSEDED; superseded_by: [done] ~> rescope_reason: is missing
status: SUPERSEDED; superseded_by: [nope] ~> superseded_by[0]: there is no task `nope`
status: SUPERSEDED; superseded_by: [task] ~> superseded_by[0]: is the task itself
status: UNCLAIMED; supersedes: nope ~> supersedes: there is no task `nope`
status: UNCLAIMED; done_when: null => done_when: is missing
status: UNCLAIMED; spec_ref: null => spec_ref: is missing
status: UNCLAIMED; depends_on: [done, nope] => depends_on[1]: there is no task `nope`
status: UNCLAIMED; depends_on: [done, done] ~> depends_on[1]: `done` is listed twice
status: UNCLAIMED; depends_on: [task] => depends_on: depends on itself: task -> task
status: UNCLAIMED; depends_on: [task2] => depends_on: depends on itself: task -> task2 -> task
status: UNCLAIMED; failed_by: [a, a] ~> failed_by[1]: `a` is listed twice
status: UNCLAIMED; integration_fix: true ~> integration_fix: is true, but
status: UNCLAIMED; history: [{event: created}] ~> history[0].time: is missing
";

#[test]
fn every_task_rule_names_the_path_of_its_violation() {
    let rest =
        "  - {id: task2, status: UNCLAIMED, depends_on: [task], spec_ref: s, done_when: d}\n";
    for case in OF_TASKS.trim().lines() {
        let (task, (is_warning, expected)) = parts(case);
        let mut lines: Vec<&str> = Vec::new();
        for part in task.split("; ") {
            match (part, part.strip_prefix('-')) {
                ("CLAIMED", _) => lines.extend(CLAIMED.lines()),
                ("REVIEW", _) => lines.extend(REVIEW.lines()),
                ("BLOCKED", _) => lines.extend(BLOCKED.lines()),
                (_, Some(without)) => lines.retain(|line| !line.starts_with(without)),
                (line, None) => lines.push(line),
            }
        }
        tells(&board(&lines.join("\n"), rest), is_warning, &format!("tasks[1].{expected}"));
    }
}

/// A case, whether it is a warning (`~>`), and the start of the text.
fn parts(case: &str) -> (&str, (bool, &str)) {
    let warning = case.split_once(" ~> ").map(|(case, text)| (case, (true, text)));
    warning.unwrap_or_else(|| case.split_once(" => ").map(|(c, t)| (c, (false, t))).unwrap())
}

#[track_caller]
fn tells(text: &str, is_warning: bool, expected: &str) {
    let found = if is_warning { warnings(text) } else { problems(text) };
    let is_told = found.iter().any(|found| found.starts_with(expected.trim_end()));
    assert!(is_told, "{expected}\n{found:#?}\n{text}");
}

/// The rest of a board, and the start of its error text.
const OF_THE_REST: &str = "
  - {id: 7, status: UNCLAIMED, spec_ref: s, done_when: true} ~> tasks[2].id: must be a name; it is read as
  - {id: TASK, status: ABANDONED} => tasks[2].id: `TASK` is also the name of tasks[1]
agents: {coder-1: {status: WORKING}} ~> agents.coder-1.current_task: is missing
agents: {coder-1: {status: REVIEWING, current_task: task}} ~> agents.coder-1.lease_expires: is missing
agents: {coder-1: {status: IDLE, current_task: nope}} ~> agents.coder-1.current_task: there is no task
agents: {coder-1: {status: ASLEEP}} ~> agents.coder-1.status: is `ASLEEP`
agents: {coder-1: {status: IDLE, role: boss}} ~> agents.coder-1.role: is `boss`
agents: {coder-1: {status: IDLE, epoch: 9}} => agents.coder-1.epoch: is ahead
agents: {../x: {status: IDLE}} => agents.../x:
agents: [a] => agents: is
handoff: {task: {summary: s}} ~> handoff.task.next_action: is missing
handoff: {nope: {summary: s, next_action: n}} ~> handoff.nope: there is no such task
discovered: [{id: d, urgency: soon}] ~> discovered[0].urgency: is `soon`
discovered: [{id: d, converted_to_task: nope}] ~> discovered[0].converted_to_task: there is no task
anomalies: [{type: bad_mood}] ~> anomalies[0].type: is `bad_mood`
anomalies: [{type: retry_loop, details: {count: 3}}] ~> anomalies[0].details.error_pattern: is missing
anomalies: [{type: trade_off}] ~> anomalies[0].details.what: is missing
anomalies: [{type: external_blocker}] ~> anomalies[0].details.blocker_service: is missing
anomalies: [{type: assumption_violated, details: {assumption: a}}] ~> anomalies[0].details.reality: is missing
anomalies: [{type: system_ambiguity}] ~> anomalies[0].details.protocol_section: is missing
sprint: {id: s, goal_ref: h} ~> sprint.goal_ref: `h` is not the goal
sprint: {id: s} ~> sprint.timeline.started: is missing
sprint: {id: s, status: LATE} => sprint.status: is `LATE`
sprint: {id: s, scope: {planned: [nope]}} ~> sprint.scope.planned[0]: there is no task
sprint: {id: s, scope: {stretch: [task, nope]}} ~> sprint.scope.stretch[1]: there is no task
goal: {status: DONE} => goal.id: is missing
config: {lease_duration: 5m} ~> config.lease_duration: must be a whole number of seconds; it is read as 300
config: {coder_max_wait: '90'} ~> config.coder_max_wait: must be a whole number of seconds; it is read as 90
config: {coder_poll_interval: soon} => config.coder_poll_interval: must be a whole number of seconds
config: {integration_branch: bad branch} ~> config.integration_branch: `bad branch` is not the name of a branch
circuit_breaker: {status: MAYBE} ~> circuit_breaker.status: is `MAYBE`
";

#[test]
fn every_other_rule_names_the_path_of_its_violation() {
    for case in OF_THE_REST.trim_matches('\n').lines() {
        let (rest, (is_warning, expected)) = parts(case);
        tells(&board("status: UNCLAIMED", &format!("{rest}\n")), is_warning, expected);
    }
    assert_eq!(problems("tasks: []\n"), ["version: is missing"]);
    assert_eq!(problems("version: 0\ntasks: []\n"), Vec::<String>::new(), "older ones are read");
    let newer = problems("version: 2\ntasks: {}\n");
    assert_eq!(
        newer,
        ["state.yaml: version: is 2, but this program reads at most 1: update the program"]
    );
}

#[test]
fn all_violations_are_reported_and_not_only_the_first() {
    let found = problems(&board(
        "status: CLAIMED\npriority: high\ndepends_on: [nope, task]",
        "agents: {a: {status: WORKING}}\nanomalies: [{type: trade_off}]\n",
    ));
    assert_eq!(found.len(), 7, "{found:#?}");
    let found = problems(
        "version: 1\ntasks:\n  - {id: a, status: DONE}\n  - {status: BLOCKED}\n  - {id: b, status: CLAIMED, depends_on: [c]}\n",
    );
    assert_eq!(found.len(), 9, "{found:#?}");
    let bed = Bed::with(".ensemble", &board("status: CLAIMED", ""));
    let error = bed.board.read().unwrap_err().to_string();
    assert!(
        error.contains("state.yaml breaks its rules:\n  tasks[1].assigned_to: is missing"),
        "{error}"
    );
    let error = bed.board.lock().unwrap_err();
    assert!(matches!(error.area(), Some(BoardError::Invalid { .. })));
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
fn missing_files_are_reported_on_request() {
    let text = board(CLAIMED, "");
    let state = check(&text, Path::new("state.yaml")).unwrap();
    let found = ensemble_team::board::missing_files(&state, |path| path == "s");
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].to_string(), "tasks[1].worktree: there is no directory w");
}

/// What agents and people write by hand (seed 001): nothing depends on it, and it stops no agent.
#[test]
fn notes_by_hand_are_read_as_far_as_possible() {
    let text = board(
        "status: UNCLAIMED",
        "agents:
  ann: {status: SLEEPY, context_percent: 91.5 %, lease_expires: null, heartbeat: \"2026-11-28 08:00:00\"}
anomalies: [{type: bug, task: task}, it is slow, {type: retry_loop, details: {error_pattern: x}}]
discovered: [{description: it leaks, urgency: immediate}, a plain text]
handoff: {task: only words, nope: {summary: s}}
human_notes: [use tabs, {message: m, timestamp: 2026-11-28 08:00:00+01:00}]
",
    );
    let state = check(&text, Path::new("state.yaml")).unwrap();
    let ann = &state.agents[&name("ann")];
    assert_eq!(ann.context_percent, Some(92));
    assert_eq!(ann.heartbeat.unwrap().to_string(), "2026-11-28T08:00:00.000Z");
    assert_eq!(state.anomalies[0].kind, "bug");
    assert_eq!(state.anomalies[1].details, "it is slow");
    assert_eq!(
        (state.discovered[0].id.as_str(), state.discovered[1].id.as_str()),
        ("unnamed-0", "unnamed-1")
    );
    assert_eq!(state.discovered[1].more["description"], "a plain text");
    assert_eq!(state.handoff[&name("task")]["summary"], "only words");
    assert_eq!(state.human_notes[0].message.as_deref(), Some("use tabs"));
    assert_eq!(state.human_notes[1].timestamp.unwrap().to_string(), "2026-11-28T07:00:00.000Z");
    for path in [
        "agents.ann.status",
        "agents.ann.context_percent",
        "agents.ann.heartbeat",
        "anomalies[0].type",
        "anomalies[1]",
        "anomalies[2].details.count",
        "discovered[0].id",
        "handoff.task",
        "handoff.task.next_action",
        "handoff.nope",
        "human_notes[0]",
    ] {
        assert!(state.warnings.iter().any(|it| it.path == path), "{path}: {:#?}", state.warnings);
    }

    // The text stays as it is when Ensemble writes, and Ensemble adds no such thing.
    let bed = Bed::with(".ensemble", &text);
    bed.change(|board| board.add_task(&NewTask::new(name("more"), "d", "s", "d")));
    assert!(bed.text().contains("91.5 %") && bed.text().contains("it is slow, {type: retry_loop"));
    let error = bed.refuse(|board| {
        board.start_sprint(&NewSprint {
            id: name("s"),
            planned: vec![name("nope")],
            stretch: Vec::new(),
            deadline: None,
        })
    });
    assert!(error.to_string().contains("sprint.scope.planned[0]"), "{error}");
}

#[test]
fn a_value_in_place_of_notes_is_their_only_entry() {
    let text = board(
        "status: CLAIMED\nassigned_to: ann\nworktree: w\nbase_commit: c\nlease_epoch: 5",
        "agents: {ann: {role: coder, status: WORKING, epoch: 5, current_task: task}}
anomalies: it is slow
discovered: it leaks   # seen by Bob
handoff: only words
human_notes: please hurry
spec_changes: none
sprint_history: {id: s-0}
",
    );
    let state = check(&text, Path::new("state.yaml")).unwrap();
    assert_eq!(state.anomalies[0].details, "it is slow");
    assert_eq!(state.discovered[0].more["description"], "it leaks");
    assert_eq!(state.handoff[&name("unnamed")]["summary"], "only words");
    assert_eq!(state.human_notes[0].message.as_deref(), Some("please hurry"));
    for path in ["anomalies", "discovered", "handoff", "human_notes", "spec_changes"] {
        assert!(state.warnings.iter().any(|it| it.path == path), "{path}: {:#?}", state.warnings);
    }
    // Ensemble adds its own, and what was written stays.
    let bed = Bed::with(".ensemble", &text);
    bed.change(|board| {
        let anomaly = NewAnomaly {
            task: None,
            reporter: "ann".to_owned(),
            kind: "workaround".to_owned(),
            details: serde_json::Map::new(),
        };
        board.add_anomaly(&anomaly)?;
        let holder = TaskHolder { by: name("ann"), epoch: 5 };
        let (summary, next_action) = ("half".to_owned(), "rest".to_owned());
        let notes = NewHandoff { summary, next_action, more: serde_json::Map::new() };
        board.hand_off(&name("task"), &holder, &notes)
    });
    let state = bed.state();
    assert_eq!((state.anomalies.len(), state.handoff.len()), (2, 2), "{}", bed.text());
    for kept in ["it is slow", "it leaks   # seen by Bob", "only words", "please hurry"] {
        assert!(bed.text().contains(kept), "{kept}: {}", bed.text());
    }
    // What the work depends on is not guessed.
    let wrong = problems("version: 1\ntasks: later\nagents: none\n");
    assert_eq!(wrong.len(), 2, "{wrong:?}");
}
