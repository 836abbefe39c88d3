//! `ensemble mcp` and the official clients: PyPI's `mcp` and npm's inspector list and call every tool.
//!
//! They are installed once, below cargo's directory for tests, by pip and npm, which `make needs`
//! installs. Where that cannot be done, the tests that need them say so in one line and end, or fail with
//! `ENSEMBLE_TEST_CLIENTS=required`, as in `.ci/run`.

mod tasks;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use crate::bed::{Bed, Running, SaidText as _, git, program, words};

const PYTHON_CLIENT: &str = "mcp==2.3.0";
const INSPECTOR: &str = "@modelcontextprotocol/inspector@0.15.0";
/// The packages it needs, no matter what the system has.
const NODE: &str = "node@22";
/// How the Python client begins, and what both sides speak then: the newest and its predecessor.
const SPECIFICATIONS: [(&str, &str); 2] =
    [("discover", "2026-07-28"), ("initialize", "2025-11-25")];
/// Two tests must not install at once.
static INSTALLING: Mutex<()> = Mutex::new(());

const TOOLS: &str = "submit_step_completion next_step plan_approval shutdown_request shutdown_response send recall \
    assign inbox recv recv_wait reply settle release dead_letter report claim_task submit_task \
    verdict_task block_task handoff pong heartbeat whoami list_agents";

/// A coder may ask for a shutdown only where the project says so.
const CONFIG: &str = "durability: process\nauthority: {shutdown: [coder]}\n";
const PLAN: &str = "
task_id: 0-4-1
orchestrator: conductor
steps:
  - {agent: Tara, goal: Write a failing test for login, files: [tests/login.rs]}
  - {agent: Devon, goal: Make it pass, files: [src/login.rs], context: [tests/login.rs]}
";

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/cli/mcp")
}

/// A project with a queue of steps, of which Tara holds the first, a task on its board, and a letter.
fn project() -> Bed {
    let bed = Bed::empty();
    bed.write_file("ensemble.yaml", CONFIG);
    bed.write_file("plan.yaml", PLAN);
    git(&bed.project(), "init --quiet");
    git(&bed.project(), "commit --quiet --allow-empty -m begin");
    for line in [
        "init",
        "mailbox add Tara",
        "mailbox add Devon",
        "step add -f plan.yaml",
        "board init",
        "task add task-1 --description parse --spec spec.md --done-when parsed",
        "agent register --as Tara --role coder",
    ] {
        bed.run(line).ends(0);
    }
    // It hands the step out, and has nothing to wait for then.
    bed.run("step run 0-4-1 --timeout 1ms").ends(3);
    bed.ok("send --to Tara -m letter --id letter-1");
    bed
}

fn status(bed: &Bed, step: u32) -> Value {
    bed.object(&format!("step show 0-4-1 {step}"))["status"].clone()
}

fn serve(bed: &Bed) -> (Running, String, String) {
    use std::io::{BufRead as _, BufReader};
    let mut child = bed.start("--as Tara --json mcp --http 0");
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let said: Value = serde_json::from_str(&line).unwrap();
    let text = |key: &str| said[key].as_str().unwrap().to_owned();
    (Running(child), text("url"), text("token"))
}

/// A directory below cargo's for tests in which `install` has succeeded once; `None`, and why on
/// stderr, which is not captured, if it cannot.
fn installed(name: &str, install: impl Fn(&Path) -> Result<(), String>) -> Option<PathBuf> {
    let _one = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let done = dir.join("installed");
    if !done.exists() {
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        if let Err(why) = install(&dir) {
            let line = format!("SKIPPED: {name} cannot be installed, so it was not tried: {why}");
            let is_required = std::env::var("ENSEMBLE_TEST_CLIENTS").is_ok_and(|v| v == "required");
            assert!(!is_required, "{line}");
            let _ = writeln!(std::io::stderr(), "{line}");
            return None;
        }
        std::fs::write(&done, "").unwrap();
    }
    Some(dir)
}

fn succeeds(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let ran = command.output().map_err(|error| format!("{program}: {error}"))?;
    let said = String::from_utf8_lossy(&ran.stderr);
    let last = said.trim().lines().last().unwrap_or_default().to_owned();
    if ran.status.success() { Ok(()) } else { Err(format!("{program}: {last}")) }
}

