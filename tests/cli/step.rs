//! `ensemble step`: a queue from plan to end, by hand and driven.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use serde_json::json;

use crate::bed::{Bed, JsonMembers as _, SaidText as _, end, git, keys, words};
use crate::conversation::{of_member, reader, works};

const PLAN: &str = "
task_id: 0-4-1
orchestrator: conductor
steps:
  - {agent: Tara, goal: one, files: [tests/a.rs]}
  - {agent: Devon, goal: two}
  - {agent: Tara, goal: three}
";

fn bed() -> Bed {
    let bed = Bed::new();
    bed.add_mailboxes(&["Tara", "Devon"]);
    bed.write_file("plan.yaml", PLAN);
    assert_eq!(bed.ok("step add -f plan.yaml"), "task 0-4-1: 3 steps stored\n");
    bed
}

fn submit(bed: &Bed, step: u32, agent: &str, rest: &str) -> String {
    let report = format!(
        "{{\"task_id\": \"0-4-1\", \"step_index\": {step}, \"agent\": \"{agent}\", {rest}}}"
    );
    let ran = bed.run_with(&format!("step submit - --as {agent}"), report.as_bytes());
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    ran.stdout
}

type Damage = (&'static str, fn(&Path, &[u8]));

#[test]
fn a_damaged_database_is_found_and_ends_no_view() {
    let damages: [Damage; 9] = [
        ("emptied", |file, _| fs::write(file, "").unwrap()),
        ("garbage", |file, _| {
            fs::write(file, "no database at all, in many words ".repeat(300)).unwrap()
        }),
        ("cut", |file, whole| fs::write(file, &whole[..whole.len() / 2]).unwrap()),
        ("a corrupt page", |file, whole| {
            let mut bytes = whole.to_vec();
            // All but the first page, which has the header.
            bytes[4096..].fill(0xa5);
            fs::write(file, bytes).unwrap();
        }),
        ("one corrupt page", |file, whole| {
            let mut bytes = whole.to_vec();
            bytes[2 * 4096..3 * 4096].fill(0xa5);
            fs::write(file, bytes).unwrap();
        }),
        ("a directory", |file, _| fs::create_dir(file).unwrap()),
        ("a pipe", |file, _| {
            rustix::fs::mkfifoat(rustix::fs::CWD, file, rustix::fs::Mode::RUSR).unwrap()
        }),
        ("a link", |file, _| std::os::unix::fs::symlink("/dev/zero", file).unwrap()),
        ("of a newer version", |file, whole| {
            fs::write(file, whole).unwrap();
            let db = rusqlite::Connection::open(file).unwrap();
            db.pragma_update(None, "user_version", 99).unwrap();
        }),
    ];
    for (damage, make) in damages {
        let bed = bed();
        assert_eq!(bed.ok("admin fsck"), "clean\n");
        let file = bed.project().join(".ensemble/steps.db");
        let whole = fs::read(&file).unwrap();
        for left in ["", "-wal", "-shm"] {
            let _ = fs::remove_file(file.with_file_name(format!("steps.db{left}")));
        }
        make(&file, &whole);
        let checked = bed.run("admin fsck");
        assert_eq!(checked.code, 4, "{damage}: {checked:?}");
        assert!(checked.stdout.contains("steps.db"), "{damage}: {checked:?}");
        for view in ["status", "team"] {
            let shown = bed.run(view);
            // This team has no agents.
            let code = if view == "team" { 3 } else { 0 };
            assert_eq!(shown.code, code, "{damage}, {view}: {shown:?}");
            let is_need = shown.stdout.contains("the step queue cannot be read: ");
            assert!(is_need || view == "team", "{damage}, {view}: {shown:?}");
        }
        let next = bed.run("step next --as Tara");
        let is_refused = ![0, 3].contains(&next.code);
        assert!(is_refused || damage == "one corrupt page", "{damage}: {next:?}");
    }
}

#[test]
fn a_queue_by_hand() {
    let bed = bed();
    assert!(bed.fails(3, "step next --as Devon").contains("Tara"));
    let next = bed.object("step next --as Tara");
    let expected = "task_id step_index agent attempt attempts_max epoch lease_seconds \
        again goal prompt prompt_sha256 files";
    assert_eq!(keys(&next), words(expected));
    assert!(submit(&bed, 1, "Tara", "\"status\": \"success\"").contains("the queue continues"));
    bed.ok("step next --as Devon");
    let failed = submit(&bed, 2, "Devon", "\"status\": \"failure\", \"summary\": \"401\"");
    failed.has(["attempt 2"]);
    assert!(bed.ok("step next --as Devon").contains("failed with this error"));
    submit(&bed, 2, "Devon", "\"status\": \"blocked\", \"blockers\": [\"no file\"]");
    assert!(bed.fails(3, "step next --as Devon").contains("is paused: step 2"));
    assert_eq!(bed.object("recv --as conductor")["type"], "step.blocked");
    let stuck = bed.fails(1, "step run 0-4-1 --stop-if-stuck");
    stuck.has(["`ensemble step unblock 0-4-1 2`, or `step skip`"]);
    assert_eq!(bed.ok("step unblock 0-4-1 2 --note there"), "step 2 of task 0-4-1 is PENDING\n");
    let again = bed.object("step next --as Devon");
    again.fits(json!({ "epoch": 3, "attempt": 1 }));
    // The hand-out before.
    let report = b"{\"task_id\": \"0-4-1\", \"step_index\": 2, \"agent\": \"Devon\", \"status\": \"success\"}";
    let late = bed.run_with("step submit --as Devon --epoch 2", report);
    late.ends(1).says(["handed out again since"]);
    submit(&bed, 2, "Devon", "\"status\": \"success\"");
    assert_eq!(bed.json("step list")[0]["done"], 2);
    // An agent of the queue cannot skip the review of what it has done.
    assert!(bed.fails(1, "step skip 0-4-1 3 --as Devon").contains("Devon works on this task"));
    bed.ok("step skip 0-4-1 3");
    assert!(bed.fails(3, "step next --as Tara").contains("no step is left to do"));
    bed.ok("step list 0-4-1").has(["COMPLETED (skipped)"]);
}

#[test]
fn a_worker_that_waits_gets_a_step_of_a_task_that_comes_later() {
    let bed = bed();
    for step in 1..=3 {
        bed.ok(&format!("step skip 0-4-1 {step}"));
    }
    // A task with nothing left has nothing to wait for.
    bed.fails(3, "step next --as Tara --task 0-4-1 --wait 60s").has(["no step is left to do"]);
    let waits = bed.start("step next --as Tara --wait 60s --json");
    bed.write_file("later.yaml", PLAN.replace("0-4-1", "0-4-2"));
    bed.ok("step add -f later.yaml");
    end(waits).shows(["\"task_id\":\"0-4-2\""]);
}

#[test]
fn mistakes_in_a_report_are_named_with_what_to_write() {
    let bed = bed();
    bed.ok("step next --as Tara");
    let ran = bed.run_with("step submit --as Tara", b"{\"step_index\": 1.5}");
    assert_eq!(ran.code, 2);
    for part in ["task_id: is missing", "1.5 is not a step", "status: is missing"] {
        ran.says([part]);
    }
    assert_eq!(bed.run_with("step submit --as Tara", b"no json").code, 2);
    let report = b"{\"task_id\": \"0-4-1\", \"step_index\": 1, \"agent\": \"Tara\", \
                   \"status\": \"failure\", \"artefacts\": [], \"bogus\": 1}";
    let ran = bed.run_with("step submit --as Tara", report);
    assert_eq!(ran.code, 2);
    for part in [
        "nothing was submitted: artefacts: is not a member of submit_step_completion: write `artifacts`",
        "bogus: is not a member of submit_step_completion: leave it out",
        "summary: `failure` needs a reason: write in `summary` what failed, where",
    ] {
        assert!(ran.stderr.contains(part), "{part}: {ran:?}");
    }
    assert_eq!(bed.object("step show 0-4-1 1")["status"], "IN_PROGRESS");
}

const REVIEWED: &str = "
task_id: 0-4-1
policy: tdd
attempts_max: 2
steps:
  - {agent: Tara, phase: red, goal: Write a failing test, files: [tests/l.py]}
  - {agent: Devon, phase: green, goal: Make it pass, files: [src/l.py]}
  - {agent: Tara, phase: review, goal: Review, context: [src/l.py], fix_by: Devon}
  - {agent: Tara, phase: red, cycle: b, goal: Go on, plan: true}
";

/// A review that failed once, and its fix, which Devon has not taken.
fn reviewed() -> Bed {
    let bed = Bed::new();
    bed.add_mailboxes(&["Tara", "Devon"]);
    bed.write_file("plan.yaml", format!("The plan:\n```yaml{REVIEWED}```\n"));
    bed.ok("step add -f plan.yaml");
    for (step, agent) in [(1, "Tara"), (2, "Devon")] {
        bed.ok(&format!("step next --as {agent}"));
        submit(&bed, step, agent, "\"status\": \"success\"");
    }
    bed.ok("step next --as Tara");
    let said = submit(&bed, 3, "Tara", "\"status\": \"failure\", \"summary\": \"it leaks\"");
    let expected = "step 3 of task 0-4-1 is FAILED: Devon fixes it in step 5, then it comes again, \
                    as attempt 2\n";
    assert_eq!(said, expected);
    bed
}

#[test]
fn a_failed_review_is_fixed_reviewed_again_and_stands_in_the_status_in_the_end() {
    let bed = reviewed();
    assert!(bed.ok("step list 0-4-1").contains("FAILED (waits for its fix)"));
    assert_eq!(bed.ok("status --json").matches("\"standing\":[]").count(), 1);
    let fix = bed.ok("step next --as Devon");
    fix.begins("ROLE: Devon\nGOAL: Fix what made step 3 fail: Review\n");
    fix.lacks(["change nothing"]).has(["it leaks"]);
    assert!(bed.ok("step show 0-4-1 5").contains("fixes     step 3\n"));
    assert!(bed.ok("step show 0-4-1 4").contains("plan      must be approved first\n"));
    submit(&bed, 5, "Devon", "\"status\": \"success\"");
    bed.ok("step next --as Tara").has(["GOAL: Review\n", "change nothing"]);
    submit(&bed, 3, "Tara", "\"status\": \"failure\", \"summary\": \"it still leaks\"");
    let status = bed.ok("status");
    status.has(["!  task 0-4-1 is stuck at step 3: it still leaks ("]);
    status.has(["  -> `ensemble step retry 0-4-1 3`, or `step skip`\n"]);
    let standing = &bed.json("status").pop().unwrap()["steps"]["standing"];
    standing[0].fits(json!({ "step_index": 3, "stops_queue": true }));
    // The plan names no orchestrator.
    assert_eq!(bed.object("recv --as conductor")["type"], "step.failed");
    bed.ok("step retry 0-4-1 3");
    assert!(!bed.ok("status").contains("is stuck"));
}

#[test]
fn what_a_lost_worker_has_left_in_its_repository_is_in_the_next_prompt() {
    let bed = reviewed();
    let project = bed.project();
    git(&project, "init --quiet");
    git(&project, "add plan.yaml ensemble.yaml");
    git(&project, "-c user.name=t -c user.email=t@example.org commit --quiet -m first");
    bed.ok("step next --as Devon");
    std::fs::create_dir(project.join("src")).unwrap();
    std::fs::write(project.join("src/half.py"), "def f(\n").unwrap();
    std::fs::write(project.join("plan.yaml"), "changed\n").unwrap();
    bed.ok("step retry 0-4-1 5");
    let prompt = bed.ok("step next --as Devon");
    let left = "The last attempt (epoch 1, by Devon) ended without a report: the step was taken away \
                from it. Check first what it left half done. Changed files in ";
    prompt.has([left, " (git status): M plan.yaml, ?? src/half.py.\n"]);
}

#[test]
fn a_missing_queue_or_step_is_reported() {
    let bed = Bed::new();
    assert!(bed.fails(3, "step list").contains("step add"));
    let bed = self::bed();
    assert!(bed.fails(3, "step show 0-4-1 9").contains("there is no step 9"));
    assert!(bed.fails(3, "step list nope").contains("there is no task nope"));
    bed.write_file("typo.yaml", "task_id: y\nsteps: [{agent: Tarra, goal: x}]\n");
    bed.run("step add -f typo.yaml").stderr.has(["no mailbox `Tarra`: did you mean Tara?"]);
    bed.write_file("bad.yaml", "task_id: x\nsteps: [{agent: A}]\n");
    assert!(bed.fails(2, "step add -f bad.yaml").contains("bad.yaml: line 2"));
    for (content, what) in
        [(&b"\xff"[..], "is not UTF-8 at byte 0"), (&b"\xff\xfet\0"[..], "is UTF-16")]
    {
        bed.write_file("bad.yaml", content);
        for verb in ["step add", "step split 0-4-1 2"] {
            let said = bed.fails(2, &format!("{verb} -f bad.yaml"));
            said.has([&format!("bad.yaml: file: {what}: save it as UTF-8")]);
        }
    }
}

#[test]
fn a_prompt_reaches_an_agent_that_reads_another_mailbox_and_ends_there() {
    let bed = bed();
    reader(&bed, "Tara", "pool");
    let mut run = bed.start("step run 0-4-1 --json --timeout 10m");
    let prompted = BufReader::new(run.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    run.kill().unwrap();
    run.wait().unwrap();
    prompted.has(["\"step_index\":1"]);
    assert_eq!(bed.json("inbox Tara")[0]["mailbox"], "pool");
    let report = r#"{"task_id": "0-4-1", "step_index": 1, "agent": "Tara", "status": "success"}"#;
    works(of_member(&bed, "Tara", "step submit -", report));
    assert!(bed.json("inbox Tara").is_empty());
}

#[test]
fn a_driven_queue_goes_on_after_its_driver_was_killed() {
    let bed = bed();
    let start = || {
        let mut run = bed.start("step run 0-4-1 --json --timeout 10m");
        let lines = BufReader::new(run.stdout.take().unwrap()).lines();
        (run, lines)
    };
    let (mut run, mut lines) = start();
    assert!(lines.next().unwrap().unwrap().contains("\"step_index\":1"));
    run.kill().unwrap();
    run.wait().unwrap();
    let mail = bed.object("recv --as Tara");
    assert!(mail["body_text"].as_str().unwrap().starts_with("ROLE: Tara\nGOAL: one\n"));
    assert_eq!(mail["proof"], "person", "who has run the queue");
    // Only its submission ends it.
    let id = mail["id"].as_str().unwrap();
    for ended in [format!("settle {id}"), "report 0-4-1 --status success --lint off".to_owned()] {
        let refused = bed.fails(1, &format!("{ended} --as Tara"));
        refused.has(["step 1 of task 0-4-1 is not submitted"]);
        refused.has(["`ensemble step submit --epoch 1 - --as Tara`"]);
    }
    submit(&bed, 1, "Tara", "\"status\": \"success\"");
    assert!(bed.mailbox("Tara/done").read_dir().unwrap().next().is_some(), "it is settled");

    let (mut run, mut lines) = start();
    let mut next = || lines.next().unwrap().unwrap();
    assert!(next().contains("\"step_index\":2"));
    submit(&bed, 2, "Devon", "\"status\": \"failure\", \"summary\": \"401\"");
    assert!(next().contains("\"attempt\":2"));
    submit(&bed, 2, "Devon", "\"status\": \"blocked\", \"blockers\": [\"no file\"]");
    assert!(next().contains("\"event\":\"stuck\""));
    bed.ok("step unblock 0-4-1 2");
    assert!(next().contains("\"epoch\":3"));
    submit(&bed, 2, "Devon", "\"status\": \"success\"");
    assert!(next().contains("\"step_index\":3"));
    submit(&bed, 3, "Tara", "\"status\": \"success\"");
    assert!(next().contains("\"event\":\"done\""));
    assert!(run.wait().unwrap().success());
    let waiting = bed.json("inbox Devon");
    assert_eq!(waiting.len(), 0, "no prompt lies about: {waiting:?}");
}

#[test]
fn the_server_is_put_into_a_configuration_and_out_again() {
    let bed = Bed::new();
    let file = bed.project().join(".mcp.json");
    let before = "{\n  \"mcpServers\": {\"other\": {\"command\": \"x\"}}\n}\n";
    std::fs::write(&file, before).unwrap();
    bed.ok("mcp install --provider claude");
    std::fs::read_to_string(&file).unwrap().has(["ENSEMBLE_AGENT_ID"]);
    bed.ok("mcp uninstall --provider claude");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), before);
    bed.ok("mcp install --provider gemini");
    let gemini = bed.read_file(".gemini/settings.json");
    let gemini: serde_json::Value = serde_json::from_str(&gemini).unwrap();
    let server = &gemini["mcpServers"]["ensemble"];
    assert_eq!(server["args"], serde_json::json!(["mcp"]), "{gemini}");
    assert_eq!(server["env"]["ENSEMBLE_AGENT_ID"], "${ENSEMBLE_AGENT_ID:-}", "{gemini}");
    bed.ok("mcp uninstall --provider gemini");
    assert!(!bed.project().join(".gemini/settings.json").exists());
    for (provider, part) in
        [("codex", "[mcp_servers.ensemble]"), ("opencode", "\"type\": \"local\"")]
    {
        let entry = bed.ok(&format!("mcp install --provider {provider} --print"));
        entry.has([part]);
        let object = bed.object(&format!("mcp install --provider {provider} --print"));
        assert_eq!(object["entry"], entry);
    }
}

