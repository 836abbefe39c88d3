use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ensemble_app::failure::{Failure, Outcome};
use ensemble_core::driver::nap;
use ensemble_core::durable::read_file;
use ensemble_core::message::read_foreign_json;
use serde_json::{Value, json};
use tungstenite::{Error, Message, WebSocket};

use crate::hooks::rpc::{RpcPeer, RpcState};

/// How long the server may take to answer. What it answers later may have been done, and is then done twice.
const ANSWER_PATIENCE: Duration = Duration::from_secs(30);
/// The largest file that says where the repository of a git worktree is.
const LINK_BYTES_MAX: usize = 8192;
const WRITE_INTERVAL: Duration = Duration::from_millis(10);

pub(super) struct AppServer {
    socket: WebSocket<UnixStream>,
    state: RpcState,
}

impl AsFd for AppServer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.get_ref().as_fd()
    }
}

impl AppServer {
    pub(super) fn connect(path: &Path) -> Outcome<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(ANSWER_PATIENCE))?;
        let (socket, _) = tungstenite::client("ws://localhost/", stream)
            .map_err(|error| Failure::refused(format!("no WebSocket at the server: {error}")))?;
        socket.get_ref().set_nonblocking(true)?;
        let mut server = Self { socket, state: RpcState::default() };
        let client = json!({ "name": "ensemble", "version": env!("CARGO_PKG_VERSION") });
        server.call("initialize", json!({ "clientInfo": client }))?;
        server.send(json!({ "method": "initialized" }))?;
        Ok(server)
    }

    pub(super) fn loaded_threads(&mut self) -> Outcome<Vec<String>> {
        let loaded = self.call("thread/loaded/list", json!({}))?;
        let ids = loaded["data"].as_array().into_iter().flatten();
        Ok(ids.filter_map(Value::as_str).map(str::to_owned).collect())
    }

    pub(super) fn last_items(&mut self, thread: &str, max: u32) -> Outcome<String> {
        let newest = json!({ "threadId": thread, "limit": max, "sortDirection": "desc" });
        Ok(self.call("thread/items/list", newest)?.to_string())
    }

    /// Whether the person has yet to say if this directory is trusted. The program asks that only without a server, and
    /// until it has, its commands may write nothing.
    pub(super) fn awaits_trust(&mut self, directory: &Path) -> bool {
        // An older program has no such call.
        let read = self.call("config/read", json!({ "cwd": directory })).unwrap_or_default();
        let config = &read["config"];
        let is_set = ["sandbox_mode", "approval_policy"].iter().any(|key| !config[key].is_null());
        let is_known = |root: &PathBuf| !config["projects"][&*root.to_string_lossy()].is_null();
        config.is_object() && !is_set && !trust_roots(directory).iter().any(is_known)
    }
}

impl RpcPeer for AppServer {
    const ANSWER_PATIENCE: Duration = ANSWER_PATIENCE;
    const NAME: &'static str = "the server";

    fn state(&mut self) -> &mut RpcState {
        &mut self.state
    }

    fn read(&mut self) -> Outcome<Option<Value>> {
        loop {
            match self.socket.read() {
                Ok(Message::Text(text)) => {
                    if let Ok(said) = read_foreign_json(text.as_bytes()) {
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

/// The directories for which the person may have answered: this one, its repository, and that of a git worktree.
fn trust_roots(directory: &Path) -> Vec<PathBuf> {
    let root = directory.ancestors().find(|around| around.join(".git").exists());
    let link = root.and_then(|root| read_file(&root.join(".git"), LINK_BYTES_MAX).ok()?);
    let link = link.and_then(|link| String::from_utf8(link).ok());
    let link = link.as_deref().and_then(|link| link.strip_prefix("gitdir: "));
    let main = link.and_then(|link| link.split_once("/.git/worktrees/"));
    let roots = [Some(directory), root, main.map(|(repository, _)| Path::new(repository))];
    roots.into_iter().flatten().map(Path::to_owned).collect()
}