fn python() -> Option<PathBuf> {
    let dir = installed(&PYTHON_CLIENT.replace("==", "-"), |dir| {
        succeeds(Command::new("python3").args(["-m", "venv"]).arg(dir.join("venv")))?;
        succeeds(Command::new(dir.join("venv/bin/pip")).args(["-q", "install", PYTHON_CLIENT]))
    });
    dir.map(|dir| dir.join("venv/bin/python"))
}

/// The output of the Python client: the tools, each call, the resources.
fn play(command: &mut Command) -> Vec<Value> {
    let ran = command.output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let text = String::from_utf8(ran.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn check(bed: &Bed, said: &[Value], specification: &str) {
    let listed: Vec<&str> =
        said[0]["tools"].as_object().unwrap().keys().map(String::as_str).collect();
    let mut expected = words(TOOLS);
    expected.sort_unstable();
    let mut sorted = listed.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, expected);
    let seed = &said[0]["tools"]["submit_step_completion"];
    assert_eq!(seed["required"], json!(["task_id", "step_index", "agent", "status"]));
    assert_eq!(seed["properties"]["agent"]["enum"], json!(["Devon", "Tara"]));

    let mut answers: BTreeMap<&str, Vec<(bool, &str)>> = BTreeMap::new();
    for call in &said[1..said.len() - 1] {
        let answer = (call["is_error"].as_bool().unwrap(), call["text"].as_str().unwrap());
        answers.entry(call["tool"].as_str().unwrap()).or_default().push(answer);
    }
    for (tool, of_tool) in &answers {
        let refused = of_tool.iter().filter(|(refused, _)| *refused).count();
        let expected = match *tool {
            "submit_step_completion" => 3,
            "plan_approval" | "shutdown_response" | "report" | "claim_task" | "handoff"
            | "submit_task" | "verdict_task" | "assign" | "next_step" | "release"
            | "dead_letter" | "reply" | "recall" => 1,
            _ => 0,
        };
        assert_eq!(refused, expected, "{tool}: {of_tool:?}");
    }
    let submits = &answers["submit_step_completion"];
    assert!(submits[0].1.contains("COMPLETED"), "{submits:?}");
    assert!(submits[1].1.contains("1.5 is not a step: pass a whole number"), "{submits:?}");
    for part in [
        "artefacts: is not a member of submit_step_completion: write `artifacts`",
        "bogus: is not a member of submit_step_completion: leave it out; the members are task_id, ",
        "summary: `failure` needs a reason: write in `summary` what failed",
    ] {
        assert!(submits[2].1.contains(part), "{part}: {submits:?}");
    }
    assert!(submits[3].1.contains("you are Tara"), "{submits:?}");
    assert_eq!(answers.len(), words(TOOLS).len(), "a tool was not called");
    assert!(answers["shutdown_request"][0].1.contains("(status: pending)"), "{answers:?}");
    assert!(answers["recv"][0].1.contains("ROLE: Tara"));

    let resources = said.last().unwrap()["resources"].as_object().unwrap();
    let claims = &answers["claim_task"];
    assert!(claims[0].1.contains("\"task\":\"task-1\"") && claims[0].1.contains(".worktrees"));
    assert!(claims[1].1.contains("its status is CLAIMED"), "{claims:?}");
    assert!(answers["submit_task"][0].1.contains("nothing was committed"), "{answers:?}");
    assert!(answers["verdict_task"][0].1.contains("every point and place"), "{answers:?}");
    assert!(answers["block_task"][0].1.contains("BLOCKED"), "{answers:?}");
    let beats = &answers["heartbeat"];
    assert!(beats[1].1.contains("\"board\":300"), "a claimed task continues: {beats:?}");
    assert!(answers["handoff"][0].1.contains("next_action: is empty"), "{:?}", answers["handoff"]);
    assert!(bed.project().join(".worktrees/task-1/.git").exists());
    let read = |uri: &str| resources[uri].as_str().unwrap();
    assert!(read("ensemble://task/0-4-1").contains("Make it pass"));
    assert!(read("ensemble://inbox").contains("\"mailbox\": \"Tara\""));
    let board = bed.project().join(".ensemble/state.yaml");
    read("ensemble://board").has(["half of the parser"]);
    assert_eq!(read("ensemble://board"), std::fs::read_to_string(board).unwrap());
    assert_eq!(said[0]["protocol"], specification);
    assert_eq!(status(bed, 1), "COMPLETED");
    assert_eq!(status(bed, 2), "PENDING", "no worker reports the step of another");
    assert!(bed.project().join("queue/reports/task-9-completed.yaml").exists());
    assert!(bed.project().join("queue/mailbox/Tara/done/letter-1.yaml").exists());
}

#[test]
#[ignore = "long"]
fn the_python_client_lists_and_calls_every_tool() {
    let Some(python) = python() else { return };
    for (how, specification) in SPECIFICATIONS {
        let client = || {
            let mut client = Command::new(&python);
            client.arg(tests().join("client.py")).arg(how);
            client
        };
        let bed = project();
        let mut over_stdio = client();
        over_stdio.arg(program()).arg(bed.project()).current_dir(bed.project());
        check(&bed, &play(&mut over_stdio), specification);
        let bed = project();
        let (_server, url, token) = serve(&bed);
        check(&bed, &play(client().args(["--http", &url, &token])), specification);
    }
}

/// A call of each tool with the inspector's command line: tool, arguments, whether it is refused.
const INSPECTED: [(&str, &[&str], bool); 26] = [
    ("whoami", &[], false),
    ("list_agents", &[], false),
    ("send", &["to=Devon", "message=hello"], false),
    ("assign", &["worker=Nemo", "instruction=count"], true),
    ("inbox", &["limit=5"], false),
    ("recv", &[], false),
    ("heartbeat", &[], false),
    (
        "submit_step_completion",
        &["task_id=0-4-1", "step_index=1", "agent=Tara", "status=success"],
        false,
    ),
    ("recv", &[], false),
    ("reply", &["id=nothing", "message=hello"], true),
    ("recall", &["id=01a224bc-bfe0-768b-93ef-8838eee0c267"], true),
    ("settle", &["id=letter-1"], false),
    ("plan_approval", &["plan=read, then write", "task_id=task-8"], false),
    ("shutdown_request", &["agent=Devon", "deadline_seconds=600", "on_silence=tell"], false),
    ("shutdown_response", &["request_id=nothing", "approve=false"], true),
    (
        "report",
        &[
            "task_id=task-9",
            "status=success",
            "summary=12 of 12 tests pass (100%), the steps are in plan.yaml:2-6",
        ],
        false,
    ),
    ("pong", &["attempt=1"], false),
    ("claim_task", &["task_id=task-1"], false),
    ("handoff", &["summary=half of the parser", "next_action=the other half"], false),
    ("submit_task", &["task_id=task-1"], true),
    ("verdict_task", &["approve=true"], true),
    ("block_task", &["reason=the API is gone", "questions=[\"Which API?\"]"], false),
    ("next_step", &[], true),
    ("release", &["id=letter-1"], true),
    ("dead_letter", &["id=nothing", "reason=no agent can read it"], true),
    ("recv_wait", &["timeout_seconds=0"], false),
];

#[test]
#[ignore = "long"]
fn the_inspector_lists_and_calls_every_tool() {
    // Other versions are another place.
    let name = format!("{INSPECTOR}-{NODE}").replace(['/', '@'], "-");
    let node = installed(&name, |dir| {
        succeeds(Command::new("npm").current_dir(dir).args(["init", "-y"]))?;
        let install = ["install", "--silent", INSPECTOR, NODE];
        succeeds(Command::new("npm").current_dir(dir).args(install))
    });
    let Some(dir) = node else { return };
    let bed = project();
    let inspect = |rest: &[&str]| {
        let mut command = Command::new(dir.join("node_modules/node/bin/node"));
        command.arg(dir.join("node_modules/.bin/mcp-inspector")).arg("--cli").arg(program());
        command.arg("--queue").arg(bed.project().join("queue")).args(["--as", "Tara", "mcp"]);
        let ran = command.args(rest).output().unwrap();
        assert!(ran.status.success(), "{rest:?}: {}", String::from_utf8_lossy(&ran.stderr));
        serde_json::from_slice::<Value>(&ran.stdout).unwrap()
    };
    let listed = inspect(&["--method", "tools/list"]);
    let listed: Vec<&str> = listed["tools"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    assert_eq!(listed, words(TOOLS));
    for (tool, arguments, is_refused) in INSPECTED {
        let mut words = vec!["--method", "tools/call", "--tool-name", tool];
        for argument in arguments {
            words.extend(["--tool-arg", argument]);
        }
        let answer = inspect(&words);
        assert_eq!(answer["isError"].as_bool().unwrap_or(false), is_refused, "{tool}: {answer}");
    }
    let called = INSPECTED.map(|(tool, ..)| tool);
    assert!(words(TOOLS).iter().all(|tool| called.contains(tool)), "a tool was not called");
    assert_eq!(status(&bed, 1), "COMPLETED");
    assert!(bed.project().join("queue/mailbox/Tara/done/letter-1.yaml").exists());
    let read = inspect(&["--method", "resources/read", "--uri", "ensemble://board"]);
    assert!(read.to_string().contains("version"), "{read}");
}

fn request(url: &str, headers: &[(&str, &str)]) -> u16 {
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" },
        },
    });
    post(url, headers, &body.to_string())
}

