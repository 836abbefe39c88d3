//! A Codex at a private server: its mail comes without keys and without hooks. The program here speaks as
//! much of the app-server's protocol as codex-cli 0.171.0 was seen to.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Stdio};
use std::time::Duration;

use ensemble_core::durable::FileLock;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::bed::{Bed, SaidText as _, is_running, objects, running, words, write_program};
use crate::tmux_support::eventually;

/// As a server it notes each call, and says to all what is written into `say`. Of the threads before it, it has those of a file `loaded`. A thread lists what is said to it, but not
/// beside a file `deaf`. It refuses one turn beside a file `busy`, which it removes. As anything else it prints its arguments, and runs until its input ends.
const CODEX: &str = r#"#!/usr/bin/env python3
import base64, hashlib, json, os, select, socket, struct, sys
home = os.environ["HOME"]
if sys.argv[1:2] != ["app-server"]:
    print(json.dumps(sys.argv[1:]), flush=True)
    sys.stdin.read()
    sys.exit(0)
if os.path.exists(os.path.join(home, "no-server")):
    sys.exit(2)
with open(os.path.join(home, "server"), "w") as file:
    file.write(json.dumps(sys.argv[1:]))
calls = open(os.path.join(home, "calls"), "a")
if not os.path.exists(os.path.join(home, "say")):
    os.mkfifo(os.path.join(home, "say"))
said = os.open(os.path.join(home, "say"), os.O_RDWR)
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[3].removeprefix("unix://"))
listener.listen()
clients, rest, statuses, items = [], b"", {}, []

def write(client, value):
    text = json.dumps(value).encode()
    size = bytes([len(text)]) if len(text) < 126 else b"\x7e" + struct.pack(">H", len(text))
    try:
        client.sendall(b"\x81" + size + text)
    except OSError:
        clients.remove(client)

