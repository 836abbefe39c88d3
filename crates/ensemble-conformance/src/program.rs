//! A client as a process: lines of JSON over stdin and stdout.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use serde_json::Value;

use super::cases::TestedClient;

/// The longest time for one answer, and for the first line.
const ANSWER_PATIENCE: Duration = Duration::from_secs(60);
/// A write beyond the limit of the full-disk stage is an error and no signal.
const START: &str = "trap '' XFSZ; exec ";

#[derive(Debug)]
pub(crate) struct ClientProgram {
    child: Child,
    stdin: Option<ChildStdin>,
    answers: Receiver<String>,
    hello: Value,
}

impl ClientProgram {
    /// Starts a client, which is a command line for `sh`, on a queue.
    pub(crate) fn start(client: &str, queue: &Path) -> Result<Self, String> {
        Self::start_by(Command::new("sh"), client, queue)
    }

    /// The same, started by a command that runs `sh`.
    pub(crate) fn start_by(mut by: Command, client: &str, queue: &Path) -> Result<Self, String> {
        by.arg("-c").arg(format!("{START}{client} \"$@\"")).arg("sh").arg(queue);
        by.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = by.spawn().map_err(|error| format!("cannot start `{client}`: {error}"))?;
        let stdin = child.stdin.take();
        let (send, answers) = channel();
        let stdout = child.stdout.take().ok_or("no stdout")?;
        // Ends with the client, whose end of the pipe it reads.
        std::thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            lines.map(|line| send.send(line)).take_while(Result::is_ok).count();
        });
        let mut program = Self { child, stdin, answers, hello: Value::Null };
        program.hello = program.answer_within(ANSWER_PATIENCE)?.ok_or("no first line")?;
        match program.hello["client"].as_str() {
            Some(_) => Ok(program),
            None => Err(format!("the first line should name the client: {}", program.hello)),
        }
    }

    pub(crate) fn name(&self) -> &str {
        self.hello["client"].as_str().unwrap_or("?")
    }

    /// Whether the client syncs what it stores.
    pub(crate) fn is_power(&self) -> bool {
        self.hello["durability"] == "power"
    }

    pub(crate) fn ask(&mut self, call: &Value) -> Result<(), String> {
        let stdin = self.stdin.as_mut().ok_or("its stdin is closed")?;
        writeln!(stdin, "{call}").and_then(|()| stdin.flush()).map_err(|error| error.to_string())
    }

    /// The next answer; `None` if there is none in this time.
    pub(crate) fn answer_within(&mut self, patience: Duration) -> Result<Option<Value>, String> {
        match self.answers.recv_timeout(patience) {
            Ok(line) => serde_json::from_str(&line)
                .map(Some)
                .map_err(|error| format!("the answer is not JSON ({error}): {line}")),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                Err("the client ended without an answer".to_owned())
            }
        }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        // It may have ended by itself.
        let _ = rustix::process::kill_process_group(self.pid(), signal);
    }

    /// Ends the client by closing its stdin. Returns whether it exited in time and with success.
    pub(crate) fn end(mut self) -> bool {
        self.stdin = None;
        // A client that ends closes its stdout.
        while self.answers.recv_timeout(ANSWER_PATIENCE).is_ok() {}
        self.child.wait().is_ok_and(|status| status.success())
    }
}

impl TestedClient for ClientProgram {
    fn call(&mut self, call: &Value) -> Result<Value, String> {
        self.ask(call)?;
        let waited = self.answer_within(ANSWER_PATIENCE)?;
        waited.ok_or_else(|| format!("no answer within {} s", ANSWER_PATIENCE.as_secs()))
    }

    fn locks(&self) -> bool {
        self.hello["locks"] != "none"
    }
}

impl Drop for ClientProgram {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}
