//! A tmux server, known by its socket.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::attach_lock::AttachLock;
use super::binding::Binding;
use super::control::ControlClient;
use super::failure::TmuxFailure;
use super::guard::{difference, guarded};
use super::snapshot::PaneIdentity;
use super::spawned::{self, TmuxReply};
use ensemble_core::pane::Deferral;
use ensemble_core::{Error, Result};

/// How long to ask by one process a question before a control client is tried again, once one
/// could not be had.
const CONTROL_RETRY: Duration = Duration::from_secs(10);

/// A tmux server. Clones share one control-mode client, which is attached at the first question and again whenever it
/// has ended. It ends if the server was restarted, or if the session it was attached to is gone. Every call returns
/// within [`EXCHANGE_LIMIT`](super::EXCHANGE_LIMIT) for each exchange it needs. These are at most two: attach, ask.
/// There are three if a killed process has left a client behind that does not exit by itself. Dropping the last clone
/// ends the client and waits until the server has dropped it. It waits within that limit for the lock and for the
/// server.
#[derive(Clone, Debug)]
pub struct TmuxServer {
    inner: Arc<ServerInner>,
}

#[derive(Debug)]
struct ServerInner {
    socket: PathBuf,
    link: Mutex<ControlLink>,
    /// Asked by one process a question.
    is_brief: bool,
}

#[derive(Debug, Default)]
struct ControlLink {
    client: Option<Arc<ControlClient>>,
    /// The last attempt to attach that failed, and when it had ended.
    failed: Option<(Instant, TmuxFailure)>,
}

enum QuestionWay {
    Control(Arc<ControlClient>),
    Spawned,
}

