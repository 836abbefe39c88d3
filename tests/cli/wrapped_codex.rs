//! `ensemble codex` more than once in one home. The agent here does what Codex does: without `--no-daemon`, a background
//! process that the first one leaves runs the commands of all, with the environment of the first one.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::bed::{Bed, Ran, SaidText as _, program, to_end, words, write_program};
use crate::team::kill;
use crate::tmux_support::eventually;

/// Runs each line that it reads, itself or through the daemon of its home, and prints code and output as one line.
const CODEX: &str = r#"#!/usr/bin/env python3
import json, os, socket, subprocess, sys
if sys.argv[1:2] == ["app-server"]:
    sys.exit(2)
home = os.environ["HOME"]
place = os.path.join(home, "codex-daemon.sock")
keys = ["ENSEMBLE_AGENT_ID", "ENSEMBLE_GENERATION", "EXTRA"]
with open(os.path.join(home, "starts"), "a") as starts:
    row = {key: os.environ.get(key) for key in keys}
    starts.write(json.dumps({**row, "argv": sys.argv[1:], "cwd": os.getcwd()}) + "\n")

def run(line):
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return {"code": done.returncode, "stdout": done.stdout, "stderr": done.stderr}

def serve():
    os.setsid()
    for number in (0, 1, 2):
        os.dup2(os.open(os.devnull, os.O_RDWR), number)
    with open(os.path.join(home, "daemon.pid"), "w") as file:
        file.write(f"{os.getpid()}\n")
    while True:
        asked = listener.accept()[0].makefile("rw")
        line = asked.readline()
        if line:
            asked.write(json.dumps(run(line)) + "\n")
            asked.flush()

if "--no-daemon" not in sys.argv:
    client = socket.socket(socket.AF_UNIX)
    is_served = client.connect_ex(place) == 0
    client.close()
    if not is_served:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(place)
        listener.listen()
        if os.fork() == 0:
            serve()

def through_daemon(line):
    client = socket.socket(socket.AF_UNIX)
    client.connect(place)
    file = client.makefile("rw")
    file.write(line + "\n")
    file.flush()
    return json.loads(file.readline())

print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    line = line.rstrip("\n")
    print(json.dumps(run(line) if "--no-daemon" in sys.argv else through_daemon(line)), flush=True)
"#;

/// A project whose home has one program, `codex`.
struct Home {
    bed: Bed,
    bin: PathBuf,
}

struct Codex {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Home {
    fn new(config: &str) -> Self {
        let bed = Bed::empty();
        bed.configure(config);
        bed.ok("init");
        let bin = bed.project().parent().unwrap().join("bin");
        write_program(bin.join("codex"), CODEX);
        Self { bed, bin }
    }

    fn home(&self) -> PathBuf {
        self.bed.project().parent().unwrap().to_owned()
    }

    fn path(&self) -> String {
        format!("{}:/usr/local/bin:/usr/bin:/bin", self.bin.display())
    }

    fn wrapped(&self, line: &str) -> Codex {
        Codex::start(self.bed.command(&words(line)).env("PATH", self.path()))
    }

    fn plain(&self) -> Codex {
        let mut command = Command::new(self.bin.join("codex"));
        command.env_clear().env("HOME", self.home()).env("PATH", self.path());
        Codex::start(command.current_dir(self.bed.project()))
    }

    fn starts(&self) -> Vec<Value> {
        crate::bed::objects(&fs::read_to_string(self.home().join("starts")).unwrap())
    }

    fn daemon(&self) -> String {
        let file = self.home().join("daemon.pid");
        let read = || fs::read_to_string(&file).unwrap_or_default();
        eventually("the daemon runs", || read().ends_with('\n'));
        read()
    }

    fn send(&self, to: &str, text: &str) {
        let args = ["send", "--as", "human", "--to", to, "-m", text];
        to_end(&mut self.bed.command(&args)).ends(0);
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let daemon = fs::read_to_string(self.home().join("daemon.pid")).unwrap_or_default();
        if let Ok(pid) = daemon.trim().parse() {
            kill(pid);
        }
    }
}

impl Codex {
    fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let orders = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let mut codex = Self { child, orders, answers };
        assert_eq!(codex.answer(), json!({ "ready": true }));
        codex
    }