fn post(url: &str, headers: &[(&str, &str)], body: &str) -> u16 {
    use std::io::Read as _;
    let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut text =
        format!("POST /{path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    text += "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n";
    if !headers.iter().any(|(name, _)| *name == "Host") {
        text += &format!("Host: {address}\r\n");
    }
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.write_all(format!("{text}\r\n{body}").as_bytes()).unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap();
    std::str::from_utf8(&head[9..]).unwrap().parse().unwrap()
}

#[test]
fn http_wants_the_token_refuses_strangers_and_says_what_is_wrong() {
    let bed = project();
    let (_server, url, token) = serve(&bed);
    let bearer = format!("Bearer {token}");
    let with = |name, value| request(&url, &[("Authorization", &bearer), (name, value)]);
    assert_eq!(request(&url, &[]), 401);
    assert_eq!(request(&url, &[("Authorization", "Bearer wrong")]), 401);
    assert_eq!(request(&url, &[("Authorization", &bearer)]), 200);
    assert_eq!(with("Origin", "http://localhost:3000"), 200);
    assert_eq!(with("Origin", "https://evil.example"), 403);
    assert_eq!(with("Host", "evil.example"), 403);
    let own = ("Authorization", bearer.as_str());
    let revision = ("MCP-Protocol-Version", "2025-11-25");
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }).to_string();
    let session = ("Mcp-Session-Id", "no-such-session");
    assert_eq!(post(&url, &[own, revision, session], &list), 404, "a session that is not there");
    assert_eq!(post(&url, &[own, revision], &list), 400, "no session");
    assert_eq!(post(&url, &[own, ("MCP-Protocol-Version", "1999-01-01")], &list), 400);
    assert_eq!(post(&url, &[own], "no JSON"), 400);
    assert_eq!(post(&url.replace("/mcp", "/other"), &[own], &list), 404, "another path");
}

