//! Every known spelling is read, written documents can be read back, and mistakes are reported.

use std::path::Path;

use ensemble_core::message::fields::is_absent;

use super::*;

fn read<T: Contract>(file: &str, text: &str) -> T {
    match read_as::<T>(text, Path::new(file)) {
        Ok(Reading::Whole(document)) => document,
        Ok(Reading::Foreign) => panic!("foreign: {text}"),
        Err(broken) => panic!("{broken}"),
    }
}

fn problems<T: Contract + std::fmt::Debug>(file: &str, text: &str) -> Vec<String> {
    let broken = read_as::<T>(text, Path::new(file)).unwrap_err();
    broken.problems.iter().map(ToString::to_string).collect()
}

const REPORT: &str = "\
task_id: task-001
status: success
worker_id: 1
executed_by: worker-1
delegated_from: conductor
summary: 4 of 4 tests pass (100%), src/a.rs:12
files_modified: [src/a.rs]
files_created:
  - src/b.rs
errors: []
test_results: {passed: 4, failed: 0}
failure_reason: null
options_considered: [keep it, move it]
completed_at: '2026-02-03T10:00:00'
confidence: 0.9
";

#[test]
fn original_report_shape_round_trips() {
    let report: TaskReport = read("task-001-completed.yaml", REPORT);
    assert_eq!((report.task_id.as_str(), report.status), ("task-001", Status::Success));
    assert_eq!((report.worker_id.as_deref(), report.author()), (Some("1"), Some("1")));
    assert_eq!(report.files_created, ["src/b.rs"]);
    assert_eq!(report.test_results.as_ref().unwrap()["passed"], 4);
    assert_eq!(report.options_considered.len(), 2);
    assert_eq!(report.extra["confidence"], 0.9);
    assert!(report.failure_reason.is_none() && report.errors.is_empty());
    let text = write(&report);
    assert!(text.starts_with("task_id: task-001\nstatus: success\n"), "{text}");
    assert!(text.ends_with("\n...\n"), "{text}");
    assert_eq!(read::<TaskReport>("x.yaml", &text), report);
}

#[test]
fn fields_are_read_by_any_of_their_names() {
    // A field or the file's path identifies the contract.
    for text in [
        "completed_at: x\ntaskId: t-1\nStatus: Failure\nworkerId: worker-2\nfailureReason: no disk\n",
        "completed_at: x\ntask-id: t-1\nresult: failed\nworker: worker-2\nreason: no disk\n",
        "{\"task_id\": \"t-1\", \"outcome\": \"FAIL\", \"agent\": \"worker-2\", \"blocked_reason\": \"no disk\"}",
    ] {
        let report: TaskReport = read("t-1-completed.yaml", text);
        let said = (report.task_id.as_str(), report.status, report.author());
        assert_eq!(said, ("t-1", Status::Failed, Some("worker-2")), "{text}");
        assert_eq!(report.failure_reason.as_deref(), Some("no disk"), "{text}");
    }
    let unnamed: TaskReport = read("reports/t-9-completed.yaml", "status: done\n");
    assert_eq!(unnamed.task_id, "t-9", "the file's name contains it, too");
    let one = "task_id: t\nstatus: ok\nfiles_modified: a.rs\nerrors: 0\n";
    let one: TaskReport = read("x.yaml", one);
    assert_eq!((one.files_modified, one.errors), (vec!["a.rs".to_owned()], vec![]));
    for attempt in ["attempt: 2", "Attempt: '2'", "attempt: [2]", "attempt: 2.0"] {
        let report: TaskReport = read("x.yaml", &format!("task_id: t\nstatus: ok\n{attempt}\n"));
        assert_eq!(report.attempt(), Some(2), "{attempt}");
    }
}

/// One of the two lines is in the place, as `file:line`.
#[test]
fn finding_with_two_lines_round_trips() {
    for (place, file, line) in [
        ("{file: a.rs:3, line: 3}", "a.rs", 3),
        ("{file: a.rs:3, line: 4}", "a.rs:3", 4),
        ("{file: a.rs, line: 4}", "a.rs", 4),
        ("{file: 'a.rs :4'}", "a.rs", 4),
        ("{file: ':3', line: 4}", ":3", 4),
        ("{file: 'a.rs:4::4:', line: 4}", "a.rs", 4),
        ("{file: 'a.rs:1:2:3', line: 4}", "a.rs:1:2:3", 4),
        ("{file: 'http://h:80/x', line: 4}", "http://h:80/x", 4),
    ] {
        let finding = place.replace('}', ", description: x}");
        let text = format!("task_id: t\nstatus: approved\nfindings: [{finding}]\n");
        let review: Review = read("t-review.yaml", &text);
        let found = &review.findings[0];
        assert_eq!((found.file.as_deref(), found.line), (Some(file), Some(line)), "{place}");
        assert!(found.extra.keys().all(|key| key == "column"), "{place}");
        let again: Review = read("t-review.yaml", &write(&review));
        assert_eq!(again, review, "{place}");
    }
}