#[test]
fn each_printed_schema_is_one() {
    let bed = Bed::empty();
    let all = "config message task report review escalation summary instruction plan notice error api output";
    for what in words(all) {
        let printed = bed.ok(&format!("admin schema {what}"));
        let schema: serde_json::Value = serde_json::from_str(&printed).unwrap();
        assert!(schema["title"].is_string(), "{what}: {schema}");
        assert!(jsonschema::meta::is_valid(&schema), "{what}: {schema}");
    }
}

#[test]
fn the_completion_tool_is_the_seeds_word_for_word() {
    let tools = Bed::new().ok("admin schema tools");
    let tools: serde_json::Value = serde_json::from_str(&tools).unwrap();
    let seed = serde_json::json!({
      "type": "object",
      "properties": {
        "task_id": { "type": "string", "description": "e.g., '0-4-1'" },
        "step_index": { "type": "number", "description": "e.g., 1" },
        "agent": { "type": "string", "enum": ["Tara", "Devon"] },
        "status": { "type": "string", "enum": ["success", "failure", "blocked"] },
        "artifacts": {
          "type": "array",
          "items": { "type": "string" },
          "description": "List of files created or modified"
        },
        "summary": { "type": "string", "description": "Brief description of what was done" },
        "context_for_next_step": { "type": "string", "description": "Info for the next agent" },
        "blockers": {
          "type": "array",
          "items": { "type": "string" },
          "description": "Reasons for being blocked"
        }
      },
      "required": ["task_id", "step_index", "agent", "status"]
    });
    assert_eq!(tools["submit_step_completion"], seed);
}
