//! A client of `codex app-server`: calls, and what the server says by itself.

use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use ensemble_app::failure::{Failure, Outcome};
use ensemble_core::driver::nap;
use serde_json::{Value, json};
use tungstenite::{Error, Message, WebSocket};

use crate::hooks::rpc::{RpcPeer, RpcState};

/// How long the server may take to answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);
/// How often to try again to write to a server that does not read.
const WRITE_INTERVAL: Duration = Duration::from_millis(10);

pub(super) struct AppServer {
    socket: WebSocket<UnixStream>,
    state: RpcState,
    has_ended: bool,
}

impl AsFd for AppServer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.get_ref().as_fd()
    }
}

impl AppServer {
    /// Connects, and introduces this client.
    pub(super) fn connect(path: &Path) -> Outcome<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(ANSWER_PATIENCE))?;
        let (socket, _) = tungstenite::client("ws://localhost/", stream)
            .map_err(|error| Failure::refused(format!("no WebSocket at the server: {error}")))?;
        socket.get_ref().set_nonblocking(true)?;
        let mut server = Self { socket, state: RpcState::default(), has_ended: false };
        let client = json!({ "name": "ensemble", "version": env!("CARGO_PKG_VERSION") });
        server.call("initialize", json!({ "clientInfo": client }))?;
        server.send(json!({ "method": "initialized" }))?;
        Ok(server)
    }

    pub(super) const fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// The ids of the threads that are open.
    pub(super) fn loaded_threads(&mut self) -> Outcome<Vec<String>> {
        let loaded = self.call("thread/loaded/list", json!({}))?;
        let ids = loaded["data"].as_array().into_iter().flatten();
        Ok(ids.filter_map(Value::as_str).map(str::to_owned).collect())
    }

    fn end(&mut self, why: &str) -> Failure {
        self.has_ended = true;
        Failure::refused(format!("the server has ended: {why}"))
    }
}

impl RpcPeer for AppServer {
    const ANSWER_PATIENCE: Duration = ANSWER_PATIENCE;

    fn state(&mut self) -> &mut RpcState {
        &mut self.state
    }

    fn read(&mut self) -> Outcome<Option<Value>> {
        loop {
            match self.socket.read() {
                Ok(Message::Text(text)) => {
                    if let Ok(said) = serde_json::from_str(&text) {
                        return Ok(Some(said));
                    }
                }
                Ok(Message::Close(_)) => return Err(self.end("closed")),
                Ok(_) => {}
                Err(Error::Io(error)) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(self.end(&error.to_string())),
            }
        }
    }

    fn send(&mut self, said: Value) -> Outcome {
        let until = Instant::now() + ANSWER_PATIENCE;
        let mut written = self.socket.send(Message::text(said.to_string()));
        loop {
            match written {
                Ok(()) => return Ok(()),
                Err(Error::Io(error))
                    if error.kind() == ErrorKind::WouldBlock && Instant::now() < until =>
                {
                    nap(WRITE_INTERVAL);
                    written = self.socket.flush();
                }
                Err(error) => return Err(self.end(&error.to_string())),
            }
        }
    }
}