#[test]
fn column_after_the_line_is_not_a_line() {
    let text = "task_id: t\nstatus: approved\nfindings:\n  - {file: 'a.rs:45:7', description: x}\n  - 'a.rs:45:7: x'\n  - 'a.rs:45:7：x'\n";
    let review: Review = read("t-review.yaml", text);
    for found in &review.findings {
        assert_eq!((found.file.as_deref(), found.line), (Some("a.rs"), Some(45)));
        assert_eq!((&found.extra["column"], found.description.as_str()), (&7.into(), "x"));
    }
    assert_eq!(read::<Review>("t-review.yaml", &write(&review)), review);
}

#[test]
fn empty_finding_is_rejected() {
    for blank in ["", "''", "HIGH a.rs:3:  => close it"] {
        let text = format!("task_id: t\nstatus: approved\nfindings:\n  - {blank}\n");
        let told = problems::<Review>("t-review.yaml", &text);
        let expected = "findings[0].description is missing: say what is wrong there";
        assert!(told.len() == 1 && told[0].ends_with(expected), "{told:?}");
    }
}

#[test]
fn review_findings_are_read_in_every_shape() {
    let text = "\
task_id: task-001
reviewer: security-reviewer
status: needs_fix
summary: 2 findings
findings:
  - severity: CRITICAL
    category: security
    file: src/auth.rs
    line: 45
    description: the token is logged
    recommendation: log its length
  - {severity: low, location: 'src/b.rs:7-9', message: a typo, cwe: 79}
  - 'HIGH src/c.rs:3: never closed => close it'
reviewed_at: 2026-02-03T10:00:00
";
    let review: Review = read("task-001-review.yaml", text);
    assert_eq!(review.status, Verdict::NeedsFix);
    let places = review.findings.iter().map(|f| (f.severity, f.file.as_deref(), f.line));
    let expected = [
        (Some(Severity::Critical), Some("src/auth.rs"), Some(45)),
        (Some(Severity::Low), Some("src/b.rs"), Some(7)),
        (Some(Severity::High), Some("src/c.rs"), Some(3)),
    ];
    assert_eq!(places.collect::<Vec<_>>(), expected);
    assert_eq!(review.findings[1].extra["cwe"], 79);
    assert_eq!(review.findings[2].recommendation.as_deref(), Some("close it"));
    assert_eq!(read::<Review>("x-review.yaml", &write(&review)), review);
    let short: Review = read("t-review.yaml", "result: approved\nfindings: 0\n");
    assert_eq!((short.task_id.as_str(), short.findings.len()), ("t", 0));
}

#[test]
fn both_summary_shapes_are_read() {
    let ours = "session_id: s\nstatus: partial\ntotal_tasks: 3\ncompleted_tasks: 2\nfailed_tasks: 1\n\
        summary: x\ntask_results:\n  - {task_id: a, status: success}\nerrors: [e]\ncompleted_at: t\n";
    let summary: Summary = read("completion-summary.yaml", ours);
    assert_eq!((summary.status, summary.total_tasks), (SummaryStatus::Partial, 3));
    assert_eq!(read::<Summary>("x.yaml", &write(&summary)), summary);

    let other = "workflow_id: w-1\nstatus: all_completed\ntask_summary:\n  total: 2\n  completed: 2\n  failed: 0\n";
    let summary: Summary = read("completion-summary.yaml", other);
    assert_eq!(summary.session_id.as_deref(), Some("w-1"));
    assert_eq!(summary.status, SummaryStatus::Success);
    assert_eq!((summary.total_tasks, summary.completed_tasks), (2, 2));

    let listed = "workflow_id: w\nstatus: all_completed\ntask_summary:\n  - {task_id: a, status: success}\n  - {id: b, status: failure}\n";
    let summary: Summary = read("completion-summary.yaml", listed);
    assert_eq!((summary.total_tasks, summary.completed_tasks, summary.failed_tasks), (2, 1, 1));

    let short = "from: dispatch\ntasks: 2\nsucceeded: [task-001]\nfailed: [task-003]\n";
    let summary: Summary = read("completion-summary.yaml", short);
    assert_eq!((summary.status, summary.completed_tasks), (SummaryStatus::Partial, 1));
    assert_eq!(summary.extra["from"], "dispatch");
    let wrong = "status: success\ntotal_tasks: 1\ncompleted_tasks: 2\n";
    assert!(problems::<Summary>("x.yaml", wrong)[0].contains("2 tasks are accounted for"));
    let blank = "status: success\ntask_results:\n  - a\n  -\n";
    let told = problems::<Summary>("x.yaml", blank);
    assert!(told[0].contains("task_results[1].task_id"), "{told:?}");
    assert!(told[0].contains("name the task"), "{told:?}");
}