#[test]
fn a_token_file_is_made_once_and_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let bed = project();
    let file = bed.project().join("token");
    std::fs::write(&file, "a-token-that-is-long-enough-to-be-one-0123456789\n").unwrap();
    let allow = |mode| {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    for mode in [0o644, 0o620, 0o604] {
        allow(mode);
        let refused = bed.run("mcp --as Tara --http 0 --token-file token");
        let said = &refused.stderr;
        said.has(["other users may", "chmod 600"]);
    }
    std::fs::write(&file, "short\n").unwrap();
    allow(0o600);
    bed.run("mcp --as Tara --http 0 --token-file token").says(["has no token"]);
    std::fs::remove_file(&file).unwrap();
    let mut child = bed.start("mcp --as Tara --http 0 --token-file token");
    let mut line = String::new();
    std::io::BufRead::read_line(
        &mut std::io::BufReader::new(child.stdout.take().unwrap()),
        &mut line,
    )
    .unwrap();
    let _server = Running(child);
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let token = std::fs::read_to_string(&file).unwrap();
    let bearer = format!("Bearer {}", token.trim());
    assert_eq!(request(line.trim(), &[("Authorization", &bearer)]), 200);
}

#[test]
fn a_client_without_a_name_is_refused() {
    project().run("mcp").ends(2);
}
