//! A client of an agent that speaks the Agent Client Protocol: JSON-RPC over its pipes, one message a line.

use std::ffi::OsString;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use ensemble_app::agent_program::AgentProgram;
use ensemble_app::failure::{Failure, Outcome};
use ensemble_core::driver::nap;
use ensemble_core::message::read_foreign_json;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use serde_json::{Value, json};

use crate::hooks::companion::part;
use crate::hooks::rpc::{RpcPeer, RpcState};

/// How long the agent may take to answer, or to read what is written.
const ANSWER_PATIENCE: Duration = Duration::from_secs(120);
/// How long it may take for each of the two answers with which it starts. Some ask for packages then, and wait for a
/// network that is not there. One that cannot start ends by itself.
const START_PATIENCE: Duration = Duration::from_secs(600);
const WRITE_INTERVAL: Duration = Duration::from_millis(10);
/// The longest message, in bytes. It may hold a whole file.
const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;
const CHUNK_BYTES: usize = 64 * 1024;
/// How long an agent that has closed its output may take to end.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// The error code for a method that is not known.
const NO_METHOD: i64 = -32601;

pub(super) struct AcpClient {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
    unread: Vec<u8>,
    state: RpcState,
    /// Whether it takes words into a turn that runs.
    pub(super) can_steer: bool,
}

impl AsFd for AcpClient {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.output.as_fd()
    }
}

impl AcpClient {
    /// Starts the agent, which ends with this process, and introduces this client.
    pub(super) fn start(words: &[OsString]) -> Outcome<Self> {
        let mut command = part("host", AgentProgram::Acp.word())?;
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (input, output) = pipes.ok_or_else(|| Failure::refused("the agent has no pipes"))?;
        for pipe in [input.as_fd(), output.as_fd()] {
            let flags = fcntl_getfl(pipe).map_err(std::io::Error::from)?;
            fcntl_setfl(pipe, flags | OFlags::NONBLOCK).map_err(std::io::Error::from)?;
        }
        let (unread, state) = (Vec::new(), RpcState::default());
        let mut client = Self { child, input, output, unread, state, can_steer: false };
        let files = json!({ "readTextFile": false, "writeTextFile": false });
        let about = json!({ "name": "ensemble", "version": env!("CARGO_PKG_VERSION") });
        let can = json!({ "fs": files, "terminal": false });
        let words = json!({ "protocolVersion": 1, "clientCapabilities": can, "clientInfo": about });
        let about = client.call_within("initialize", words, START_PATIENCE)?;
        client.can_steer = about["_meta"]["steering"]["supported"] == true;
        Ok(client)
    }

    pub(super) fn begin_session(&mut self, words: Value) -> Outcome<Value> {
        self.call_within("session/new", words, START_PATIENCE)
    }

    /// How the agent has ended, once it has closed its output.
    pub(super) fn ended(&mut self) -> Outcome {
        let until = Instant::now() + END_PATIENCE;
        while Instant::now() < until {
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(Failure::refused(format!("the agent ended: {status}"))),
                None => nap(WRITE_INTERVAL),
            }
        }
        self.child.kill()?;
        self.child.wait()?;
        Err(Failure::refused("the agent has closed its output, and was ended"))
    }

    pub(super) fn notify(&mut self, method: &str, params: Value) -> Outcome {
        self.send(json!({ "method": method, "params": params }))
    }

    pub(super) fn respond(&mut self, id: &Value, result: Value) -> Outcome {
        self.send(json!({ "id": id, "result": result }))
    }

    pub(super) fn refuse(&mut self, id: &Value) -> Outcome {
        let error = json!({ "code": NO_METHOD, "message": "this client has no such method" });
        self.send(json!({ "id": id, "error": error }))
    }
}

/// Takes the first message off what was read. Lines that are not one got there by mistake.
pub(crate) fn take_object(unread: &mut Vec<u8>) -> Option<Value> {
    while let Some(end) = unread.iter().position(|byte| *byte == b'\n') {
        let line: Vec<u8> = unread.drain(..=end).collect();
        if let Ok(said @ Value::Object(_)) = read_foreign_json(&line) {
            return Some(said);
        }
    }
    None
}

impl RpcPeer for AcpClient {
    const ANSWER_PATIENCE: Duration = ANSWER_PATIENCE;
    const NAME: &'static str = "the agent";

    fn state(&mut self) -> &mut RpcState {
        &mut self.state
    }

    fn read(&mut self) -> Outcome<Option<Value>> {
        loop {
            if let Some(said) = take_object(&mut self.unread) {
                return Ok(Some(said));
            }
            let mut chunk = vec![0; CHUNK_BYTES];
            match self.output.read(&mut chunk) {
                Ok(0) => return Err(self.end("its output is closed")),
                Ok(_) if self.unread.len() > MESSAGE_BYTES_MAX => {
                    return Err(self.end("it says more than a message may have"));
                }
                Ok(count) => self.unread.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.end(&error.to_string())),
            }
        }
    }

    fn send(&mut self, mut said: Value) -> Outcome {
        said["jsonrpc"] = "2.0".into();
        let line = format!("{said}\n");
        let (mut left, until) = (line.as_bytes(), Instant::now() + ANSWER_PATIENCE);
        while !left.is_empty() {
            match self.input.write(left) {
                Ok(count) => left = &left[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < until => {
                    nap(WRITE_INTERVAL);
                }
                Err(error) => return Err(self.end(&error.to_string())),
            }
        }
        Ok(())
    }
}