#[test]
fn instructions_are_read_and_impossible_orders_are_rejected() {
    let text = "type: start_workers\nworker_count: 2\nworker_agent: claude\nworker_skills: [rust]\n\
        workflow: heavy\npattern: B\ncreated_at: now\ntasks:\n  - {id: a, instruction: do a, files: [x.rs]}\n\
        \x20 - {id: b, instruction: do b, blockedBy: [a]}\n";
    let instruction: Instruction = read("dispatch-instruction.yaml", text);
    assert_eq!(instruction.tasks[1].blocked_by, ["a"]);
    assert_eq!(instruction.pattern, Some(Pattern::B));
    assert_eq!(instruction.workflow, Some(Workflow::Heavy));
    assert_eq!(read::<Instruction>("x.yaml", &write(&instruction)), instruction);
    let task = "task_id: t\ninstruction: go\nblocked_by: a, b\nfiles: a, or b\n";
    let task: WorkerTask = read("worker-1-task.yaml", task);
    assert_eq!((task.id.as_str(), &*task.files[0]), ("t", "a, or b"));
    assert_eq!(task.blocked_by, ["a", "b"]);

    let cyclic = text.replace("files: [x.rs]", "blocked_by: [b]").replace("count: 2", "count: 9");
    let said = problems::<Instruction>("x.yaml", &cyclic).join("\n");
    assert!(said.contains("worker_count is 9: ask for 1 to 4"), "{said}");
    assert!(said.contains("waits for itself"), "{said}");
    let unknown = text.replace("[a]}", "[z]}");
    assert!(problems::<Instruction>("x.yaml", &unknown)[0].contains("waits for `z`"));
}

#[test]
fn all_mistakes_are_reported_with_line_field_and_hint() {
    let text = "task_id: [a, b]\nworker_id: w\n\nstatus: maybe\nsummary:\n  deep: yes\n";
    let expected = [
        "line 1: task_id is a list, not a text: write a text",
        "task_id is missing: name the task, as in `task_id: task-001`",
        "line 4: status is `maybe`: write one of success, failed, blocked",
        "line 5: summary is a mapping, not a text: write a text",
    ];
    assert_eq!(problems::<TaskReport>("other.yaml", text), expected);
    let missing = problems::<TaskReport>("t-completed.yaml", "task_id: t\n");
    assert_eq!(missing, ["status is missing: write one of success, failed, blocked"]);
    let finding = "task_id: t\nstatus: approved\nfindings:\n  - severity: bad\n    file: a\n";
    let expected = [
        "line 4: findings[0].severity is `bad`: write one of CRITICAL, HIGH, MEDIUM, LOW",
        "findings[0].description is missing: say what is wrong there",
    ];
    assert_eq!(problems::<Review>("t-review.yaml", finding), expected);
    let twice = "taskId: a\nstatus: success\ntask_id: b\n";
    let told = problems::<TaskReport>("t-completed.yaml", twice);
    let expected = "line 3: task_id appears twice, and differs from line 1: keep one of the two";
    assert_eq!(told, [expected]);
    let same: TaskReport = read("t-completed.yaml", &twice.replace("b\n", "a\n"));
    assert!(same.task_id == "a" && same.extra.is_empty(), "{same:?}");
    let yaml = problems::<TaskReport>("t-completed.yaml", "task_id: t\nstatus: [\n");
    assert!(yaml[0].starts_with("line ") && yaml[0].contains("is not YAML"), "{yaml:?}");
}

#[test]
fn a_list_is_read_where_a_text_is_meant() {
    let text = "task_id: [t]\nworker_id: [w]\nstatus: [done]\nsummary: [one, two]\n";
    let report: TaskReport = read("t-completed.yaml", text);
    assert_eq!((report.task_id.as_str(), report.worker_id.as_deref()), ("t", Some("w")));
    assert_eq!((report.status, report.summary.as_deref()), (Status::Success, Some("one\ntwo")));
}

