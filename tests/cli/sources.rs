//! An agent that reports its state through a server, found by the configuration or its command
//! line, in a real tmux server.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::Value;

use crate::bed::{Bed, Ran, SaidText as _, ran, words};
use crate::http_server::HttpServer;
use crate::tmux_support::{TestServer, eventually};

/// `opencode:s3cret`, as it is sent.
const AUTHORIZATION: &str = "\r\nAuthorization: Basic b3BlbmNvZGU6czNjcmV0\r\n";

fn busy() -> HttpServer {
    HttpServer::start(|request| {
        let (status, body) = match request.contains(AUTHORIZATION) {
            false => ("401 Unauthorized", ""),
            true if request.starts_with("GET /permission ") => ("200 OK", "[]"),
            true => ("200 OK", r#"{"ses_1":{"type":"busy"}}"#),
        };
        (status, body.to_owned())
    })
}

/// A project whose `w1` is an OpenCode that looks idle, started with these words.
struct Team {
    bed: Bed,
    tmux: TestServer,
}

impl Team {
    fn new(started_with: &str) -> Self {
        let bed = Bed::new();
        let dir = tempfile::tempdir().unwrap();
        let bin = dir.path().join("bin");
        fs::create_dir(&bin).unwrap();
        symlink("/bin/sh", bin.join("opencode")).unwrap();
        let here = dir.path().join("here");
        fs::create_dir(&here).unwrap();
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/fake_agent.sh");
        let (program, fixture) = (bin.join("opencode"), fixture.display().to_string());
        let command = format!(
            "exec '{}' '{fixture}' opencode ready '{}' {started_with}",
            program.display(),
            here.display()
        );
        let tmux = TestServer::start_in(dir, &command);
        eventually("it runs", || here.join("running").exists());
        let socket = tmux.server.socket().display().to_string();
        bed.ok(&format!("mailbox bind w1 --pane %0 --provider opencode --tmux-socket {socket}"));
        let team = Self { bed, tmux };
        team.configure("{}");
        eventually("it is painted", || team.tmux.screen("%0").iter().any(|l| l.contains("ctrl+p")));
        team
    }

    fn configure(&self, server: &str) {
        self.bed.configure(&format!("agents:\n  w1:\n    server: {server}\n"));
    }

    fn run(&self, line: &str, password: Option<&str>) -> Ran {
        let mut command = self.bed.command(&words(line));
        command.envs(password.map(|password| ("WORD", password)));
        ran(command.output().unwrap())
    }

    /// The state, the source that has decided, and the last piece of evidence. Asks again if the
    /// server was too slow for the half second that it is given.
    fn inspect(&self, password: Option<&str>) -> (String, String, String) {
        let mut told = None;
        eventually("the server answers in time", || {
            let now = self.inspect_once(password);
            let is_late = now.2.contains("no answer within");
            told = Some(now);
            !is_late
        });
        told.expect("it was looked at")
    }

    fn inspect_once(&self, password: Option<&str>) -> (String, String, String) {
        let ran = self.run("agent inspect w1 --json", password);
        let object: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
        let last = object["evidence"].as_array().unwrap().last().unwrap();
        let word = |value: &Value| value.as_str().unwrap().to_owned();
        let what =
            if object["source"] == "machine-readable" { &object["evidence"][0] } else { last };
        let evidence =
            format!("{}: {}: {}", word(&what["source"]), word(&what["what"]), word(&what["text"]));
        (word(&object["state"]), word(&object["source"]), evidence)
    }
}

fn told(state: &str, source: &str, evidence: String) -> (String, String, String) {
    (state.to_owned(), source.to_owned(), evidence)
}

#[test]
fn an_agent_that_was_started_with_a_port_needs_no_address() {
    let server = busy();
    let team = Team::new(&format!("--port {}", server.address.port()));
    team.configure("{password_env: WORD}");
    let heard = format!("machine-readable: busy: busy (http://{})", server.address);
    assert_eq!(team.inspect(Some("s3cret")), told("busy", "machine-readable", heard));
}

#[test]
fn mistakes_in_the_configuration_are_named_and_a_configured_server_is_queried() {
    let team = Team::new("");
    let (state, _, evidence) = team.inspect(None);
    assert_eq!(state, "ready");
    evidence.has(["--port"]);
    for (server, words) in [
        ("{address: 'http://192.0.2.1:4096'}", "remote: true"),
        ("{address: 'https://127.0.0.1:4096'}", "agents.w1.server"),
        ("{address: 'http://127.0.0.1:4096', password: s3cret}", "password"),
        ("{password_env: A, password_file: b}", "one of"),
    ] {
        team.configure(server);
        let ran = team.run("agent inspect w1", None);
        assert_ne!(ran.code, 0, "{server}: {ran:?}");
        assert!(ran.stderr.contains(words), "{server}: {ran:?}");
    }
    let server = busy();
    let at = format!("http://{}", server.address);
    team.configure(&format!("{{address: '{at}', password_env: WORD}}"));
    let heard = format!("machine-readable: busy: busy ({at})");
    assert_eq!(team.inspect(Some("s3cret")), told("busy", "machine-readable", heard));
    let refused = format!(
        "machine-readable: no answer: it wants another password than it was given (status 401) ({at})"
    );
    let (state, source, evidence) = team.inspect(Some("wrong"));
    assert_eq!((state.as_str(), source.as_str()), ("ready", "screen"), "the screen decides then");
    assert!(refused.starts_with(&evidence), "{evidence}");
    let (state, _, evidence) = team.inspect(None);
    assert_eq!(state, "ready");
    evidence.has(["WORD is not set here"]);
    // A file does as well, and nothing is typed to an agent that says it works.
    team.bed.write_file("secret", "s3cret\n");
    team.configure(&format!("{{address: '{at}', password_file: secret}}"));
    assert_eq!(team.bed.run("send --to w1 -m mail").code, 0);
    team.run("agent nudge w1", None).ends(75).says(["busy"]);
    team.run("agent ping w1", None).ends(1).says(["opencode is busy"]);
}