impl TmuxServer {
    /// The server that listens (or will listen) on `socket`. Connects to nothing yet.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self::asked_so(socket.into(), false)
    }

    fn asked_so(socket: PathBuf, is_brief: bool) -> Self {
        Self { inner: Arc::new(ServerInner { socket, link: Mutex::default(), is_brief }) }
    }

    /// As [`TmuxServer::new`], for a program that asks a few questions and ends. Each question is asked
    /// by its own process, and no control client is attached.
    pub fn brief(socket: impl Into<PathBuf>) -> Self {
        Self::asked_so(socket.into(), true)
    }

    /// The server around a program, from the value of its `TMUX` variable
    /// (`<socket>,<pid>,<session>`), as [`TmuxServer::brief`] asks it.
    pub fn from_variable(tmux: &str) -> Option<Self> {
        let socket = tmux.split(',').next().filter(|socket| socket.starts_with('/'))?;
        Some(Self::brief(socket))
    }

    pub fn socket(&self) -> &Path {
        &self.inner.socket
    }

    /// Asks something that may be asked twice: if the connection ends in between, asks again.
    pub(super) fn query_server(&self, commands: &str) -> Result<TmuxReply, TmuxFailure> {
        match self.act(commands) {
            Err(TmuxFailure::Lost) => self.act(commands),
            other => other,
        }
    }

    /// Has something done that must not be done twice. [`TmuxFailure::Lost`] means that it is not
    /// known whether it was.
    pub(super) fn act(&self, commands: &str) -> Result<TmuxReply, TmuxFailure> {
        match self.connect()? {
            QuestionWay::Spawned => spawned::ask(&self.inner.socket, commands),
            QuestionWay::Control(client) => {
                let reply = client.ask(commands);
                if matches!(reply, Err(TmuxFailure::Timeout)) {
                    self.retire(&client);
                }
                reply
            }
        }
    }

    /// Has `commands` carried out if the pane still is as `seen`. `Ok(None)`: they were, all of them.
    /// `Ok(Some(reason))`: none was.
    pub(super) fn act_guarded(
        &self,
        binding: &Binding,
        seen: &PaneIdentity,
        commands: &str,
    ) -> Result<Option<Deferral>, TmuxFailure> {
        // The observed values go into a command line, so they must be those that we have bound.
        if let Some(deferral) = binding.mismatch(Some(seen)) {
            return Ok(Some(deferral));
        }
        let reply = self.act(&guarded(binding, seen, commands))?;
        if let Some(complaint) = reply.complaint {
            return Err(TmuxFailure::from_complaint(&complaint));
        }
        // Keys are silent; only a refusal says something.
        let refusal = reply.lines.first();
        Ok(refusal.map(|now| difference(binding, seen, PaneIdentity::parse(now).as_ref())))
    }

    /// The lines of [`Self::query_server`]; a complaint is a failure.
    pub(super) fn query_lines(&self, commands: &str) -> Result<Vec<String>, TmuxFailure> {
        self.query_server(commands)?.into_lines()
    }

    /// As [`Self::query_lines`], with an error that says what was wanted.
    pub(super) fn lines(&self, operation: &'static str, commands: &str) -> Result<Vec<String>> {
        self.query_lines(commands).map_err(|failure| self.error(operation, failure))
    }

    pub(super) fn error(&self, operation: &'static str, failure: TmuxFailure) -> Error {
        failure.into_error(operation, &self.inner.socket)
    }

    /// Connects to the server, so that nothing need be started later under a lock.
    pub(super) fn prepare(&self) -> Result<(), TmuxFailure> {
        self.connect().map(drop)
    }

    /// As [`Self::act`], for commands that open or close windows: under the lock of processes that
    /// attach.
    pub(super) fn act_locked(&self, commands: &str) -> Result<Vec<String>, TmuxFailure> {
        // Attaching takes the lock itself.
        self.prepare()?;
        let _lock = AttachLock::wait_for_lock(self.socket());
        self.act(commands)?.into_lines()
    }

    fn connect(&self) -> Result<QuestionWay, TmuxFailure> {
        if self.inner.is_brief {
            return Ok(QuestionWay::Spawned);
        }
        let began = Instant::now();
        let mut link = self.inner.link.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = link.client.as_ref().filter(|client| client.is_alive()) {
            return Ok(QuestionWay::Control(Arc::clone(client)));
        }
        link.client = None;
        match &link.failed {
            // One attempt speaks for all who waited for it: a hung server costs each of them
            // one limit, not one after the other.
            Some((when, TmuxFailure::Refused(_))) if when.elapsed() < CONTROL_RETRY => {
                return Ok(QuestionWay::Spawned);
            }
            Some((when, failure)) if *when >= began => return Err(failure.clone()),
            _ => {}
        }
        match ControlClient::attach(&self.inner.socket) {
            Ok(client) => {
                let client = Arc::new(client);
                *link = ControlLink { client: Some(Arc::clone(&client)), failed: None };
                Ok(QuestionWay::Control(client))
            }
            Err(failure) => {
                link.failed = Some((Instant::now(), failure.clone()));
                match failure {
                    TmuxFailure::Refused(_) => Ok(QuestionWay::Spawned),
                    other => Err(other),
                }
            }
        }
    }

    /// Abandons a client that has not answered; others may still wait for theirs.
    fn retire(&self, client: &Arc<ControlClient>) {
        let mut link = self.inner.link.lock().unwrap_or_else(PoisonError::into_inner);
        if link.client.as_ref().is_some_and(|current| Arc::ptr_eq(current, client)) {
            link.client = None;
        }
    }

    /// Forgets what was learnt about the server: it has just been started or ended.
    pub(super) fn reset(&self) {
        let mut link = self.inner.link.lock().unwrap_or_else(PoisonError::into_inner);
        *link = ControlLink::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_names_the_socket() {
        let server = TmuxServer::from_variable("/tmp/tmux-0/default,123,0").expect("a socket");
        assert_eq!(server.socket(), Path::new("/tmp/tmux-0/default"));
        assert!(TmuxServer::from_variable("").is_none());
        assert!(TmuxServer::from_variable("default,1,0").is_none());
    }
}
