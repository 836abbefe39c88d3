//! Other processes: this program in another role, the watcher, and the channel for their stamps.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::{Outcome, now_ns, peer};

/// Time limit for operations that take milliseconds.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// The first argument of this program in another role.
pub const ROLE: &str = "in-role";

/// A process that ends when its guard is dropped.
pub struct Guard {
    child: Child,
    group: bool,
}

impl Guard {
    /// Starts a command. Its input stays open as long as the guard lives.
    pub fn start(command: &mut Command) -> Outcome<Self> {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        Ok(Self { child, group: false })
    }

    /// Starts a command in its own process group, which ends as a whole.
    pub fn start_group(command: &mut Command) -> Outcome<Self> {
        let mut guard = Self::start(command.process_group(0))?;
        guard.group = true;
        Ok(guard)
    }

    /// Starts a command in its own process group and reads its output.
    pub fn with_output(command: &mut Command) -> Outcome<(Self, ChildStdout)> {
        let command = command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let output = child.stdout.take().ok_or("no stdout")?;
        Ok((Self { child, group: true }, output))
    }

    /// The reader of its output.
    pub fn input(&mut self) -> Outcome<&mut ChildStdin> {
        Ok(self.child.stdin.as_mut().ok_or("no stdin")?)
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the line that reports readiness.
    pub fn wait_for_line(&mut self, part: &str) -> Outcome<()> {
        let mut lines = BufReader::new(self.child.stderr.take().ok_or("no stderr")?);
        let mut line = String::new();
        while lines.read_line(&mut line)? > 0 {
            if line.contains(part) {
                // Later output must not block the process.
                std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
                return Ok(());
            }
        }
        Err(format!("ended before it said `{part}`: {line}").into())
    }

    pub fn wait(&mut self) -> Outcome<()> {
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
            && matches!(self.child.try_wait(), Ok(None))
        {
            let _ = if self.group {
                kill_process_group(pid, Signal::TERM)
            } else {
                kill_process(pid, Signal::TERM)
            };
        }
        let _ = self.child.wait();
    }
}

/// This program in another role.
pub fn in_role<S: AsRef<OsStr>>(role: &str, arguments: &[S]) -> Outcome<Guard> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(ROLE).arg(role).args(arguments);
    Guard::start(&mut command)
}

/// Makes this process end when its parent does.
pub fn end_with_parent() {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
}

/// The watcher as users run it, on the queue below `home`.
pub fn watcher(home: &Path) -> Outcome<Guard> {
    let watcher = option_env!("CARGO_BIN_EXE_ensemble-watch");
    let mut command = peer::command(watcher.ok_or("a benchmark of another crate")?)?;
    command.arg("--queue").arg(home.join("queue")).env("XDG_CONFIG_HOME", home);
    let mut guard = Guard::start(command.stderr(Stdio::piped()))?;
    guard.wait_for_line("watching")?;
    Ok(guard)
}

/// Receiver for stamps of other processes.
pub struct Stamps {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Stamps {
    pub fn new(dir: &Path, name: &str) -> Outcome<Self> {
        let path = dir.join(format!("{name}.stamps"));
        let socket = UnixDatagram::bind(&path)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { socket, path })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The next stamp and its subject.
    pub fn next(&self) -> Outcome<(u64, String)> {
        let mut buffer = [0; 1024];
        let length = self.socket.recv(&mut buffer)?;
        let text = std::str::from_utf8(&buffer[..length])?;
        let (stamp, what) = text.split_once(' ').ok_or("no stamp")?;
        Ok((stamp.parse()?, what.to_owned()))
    }

    /// As [`Stamps::next`], with this time limit.
    pub fn next_within(&self, patience: Duration) -> Option<(u64, String)> {
        self.socket.set_read_timeout(Some(patience)).ok()?;
        let next = self.next().ok();
        self.socket.set_read_timeout(Some(PATIENCE)).ok()?;
        next
    }
}

/// The sender for [`Stamps`].
pub struct Stamper(UnixDatagram);

impl Stamper {
    pub fn new(path: &str) -> Outcome<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        Ok(Self(socket))
    }

    /// Sends a stamp taken earlier.
    pub fn send(&self, stamp: u64, what: &str) {
        // If the parent is gone, the stamp is not needed.
        let _ = self.0.send(format!("{stamp} {what}").as_bytes());
    }

    pub fn ready(&self) {
        self.send(now_ns(), "ready");
    }
}
