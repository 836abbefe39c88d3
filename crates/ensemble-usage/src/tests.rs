use std::io::Write as _;
use std::path::{Path, PathBuf};

use ensemble_core::event_log::{Record, RecordType};
use ensemble_core::message::{Name, Timestamp};
use serde_json::{Value, json};

use super::*;
use ensemble_tmux::session::AgentSession;

fn at(second: u32) -> String {
    format!("2026-11-25T10:00:{second:02}.000Z")
}

fn stamp(second: u32) -> Timestamp {
    at(second).parse().expect("a time")
}

fn put(path: &Path, lines: &[Value]) {
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    let mut file = file.expect("a file");
    for line in lines {
        writeln!(file, "{line}").expect("a line");
    }
}

fn read(program: RecordedProgram, files: &[PathBuf]) -> Vec<UsageEntry> {
    let mut records = UsageRecords::new(program);
    records.update(files, &mut ReadingLimit::none());
    records.entries().to_vec()
}

/// A directory, and the file of a record in it.
fn home() -> (tempfile::TempDir, PathBuf) {
    let home = tempfile::tempdir().expect("a directory");
    let file = home.path().join("a.jsonl");
    (home, file)
}

fn spent(program: RecordedProgram, lines: &[Value]) -> UsageTotals {
    let (_home, file) = home();
    put(&file, lines);
    let mut spent = UsageTotals::default();
    spent.add(&read(program, &[file]), &Prices::built_in());
    spent
}

fn claude_turn(second: u32) -> Value {
    json!({"type": "user", "timestamp": at(second), "message": {"role": "user", "content": "go"}})
}

fn claude_answer(second: u32, id: &str, output: u64) -> Value {
    json!({
        "type": "assistant", "timestamp": at(second), "requestId": format!("req-{id}"),
        "message": {
            "id": id, "model": "claude-opus-4-5-20251101",
            "usage": {
                "input_tokens": 1_000, "cache_creation_input_tokens": 300, "cache_read_input_tokens": 10_000,
                "output_tokens": output, "cache_creation": {"ephemeral_1h_input_tokens": 100},
            },
        },
    })
}

#[test]
fn the_lines_of_one_answer_of_claude_count_once() {
    let result = json!({"type": "user", "timestamp": at(4), "message": {"content": [{"type": "tool_result"}]}});
    let synthetic = json!({"type": "assistant", "timestamp": at(6), "message": {"model": "<synthetic>", "usage": {"input_tokens": 9}}});
    let lines = [
        claude_turn(1),
        claude_answer(2, "m1", 1),
        claude_answer(3, "m1", 200),
        result,
        claude_answer(5, "m2", 300),
        synthetic,
        claude_turn(30),
        claude_answer(33, "m3", 100),
    ];
    let spent = spent(RecordedProgram::Claude, &lines);
    assert_eq!((spent.turns, spent.requests, spent.seconds), (2, 3, 5 + 3));
    let (cache_write, cache_write_hour, cache_read) = (600, 300, 30_000);
    let cached = Tokens { cache_write, cache_write_hour, cache_read, ..Tokens::default() };
    assert_eq!(spent.tokens, Tokens { input: 3_000, output: 600, ..cached });
    // 3,000 at 5, 600 at 6.25, 300 at 10, 30,000 at 0.5 and 600 at 25 dollars a million.
    assert!((spent.cost_usd - 0.051_75).abs() < 1e-9, "{}", spent.cost_usd);
    assert_eq!(spent.unpriced_tokens, 0);
}

#[test]
fn subagents_count_for_their_agent_and_a_resumed_session_counts_once() {
    let (home, first) = home();
    let second = home.path().join("b.jsonl");
    put(&first, &[claude_turn(1), claude_answer(2, "m1", 10)]);
    put(&second, &[claude_answer(2, "m1", 10), claude_answer(3, "m2", 10)]);
    std::fs::create_dir_all(home.path().join("b/subagents")).expect("a directory");
    put(&home.path().join("b/subagents/agent-1.jsonl"), &[claude_answer(4, "m3", 10)]);
    let entries = read(RecordedProgram::Claude, &[first, second]);
    let requests = entries.iter().filter(|entry| matches!(entry.what, UsageEvent::Request { .. }));
    assert_eq!(requests.count(), 3);
}

fn codex_count(second: u32, total: [u64; 3], last: [u64; 3]) -> Value {
    let sum = |[input, cached, output]: [u64; 3]| json!({"input_tokens": input, "cached_input_tokens": cached, "output_tokens": output});
    json!({
        "timestamp": at(second), "type": "event_msg",
        "payload": {"type": "token_count", "info": {"total_token_usage": sum(total), "last_token_usage": sum(last)}},
    })
}

