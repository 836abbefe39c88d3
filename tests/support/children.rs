//! Real processes for tests: the test binary, restarted in a role.
//!
//! A module whose tests start children has a test `play_role` that begins with [`cast`]. It returns at
//! once in an ordinary test run. A child's role begins with the name of that module: `module::role`.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

const ROLE: &str = "ENSEMBLE_TEST_ROLE";
const ALONE: &str = "ENSEMBLE_TEST_ALONE";
/// Set apart from what the test harness prints.
const MARK: &str = "child says ";
/// No wait in a test takes longer, even on a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);
/// Interval between two looks: the awaited process needs the processor.
const LOOK_INTERVAL: Duration = Duration::from_micros(500);

/// In a child: the role and its arguments.
pub(crate) fn cast() -> Option<Vec<String>> {
    std::env::var(ROLE).ok().map(|role| role.split('\n').map(str::to_owned).collect())
}

/// In a child: sends a line to the parent.
pub(crate) fn say(text: impl std::fmt::Display) {
    // One write, so that a kill cannot separate the line from its newline.
    let line = format!("{MARK}{text}\n");
    std::io::stdout().write_all(line.as_bytes()).unwrap();
    std::io::stdout().flush().unwrap();
}

/// In a child: waits for a word of the parent, or for its death.
pub(crate) fn wait_for_parent() {
    let _ = std::io::stdin().read_line(&mut String::new());
}

pub(crate) struct Child {
    process: std::process::Child,
    output: BufReader<ChildStdout>,
}

impl Child {
    pub(crate) fn spawn(role: &[&str]) -> Self {
        Self::spawn_from(Command::new(std::env::current_exe().unwrap()), role)
    }

    /// Runs a shell's `setup` first.
    pub(crate) fn spawn_after(setup: &str, role: &[&str]) -> Self {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(format!("{setup}; exec \"$0\" \"$@\""));
        shell.arg(std::env::current_exe().unwrap());
        Self::spawn_from(shell, role)
    }

    fn spawn_from(mut command: Command, role: &[&str]) -> Self {
        let (module, first) = role[0].rsplit_once("::").unwrap_or(("", role[0]));
        let test = [module, "play_role"].join("::");
        let role = [&[first], &role[1..]].concat().join("\n");
        let mut process = command
            .args(["--exact", test.trim_start_matches(':')])
            .args(["--nocapture", "--quiet", "--test-threads=1"])
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Self { process, output }
    }

    /// The next line; `None` once the child has ended.
    pub(crate) fn hear(&mut self) -> Option<String> {
        let mut line = String::new();
        while self.output.read_line(&mut line).unwrap() > 0 {
            if let Some((_, said)) = line.trim_end().split_once(MARK) {
                return Some(said.to_owned());
            }
            line.clear();
        }
        None
    }

    /// Ends its wait for the parent.
    pub(crate) fn go(&mut self) {
        self.process.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    /// Stops it, and returns once it pauses; so does one that has ended already.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
        let stat = format!("/proc/{}/stat", self.pid());
        wait_until("the child is stopped", || {
            let stat = std::fs::read_to_string(&stat).unwrap();
            stat.contains(") T ") || stat.contains(") Z ")
        });
    }

    /// Returns once all of its threads have ended, and with them its locks. A zombie may have some left.
    pub(crate) fn wait_until_dead(&self) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        retry_on_intr(|| waitid(WaitId::Pid(Pid::from_child(&self.process)), options)).unwrap();
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.process.try_wait().unwrap().is_some()
    }

    /// Kills it, and returns the lines that it had printed and the test had not read.
    pub(crate) fn kill(&mut self) -> Vec<String> {
        self.process.kill().unwrap();
        let unheard = std::iter::from_fn(|| self.hear()).collect();
        self.process.wait().unwrap();
        unheard
    }

    /// Waits until it exits, with success unless it was killed. Returns whether it was.
    pub(crate) fn was_killed(mut self) -> bool {
        use std::os::unix::process::ExitStatusExt as _;
        while self.hear().is_some() {}
        let status = self.process.wait().unwrap();
        assert!(status.success() || status.signal() == Some(9), "{status}");
        !status.success()
    }

    pub(crate) fn finish(mut self) {
        while self.hear().is_some() {}
        assert!(self.process.wait().unwrap().success());
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Whether this process runs nothing but this test. Otherwise starts one that does, which must succeed.
pub(crate) fn is_alone(test: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(ALONE, "1");
    assert!(command.status().unwrap().success(), "see above");
    false
}

pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "waited in vain until {what}");
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// Sends a signal to a process; `false` if it has ended.
pub(crate) fn signal(pid: u32, signal: Signal) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| kill_process(pid, signal).is_ok())
}

/// Numbers that look random and are the same in every run.
pub(crate) struct Dice(pub u64);

impl Dice {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}