def greet(client):
    head = client.recv(65536).decode()
    key = [line.split(": ")[1] for line in head.split("\r\n") if line.lower().startswith("sec-websocket-key")][0]
    digest = hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
    client.sendall(("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                    f"Sec-WebSocket-Accept: {base64.b64encode(digest).decode()}\r\n\r\n").encode())
    clients.append(client)

def frame(client):
    read = lambda size: client.recv(size, socket.MSG_WAITALL)
    head = read(2)
    size = head[1] & 127
    if size == 126:
        size = struct.unpack(">H", read(2))[0]
    mask, text = read(4), read(size)
    return json.loads(bytes(byte ^ mask[at % 4] for at, byte in enumerate(text))) if head[0] & 15 == 1 else {}

def serve(client):
    asked = frame(client)
    if "id" not in asked:
        return
    calls.write(json.dumps(asked) + "\n")
    calls.flush()
    if asked["method"] == "turn/start" and os.path.exists(os.path.join(home, "busy")):
        os.remove(os.path.join(home, "busy"))
        return write(client, {"id": asked["id"], "error": {"code": -32600, "message": "busy"}})
    thread = asked["params"].get("threadId")
    status = statuses.get(thread, {"type": "idle"})
    read = {"id": thread, "ephemeral": thread == "aside", "threadSource": "user", "status": status}
    if asked["method"] == "turn/start" and not os.path.exists(os.path.join(home, "deaf")):
        items.append({"clientId": asked["params"]["clientUserMessageId"]})
    noted = lambda name, other: json.load(open(os.path.join(home, name))) if os.path.exists(os.path.join(home, name)) else other
    answers = {"config/read": {"config": noted("config", None)}, "thread/loaded/list": {"data": noted("loaded", [])}, "thread/read": {"thread": read},
               "thread/items/list": {"data": items}}
    write(client, {"id": asked["id"], "result": answers.get(asked["method"], {})})

while True:
    for ready in select.select([listener, said, *clients], [], [])[0]:
        try:
            if ready is listener:
                greet(listener.accept()[0])
            elif ready is said:
                *lines, rest = (rest + os.read(said, 65536)).split(b"\n")
                for news in map(json.loads, lines):
                    statuses[news["params"].get("threadId")] = news["params"].get("status")
                    for client in list(clients):
                        write(client, news)
            else:
                serve(ready)
        except (OSError, IndexError):
            # A client that has left.
            clients = [client for client in clients if client is not ready]
"#;

struct Served {
    bed: Bed,
    child: Child,
    input: Option<ChildStdin>,
    argv: Vec<String>,
}

impl Served {
    fn start(prepare: impl FnOnce(&PathBuf)) -> Self {
        let bed = Bed::empty();
        bed.configure("");
        bed.ok("init");
        let home = bed.project().parent().unwrap().to_owned();
        write_program(home.join("bin/codex"), CODEX);
        prepare(&home);
        Self::start_in(bed)
    }

    fn start_in(bed: Bed) -> Self {
        let home = bed.project().parent().unwrap().to_owned();
        let mut command = bed.command(&words("codex --model m"));
        command.env("PATH", format!("{}/bin:/usr/local/bin:/usr/bin:/bin", home.display()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let argv = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        Self { bed, input: child.stdin.take(), child, argv }
    }

    fn home(&self) -> PathBuf {
        self.bed.project().parent().unwrap().to_owned()
    }

    fn said(&self, method: &str, thread: &str) -> Vec<String> {
        let calls = objects(&fs::read_to_string(self.home().join("calls")).unwrap());
        let its = calls
            .into_iter()
            .filter(|call| call["method"] == method && call["params"]["threadId"] == thread);
        its.map(|call| call["params"].to_string()).collect()
    }

    #[track_caller]
    fn is_told(&self, method: &str, thread: &str, words: &str) {
        let is_said = || self.said(method, thread).iter().any(|said| said.contains(words));
        eventually(&format!("{thread} is told `{words}`"), is_said);
    }

    fn says(&self, news: &Value) {
        let mut say = fs::OpenOptions::new().write(true).open(self.home().join("say")).unwrap();
        writeln!(say, "{news}").unwrap();
    }

    fn begins(&self, thread: &str) {
        let thread = json!({ "id": thread, "ephemeral": false, "parentThreadId": null, "threadSource": "user" });
        self.says(&json!({ "method": "thread/started", "params": { "thread": thread } }));
    }

    fn status(&self, thread: &str, status: &Value) {
        let params = json!({ "threadId": thread, "status": status });
        self.says(&json!({ "method": "thread/status/changed", "params": params }));
    }

    #[track_caller]
    fn is_noted(&self, activity: &str) {
        let file = self.bed.project().join(".ensemble/sessions/codex.json");
        let noted = || {
            let text = fs::read_to_string(&file).unwrap_or_default();
            serde_json::from_str::<Value>(&text).is_ok_and(|it| it["activity"] == activity)
        };
        eventually(&format!("it is {activity}"), noted);
    }

    /// Ends the agent. Nothing of it is left.
    fn end(mut self) -> Bed {
        drop(self.input.take());
        self.child.wait().unwrap();
        let project = self.bed.project().display().to_string();
        eventually("server, companion and watcher have ended", || !is_running(&project));
        self.bed
    }
}

#[test]
fn a_codex_at_a_private_server_needs_no_keys_and_no_hooks() {
    let codex = Served::start(|_| {});
    let socket = codex.bed.project().canonicalize().unwrap().join(".ensemble/codex.app-server");
    let address = format!("unix://{}", socket.display());
    assert_eq!(codex.argv[..2], ["--remote".to_owned(), address.clone()]);
    assert_eq!(codex.argv[codex.argv.len() - 2..], ["--model", "m"]);
    assert!(!codex.argv.contains(&"--no-daemon".to_owned()), "{:?}", codex.argv);
    let server: Vec<String> =
        serde_json::from_str(&fs::read_to_string(codex.home().join("server")).unwrap()).unwrap();
    assert_eq!(server[..4], ["app-server", "--listen", address.as_str(), "-c"]);
    assert!(server[4].starts_with("mcp_servers.ensemble=") && server.len() == 5, "{server:?}");

    // It knows who it is before its first turn, and is given its mail while it rests.
    codex.begins("t1");
    codex.is_told("thread/inject_items", "t1", "You are codex");
    codex.is_noted("idle");
    codex.bed.ok("send --to codex -m first");
    codex.is_told("turn/start", "t1", "first");

    // What the thread does not list when the turn ends was never read: it begins the next turn.
    codex.status("t1", &json!({ "type": "active", "activeFlags": [] }));
    codex.is_noted("working");
    fs::write(codex.home().join("deaf"), "").unwrap();
    let second = codex.bed.ok("send --to codex -m second").trim_end().to_owned();
    codex.is_told("turn/start", "t1", "second");
    codex.status("t1", &json!({ "type": "active", "activeFlags": ["waitingOnApproval"] }));
    codex.is_noted("blocked");
    let submitted = || codex.bed.ok("log --json --type receipt.submitted");
    assert!(!submitted().contains(&second), "{}", submitted());
    fs::remove_file(codex.home().join("deaf")).unwrap();
    codex.status("t1", &json!({ "type": "idle" }));
    codex.is_told("turn/start", "t1", "Again, attempt 2 of 5");
    eventually("it has arrived", || submitted().contains(&second));

    // After `/clear` nothing goes into the old thread, and what it held comes again. The program's private threads are
    // never used.
    codex.begins("t2");
    codex.is_told("thread/inject_items", "t2", "You are codex");
    codex.is_told("turn/start", "t2", "second");
    codex.bed.ok("send --to codex -m third");
    codex.status("aside", &json!({ "type": "active", "activeFlags": [] }));
    codex.status("t2", &json!({ "type": "active", "activeFlags": [] }));
    codex.status("t2", &json!({ "type": "idle" }));
    codex.is_told("turn/start", "t2", "third");

    // The end of a turn in a thread that the person has left is nothing to the next thread.
    codex.status("t2", &json!({ "type": "active", "activeFlags": [] }));
    codex.begins("t3");
    codex.is_told("turn/start", "t3", "third");
    codex.status("t2", &json!({ "type": "idle" }));
    codex.status("t3", &json!({ "type": "active", "activeFlags": [] }));
    codex.bed.ok("send --to codex -m fourth");
    codex.status("t3", &json!({ "type": "idle" }));
    codex.is_told("turn/start", "t3", "fourth");
    assert_eq!(codex.said("thread/inject_items", "t2").len(), 1);
    for (thread, words) in [("t1", "third"), ("aside", "")] {
        assert!(codex.said("turn/start", thread).iter().all(|said| !said.contains(words)));
    }
    codex.bed.ok("log").lacks(["hook.failed", "nudge.sent"]);
    codex.end();
}

/// A refusal is not the end of it, even if no turn begins or ends.
#[test]
fn a_message_that_an_idle_server_refuses_is_given_to_it_again() {
    let codex = Served::start(|home| fs::write(home.join("busy"), "").unwrap());
    codex.begins("t1");
    codex.is_noted("idle");
    codex.bed.ok("send --to codex -m first");
    codex.is_told("turn/start", "t1", "Again, attempt 2 of 5");
    let failed = || codex.bed.ok("log --json --type hook.failed").lines().count();
    assert_eq!(failed(), 1);
    // Nor is a change forgotten that another process keeps from being noted.
    let lock = codex.bed.project().join(".ensemble/sessions/codex.json.lock");
    let held = FileLock::acquire(&lock, Duration::from_secs(20)).unwrap();
    codex.status("t1", &json!({ "type": "active", "activeFlags": ["waitingOnApproval"] }));
    eventually("it cannot be noted", || failed() > 1);
    drop(held);
    codex.is_noted("blocked");
    codex.end();
}

/// The program connects again, and continues its thread.
#[test]
fn a_server_or_companion_that_is_killed_is_replaced_until_the_agent_ends() {
    let codex = Served::start(|_| {});
    codex.begins("t1");
    codex.is_noted("idle");
    fs::write(codex.home().join("loaded"), json!(["t1"]).to_string()).unwrap();
    let socket = codex.bed.project().canonicalize().unwrap().join(".ensemble/codex.app-server");
    let socket = socket.display().to_string();
    // The two of a kind take turns: what was started later is killed as well as what was started first.
    for (round, part) in
        ["--listen", "accompany", "relieve", "--listen", "relieve"].iter().enumerate()
    {
        let killed = one_of(&[part, &socket]);
        kill_process(killed, Signal::KILL).unwrap();
        eventually(&format!("{part} is replaced"), || {
            let now = running(&[part, &socket]);
            let is_other = !now.contains(&killed) && !now.is_empty();
            // What relieves a companion keeps its name.
            let is_taken_over = *part == "accompany" && running(&["relieve", &socket]).len() == 2;
            is_other || is_taken_over
        });
        let text = format!("message-{round}");
        codex.bed.ok(&format!("send --to codex -m {text}"));
        codex.is_told("turn/start", "t1", &text);
    }
    let introductions = |codex: &Served| codex.said("thread/inject_items", "t1").len();
    assert_eq!(introductions(&codex), 1, "it knows its name");
    // A program that was started again may have another role in the thread that it resumes.
    let again = Served::start_in(codex.end());
    eventually("it is introduced again", || introductions(&again) == 2);
    again.end();
}

/// The process with these texts in its command line that was started first.
fn one_of(texts: &[&str]) -> Pid {
    let found = running(texts).into_iter().min_by_key(|pid| pid.as_raw_nonzero());
    found.unwrap_or_else(|| panic!("no process of {texts:?}"))
}

#[test]
fn a_codex_that_has_to_ask_for_trust_first_has_no_server() {
    let start = |projects: fn(&str) -> Value| {
        Served::start(|home| {
            let repository = home.join("main").display().to_string();
            let link = format!("gitdir: {repository}/.git/worktrees/project\n");
            fs::write(home.join("project/.git"), link).unwrap();
            let config = json!({ "sandbox_mode": null, "projects": projects(&repository) });
            fs::write(home.join("config"), config.to_string()).unwrap();
        })
    };
    let asks = start(|_| json!({ "/another": { "trust_level": "trusted" } }));
    assert_eq!(asks.argv[asks.argv.len() - 3..], ["--no-daemon", "--model", "m"]);
    assert!(!asks.bed.ok("log").contains("hook.failed"));
    asks.end();
    let trusted = start(|repository| json!({ repository: { "trust_level": "trusted" } }));
    assert_eq!(trusted.argv[0], "--remote");
    trusted.end();
}

#[test]
fn a_codex_without_a_server_starts_as_before() {
    let codex = Served::start(|home| fs::write(home.join("no-server"), "").unwrap());
    assert_eq!(codex.argv[codex.argv.len() - 3..], ["--no-daemon", "--model", "m"]);
    assert!(codex.argv[1].starts_with("mcp_servers.ensemble="), "{:?}", codex.argv);
    assert!(codex.bed.ok("log").contains("no server that could be reached"));
    codex.end();
}
