//! Real NATS servers for tests, each on a free loopback port with its own store directory. A
//! server is stopped by its pid, and killed with the test program if that is killed.
#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]

#[path = "../ports.rs"]
#[allow(
    clippy::duplicate_mod,
    clippy::allow_attributes,
    reason = "one program starts servers of both kinds"
)]
mod ports;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ensemble_core::message::Name;
use ensemble_nats::{NatsOptions, NatsTransport};

pub use ports::reserved_port as free_port;

/// How long a server may take to answer; far above what a loaded machine needs.
pub const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Where a server listens and keeps its messages. It may run or not.
pub struct Server {
    pub port: u16,
    home: PathBuf,
    program: PathBuf,
    arguments: Vec<String>,
    has_jetstream: bool,
    running: Mutex<Option<Running>>,
    /// Removed with the server, if it is its own.
    _owned: Option<tempfile::TempDir>,
}

struct Running {
    pid: rustix::process::Pid,
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

/// A connection whose calls are to fail soon, for which a slow machine may need more than one try.
#[track_caller]
pub fn connect_impatient(options: &NatsOptions) -> NatsTransport {
    let start = Instant::now();
    loop {
        match NatsTransport::connect(options) {
            Ok(queue) => return queue,
            Err(error) => assert!(start.elapsed() < PATIENCE, "it connects: {error}"),
        }
    }
}

/// Debian's directory for it is not on every user's PATH.
pub fn program() -> &'static str {
    let in_sbin = "/usr/sbin/nats-server";
    if Path::new(in_sbin).exists() { in_sbin } else { "nats-server" }
}

/// A program that keeps its servers alike although they are killed or cut off, which that of Debian 12 does not.
/// `.ci/needs` installs it; `None`, with the reason printed, without it.
pub fn cluster_program() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?;
    let program = target.join("nats-server/bin/nats-server");
    if !program.exists() {
        println!("skipped: no {} (`.ci/needs` installs it)", program.display());
        return None;
    }
    Some(program)
}

/// Makes keys and certificates in that directory.
#[track_caller]
pub fn openssl(home: &Path, line: &str) {
    let output = Command::new("openssl").current_dir(home).args(line.split(' ')).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

impl Server {
    pub fn start() -> Self {
        Self::separate(Path::new(program()))
    }

    /// As [`Server::start`], by the program of [`cluster_program`]: no team starts on that of Debian 12.
    pub fn current() -> Option<Self> {
        cluster_program().map(|program| Self::separate(&program))
    }

    fn separate(program: &Path) -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut server = Self::by(program, home.path(), free_port(), &[]);
        server._owned = Some(home);
        server
    }

    /// A server that keeps its messages there, running.
    pub fn at(home: &Path, port: u16, arguments: &[String]) -> Self {
        Self::by(Path::new(program()), home, port, arguments)
    }

    /// As [`Server::at`], by this program.
    pub fn by(program: &Path, home: &Path, port: u16, arguments: &[String]) -> Self {
        Self::started(program, home, port, arguments, true)
    }

    /// A server that stores nothing and is configured by this file: a leaf node.
    pub fn leaf(program: &Path, home: &Path, port: u16, config: &Path) -> Self {
        let arguments = ["-c".to_owned(), config.display().to_string()];
        Self::started(program, home, port, &arguments, false)
    }

    fn started(
        program: &Path,
        home: &Path,
        port: u16,
        arguments: &[String],
        has_jetstream: bool,
    ) -> Self {
        let server = Self {
            port,
            program: program.to_owned(),
            home: home.to_owned(),
            arguments: arguments.to_vec(),
            has_jetstream,
            running: Mutex::default(),
            _owned: None,
        };
        server.run();
        server.answers();
        server
    }

    /// The server of all tests that do not harm it; ends with the last of them.
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let server = Arc::new(Self::start());
            *shared = Arc::downgrade(&server);
            server
        })
    }

    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    pub fn options(&self, team: &str) -> NatsOptions {
        NatsOptions::new(self.url(), Name::new(team).unwrap())
    }

    /// Starts it; its port and its messages are those of before.
    pub fn run(&self) {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(&self.program).args(["-a", "127.0.0.1"]);
        command.args(["-p", &self.port.to_string()]);
        if self.has_jetstream {
            command.args(["-js", "-sd"]).arg(&self.home);
        }
        command.args(&self.arguments).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(std::fs::File::create(self.home.join("stderr")).unwrap());
        let (stop, stopped): (Sender<()>, Receiver<()>) = mpsc::channel();
        let (started, pid) = mpsc::channel();
        // A server dies with the thread that has started it, and this one outlives every test.
        let thread = std::thread::spawn(move || {
            let mut child = command.spawn().expect("nats-server and setpriv are installed");
            started.send(rustix::process::Pid::from_child(&child)).unwrap();
            let _ = stopped.recv();
            let _ = child.kill();
            child.wait().unwrap();
        });
        let pid = pid.recv().unwrap();
        *self.running.lock().unwrap() = Some(Running { pid, stop, thread });
    }

    #[track_caller]
    pub fn answers(&self) {
        self.wait_until("answers", || self.answers_now());
    }

    #[track_caller]
    fn wait_until(&self, what: &str, is_so: impl Fn() -> bool) {
        let start = Instant::now();
        while !is_so() {
            assert!(start.elapsed() < PATIENCE, "the server on port {} {what}", self.port);
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    fn answers_now(&self) -> bool {
        let Ok(stream) = TcpStream::connect(("127.0.0.1", self.port)) else { return false };
        stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).is_ok() && line.starts_with("INFO ")
    }

    /// Waits until the server has caught up with its cluster, which a rolling restart requires.
    /// `monitor` is its monitoring port.
    #[track_caller]
    pub fn is_current(&self, monitor: u16) {
        self.wait_until("catches up", || is_healthy(monitor).unwrap_or(false));
    }

    /// SIGKILL, at once: nothing that it has not written is written any more.
    pub fn kill(&self) {
        if let Some(running) = self.running.lock().unwrap().take() {
            drop(running.stop);
            running.thread.join().unwrap();
        }
    }

    pub fn restart(&self) {
        self.kill();
        self.run();
        self.answers();
    }

    /// Stops it from doing anything, without its connections noticing, or lets it continue. Returns once it
    /// pauses: until then one of its threads may still answer.
    #[track_caller]
    pub fn signal(&self, signal: rustix::process::Signal) {
        let running = self.running.lock().unwrap();
        let pid = running.as_ref().unwrap().pid;
        rustix::process::kill_process(pid, signal).unwrap();
        let is_to_stop = signal == rustix::process::Signal::STOP;
        self.wait_until("stands still", || !is_to_stop || stands_still(pid));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn stands_still(pid: rustix::process::Pid) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).unwrap();
    threads.flatten().all(|thread| {
        std::fs::read_to_string(thread.path().join("stat")).is_ok_and(|stat| stat.contains(") T "))
    })
}

/// The server's own report of its streams and of the members that vote on them.
fn is_healthy(monitor: u16) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(("127.0.0.1", monitor))?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n")?;
    let mut status = String::new();
    BufReader::new(stream).read_line(&mut status)?;
    Ok(status.contains(" 200 "))
}

#[track_caller]
pub fn monitored(monitor: u16, page: &str, field: &str) -> u64 {
    let mut stream = TcpStream::connect(("127.0.0.1", monitor)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(format!("GET {page} HTTP/1.0\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (_, rest) = answer.split_once(&format!("\"{field}\":")).unwrap();
    let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

/// A team that no other test has.
pub fn fresh_team() -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("team-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}
