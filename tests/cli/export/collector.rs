//! A real collector takes what is exported, and keeps names, ids and events: Rotel, an OpenTelemetry collector that
//! PyPI has as a program. And the Prometheus project's own parser reads the metrics.
//!
//! Where they cannot be installed, the test says so and ends; with `ENSEMBLE_TEST_CLIENTS=required` it fails.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use serde_json::Value;

use super::{attribute, bed, spans, text};
use crate::bed::{Bed, Running, to_end, words};
use crate::tmux_support::{LOOK_INTERVAL, PATIENCE};

const PACKAGES: [&str; 2] = ["rotel==0.0.1a15", "prometheus-client==0.26.0"];

/// A Python with the packages; `None`, and why, if they cannot be installed.
fn python() -> Option<PathBuf> {
    // Two tests must not make the same environment at once.
    static MADE: OnceLock<Option<PathBuf>> = OnceLock::new();
    MADE.get_or_init(make_python).clone()
}

fn make_python() -> Option<PathBuf> {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("collector-0.0.1a15");
    let (python, done) = (dir.join("venv/bin/python"), dir.join("installed"));
    if !done.exists() {
        let run = |command: &mut Command| command.output().is_ok_and(|ran| ran.status.success());
        let is_made =
            run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(dir.join("venv")));
        let pip = ["-m", "pip", "install", "--quiet", "--no-deps"];
        let is_installed = is_made && run(Command::new(&python).args(pip).args(PACKAGES));
        let is_required = std::env::var("ENSEMBLE_TEST_CLIENTS").is_ok_and(|v| v == "required");
        assert!(is_installed || !is_required, "{PACKAGES:?} cannot be installed");
        if !is_installed {
            println!("skipped: {PACKAGES:?} cannot be installed");
            return None;
        }
        std::fs::write(&done, "").unwrap();
    }
    Some(python)
}

fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

struct Rotel {
    process: Child,
    url: String,
    printed: Receiver<String>,
}

impl Drop for Rotel {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Rotel {
    fn start(python: &Path, home: &Path) -> Self {
        let found = Command::new(python)
            .args(["-c", "import rotel, os; print(os.path.dirname(rotel.__file__))"])
            .output()
            .unwrap();
        let package = PathBuf::from(String::from_utf8(found.stdout).unwrap().trim());
        let address = free_address();
        let mut process = Command::new(package.join("rotel-agent"))
            .args(["start", "--exporter", "blackhole", "--debug-log", "traces"])
            .args(["--debug-log-verbosity", "detailed", "--otlp-grpc-endpoint", &free_address()])
            .args(["--otlp-http-endpoint", &address, "--pid-file"])
            .arg(home.join("rotel.pid"))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let (sender, printed) = channel();
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Self { process, url: format!("http://{address}"), printed }
    }

    /// Reads until all of these lines have been printed. Returns what was printed.
    #[track_caller]
    fn prints(&self, wanted: &[String]) -> Vec<String> {
        let mut missing: BTreeSet<&String> = wanted.iter().collect();
        let (mut lines, deadline) = (Vec::new(), Instant::now() + PATIENCE);
        while !missing.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = self.printed.recv_timeout(left) else {
                panic!("has not arrived: {missing:#?}\n{}", lines.join("\n"));
            };
            let line = line.trim().to_owned();
            missing.remove(&line);
            lines.push(line);
        }
        lines
    }
}

/// Ids, name and attributes of a span as the collector prints them.
fn as_printed(span: &Value) -> Vec<String> {
    let attributes = span["attributes"].as_array().unwrap().iter().map(|attribute| {
        let value = attribute["value"].as_object().unwrap();
        let (kind, value) = value.iter().next().unwrap();
        let kind = if kind == "intValue" { "Int" } else { "Str" };
        format!("-> {}: {kind}({})", text(attribute, "key"), value.as_str().unwrap())
    });
    let events = span["events"].as_array().unwrap().iter();
    let events = events.map(|event| format!("-> Name: {}", text(event, "name")));
    let head = [
        ("Trace ID       ", "traceId"),
        ("ID             ", "spanId"),
        ("Name           ", "name"),
    ];
    let head = head.iter().map(|(name, member)| format!("{name}: {}", text(span, member)));
    head.chain(attributes).chain(events).collect()
}