#[test]
fn foreign_shape_is_not_an_error() {
    for text in ["n: 1\n", "good: yes\n", "lines: 7\nfiles: [a]\n", "{}"] {
        let reading = read_as::<TaskReport>(text, Path::new("t-completed.yaml"));
        assert_eq!(reading, Ok(Reading::Foreign), "{text}");
    }
    assert!(read_as::<TaskReport>("just text\n", Path::new("x.yaml")).is_err());
}

#[test]
fn errors_stay_short() {
    let many: String = (0..500).map(|n| format!("  - severity: x{n}\n")).collect();
    let broken = problems::<Review>("t-review.yaml", &format!("status: ok\nfindings:\n{many}"));
    assert_eq!(broken.len(), super::problem::PROBLEMS_MAX);
    let long = format!("task_id: t\nstatus: \"{}\\e\"\n", "x".repeat(10_000));
    let said = problems::<TaskReport>("t-completed.yaml", &long);
    assert!(said[0].len() < 200 && !said[0].contains('\u{1b}'), "{said:?}");
}

proptest::proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,200}") {
        for kind in ContractKind::ALL {
            if let Ok(node) = DocumentNode::parse(&text, Path::new("x.yaml")) {
                let _ = check(kind, &node, Path::new("x.yaml"));
            }
        }
    }

    #[test]
    fn written_documents_are_read_back(
        task in "t[a-z0-9-]{0,11}",
        summary in "[^\\x00-\\x08\\x0b-\\x1f\\x7f-\\u{9f}\\u{feff}\\u{fffe}\\u{ffff}]{1,80}",
        files in proptest::collection::vec("[a-zA-Z0-9./ :#-]{1,20}", 0..4),
    ) {
        let mut report = TaskReport::new(task, Status::Blocked);
        report.summary = Some(summary.trim().to_owned()).filter(|text| !is_absent(text));
        report.files_modified = files.iter().map(|file| format!("f{}", file.trim())).collect();
        let text = write(&report);
        let read = read_as::<TaskReport>(&text, Path::new("x.yaml"));
        proptest::prop_assert_eq!(read, Ok(Reading::Whole(report)), "{}", text);
    }
}

#[test]
fn a_report_is_read_as_models_write_it() {
    for text in [
        "タスクID: T\nステータス: 成功\n担当者: “worker-1”\n概要: x\nエラー: なし\n",
        "任务ID：T\n状态：✅\n执行者：worker-1\n摘要：x\n",
        "task_id: Some(\"T\")\nstatus: Some(success)\nworker_id: Some(worker-1)\nsummary: x\nerrors: None\n",
        "Report:\n```yaml\ntask_id: “T”\nstatus: ✔️\nworker_id: «worker-1»\nsummary: x\n```\n",
        "---\ntask_id: T\nstatus: done\nworker_id: worker-1\nsummary: x\nerrors: n/a\nfailure_reason: nil\n---\n# All\n",
    ] {
        let report: TaskReport = read("t-completed.yaml", text);
        let mut wanted = TaskReport::new("T", Status::Success);
        (wanted.worker_id, wanted.summary) = (Some("worker-1".to_owned()), Some("x".to_owned()));
        assert_eq!(report, wanted, "{text}");
    }
    let report: TaskReport = read("t-completed.yaml", "task_id: 1.10\nstatus: done\n");
    assert_eq!(report.task_id, "1.10");
}

#[test]
fn a_name_near_a_report_shows_the_name_that_was_meant() {
    for (file, meant) in [
        ("t-complete.yaml", "t-completed.yaml"),
        ("t_completed.yaml", "t-completed.yaml"),
        ("T-Completed.yaml", "T-completed.yaml"),
        ("t-completed.yml", "t-completed.yaml"),
        ("t-completed.yaml.txt", "t-completed.yaml"),
        ("Copy of t-completed.yaml", "t-completed.yaml"),
        ("Kopie von t-completed.yaml", "t-completed.yaml"),
        ("t-completed (1).yaml", "t-completed.yaml"),
        ("t.completed.yaml", "t-completed.yaml"),
        ("t-completed_", "t-completed.yaml"),
        ("completed-task-7", "task-7-completed.yaml"),
        ("task-7-report.md", "task-7-completed.yaml"),
        ("t-escalation.yaml", "escalation-t.yaml"),
    ] {
        assert_eq!(meant_name(file).as_deref(), Some(meant), "{file}");
    }
    for file in ["t-completed.yaml", "notes.yaml", "done.yaml", "", " (2).yaml", "\u{fc}.txt"] {
        assert_eq!(meant_name(file), None, "{file}");
    }
}
