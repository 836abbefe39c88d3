//! Input of a client of the MCP server. An input that begins with `{"call"` is a list of calls, one
//! a line, `{"call": TOOL, "with": ARGUMENTS}`. Any other input is the wire content after the
//! greeting.

use std::collections::BTreeMap;
use std::path::Path;

use ensemble_cli::fuzzing::{mcp_calls, mcp_lines};
use ensemble_core::durable::Durability;
use ensemble_core::message::Envelope;
use ensemble_core::spool::{Settings, Spool, SpoolOptions};
use serde_json::Value;

const CALLS_MAX: usize = 16;
/// The longest error about a call, in bytes.
const TROUBLE_BYTES_MAX: usize = 64 * 1024;

/// Each request on the wire has at most one answer, no file is written outside of the project, and
/// the queue stays consistent.
pub fn check(data: &[u8]) {
    let home = super::scratch();
    let queue = home.path().join("project/queue");
    std::fs::create_dir_all(home.path().join("project")).expect("a project");
    let spool = project(&queue);
    if data.starts_with(b"{\"call\"") {
        let calls = data.split(|byte| *byte == b'\n').take(CALLS_MAX).filter_map(call);
        let answers = mcp_calls(&queue, "worker-1", &calls.collect::<Vec<_>>()).expect("a desk");
        for trouble in answers.iter().filter_map(|answer| answer.as_ref().err()) {
            assert!(trouble.len() <= TROUBLE_BYTES_MAX, "a complaint of {} bytes", trouble.len());
        }
    } else {
        wire(&queue, data);
    }
    let outside: Vec<_> = std::fs::read_dir(home.path()).expect("home").flatten().collect();
    assert_eq!(outside.len(), 1, "a file was written outside of the project: {outside:?}");
    let findings = spool.fsck(false).expect("fsck");
    assert!(findings.is_empty(), "{findings:?}");
}

fn project(queue: &Path) -> Spool {
    std::fs::write(queue.with_file_name("ensemble.yaml"), "durability: process\n").expect("config");
    let options = SpoolOptions { durability: Durability::Process, ..SpoolOptions::default() };
    let spool = Spool::create(queue, options).expect("a queue");
    for mailbox in ["worker-1", "lead"] {
        spool
            .add_mailbox(&mailbox.parse().expect("a name"), &Settings::default())
            .expect("a mailbox");
    }
    let task = Envelope::new("worker-1".parse().expect("a name"), "count the lines\n")
        .with_id("m-1".parse().expect("an id"))
        .with_task("task-1");
    spool.publish(&task).expect("a message");
    spool
}

fn call(line: &[u8]) -> Option<(String, Value)> {
    let mut call: Value = serde_json::from_slice(line).ok()?;
    Some((call.get("call")?.as_str()?.to_owned(), call.get_mut("with").map(Value::take)?))
}

fn wire(queue: &Path, data: &[u8]) {
    let said = mcp_lines(queue, "worker-1", data).expect("a desk");
    let mut asked: BTreeMap<String, usize> = BTreeMap::new();
    for line in data.split(|byte| *byte == b'\n') {
        // As the server reads it: what is not UTF-8 is replaced.
        let line = String::from_utf8_lossy(line);
        let request: Value = serde_json::from_str(&line).unwrap_or_default();
        *asked.entry(request["id"].to_string()).or_default() += 1;
    }
    let mut answered: BTreeMap<String, usize> = BTreeMap::new();
    for line in &said {
        let answer: Value = serde_json::from_slice(line)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(line)));
        let is_answer = ["result", "error"].iter().any(|key| answer.get(key).is_some());
        if is_answer && !answer["id"].is_null() {
            *answered.entry(answer["id"].to_string()).or_default() += 1;
        }
    }
    for (id, count) in answered {
        let wanted = asked.get(&id).copied().unwrap_or_default();
        let ours = usize::from(id == "\"greeting\"" || id == "\"the last\"");
        assert!(count <= wanted + ours, "{count} answers to {id}");
    }
}