#[test]
fn codex_counts_what_its_sum_grows_by() {
    let line = |second, kind: &str, payload: Value| json!({"timestamp": at(second), "type": kind, "payload": payload});
    let limits = line(4, "event_msg", json!({"type": "token_count", "info": null}));
    let lines = [
        line(1, "turn_context", json!({"model": "gpt-5-codex"})),
        line(1, "event_msg", json!({"type": "task_started"})),
        codex_count(2, [1_000, 400, 50], [1_000, 400, 50]),
        codex_count(3, [1_000, 400, 50], [1_000, 400, 50]),
        limits,
        codex_count(5, [2_500, 1_400, 90], [1_500, 1_000, 40]),
        // After a compaction the sum begins again.
        codex_count(6, [700, 0, 10], [700, 0, 10]),
    ];
    let spent = spent(RecordedProgram::Codex, &lines);
    assert_eq!((spent.turns, spent.requests, spent.seconds), (1, 3, 5));
    let tokens = spent.tokens;
    assert_eq!((tokens.input, tokens.cache_read, tokens.output), (1_800, 1_400, 100));
    assert_eq!(spent.models.keys().collect::<Vec<_>>(), ["gpt-5-codex"]);
}

#[test]
fn opencode_says_a_message_by_its_id_and_its_own_cost() {
    let answer = |second: u32, output: u64, cost: f64| json!({"at": at(second), "id": "m1", "model": "x", "input": 10, "output": output, "reasoning": 2, "cache_read": 5, "cache_write": 1, "cost": cost});
    let lines = [
        json!({"at": at(1), "turn": true}),
        answer(2, 1, 0.25),
        answer(3, 3, 0.5),
        json!({"at": at(4), "id": "m2", "model": "unknown", "input": 7, "cost": 0}),
        json!({"id": "no time", "input": 7}),
        json!("no object"),
    ];
    let spent = spent(RecordedProgram::Opencode, &lines);
    assert_eq!((spent.turns, spent.requests), (1, 2));
    let tokens = spent.tokens;
    assert_eq!((tokens.input, tokens.output, tokens.cache_read, tokens.cache_write), (17, 5, 5, 1));
    assert!((spent.cost_usd - 0.5).abs() < 1e-9, "{}", spent.cost_usd);
    assert_eq!(spent.unpriced_tokens, 7, "a cost of 0 is an unknown price");
}

#[test]
fn gemini_writes_a_message_again_when_it_knows_more() {
    let answer = |second: u32, tokens: Value| json!({"id": "g1", "timestamp": at(second), "type": "gemini", "model": "gemini-2.5-pro", "tokens": tokens});
    let known =
        json!({"input": 500, "output": 20, "cached": 100, "thoughts": 30, "tool": 5, "total": 555});
    let lines = [
        json!({"sessionId": "s", "startTime": at(0)}),
        json!({"id": "u1", "timestamp": at(1), "type": "user", "content": "go"}),
        answer(2, Value::Null),
        answer(3, known),
        json!({"$set": {"lastUpdated": at(3)}}),
    ];
    let spent = spent(RecordedProgram::Gemini, &lines);
    assert_eq!((spent.turns, spent.requests), (1, 1));
    assert_eq!((spent.tokens.input, spent.tokens.cache_read, spent.tokens.output), (405, 100, 50));
    assert_eq!(spent.tokens.total(), 555);
}

#[test]
fn a_growing_file_is_read_on_and_a_replaced_one_anew() {
    let (_home, file) = home();
    let mut records = UsageRecords::new(RecordedProgram::Claude);
    let mut count = || {
        records.update(std::slice::from_ref(&file), &mut ReadingLimit::none());
        records.entries().len()
    };
    assert_eq!(count(), 0, "it is not there yet");
    put(&file, &[claude_turn(1)]);
    // The program is in the middle of a line.
    let half = claude_answer(2, "m1", 1).to_string();
    let mut open = std::fs::OpenOptions::new().append(true).open(&file).expect("a file");
    open.write_all(&half.as_bytes()[..50]).expect("a part");
    assert_eq!(count(), 1);
    open.write_all(&half.as_bytes()[50..]).expect("the rest");
    open.write_all(b"\n").expect("its end");
    assert_eq!([count(), count()], [2, 2]);
    std::fs::remove_file(&file).expect("it goes");
    put(&file, &[claude_turn(9)]);
    assert_eq!(count(), 1);
    assert_eq!(records.entries().iter().map(|entry| entry.at).collect::<Vec<_>>(), [stamp(9)]);
}

#[test]
fn what_is_no_record_counts_as_nothing() {
    let (home, file) = home();
    std::fs::write(&file, b"\xff\xfe\n{}\n[1]\n{\"type\": 7}\nnull\n\n{\"timestamp\": \"soon\"}\n")
        .expect("a file");
    let link = home.path().join("link.jsonl");
    std::os::unix::fs::symlink(&file, &link).expect("a link");
    let pipe = home.path().join("pipe.jsonl");
    let (fifo, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, fifo, mode, 0).expect("a pipe");
    for program in [RecordedProgram::Claude, RecordedProgram::Codex, RecordedProgram::Gemini] {
        assert_eq!(read(program, &[file.clone(), link.clone(), pipe.clone()]), []);
    }
}

