//! `report`, `review`, `summary`: linted first, written by a rename, announced once.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::bed::{Bed, JsonMembers as _, SaidText as _, end, land, objects, ran, words};
use crate::mcp_client::Mcp;

fn bed() -> Bed {
    let bed = Bed::new();
    fs::create_dir(bed.project().join("src")).unwrap();
    bed.write_file("src/a.rs", "one\ntwo\n");
    bed
}

fn run(bed: &Bed, args: &[&str]) -> crate::bed::Ran {
    ran(bed.command(args).output().unwrap())
}

fn report<'a>(task: &'a str, summary: &'a str) -> [&'a str; 8] {
    ["report", task, "--status", "success", "--as", "worker-1", "--summary", summary]
}

const GOOD: &str = "12 of 12 tests pass (100%), see src/a.rs:2";

/// A reported task would else be handed out again.
#[test]
fn a_report_is_to_be_repeated_where_a_full_disk_keeps_its_message_from_being_settled() {
    let bed = bed();
    bed.ok("mailbox add worker-1");
    bed.ok("send --to worker-1 --type task --task t-1 count");
    bed.ok("recv --as worker-1");
    // The settle is the one rename that replaces nothing.
    let strace =
        ["-f", "-o", "/dev/null", "-e", "trace=renameat2", "-e", "inject=renameat2:error=ENOSPC"];
    let report = bed.command(&report("t-1", GOOD));
    let mut traced = std::process::Command::new("strace");
    traced.args(strace).arg(report.get_program()).args(report.get_args());
    traced.envs(report.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let failed = ran(traced.current_dir(bed.project()).output().unwrap());
    assert_eq!((failed.code, failed.stdout.as_str()), (75, ""), "{failed:?}");
    let said = ["the report is stored, but", "free some room", "hint: report it again"];
    assert!(said.iter().all(|said| failed.stderr.contains(said)), "{failed:?}");
    ran(bed.command(&self::report("t-1", GOOD)).output().unwrap()).stdout.has(["\nsettled "]);
}

#[test]
fn a_report_is_linted_first_and_says_what_is_missing_and_how_to_say_it() {
    let bed = bed();
    let refused = run(&bed, &report("t-1", "some tests pass, see src/a.rs:9"));
    assert_eq!((refused.code, refused.stdout.as_str()), (1, ""), "{refused:?}");
    for said in [
        "`some` is vague",
        "it does not say how many: give a number, as in `12 of 12 tests pass`",
        "it does not say what share",
        "`src/a.rs` has 2 lines, not 9",
        "the report is not written",
    ] {
        assert!(refused.stderr.contains(said), "{said}\n{}", refused.stderr);
    }
    let file = bed.project().join("queue/reports/t-1-completed.yaml");
    assert!(!file.exists());
    let written = run(&bed, &report("t-1", GOOD));
    assert_eq!((written.code, written.stderr.as_str()), (0, ""), "{written:?}");
    let text = fs::read_to_string(&file).unwrap();
    text.begins("task_id: t-1\nstatus: success\nworker_id: worker-1\n").finishes("\n...\n");
    assert_eq!(bed.ok("admin lint queue/reports/t-1-completed.yaml"), "");
    // With a reason it may say less, and says so itself.
    let lacks = ["count", "share", "where"].map(|it| format!("--allow=missing-{it}=it only reads"));
    let allowed =
        report("t-2", "nothing to do").into_iter().chain(lacks.iter().map(String::as_str));
    assert_eq!(run(&bed, &allowed.collect::<Vec<_>>()).code, 0);
    assert_eq!(bed.ok("admin lint queue/reports/t-2-completed.yaml"), "");
    let warned = run(&bed, &[&report("t-3", "some")[..], &["--lint", "warn"]].concat());
    warned.ends(0).says(["warning: "]);
    let line = ["report", "t-4", "--status", "blocked", "--as", "worker-1", "--reason", "None"];
    for words in [&line[..6], &line[..]] {
        run(&bed, words).ends(2).says(["needs a reason"]);
    }
    let call = json!({ "task_id": "t-4", "status": "blocked", "summary": GOOD, "reason": "None" });
    let (is_refused, said) = Mcp::of(&bed, "w1").ask("report", &call);
    assert!(is_refused && said.contains("reason: say what is in the way"), "{said}");
}

#[test]
fn a_worker_cannot_review_its_own_work_and_the_third_needs_fix_stops_the_task() {
    let bed = bed();
    assert_eq!(run(&bed, &report("t-1", GOOD)).code, 0);
    let own = run(&bed, &["task", "review", "t-1", "--status", "approved", "--as", "worker-1"]);
    own.ends(1).says(["cannot review it"]);
    // A worker may be a number in its report.
    bed.write_file(
        "queue/reports/t-9-completed.yaml",
        "task_id: t-9\nstatus: done\nworker_id: 1\n",
    );
    bed.fails(1, "task review t-9 --status approved --as worker-1").has(["cannot review it"]);
    let finding = "HIGH src/a.rs:1: the token is logged => log its length";
    let found = |line: &str| run(&bed, &[words(line), vec!["--finding", finding]].concat());
    let fix = "task review t-1 --status needs_fix --as worker-2 --json";
    assert_eq!(bed.run(fix).code, 2, "needs_fix needs a finding");
    found("task review t-1 --status approved --as worker-2").ends(1).says(["too severe"]);
    for round in 1..=3 {
        let ran = found(fix);
        let said: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        said.fits(json!({ "cycles": round, "stopped": round == 3 }));
    }
    run(&bed, &report("t-1", GOOD)).ends(1).says(["came back from review 3 times"]);
    let again = json!({ "task_id": "t-1", "status": "success", "summary": GOOD });
    let (is_refused, said) = Mcp::of(&bed, "w1").ask("report", &again);
    assert!(is_refused && said.contains("came back from review 3 times"), "{said}");
    let told = bed.json("log --type loop_detected");
    assert_eq!(told.len(), 1);
    told[0]["data"].fits(json!({ "cycles": 3, "task_id": "t-1" }));
    let escalation = bed.read_file("queue/reports/escalation-t-1.yaml");
    escalation.has(["review_loop"]);
    assert!(escalation.contains("worker: worker-1\n"), "not the reviewer: {escalation}");
    bed.fails(1, "task review t-1 --lift --as worker-1");
    bed.ok("task review t-1 --lift --as conductor");
    assert_eq!(run(&bed, &report("t-1", GOOD)).code, 0);
    // A second reviewer does not write over the first.
    bed.ok("task review t-1 --status LGTM --as worker-3");
    let reports = bed.project().join("queue/reports");
    let reviews = ["t-1-review.yaml", "t-1.worker-3-review.yaml"];
    assert!(reviews.iter().all(|file| reports.join(file).exists()));
}

#[test]
fn a_summary_is_announced_once_and_names_missing_reports() {
    let bed = bed();
    assert_eq!(run(&bed, &report("t-1", GOOD)).code, 0);
    let partial = run(&bed, &["task", "summary", "--task", "t-1", "--task", "t-2", "--wait", "0s"]);
    partial.ends(3);
    partial.shows(["1 of 2 tasks (50%) are done at the deadline, 0 failed, 1 missing: t-2"]);
    partial.shows(["t-2 is missing: it is in no mailbox"]);
    let file = bed.project().join("queue/reports/completion-summary.yaml");
    let text = fs::read_to_string(&file).unwrap();
    text.has(["status: partial", "missing_tasks:\n"]);
    assert_eq!(bed.ok("admin lint queue/reports/completion-summary.yaml"), "");
    // Later reports do not change a summary that was sent.
    assert_eq!(run(&bed, &report("t-2", GOOD)).code, 0);
    let again = run(&bed, &["task", "summary", "--task", "t-2", "--task", "t-1"]);
    again.ends(3).shows(["(sent before)"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    let other = bed.object("task summary --task t-1 --task t-2 --batch second");
    other.fits(json!({ "status": "success", "told": true }));
}

#[test]
fn a_summary_waits_for_the_last_report_and_wakes_when_it_lands() {
    let bed = bed();
    let waiting = bed.start("task summary --task t-1 --wait 10m --json");
    let start = Instant::now();
    assert_eq!(run(&bed, &report("t-1", GOOD)).code, 0);
    let done = end(waiting);
    done.ends(0);
    // It looks by itself after three minutes.
    assert!(start.elapsed() < Duration::from_secs(120), "it did not poll for it");
    done.shows(["\"status\":\"success\""]);
}

const INSTRUCTION: &str = "type: start_workers\nworker_count: 2\ncreated_at: monday\ntasks:\n  \
    - {id: t-1, instruction: count the lines}\n  - {id: t-2, instruction: sum them}\n";

#[test]
fn a_conductor_instructs_hears_of_escalations_and_is_told_by_a_dispatcher() {
    let bed = bed();
    bed.write_file("plan.yaml", INSTRUCTION);
    let handed = bed.object("agent instruct plan.yaml");
    handed.fits(json!({ "state": "stored", "tasks": ["t-1", "t-2"] }));
    let in_vain = run(&bed, &["agent", "instruct", "plan.yaml", "--wait", "0s"]);
    assert_eq!((in_vain.code, in_vain.stdout.as_str()), (3, ""), "{in_vain:?}");
    in_vain.says(["after 0s"]);
    let conductor = bed.start("agent instruct plan.yaml --wait --json");
    // Dispatch, as an agent or a script would play it.
    let body = bed.ok("recv --as dispatch --body");
    assert_eq!(bed.run("recv --as dispatch").code, 3, "handed over once");
    bed.write_file("received.yaml", body);
    let dispatch = bed.start("task summary --instruction received.yaml --wait 10m --json");
    let escalation = "task_id: t-2\nreason: unanswered\ndetail: no person is at the pane\n...\n";
    land(&bed, "reports/escalation-t-2.yaml", escalation);
    for task in ["t-1", "t-2"] {
        assert_eq!(run(&bed, &report(task, GOOD)).code, 0);
    }
    let told = end(dispatch);
    let heard = end(conductor);
    assert_eq!((told.code, heard.code), (0, 0), "{told:?} {heard:?}");
    let heard = objects(&heard.stdout);
    assert_eq!(heard.len(), 2, "{heard:?}");
    assert_eq!(heard[0]["escalation"]["reason"], "unanswered");
    heard[1].fits(json!({ "status": "success", "batch_id": handed["batch_id"] }));
    assert_eq!(objects(&told.stdout)[0]["completed_at"], heard[1]["completed_at"]);
    let plain = bed.ok("agent instruct plan.yaml --wait");
    plain.begins("escalated: t-2: unanswered; no person is at the pane\n");
    plain.has(["2 of 2 tasks (100%) are done"]);
    bed.write_file("plan.yaml", INSTRUCTION.replace("sum", "add"));
    assert!(bed.fails(1, "agent instruct plan.yaml").contains("change `created_at`"));
    bed.write_file("plan.yaml", "type: start_workers\ntasks: []\n");
    assert!(bed.fails(2, "agent instruct plan.yaml").contains("list the tasks"));
}
