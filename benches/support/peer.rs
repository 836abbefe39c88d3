//! Third-party programs: their location below benches/peers.sh's directory, and their output by
//! line.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use super::process::{Guard, PATIENCE};
use super::{Outcome, now_ns, place};

/// Directories in which Debian puts servers, not on every user's PATH.
const SERVERS: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];

/// The directory into which benches/peers.sh installs.
pub fn directory() -> Outcome<PathBuf> {
    if let Some(directory) = std::env::var_os("ENSEMBLE_BENCH_PEERS") {
        return Ok(PathBuf::from(directory));
    }
    let profile = place::beside_this_program()?;
    Ok(profile.parent().ok_or("the build has no directory")?.join("peers"))
}

/// A peer's program: from the peers' directory or the PATH, or given by its path.
pub fn find(name: &str) -> Outcome<PathBuf> {
    let home = directory()?;
    let own = [home.join("bin"), home.join("venv/bin")];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = own.into_iter().chain(std::env::split_paths(&path)).chain(SERVERS.map(PathBuf::from));
    all.map(|dir| dir.join(name))
        .find(|path| path.is_file())
        .ok_or_else(|| format!("{name} is not installed (benches/peers.sh installs it)").into())
}

/// A command for a peer's program. With `setpriv` the kernel ends it when this program ends.
pub fn command(name: &str) -> Outcome<Command> {
    let program = find(name)?;
    Ok(match find("setpriv") {
        Ok(setpriv) => {
            let mut command = Command::new(setpriv);
            command.arg("--pdeathsig=KILL").arg(program);
            command
        }
        Err(_) => Command::new(program),
    })
}

/// Our script that drives a peer, run by the Python in which the peers are installed.
pub fn script(name: &str) -> Outcome<Command> {
    let python = directory()?.join("venv/bin/python");
    if !python.is_file() {
        return Err("no Python with the peers (benches/peers.sh installs it)".into());
    }
    let mut command = command("python")?;
    command.arg(ours(name));
    Ok(command)
}

/// One of our files beside benches/peers.sh.
pub fn ours(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../benches/peers").join(name)
}

/// A process whose lines are stamped on arrival.
pub struct Lines {
    lines: Receiver<(u64, String)>,
    guard: Guard,
}

impl Lines {
    pub fn start(command: &mut Command) -> Outcome<Self> {
        let (guard, output) = Guard::with_output(command.stderr(Stdio::null()))?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let mut output = BufReader::new(output);
            let mut line = String::new();
            while output.read_line(&mut line).is_ok_and(|read| read > 0) {
                if sender.send((now_ns(), line.trim_end().to_owned())).is_err() {
                    break;
                }
                line.clear();
            }
        });
        Ok(Self { lines, guard })
    }

    /// The next line, and its arrival time.
    pub fn next(&self) -> Outcome<(u64, String)> {
        self.lines.recv_timeout(PATIENCE).map_err(|_| "it printed no line, or has ended".into())
    }

    pub fn guard(&mut self) -> &mut Guard {
        &mut self.guard
    }
}