fn record(second: u32, kind: &str, actor: &str, data: Value) -> Record {
    let line = json!({
        "timestamp": at(second), "session_id": "session-20261125-100000", "seq": second + 1,
        "type": kind, "actor": actor, "data": data,
    });
    serde_json::from_value(line).expect("a record")
}

#[test]
fn a_request_counts_for_the_task_that_its_agent_held() {
    let message = json!({"id": "m", "mailbox": "w1", "epoch": 1});
    let stored = json!({"id": "m", "mailbox": "w1", "task_id": "mail-task"});
    let step = json!({"task_id": "step-task", "step_index": 0, "epoch": 3});
    let board = |what: &str, status: &str| json!({"revision": 1, "steps": [{"what": what, "task": "board-task", "status": status, "agent": "w1"}]});
    let log = [
        record(0, "message.stored", "lead", stored),
        record(10, "message.acked", "w1", message.clone()),
        record(20, "board.written", "supervisor", board("task.claimed", "CLAIMED")),
        record(25, "board.written", "w1", board("task.iteration", "CLAIMED")),
        record(30, "board.written", "w1", board("task.ready_for_review", "READY_FOR_REVIEW")),
        record(40, "message.settled", "w1", message),
        record(45, "step.taken", "w1", step),
    ];
    assert!(log.iter().all(|record| RecordType::new(record.kind.as_str()).is_ok()));
    let mut held = HeldTasks::default();
    log.iter().for_each(|record| held.apply_record(record));
    let at = |second| held.task_at("w1", stamp(second));
    assert_eq!([9, 40, 44].map(at), [None; 3]);
    assert_eq!([10, 19, 30, 39].map(at), [Some("mail-task"); 4]);
    assert_eq!([20, 26].map(at), [Some("board-task"); 2]);
    assert_eq!([45, 59].map(at), [Some("step-task"); 2]);
    assert_eq!(held.task_at("w2", stamp(20)), None);

    let (_home, file) = home();
    let answer = |second| claude_answer(second, &format!("m{second}"), 10);
    put(&file, &[5, 12, 22, 35, 50].map(answer));
    let w1 = Name::new("w1").expect("a name");
    let mut session = AgentSession::new(w1.clone());
    session.provider = "claude".to_owned();
    session.add_record(&file);
    session.add_record(&file);
    let mut team = TeamRecords::default();
    team.update([&session], &mut ReadingLimit::none());
    let usage = team.usage(&held, &Prices::built_in());
    assert_eq!(usage[&w1].spent.requests, 5);
    let requests = |task: &str| usage[&w1].tasks[task].requests;
    assert_eq!(["mail-task", "board-task", "step-task"].map(requests), [2, 1, 1]);
    assert_eq!(by_task(&usage)["mail-task"].requests, 2);
}

#[test]
fn prices_fit_names_and_their_versions_alone() {
    let prices = Prices::built_in();
    let model = |name: &str| prices.of(name).map(|price| price.model.as_str());
    let opus = ["claude-opus-4-5", "claude-opus-4-5-20251101"];
    assert_eq!(opus.map(model), [Some("claude-opus-4-5"); 2]);
    assert_eq!(model("anthropic/claude-opus-5[1m]"), Some("claude-opus-5"));
    let gpt = ["gpt-5-2025-08-07", "gpt-5-pro", "gpt-5.9", ""];
    assert_eq!(gpt.map(model), [Some("gpt-5"), Some("gpt-5-pro"), None, None]);
    let own = "as_of: today\nmodels:\n  - {model: gpt-5, input: 1, output: 2}\n  - {model: local, input: 0, output: 0}\n";
    let own = Prices::parse(own, Path::new("prices.yaml")).expect("valid");
    let prices = prices.overridden_by(own);
    let input = |name: &str| prices.of(name).map(|price| price.input);
    let prices_of_input = ["gpt-5", "local", "gpt-5-pro"].map(input);
    assert_eq!(prices_of_input, [Some(1.0), Some(0.0), Some(15.0)]);
    for wrong in [
        "models: []",
        "as_of: x\nmodels:\n  - {model: a, input: -1, output: 0}\n",
        "as_of: x\nmodels:\n  - {model: a, input: .nan, output: 0}\n",
    ] {
        assert!(Prices::parse(wrong, Path::new("prices.yaml")).is_err(), "{wrong}");
    }
}

#[test]
fn a_model_without_a_price_is_counted_apart() {
    let mut answer = claude_answer(1, "m1", 10);
    answer["message"]["model"] = "model-x".into();
    let spent = spent(RecordedProgram::Claude, &[answer]);
    assert_eq!((spent.cost_usd, spent.unpriced_tokens), (0.0, spent.tokens.total()));
}
