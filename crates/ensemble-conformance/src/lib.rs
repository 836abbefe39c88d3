//! The conformance kit: runs programs that speak the adapter through the vectors of `conformance/`, and
//! through kills, stops and full disks.
#![forbid(unsafe_code)]

mod book;
mod cases;
mod disk;
mod load;
mod locks;
mod own;
mod program;
mod traces;

use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};

use cases::{CaseVerdict, VectorCase};
use program::ClientProgram;

pub use book::LoadFigures;
pub use load::LoadRun;
use own::OwnClient;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClientCheck {
    pub client: String,
    /// Stage of the kit, or file of vectors.
    pub stage: &'static str,
    pub name: String,
    /// `passed`, `refused` (a legal but odd envelope), `skipped` or `failed`.
    pub verdict: &'static str,
    pub section: String,
    /// The words of PROTOCOL.md that a failure breaks.
    pub rule: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

/// A rule of PROTOCOL.md that a stage checks: its heading and its words.
pub type ProtocolRule = (&'static str, &'static str);

const PUBLISH: ProtocolRule =
    ("States and moves", "Write the whole file under a unique name in `tmp/`, then rename it.");
const SETTLE: ProtocolRule = ("States and moves", "| settle | → `done/<id>.yaml` | holder |");
const BACKWARDS: ProtocolRule = (
    "States and moves",
    "**Moving backwards** (release, expire, redrive): hold `gate.lock` shared (`flock -s`).",
);
const LETTER: ProtocolRule = (
    "States and moves",
    "**Dead-letter** while holding `gate.lock` exclusively: check that the file exists, write the reason, rename.",
);

#[derive(Debug)]
pub struct StageChecks<'a> {
    client: &'a str,
    stage: &'static str,
    done: Vec<ClientCheck>,
}

impl<'a> StageChecks<'a> {
    fn new(client: &'a str, stage: &'static str) -> Self {
        Self { client, stage, done: Vec::new() }
    }

    /// Notes a check; an error is the text of its failure.
    fn add_check(&mut self, name: &str, rule: ProtocolRule, outcome: Result<(), String>) {
        let (verdict, detail) = match outcome {
            Ok(()) => ("passed", String::new()),
            Err(detail) => ("failed", detail),
        };
        self.add(name, rule, verdict, detail);
    }

    fn skip(&mut self, name: &str, rule: ProtocolRule, why: &str) {
        self.add(name, rule, "skipped", why.to_owned());
    }

    fn add(
        &mut self,
        name: &str,
        (section, rule): (&str, &str),
        verdict: &'static str,
        detail: String,
    ) {
        self.done.push(ClientCheck {
            client: self.client.to_owned(),
            stage: self.stage,
            name: name.to_owned(),
            verdict,
            section: section.to_owned(),
            rule: rule.to_owned(),
            detail,
        });
    }
}

/// Runs a client through the vectors whose names contain `named`, several at a time.
pub fn vectors(client: &str, named: &str) -> Vec<ClientCheck> {
    let mut cases = cases::all();
    cases.retain(|(_, case)| case.name.contains(named));
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) * 2;
    let share = cases.len().div_ceil(threads).max(1);
    let run = |share: &[(&'static str, VectorCase)]| -> Vec<ClientCheck> {
        share.iter().map(|(file, case)| vector(client, file, case)).collect()
    };
    std::thread::scope(|scope| {
        let all: Vec<_> =
            cases.chunks(share).map(|share| scope.spawn(move || run(share))).collect();
        all.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
    })
}

fn vector(client: &str, file: &'static str, case: &VectorCase) -> ClientCheck {
    let verdict = match tempfile::tempdir() {
        Ok(home) => cases::judge(case, home.path(), |queue| ClientProgram::start(client, queue)),
        Err(error) => CaseVerdict::Failed(error.to_string()),
    };
    let (word, detail) = match verdict {
        CaseVerdict::Passed => ("passed", String::new()),
        CaseVerdict::Refused => ("refused", String::new()),
        CaseVerdict::Skipped => ("skipped", "needs the mailbox lock".to_owned()),
        CaseVerdict::Failed(detail) => ("failed", detail),
    };
    let mut checks = StageChecks::new(client, file);
    checks.add(&case.name, (&case.section, &case.rule), word, detail);
    checks.done.remove(0)
}

/// Runs a client through one of the other stages for single clients.
pub fn stage(name: &str, client: &str) -> Vec<ClientCheck> {
    match name {
        "traces" => traces::check(client),
        "locks" => locks::check(client),
        _ => disk::check(client),
    }
}

/// The check that the event log and the files agree after a load.
pub fn log_check(outcome: Result<(), String>) -> ClientCheck {
    let mut checks = StageChecks::new("all", "load");
    checks.add_check("replay_of_the_event_log", book::STATES, outcome);
    checks.done.remove(0)
}

struct EmptyQueue {
    home: tempfile::TempDir,
}

impl EmptyQueue {
    fn new() -> Result<Self, String> {
        let home = tempfile::tempdir().map_err(|error| error.to_string())?;
        let bed = Self { home };
        std::fs::create_dir_all(bed.mailbox()).map_err(|error| error.to_string())?;
        Ok(bed)
    }

    fn queue(&self) -> std::path::PathBuf {
        self.home.path().join("queue")
    }

    fn mailbox(&self) -> std::path::PathBuf {
        self.queue().join("mailbox").join(cases::MAILBOX)
    }

    fn send(&self, body: &str) -> Result<Value, String> {
        let file = self.home.path().join("body");
        std::fs::write(&file, body).map_err(|error| error.to_string())?;
        Ok(
            json!({ "op": "send", "mailbox": cases::MAILBOX, "from": "kit", "type": "task", "body_file": file }),
        )
    }

    fn receive(&self) -> Value {
        let file = self.home.path().join("received");
        json!({ "op": "receive", "mailbox": cases::MAILBOX, "holder": "kit", "body_file": file })
    }

    fn names(&self, state: &str) -> Vec<String> {
        cases::names(&self.mailbox().join(state))
    }
}

fn under_lease(op: &str, received: &Value) -> Value {
    json!({
        "op": op, "mailbox": cases::MAILBOX, "id": received["id"], "holder": received["holder"],
        "epoch": received["epoch"],
    })
}

fn accepted(answer: Result<Value, String>) -> Result<Value, String> {
    let answer = answer?;
    if answer["ok"] == true { Ok(answer) } else { Err(format!("the answer is {answer}")) }
}

/// Serves the adapter for our own library, until stdin ends.
pub fn serve(queue: &Path) -> Result<(), String> {
    use std::io::{BufRead as _, Write as _};
    let own = OwnClient::open(queue)?;
    let mut out = std::io::stdout().lock();
    let hello = json!({ "client": "ensemble", "durability": "power", "locks": "flock" });
    writeln!(out, "{hello}").and_then(|()| out.flush()).map_err(|error| error.to_string())?;
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let answer = match serde_json::from_str(&line) {
            Ok(call) => own.answer(&call),
            Err(error) => json!({ "ok": false, "error": "invalid", "detail": error.to_string() }),
        };
        writeln!(out, "{answer}").and_then(|()| out.flush()).map_err(|error| error.to_string())?;
    }
    Ok(())
}
