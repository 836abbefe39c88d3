//! Tasks of the blackboard over tools alone, as any client calls them.

use ensemble_core::watch::Waiter;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

use super::project;
use crate::bed::{Bed, JsonMembers as _, Running, SaidText as _, git};
use crate::mcp_client::Mcp;

/// Calls tools in one session over stdin and stdout, as any client does; the answers.
fn session(bed: &Bed, agent: &str, calls: &[(&str, Value)]) -> Vec<(bool, Value)> {
    session_with(bed, agent, calls, |_| {})
}

/// The same, with something that happens before each call.
fn session_with(
    bed: &Bed,
    agent: &str,
    calls: &[(&str, Value)],
    before: impl Fn(usize),
) -> Vec<(bool, Value)> {
    use std::io::{BufRead as _, BufReader, Write as _};
    let mut server = Running(bed.start_piped(&format!("--as {agent} mcp")));
    let mut input = server.0.stdin.take().unwrap();
    let mut output = BufReader::new(server.0.stdout.take().unwrap()).lines();
    let mut ask = |id: usize, method: &str, params: Value| {
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        writeln!(input, "{request}").unwrap();
        if id == 0 {
            let note = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
            writeln!(input, "{note}").unwrap();
        }
        loop {
            let line = output.next().expect("an answer").unwrap();
            let answer: Value = serde_json::from_str(&line).unwrap();
            if answer["id"] == id {
                return answer["result"].clone();
            }
        }
    };
    let client = json!({ "name": "test", "version": "1" });
    let hello = json!({
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client,
    });
    ask(0, "initialize", hello);
    let answered = calls.iter().enumerate().map(|(at, (tool, arguments))| {
        before(at);
        let result = ask(at + 1, "tools/call", json!({ "name": tool, "arguments": arguments }));
        let text = result["content"][0]["text"].as_str().unwrap();
        let value = match &result["structuredContent"] {
            Value::Null => serde_json::from_str(text).unwrap_or_else(|_| json!(text)),
            structured => structured.clone(),
        };
        (result["isError"] == true, value)
    });
    answered.collect()
}

#[test]
fn a_task_goes_from_claim_to_verdict_over_tools_alone() {
    let bed = project();
    bed.ok("agent register --as Devon --role code-reviewer");
    bed.ok("agent register --as Nina --role coder");
    let said = session(&bed, "Tara", &[("claim_task", json!({})), ("whoami", json!({}))]);
    assert!(!said[0].0 && !said[1].0, "{said:?}");
    let held = &said[1].1["tasks"][0];
    held.fits(json!({ "task": "task-1", "duty": "work", "epoch": said[0].1["epoch"] }));
    let tree = said[0].1["path"].as_str().unwrap();
    git(Path::new(tree), "commit --quiet --allow-empty -m parsed");
    let other = session(&bed, "Nina", &[("submit_task", json!({ "task_id": "task-1" }))]);
    assert!(other[0].0 && other[0].1.as_str().unwrap().contains("does not hold"), "{other:?}");
    let said = session(
        &bed,
        "Tara",
        &[("heartbeat", json!({ "context_used": 41 })), ("submit_task", json!({}))],
    );
    assert_eq!((said[1].0, &said[1].1["status"]), (false, &json!("READY_FOR_REVIEW")), "{said:?}");
    let board: Value = bed.object("board show");
    assert_eq!(board["agents"]["Tara"]["context_percent"], 41);
    let said = session(
        &bed,
        "Devon",
        &[
            ("verdict_task", json!({ "approve": true })),
            ("claim_task", json!({ "review": true })),
            ("verdict_task", json!({ "approve": false })),
            ("verdict_task", json!({ "approve": false, "reason": "src/a.rs:1 is empty" })),
        ],
    );
    let refused: Vec<bool> = said.iter().map(|(refused, _)| *refused).collect();
    assert_eq!(refused, [true, false, true, false], "{said:?}");
    assert_eq!(said[3].1["status"], "REJECTED");
    let said = session(
        &bed,
        "Tara",
        &[
            ("claim_task", json!({})),
            ("block_task", json!({ "reason": "no API", "questions": [] })),
            ("block_task", json!({ "reason": "no API", "questions": ["Which?"] })),
        ],
    );
    let refused: Vec<bool> = said.iter().map(|(refused, _)| *refused).collect();
    assert_eq!(refused, [false, true, false], "{said:?}");
    assert_eq!(said[2].1["status"], "BLOCKED");
}

