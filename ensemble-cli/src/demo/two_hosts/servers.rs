//! The demo's servers, which it starts itself, with their data in its directory.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ensemble_app::failure::{Failure, Outcome};
use ensemble_core::Error;
use rustix::process::{Pid, Signal, getuid, kill_process};

use super::LOOK_INTERVAL;
use crate::demo::stage::{io_failure, stop};

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// PostgreSQL refuses to run as root.
const UNPRIVILEGED: u32 = 65534;

/// The nats-server: mail, requests and the blackboard.
pub(super) struct MailHub {
    pub(super) port: u16,
    home: PathBuf,
    process: Child,
}

impl MailHub {
    pub(super) fn start(home: PathBuf) -> Outcome<Self> {
        fs::create_dir(&home).map_err(|e| io_failure("create directory", &home, e))?;
        let port = free_port()?;
        let process = Self::run(&home, port)?;
        Ok(Self { port, home, process })
    }

    fn run(home: &Path, port: u16) -> Outcome<Child> {
        // Debian installs it in a directory that is missing in many a PATH.
        let in_sbin = Path::new("/usr/sbin/nats-server");
        let program = if in_sbin.exists() { in_sbin } else { Path::new("nats-server") };
        let mut command = Command::new(program);
        command.args(["-a", "127.0.0.1", "-p", &port.to_string(), "-js", "-sd"]).arg(home);
        let mut process = quietly(&mut command).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Failure::from(Error::MissingProgram {
                program: "nats-server",
                remedy: "for instance `apt-get install nats-server`",
            }),
            _ => io_failure("start", Path::new("nats-server"), error),
        })?;
        wait_until("nats-server", || answers(port)).inspect_err(|_| stop(&mut process))?;
        Ok(process)
    }

    /// SIGKILL, and up again with what it had on disk.
    pub(super) fn crash(&mut self) -> Outcome {
        let _ = self.process.kill();
        let _ = self.process.wait();
        self.process = Self::run(&self.home, self.port)?;
        Ok(())
    }
}

impl Drop for MailHub {
    fn drop(&mut self) {
        stop(&mut self.process);
    }
}

/// The PostgreSQL server: the step queues.
pub(super) struct DemoDatabase {
    pub(super) port: u16,
    data: PathBuf,
    process: Child,
}

impl DemoDatabase {
    /// `None` where PostgreSQL is not installed.
    pub(super) fn start(home: &Path) -> Outcome<Option<Self>> {
        let Some(programs) = programs() else { return Ok(None) };
        fs::create_dir(home).map_err(|e| io_failure("create directory", home, e))?;
        if getuid().is_root() {
            let owned = chown(home, Some(UNPRIVILEGED), Some(UNPRIVILEGED));
            owned.map_err(|e| io_failure("change the owner of", home, e))?;
            // The other user must find it.
            let parent = home.parent().unwrap_or(home);
            let passable = fs::set_permissions(parent, fs::Permissions::from_mode(0o711));
            passable.map_err(|e| io_failure("change the permissions of", parent, e))?;
        }
        let data = home.join("data");
        let mut initdb = unprivileged(&programs.join("initdb"));
        initdb.args(["-N", "-A", "trust", "-E", "UTF8", "--locale", "C", "-U", "ensemble", "-D"]);
        let made = initdb.arg(&data).output();
        let made = made.map_err(|e| io_failure("start", Path::new("initdb"), e))?;
        if !made.status.success() {
            let told = String::from_utf8_lossy(&made.stderr);
            return Err(Failure::refused(format!("initdb: {}", told.trim())));
        }
        let port = free_port()?;
        let process = Self::run(&programs, &data, port)?;
        Ok(Some(Self { port, data, process }))
    }

    fn run(programs: &Path, data: &Path, port: u16) -> Outcome<Child> {
        let mut command = unprivileged(&programs.join("postgres"));
        command.arg("-D").arg(data).args(["-p", &port.to_string(), "-k", ""]);
        command.args(["-c", "listen_addresses=127.0.0.1"]);
        let process = quietly(&mut command);
        let mut process = process.map_err(|e| io_failure("start", Path::new("postgres"), e))?;
        let is_ready = || {
            let told = fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
            told.lines().nth(7).is_some_and(|state| state.trim() == "ready")
        };
        wait_until("PostgreSQL", is_ready).inspect_err(|_| stop(&mut process))?;
        Ok(process)
    }

    /// Ends it without a word to its clients; its own processes end with it.
    fn end(&mut self) {
        if let Some(pid) = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::QUIT);
        }
        let _ = self.process.wait();
    }

    /// As [`MailHub::crash`].
    pub(super) fn crash(&mut self) -> Outcome {
        self.end();
        let file = self.data.join("postmaster.pid");
        let _ = fs::remove_file(file);
        let programs = programs().ok_or_else(|| Failure::refused("PostgreSQL has vanished"))?;
        self.process = Self::run(&programs, &self.data, self.port)?;
        Ok(())
    }
}

impl Drop for DemoDatabase {
    fn drop(&mut self) {
        self.end();
    }
}

/// The newest programs of PostgreSQL. Debian's directories for them are on no user's PATH.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let debian = versions.map(|version| version.path().join("bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = std::env::split_paths(&path).chain(debian);
    all.filter(|directory| directory.join("initdb").exists()).max()
}

fn unprivileged(program: &Path) -> Command {
    if !getuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &UNPRIVILEGED.to_string(), "--regid", &UNPRIVILEGED.to_string()]);
    command.arg("--clear-groups").arg(program);
    command.current_dir("/");
    command
}

fn quietly(command: &mut Command) -> std::io::Result<Child> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}

fn free_port() -> Outcome<u16> {
    let address = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let address = address.map_err(|e| io_failure("listen on", Path::new("127.0.0.1"), e))?;
    Ok(address.port())
}

fn wait_until(server: &str, condition: impl Fn() -> bool) -> Outcome {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() > PATIENCE {
            return Err(Failure::refused(format!("the demo's {server} does not answer")));
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
    Ok(())
}

fn answers(port: u16) -> bool {
    let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let mut line = String::new();
    let patience = stream.set_read_timeout(Some(Duration::from_secs(1)));
    patience.is_ok()
        && BufReader::new(stream).read_line(&mut line).is_ok()
        && line.starts_with("INFO ")
}