    #[track_caller]
    fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    #[track_caller]
    fn order(&mut self, line: &str) -> Ran {
        writeln!(self.orders, "{} {line}", program().display()).unwrap();
        let answer = self.answer();
        let text = |key: &str| answer[key].as_str().unwrap_or_default().to_owned();
        let code = i32::try_from(answer["code"].as_i64().unwrap_or(-1)).unwrap();
        Ran { code, stdout: text("stdout"), stderr: text("stderr") }
    }

    /// Takes the one message that waits, under its own name, and settles it.
    #[track_caller]
    fn receives(&mut self, name: &str, text: &str) {
        let who = self.order("agent whoami --json");
        assert!(who.stdout.contains(&format!("\"agent\":\"{name}\"")), "{name}: {who:?}");
        let taken = self.order(&format!("recv --as {name} --json"));
        assert!(taken.code == 0 && taken.stdout.contains(text), "{name}: {taken:?}");
        let received: Value = serde_json::from_str(taken.stdout.trim()).unwrap();
        let id = received["id"].as_str().unwrap();
        let settled = self.order(&format!("settle {id}"));
        assert_eq!(settled.code, 0, "{name}: {settled:?}");
    }

    fn end(mut self) {
        drop(self.orders);
        self.child.wait().unwrap();
    }
}

#[test]
fn each_of_several_codex_of_one_home_acts_under_its_own_name() {
    let home = Home::new("hooks: {providers: []}\n");
    // Its daemon serves every Codex of the home that wants one.
    let mut plain = home.plain();
    let daemon = home.daemon();
    let mut first = home.wrapped("codex");
    let mut second = home.wrapped("codex");
    home.send("codex", "for the first");
    home.send("codex-2", "for the second");
    second.receives("codex-2", "for the second");
    first.receives("codex", "for the first");
    plain.order("recv --as codex").ends(1);

    // One ends and starts again, beside the other.
    home.send("codex", "for the first, later");
    first.end();
    let hint = home.bed.fails(1, "agent restart codex-2");
    hint.has(["`ensemble codex --name codex-2` in that terminal"]);
    let mut again = home.wrapped("codex");
    again.receives("codex", "for the first, later");
    assert_eq!(second.order("send --to codex -m hello").code, 0);
    again.receives("codex", "hello");
    assert_eq!(again.order("send --to codex-2 -m answer").code, 0);
    second.receives("codex-2", "answer");

    for codex in [again, second, plain] {
        codex.end();
    }
    let queue = home.bed.project().join("queue").display().to_string();
    eventually("the watcher has ended", || !crate::bed::is_running(&queue));
    assert_eq!(home.daemon(), daemon, "a wrapped Codex has left a daemon");
}

#[test]
fn a_wrapped_agent_starts_as_its_profile_or_its_row_of_the_configuration_says() {
    let row = "hooks: {providers: []}\nagents: {coder: {provider: codex, command: 'EXTRA=1 codex --no-daemon --model m', directory: sub}}\n";
    let home = Home::new(row);
    fs::create_dir(home.bed.project().join("sub")).unwrap();
    let sub = home.bed.project().join("sub").canonicalize().unwrap();
    home.wrapped("codex").end();
    home.wrapped("codex --no-daemon resume 'a b'").end();
    home.wrapped("codex --name coder --search").end();
    let starts = home.starts();
    let argv = |at: usize| {
        let words = starts[at]["argv"].as_array().unwrap().iter();
        words.map(|word| word.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let here = home.bed.project().canonicalize().unwrap();
    assert_eq!(argv(0), ["--no-daemon"]);
    assert_eq!(argv(1), ["--no-daemon", "resume", "'a", "b'"]);
    assert_eq!(argv(2), ["--no-daemon", "--model", "m", "--search"]);
    assert_eq!((&starts[2]["EXTRA"], &starts[0]["EXTRA"]), (&json!("1"), &Value::Null));
    assert_eq!(starts[0]["cwd"], here.to_str().unwrap());
    assert_eq!(starts[2]["cwd"], sub.to_str().unwrap());
    assert_eq!(starts[1]["ENSEMBLE_GENERATION"], "2");
    let queue = home.bed.project().join("queue").display().to_string();
    eventually("the watcher has ended", || !crate::bed::is_running(&queue));
}
