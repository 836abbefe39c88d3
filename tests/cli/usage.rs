//! What work took, by the records that agents keep, and the budgets of agents and tasks.

use std::path::Path;

use ensemble_core::message::{Name, Timestamp};
use ensemble_team::roster::{Member, Roster};
use serde_json::{Value, json};

use crate::bed::{Bed, JsonMembers as _, Running, SaidText as _};
use crate::live::Screen;
use crate::tmux_support::eventually;

/// A request of this many million tokens to a model that costs a dollar for each.
fn request(id: &str, millions: u64) -> Value {
    json!({
        "type": "assistant", "timestamp": Timestamp::now(), "requestId": id,
        "message": {
            "id": id, "model": "model-a",
            "usage": { "input_tokens": millions * 1_000_000, "output_tokens": 0 },
        },
    })
}

fn turn() -> Value {
    json!({ "type": "user", "timestamp": Timestamp::now(), "message": { "content": "go" } })
}

fn append(record: &Path, lines: &[Value]) {
    let before = std::fs::read_to_string(record).unwrap_or_default();
    let new: String = lines.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(record, before + &new).unwrap();
}

/// A project whose agent `w1` works on task `t1`, and the record of its program. The limits are those of `budget`.
fn project(budget: &str) -> (Bed, std::path::PathBuf) {
    let bed = Bed::new();
    bed.configure(&format!("budget: {{prices: prices.yaml, {budget}}}\n"));
    let prices = "as_of: today\nmodels:\n  - {model: model-a, input: 1, output: 0}\n";
    bed.write_file("prices.yaml", prices);
    bed.ok("mailbox add w2");
    bed.ok("send --to w1 --type task --task t1 --id first -m work");
    bed.ok("recv --as w1");
    let record = bed.project().join("record.jsonl");
    append(&record, &[turn(), request("r1", 1)]);
    let event = json!({ "session_id": "s1", "transcript_path": record });
    bed.run_with("hook tool --provider claude --as w1", event.to_string().as_bytes()).ends(0);
    (bed, record)
}

#[test]
fn the_live_view_says_what_work_took() {
    let (bed, record) = project("");
    let screen = Screen::start(&bed.project(), "top", (80, 24));
    screen.shows("used 1000k tokens, $1.00");
    append(&record, &[turn(), request("r2", 2)]);
    screen.shows("used 3000k tokens, $3.00");
    let page = bed.ok("log report -o -");
    assert!(page.contains("<th>tokens</th>") && page.contains("$3.00"), "the page has it, too");
}

#[test]
fn opencode_says_what_it_used_with_its_hooks() {
    let bed = Bed::new();
    let hook = |event: &str, input: Value| {
        let line = format!("hook {event} --provider opencode --as w1");
        bed.run_with(&line, input.to_string().as_bytes()).ends(0);
    };
    let answer = |id: &str, input: u64| json!({ "at": Timestamp::now(), "id": id, "model": "m", "input": input, "output": 1, "cost": 0.5 });
    hook("prompt", json!({ "session_id": "s1" }));
    hook("tool", json!({ "session_id": "s1", "usage": [answer("a", 10)] }));
    hook(
        "stop",
        json!({ "session_id": "s1", "usage": [answer("a", 20), answer("b", 5), "no object"] }),
    );
    hook("stop", json!({ "session_id": "s1", "usage": "no list" }));
    let row = bed.json("agent usage").remove(0);
    row.fits(json!({ "agent": "w1", "turns": 1, "requests": 2 }));
    assert_eq!((&row["tokens"]["input"], &row["cost_usd"]), (&json!(25), &json!(1.0)), "{row}");
}

#[test]
fn what_work_took_is_told_by_agent_and_task() {
    let (bed, record) = project("");
    let rows = bed.json("agent usage");
    let amounts =
        |row: &Value| (row["turns"].as_u64(), row["requests"].as_u64(), row["cost_usd"].as_f64());
    rows[0].fits(json!({ "agent": "w1", "task_id": null }));
    rows[1].fits(json!({ "agent": "w1", "task_id": "t1" }));
    for row in &rows {
        assert_eq!(amounts(row), (Some(1), Some(1), Some(1.0)), "{row}");
    }
    bed.ok("settle first --as w1");
    // Another session of the agent, outside of any task.
    let second = record.with_file_name("second.jsonl");
    append(&second, &[turn(), request("r2", 2)]);
    let event = json!({ "session_id": "s2", "transcript_path": second });
    bed.run_with("hook tool --provider claude --as w1", event.to_string().as_bytes()).ends(0);
    let rows = bed.json("agent usage w1");
    assert_eq!(amounts(&rows[0]), (Some(2), Some(2), Some(3.0)));
    assert_eq!(amounts(&rows[1]), (Some(1), Some(1), Some(1.0)));
    let tasks = bed.json("agent usage --by-task");
    assert_eq!((tasks.len(), &tasks[0]["task_id"]), (1, &json!("t1")));
    let table = bed.ok("agent usage");
    table.has(["$3.00", "  t1"]);
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    assert!(bed.ok("why t1").contains("1 turn, 1 request, 1000k tokens, $1.00"));
    assert_eq!(bed.json("why t1")[0]["took"]["requests"], 1);
    let unknown = "no record of agent `w9` is known: did you mean w1?";
    assert!(bed.fails(3, "agent usage w9").contains(unknown));
}

