//! A client of `codex app-server`: calls, and what the server says by itself.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use ensemble_app::failure::{Failure, Outcome};
use ensemble_core::watch::sleep_until_any;
use serde_json::{Value, json};
use tungstenite::{Error, Message, WebSocket};

/// How long the server may take to answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);
/// How often to try again to write to a server that does not read.
const WRITE_INTERVAL: Duration = Duration::from_millis(10);

/// A connection to a server.
pub(super) struct AppServer {
    socket: WebSocket<UnixStream>,
    last_id: u64,
    news: VecDeque<Value>,
    has_ended: bool,
}

impl AsFd for AppServer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.get_ref().as_fd()
    }
}

impl AppServer {
    /// Connects, and introduces this client.
    ///
    /// # Errors
    /// No server listens there, or it does not speak as expected.
    pub(super) fn connect(path: &Path) -> Outcome<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(ANSWER_PATIENCE))?;
        let (socket, _) = tungstenite::client("ws://localhost/", stream)
            .map_err(|error| Failure::refused(format!("no WebSocket at the server: {error}")))?;
        socket.get_ref().set_nonblocking(true)?;
        let mut server = Self { socket, last_id: 0, news: VecDeque::new(), has_ended: false };
        let client = json!({ "name": "ensemble", "version": env!("CARGO_PKG_VERSION") });
        server.call("initialize", json!({ "clientInfo": client }))?;
        server.send(&json!({ "method": "initialized" }))?;
        Ok(server)
    }

    /// Whether the connection has ended.
    pub(super) const fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// The ids of the threads that are open.
    pub(super) fn loaded_threads(&mut self) -> Outcome<Vec<String>> {
        let loaded = self.call("thread/loaded/list", json!({}))?;
        let ids = loaded["data"].as_array().into_iter().flatten();
        Ok(ids.filter_map(Value::as_str).map(str::to_owned).collect())
    }

    /// Calls a method and returns its result.
    ///
    /// # Errors
    /// The server refuses, has ended, or has not answered within [`ANSWER_PATIENCE`].
    pub(super) fn call(&mut self, method: &str, params: Value) -> Outcome<Value> {
        self.last_id += 1;
        let id = json!(self.last_id);
        self.send(&json!({ "id": id, "method": method, "params": params }))?;
        let until = Instant::now() + ANSWER_PATIENCE;
        loop {
            while let Some(mut said) = self.read()? {
                if said.get("method").is_some() {
                    self.news.push_back(said);
                } else if said["id"] == id {
                    return match said.get("error") {
                        Some(error) => Err(Failure::refused(format!("{method}: {error}"))),
                        None => Ok(said["result"].take()),
                    };
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Failure::refused(format!("{method}: no answer")));
            }
            sleep_until_any(&[self.as_fd()], Some(left))
                .map_err(|error| Failure::refused(error.to_string()))?;
        }
    }

    /// The next thing that the server has said by itself; `None` if there is nothing new.
    ///
    /// # Errors
    /// The server has ended.
    pub(super) fn news(&mut self) -> Outcome<Option<Value>> {
        if let Some(news) = self.news.pop_front() {
            return Ok(Some(news));
        }
        while let Some(said) = self.read()? {
            // An answer that came too late has no method.
            if said.get("method").is_some() {
                return Ok(Some(said));
            }
        }
        Ok(None)
    }

    /// One message, if one has come.
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

    fn send(&mut self, said: &Value) -> Outcome {
        let until = Instant::now() + ANSWER_PATIENCE;
        let mut written = self.socket.send(Message::text(said.to_string()));
        loop {
            match written {
                Ok(()) => return Ok(()),
                Err(Error::Io(error))
                    if error.kind() == ErrorKind::WouldBlock && Instant::now() < until =>
                {
                    ensemble_core::driver::nap(WRITE_INTERVAL);
                    written = self.socket.flush();
                }
                Err(error) => return Err(self.end(&error.to_string())),
            }
        }
    }

    fn end(&mut self, why: &str) -> Failure {
        self.has_ended = true;
        Failure::refused(format!("the server has ended: {why}"))
    }
}
