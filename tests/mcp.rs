//! `ensemble mcp` and the official clients: PyPI's `mcp` and npm's inspector list and call every tool.
//!
//! They are installed once, below cargo's directory for tests, by pip and npm. Without python3 or npm,
//! or without a registry, the tests that need them say so and end; `make needs` has what they need.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

/// The versions that were tried.
const PYTHON_CLIENT: &str = "mcp==2.3.0";
const INSPECTOR: &str = "@modelcontextprotocol/inspector@0.15.0";
/// Two tests must not install at once.
static INSTALLING: Mutex<()> = Mutex::new(());

const TOOLS: [&str; 12] = [
    "submit_step_completion",
    "plan_approval",
    "shutdown_response",
    "send_message",
    "fetch_inbox",
    "acknowledge_message",
    "complete_message",
    "report",
    "pong",
    "heartbeat",
    "whoami",
    "list_agents",
];

const PLAN: &str = "
task_id: 0-4-1
orchestrator: conductor
steps:
  - {agent: Tara, goal: Write a failing test for login, files: [tests/login.rs]}
  - {agent: Devon, goal: Make it pass, files: [src/login.rs], context: [tests/login.rs]}
";

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/mcp")
}

fn program() -> &'static str {
    env!("CARGO_BIN_EXE_ensemble")
}

/// A project in which Tara's first step waits in her mailbox, and a letter behind it.
struct Bed {
    home: tempfile::TempDir,
}

impl Bed {
    fn new() -> Self {
        let bed = Self { home: tempfile::tempdir().unwrap() };
        std::fs::write(bed.home.path().join("ensemble.yaml"), "durability: process\n").unwrap();
        std::fs::write(bed.home.path().join("plan.yaml"), PLAN).unwrap();
        for line in ["init", "mailbox add Tara", "mailbox add Devon", "step add -f plan.yaml"] {
            bed.ok(line);
        }
        // It hands the step out, and has nothing to wait for then.
        let ran = bed.run("step run 0-4-1 --timeout 1ms");
        assert_eq!(ran.status.code(), Some(3), "{ran:?}");
        bed.ok("send --to Tara -m letter --id letter-1");
        bed
    }

    fn command(&self) -> Command {
        let mut command = Command::new(program());
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command.env("HOME", self.home.path()).current_dir(self.home.path());
        command.stdin(Stdio::null());
        command
    }

    fn run(&self, line: &str) -> Output {
        self.command().args(line.split(' ')).output().unwrap()
    }

    #[track_caller]
    fn ok(&self, line: &str) -> String {
        let ran = self.run(line);
        assert!(ran.status.success(), "ensemble {line}: {ran:?}");
        String::from_utf8(ran.stdout).unwrap()
    }

    fn status(&self, step: u32) -> Value {
        let shown = self.ok(&format!("step show 0-4-1 {step} --json"));
        serde_json::from_str::<Value>(&shown).unwrap()["status"].clone()
    }
}