#[test]
fn a_lease_that_cannot_be_renewed_keeps_no_other_from_it_and_a_worker_is_assigned_a_task() {
    let bed = project();
    bed.ok("send --to Tara -m more --id letter-2");
    (0..3).for_each(|_| assert_eq!(bed.run("recv --as Tara").code, 0));
    let lease = |id: &str| bed.mailbox(&format!("Tara/lease/{id}@1.yaml"));
    for (bad, good) in [("letter-1", "letter-2"), ("letter-2", "letter-1")] {
        std::fs::create_dir(lease(bad)).unwrap();
        let said = session(&bed, "Tara", &[("heartbeat", json!({}))]);
        assert!(said[0].0 && lease(good).is_file(), "{said:?}");
        std::fs::remove_dir(lease(bad)).unwrap();
        std::fs::remove_file(lease(good)).unwrap();
    }
    bed.ok("mailbox add solo");
    let ready = bed.project().join(".ensemble/ready");
    std::fs::create_dir_all(&ready).unwrap();
    let waiter = Waiter::new(std::slice::from_ref(&ready));
    let assign = json!({ "worker": "solo", "instruction": "count", "task_id": "t1" });
    let said = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ready.join("solo.ping").exists() {
                waiter.wait(Duration::from_secs(1));
            }
            std::fs::write(ready.join("solo@1.pong"), "").unwrap();
        });
        session(&bed, "Tara", &[("assign", assign)])
    });
    assert_eq!((said[0].0, &said[0].1["id"]), (false, &json!("t1.1")), "{said:?}");
    assert_eq!(said[0].1["watched"], false, "no watcher runs: {said:?}");
    assert!(bed.project().join("queue/mailbox/solo/new/t1.1.yaml").exists());
}

#[test]
fn a_worker_that_does_not_answer_is_described_in_fields_over_tools() {
    let bed = project();
    bed.configure("readiness: {wait: 1ms, retry: 0, attempts: 1}\n");
    bed.ok("mailbox add solo");
    let assign = json!({ "worker": "solo", "instruction": "count" });
    let said = session(&bed, "Tara", &[("assign", assign.clone())]);
    let expected = json!({
        "worker": "solo", "ready": false, "worker-id": "solo", "attempt": 1,
        "error_type": "unknown_worker_state", "window_inspected": false, "open_command_sent": false,
        "observation": "window not inspected: no pane is bound to solo", "action": "assign_stopped",
    });
    assert_eq!(said, [(true, expected)]);
    let (_, why) = Mcp::of(&bed, "Tara").ask("assign", &assign);
    why.begins("solo is not ready: pinged ").has(["no answer (`list_agents` lists the agents"]);
}

fn commit_in(bed: &Bed, task: &str) {
    let tree = bed.project().join(".worktrees").join(task);
    git(&tree, "commit --quiet --allow-empty -m done");
}

#[test]
fn the_last_holder_submits_its_task_over_tools_after_its_lease_unless_it_was_taken() {
    let submit = || ("submit_task", json!({}));
    for is_new_session in [false, true] {
        let bed = project();
        let said = if is_new_session {
            session(&bed, "Tara", &[("claim_task", json!({}))]);
            commit_in(&bed, "task-1");
            bed.end_lease("task-1");
            session(&bed, "Tara", &[submit()])
        } else {
            session_with(&bed, "Tara", &[("claim_task", json!({})), submit()], |at| {
                if at == 1 {
                    commit_in(&bed, "task-1");
                    bed.end_lease("task-1");
                }
            })
        };
        let last = said.last().unwrap();
        assert_eq!((last.0, &last.1["status"]), (false, &json!("READY_FOR_REVIEW")), "{said:?}");
    }

    let bed = project();
    bed.ok("agent register --as Nina --role coder");
    let named = ("submit_task", json!({ "task_id": "task-1" }));
    let said = session_with(&bed, "Tara", &[("claim_task", json!({})), named], |at| {
        if at == 1 {
            commit_in(&bed, "task-1");
            bed.end_lease("task-1");
            bed.ok("task claim task-1 --as Nina");
        }
    });
    let refused = said[1].1.to_string();
    assert!(said[1].0 && refused.contains("does not hold"), "{said:?}");
    let board: Value = bed.object("board show");
    assert_eq!(board["tasks"][0]["assigned_to"], "Nina");
}
