//! The agent `mcp-1`: a process that has an `ensemble mcp` and calls its tools, as agents do.

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Seek as _};
use std::process::{ChildStdin, ChildStdout};

use serde_json::{Value, json};

use super::stage::PROGRAM;
use crate::support::given;

use super::*;

pub const ROLE: &str = "mcp";
const ME: &str = "mcp-1";
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// How often a call is tried again while the disk is full.
const TRIES_MAX: u32 = 120;

struct Client {
    _server: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    number: u64,
}

impl Client {
    fn new() -> Self {
        let mut command = Command::new(PROGRAM);
        command.args(["mcp", "--as", ME]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut server = command.spawn().expect("a server");
        let input = server.stdin.take().expect("its input");
        let output = BufReader::new(server.stdout.take().expect("its output"));
        let mut client = Self { _server: server, input, output, number: 0 };
        let about = json!({"name": "whole", "version": "1"});
        let hello =
            json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": about});
        client.ask("initialize", &hello);
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    fn send(&mut self, message: &Value) {
        self.input.write_all(format!("{message}\n").as_bytes()).expect("the server reads");
    }

    fn ask(&mut self, method: &str, parameters: &Value) -> Value {
        self.number += 1;
        let number = self.number;
        self.send(&json!({"jsonrpc": "2.0", "id": number, "method": method, "params": parameters}));
        loop {
            let mut line = String::new();
            let bytes = self.output.read_line(&mut line).expect("the server answers");
            assert_ne!(bytes, 0, "the server has ended");
            let answer: Value = serde_json::from_str(&line).expect("an object");
            if answer["id"] == number {
                return answer["result"].clone();
            }
        }
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> Result<Value, String> {
        let result = self.ask("tools/call", &json!({"name": tool, "arguments": arguments}));
        let text = result["content"][0]["text"].as_str().unwrap_or_default().to_owned();
        if result["isError"] == true { Err(text) } else { Ok(result["structuredContent"].clone()) }
    }
}

fn note(verb: &str, task: &str, epoch: u64, rest: &str) {
    let path = PathBuf::from(given("JOURNALS")).join(ME);
    let mut file = OpenOptions::new().append(true).create(true).open(path).expect("a journal");
    let (at, pid) = (now(), std::process::id());
    let at = (at * 100.0).floor() / 100.0;
    let line = format!("{at:.2} {verb} {ME} {task} {epoch} {pid} {rest}\n");
    file.write_all(line.as_bytes()).expect("a line");
}

/// Takes the lock of a task, or notes who has it.
fn lock(task: &str, epoch: u64) -> File {
    let path = PathBuf::from(given("LOCKS")).join(task);
    let mut options = OpenOptions::new();
    let mut file =
        options.read(true).write(true).create(true).truncate(false).open(&path).expect("a lock");
    if file.try_lock().is_ok() {
        file.set_len(0).and_then(|()| file.rewind()).expect("an empty file");
        file.write_all(format!("{ME} {epoch} {}\n", std::process::id()).as_bytes())
            .expect("a line");
    } else {
        note("beside", task, epoch, &std::fs::read_to_string(&path).unwrap_or_default());
    }
    file
}

pub fn play() {
    let stop = PathBuf::from(given("STOP"));
    let mut client = Client::new();
    note("up", "-", 0, "");
    while !stop.exists() {
        let asked = now();
        let message = client.call("recv", &json!({}));
        let Some(message) = message.ok().filter(|message| message["id"].is_string()) else {
            std::thread::sleep(LOOK_INTERVAL);
            continue;
        };
        let id = json!({"id": message["id"]});
        match (message["type"].as_str(), message["task_id"].as_str()) {
            (Some("task"), Some(task)) => work(&mut client, task, &message, asked),
            _ => drop(client.call("settle", &id)),
        }
    }
}

fn work(client: &mut Client, task: &str, message: &Value, asked: f64) {
    let epoch = message["epoch"].as_u64().unwrap_or_default();
    note("begin", task, epoch, &format!("{asked:.2}"));
    let held = lock(task, epoch);
    let number: u64 = task.trim_start_matches('m').parse().unwrap_or_default();
    if number % 9 == 8 {
        // Longer than its lease: it says that it lives.
        for _ in 0..LEASE_SECONDS * 2 {
            let _ = client.call("heartbeat", &json!({}));
            std::thread::sleep(Duration::from_secs(1));
        }
    } else {
        std::thread::sleep(Duration::from_millis(200 + 100 * (number % 7)));
    }
    let (tool, arguments, status) = match number % 7 {
        3 => {
            let reason = "0 of 1 parts (0%) are done, see README:1";
            let summary = format!("{ME} has done 0 of 1 parts (0%), see README:1");
            (
                "report",
                json!({"task_id": task, "status": "failed", "reason": reason, "summary": summary}),
                "failed",
            )
        }
        number if number % 2 == 0 => {
            let summary = format!("{ME} has done 1 of 1 parts (100%), see README:1");
            ("report", json!({"task_id": task, "status": "success", "summary": summary}), "success")
        }
        _ => ("settle", json!({"id": message["id"]}), "success"),
    };
    note("hand", task, epoch, status);
    drop(held);
    for _ in 0..TRIES_MAX {
        match client.call(tool, &arguments) {
            Ok(_) => return note("end", task, epoch, "ok"),
            // On a full disk the same call may succeed later.
            Err(text) if text.contains("free some room") => std::thread::sleep(LOOK_INTERVAL),
            Err(text) => {
                return note("end", task, epoch, &format!("refused {}", text.replace('\n', " ")));
            }
        }
    }
}