#[test]
fn a_real_collector_has_every_span_with_its_names_and_ids() {
    let Some(python) = python() else { return };
    let bed = bed();
    let expected = spans(&bed.json("log export otlp"));
    let rotel = Rotel::start(&python, &bed.project());
    let line = format!("log export otlp --json --endpoint {}", rotel.url);
    let deadline = Instant::now() + PATIENCE;
    // It does not listen at once.
    let sent = loop {
        let ran = bed.run(&line);
        if ran.code != 75 || Instant::now() > deadline {
            break ran;
        }
    };
    sent.ends(0);
    let said: Value = serde_json::from_str(&sent.stdout).unwrap();
    assert_eq!(said["spans"], expected.len());
    let lines: Vec<String> = expected.iter().flat_map(as_printed).collect();
    let printed = rotel.prints(&lines);
    assert!(printed.iter().any(|line| line.ends_with("https://opentelemetry.io/schemas/1.42.0")));
}

/// Settles a message; the lines with the ids of its spans.
fn settled(bed: &Bed, body: &str) -> Vec<String> {
    let id = bed.send(body);
    bed.ok("recv --as w1");
    bed.ok(&format!("settle --as w1 {id}"));
    let spans = spans(&bed.json("log export otlp"));
    let mine = spans.iter().filter(|span| attribute(span, "messaging.message.id") == id);
    mine.map(|span| format!("ID             : {}", text(span, "spanId"))).collect()
}

#[test]
fn a_follower_sends_each_message_once_over_its_own_death_and_waits_for_its_collector() {
    let Some(python) = python() else { return };
    let bed = Bed::new();
    let rotel = Rotel::start(&python, &bed.project());
    let line = format!("log export otlp --follow --endpoint {}", rotel.url);
    // Begun before the collector listens, or before it has read anything.
    let first = Running(bed.start(&line));
    let before = settled(&bed, "before");
    rotel.prints(&before);
    let progress = bed.project().join(".ensemble/export.json");
    let deadline = Instant::now() + PATIENCE;
    while !progress.exists() {
        assert!(Instant::now() < deadline, "nothing was noted");
        std::thread::sleep(LOOK_INTERVAL);
    }
    drop(first);
    let while_away = settled(&bed, "while it is away");
    let _second = Running(bed.start(&line));
    let printed = rotel.prints(&while_away);
    assert!(!before.iter().any(|line| printed.contains(line)), "it was sent twice");
}

#[test]
fn the_parser_of_prometheus_reads_the_metrics() {
    let Some(python) = python() else { return };
    let bed = bed();
    bed.ok("log export prometheus -o metrics.prom");
    let script = "\
import sys
from prometheus_client.parser import text_string_to_metric_families as families
for family in families(open(sys.argv[1]).read()):
    assert family.documentation and family.samples, family
    print(family.name, family.type, len(family.samples))";
    let ran = Command::new(python)
        .args(["-c", script])
        .arg(bed.project().join("metrics.prom"))
        .output()
        .unwrap();
    assert!(ran.status.success(), "{ran:?}");
    let read = String::from_utf8(ran.stdout).unwrap();
    for family in
        ["ensemble_messages_stored counter 1", "ensemble_message_ack_seconds histogram 12"]
    {
        assert!(read.lines().any(|line| line == family), "{family}\n{read}");
    }
}

/// Answers one request over TLS, and prints its path, a header, and its number of bytes.
const SECRET_COLLECTOR: &str = "\
import http.server, ssl, sys
class Collector(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers['content-length']))
        print(self.path, self.headers['authorization'], body[:17].decode(), flush=True)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{}')
    def log_message(self, *words):
        pass
server = http.server.HTTPServer(('127.0.0.1', 0), Collector)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain('cert.pem', 'key.pem')
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()";

#[test]
fn a_collector_behind_tls_must_be_trusted_and_gets_the_headers_of_the_environment() {
    let bed = bed();
    let line = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout key.pem -out cert.pem \
                -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 \
                -addext basicConstraints=critical,CA:FALSE";
    let made =
        Command::new("openssl").current_dir(bed.project()).args(words(line)).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let server = Command::new("python3")
        .args(["-c", SECRET_COLLECTOR])
        .current_dir(bed.project())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut server = Running(server);
    let mut printed = BufReader::new(server.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    let port = printed.next().unwrap();
    let export = |trusted: &str| {
        let endpoint = format!("https://127.0.0.1:{port}/otlp");
        let mut command = bed.command(&["log", "export", "otlp", "--endpoint", &endpoint]);
        command.env("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Basic%20eDp5,x-scope=1");
        to_end(command.env("SSL_CERT_FILE", bed.project().join(trusted)))
    };
    let sent = export("cert.pem");
    assert_eq!((sent.code, sent.stderr.as_str()), (0, ""), "{sent:?}");
    assert_eq!(printed.next().unwrap(), "/otlp/v1/traces Basic eDp5 {\"resourceSpans\":");
    let refused = export("ensemble.yaml");
    assert!(refused.code != 0 && refused.stderr.contains("certificate"), "{refused:?}");
}