/// A server that dies with its test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts `ensemble mcp --http`; where it is and its token.
fn serve(bed: &Bed) -> (Server, String, String) {
    use std::io::{BufRead as _, BufReader};
    let mut child = bed
        .command()
        .args(["--as", "Tara", "--json", "mcp", "--http", "0"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let said: Value = serde_json::from_str(&line).unwrap();
    let text = |key: &str| said[key].as_str().unwrap().to_owned();
    (Server(child), text("url"), text("token"))
}

/// A directory below cargo's for tests in which `install` has succeeded once; `None`, and why on
/// stderr, if it cannot.
fn installed(name: &str, install: impl Fn(&Path) -> Option<bool>) -> Option<PathBuf> {
    let _one = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let done = dir.join("installed");
    if !done.exists() {
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        if install(&dir) != Some(true) {
            eprintln!("SKIPPED: cannot install {name}; this test needs it");
            return None;
        }
        std::fs::write(&done, "").unwrap();
    }
    Some(dir)
}

fn succeeds(command: &mut Command) -> Option<bool> {
    let ran = command.output().ok()?;
    if !ran.status.success() {
        eprintln!("{}", String::from_utf8_lossy(&ran.stderr));
    }
    Some(ran.status.success())
}

/// A Python with the official client.
fn python() -> Option<PathBuf> {
    let dir = installed(&PYTHON_CLIENT.replace("==", "-"), |dir| {
        succeeds(Command::new("python3").args(["-m", "venv"]).arg(dir.join("venv")))?;
        succeeds(Command::new(dir.join("venv/bin/pip")).args(["-q", "install", PYTHON_CLIENT]))
    });
    dir.map(|dir| dir.join("venv/bin/python"))
}

/// What the Python client has printed: the tools, each call, the resources.
fn play(command: &mut Command) -> Vec<Value> {
    let ran = command.output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let text = String::from_utf8(ran.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Every tool was listed, and did or refused what it should.
fn check(bed: &Bed, said: &[Value]) {
    let listed: Vec<&str> =
        said[0]["tools"].as_object().unwrap().keys().map(String::as_str).collect();
    let mut expected = TOOLS.to_vec();
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
            "submit_step_completion" => 2,
            "plan_approval" | "shutdown_response" | "report" => 1,
            _ => 0,
        };
        assert_eq!(refused, expected, "{tool}: {of_tool:?}");
    }
    let submits = &answers["submit_step_completion"];
    assert!(submits[0].1.contains("COMPLETED"), "{submits:?}");
    assert!(submits[1].1.contains("1.5 is no step: pass a whole number"), "{submits:?}");
    assert!(submits[2].1.contains("you are Tara"), "{submits:?}");
    assert_eq!(answers.len(), TOOLS.len(), "a tool was not called");
    assert!(answers["acknowledge_message"][0].1.contains("ROLE: Tara"));

    let resources = said.last().unwrap()["resources"].as_object().unwrap();
    assert!(resources["ensemble://task/0-4-1"].as_str().unwrap().contains("Make it pass"));
    assert_eq!(bed.status(1), "COMPLETED");
    assert_eq!(bed.status(2), "PENDING", "nobody reports the step of another");
    assert!(bed.home.path().join("queue/reports/task-9-completed.yaml").exists());
    assert!(bed.home.path().join("queue/mailbox/Tara/done/letter-1.yaml").exists());
}

#[test]
fn the_python_client_lists_and_calls_every_tool_over_stdio() {
    let Some(python) = python() else { return };
    let bed = Bed::new();
    let mut client = Command::new(python);
    client.arg(tests().join("client.py")).arg(program()).arg(bed.home.path());
    check(&bed, &play(client.current_dir(bed.home.path())));
}

#[test]
fn the_python_client_lists_and_calls_every_tool_over_http() {
    let Some(python) = python() else { return };
    let bed = Bed::new();
    let (_server, url, token) = serve(&bed);
    let mut client = Command::new(python);
    client.arg(tests().join("client.py")).args(["--http", &url, &token]);
    check(&bed, &play(&mut client));
}

#[test]
fn the_inspector_lists_and_calls() {
    let node = installed("inspector", |dir| {
        succeeds(Command::new("npm").current_dir(dir).args(["init", "-y"]))?;
        succeeds(Command::new("npm").current_dir(dir).args(["install", "--silent", INSPECTOR]))
    });
    let Some(dir) = node else { return };
    let bed = Bed::new();
    let inspect = |rest: &[&str]| {
        let mut command = Command::new("node");
        command.arg(dir.join("node_modules/.bin/mcp-inspector")).arg("--cli").arg(program());
        command.arg("--queue").arg(bed.home.path().join("queue")).args(["--as", "Tara", "mcp"]);
        let ran = command.args(rest).output().unwrap();
        assert!(ran.status.success(), "{rest:?}: {}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8(ran.stdout).unwrap()
    };
    let listed = inspect(&["--method", "tools/list"]);
    for tool in TOOLS {
        assert!(listed.contains(&format!("\"{tool}\"")), "{listed}");
    }
    let called = inspect(&["--method", "tools/call", "--tool-name", "whoami"]);
    assert!(called.contains("Tara"), "{called}");
}

/// One HTTP request by hand; the status of its answer.
fn request(url: &str, headers: &[(&str, &str)]) -> u16 {
    use std::io::{Read as _, Write as _};
    let address = url.strip_prefix("http://").and_then(|url| url.strip_suffix("/mcp")).unwrap();
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" },
        },
    })
    .to_string();
    let mut text =
        format!("POST /mcp HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
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
fn http_wants_the_token_and_refuses_strangers() {
    let bed = Bed::new();
    let (_server, url, token) = serve(&bed);
    let bearer = format!("Bearer {token}");
    let with = |name, value| request(&url, &[("Authorization", &bearer), (name, value)]);
    assert_eq!(request(&url, &[]), 401);
    assert_eq!(request(&url, &[("Authorization", "Bearer wrong")]), 401);
    assert_eq!(request(&url, &[("Authorization", &bearer)]), 200);
    assert_eq!(with("Origin", "http://localhost:3000"), 200);
    assert_eq!(with("Origin", "https://evil.example"), 403);
    assert_eq!(with("Host", "evil.example"), 403);
}

#[test]
fn a_token_file_is_made_once_and_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let bed = Bed::new();
    let file = bed.home.path().join("token");
    std::fs::write(&file, "short\n").unwrap();
    let refused = bed.run("mcp --as Tara --http 0 --token-file token");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("has no token"), "{refused:?}");
    std::fs::remove_file(&file).unwrap();
    let mut command = bed.command();
    command.args(["mcp", "--as", "Tara", "--http", "0", "--token-file", "token"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(
        &mut std::io::BufReader::new(child.stdout.take().unwrap()),
        &mut line,
    )
    .unwrap();
    let _server = Server(child);
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let token = std::fs::read_to_string(&file).unwrap();
    let bearer = format!("Bearer {}", token.trim());
    assert_eq!(request(line.trim(), &[("Authorization", &bearer)]), 200);
}

#[test]
fn nobody_in_particular_is_not_served() {
    let bed = Bed::new();
    let ran = bed.run("mcp");
    assert_eq!(ran.status.code(), Some(2), "{ran:?}");
}