#[test]
fn what_is_over_its_budget_begins_no_work_until_more_is_allowed() {
    let (bed, record) = project("task: {usd: 1.5}");
    let watcher = Running(bed.start("watch"));
    bed.ok("send --to w2 --type task --task t1 --id second -m more");
    append(&record, &[request("r2", 1)]);
    eventually("the task is parked", || bed.ok("status").contains("task t1 has used $2.00"));
    bed.ok("status").has(["-> `ensemble agent usage allow task t1 --usd N|--tokens N`"]);
    bed.run("recv --as w2").ends(3).says(["the budget of task t1 is used up: $2.00"]);
    // Wherever it is pasted, the command that allows more means this queue.
    let named = "`ensemble --queue ";
    for line in ["agent usage", "log report -o -"] {
        let said = bed.ok(&format!("--queue queue {line}"));
        let allow = said.lines().find(|line| line.contains("usage allow task t1")).unwrap();
        assert!(allow.replace("<code>", "`").contains(named), "{allow}");
    }
    // Other tasks begin, and what was begun is ended.
    bed.ok("send --to w2 --type task --task t2 --id other -m work");
    assert!(bed.ok("recv --as w2").contains("other"));
    bed.ok("settle other --as w2");
    eventually("the conductor is told", || {
        bed.ok("inbox conductor --json").contains("board.alarm")
    });
    bed.ok("recv --as conductor").has(["alarm: over_budget", "about: task t1"]);

    assert!(bed.fails(2, "agent usage allow task --usd 1").contains("NAME"));
    assert!(bed.fails(2, "agent usage allow task t1 --usd 0").contains("above zero"));
    assert!(bed.fails(2, "agent usage allow team w1 --usd 1").contains("`agent w1`"));
    assert!(bed.ok("agent usage allow task t1 --usd 10").contains("allowed task t1 $10.00 more"));
    assert!(bed.ok("recv --as w2").contains("second"));
    bed.ok("settle first --as w1");
    let kinds = |kind: &str| bed.ok("log --json").matches(&format!("\"{kind}\"")).count();
    assert_eq!((kinds("budget.parked"), kinds("budget.allowed")), (1, 1));
    drop(watcher);
}

/// A rollout of Codex in its home, with one request of `tokens` tokens.
fn rollout(home: &Path, name: &str, cwd: &Path, tokens: u64, typed: &str) -> std::path::PathBuf {
    let now = Timestamp::now().to_string();
    let dir = home.join("sessions").join(now[..10].replace('-', "/"));
    std::fs::create_dir_all(&dir).unwrap();
    let line =
        |kind: &str, payload: Value| json!({ "timestamp": now, "type": kind, "payload": payload });
    let total = json!({ "input_tokens": tokens, "output_tokens": 0 });
    let info = json!({ "total_token_usage": total, "last_token_usage": total });
    let path = dir.join(format!("rollout-{name}.jsonl"));
    append(
        &path,
        &[
            line(
                "session_meta",
                json!({ "cwd": cwd, "timestamp": now, "originator": "codex-tui" }),
            ),
            line("turn_context", json!({ "model": "model-a" })),
            line("event_msg", json!({ "type": "task_started" })),
            line("event_msg", json!({ "type": "user_message", "message": typed })),
            line("event_msg", json!({ "type": "token_count", "info": info })),
        ],
    );
    path
}

#[test]
fn a_codex_without_hooks_is_counted_where_its_rollout_can_be_of_one_agent_only() {
    let (bed, _) = project("");
    let (home, root) = (bed.project().join("codex-home"), bed.project());
    // The page has the agents that have acted.
    bed.ok("mailbox add c1");
    bed.ok("send --to c1 --type task --task t9 --id c1-task -m work");
    bed.ok("recv --as c1");
    let roster = Roster::open(&root.join(".ensemble"));
    let started = Timestamp::from_unix_millis(Timestamp::now().unix_millis() - 60_000);
    for agent in ["c1", "c2"] {
        let name = Name::new(agent).unwrap();
        let mut member = Member::new(name.clone(), Name::new("worker").unwrap(), "codex", started);
        member.directory = Some(root.clone());
        member.env = [("CODEX_HOME".to_owned(), home.display().to_string())].into();
        roster.change(&name, |_| Ok(Some(member))).unwrap();
    }
    let hint = "ensemble: 1 message for c1. Run: ensemble recv --as c1";
    rollout(&home, "hinted", &root, 2_000_000, hint);
    let unclear = rollout(&home, "unclear", &root, 4_000_000, "do it");
    let ran = bed.run("agent usage");
    assert!(ran.stdout.lines().any(|it| it.starts_with("c1 ") && it.contains("2000k")), "{ran:?}");
    ran.stdout.lacks(["c2", "4000k"]);
    let told = format!("{} may be of c1 or c2, and counts for no agent", unclear.display());
    ran.says([&told]);
    // The agent `w1` of the project has used 1000k.
    let screen = Screen::start(&root, "top", (110, 24));
    screen.shows_all(["used 3000k tokens", "1 record of unclear owner"]);
    let page = bed.ok("log report -o -");
    assert!(page.contains("$2.00") && page.contains(&told), "the page has it, too");
}
