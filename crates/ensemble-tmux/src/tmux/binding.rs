//! Which pane is meant, beyond doubt.
//!
//! A pane id is unique only while its server runs: the next server starts again at `%0`. A binding
//! therefore also holds a token that was written into the pane, since a pane option dies with its
//! pane. It also holds the first process of the pane with its start time. So a respawned pane is
//! not mistaken for the one that was bound. Names are accepted once, exactly, and turned into an
//! id.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::TmuxServer;
use super::failure::TmuxFailure;
use super::quote::{is_one_line, quote};
use super::snapshot::{CLOCK_OPTION, PaneIdentity, TOKEN_OPTION, is_pane_id};
use crate::provider::process::{is_running, start_time};
use ensemble_core::pane::Deferral;
use ensemble_core::{Error, Result};

/// The id of a binding that names one of our terminals ([`terminal`](crate::terminal)).
pub const TERMINAL_ID: &str = "terminal";

/// A pane that was bound. Serializes to a small map, for a YAML file:
///
/// ```yaml
/// socket: /tmp/tmux-1000/default
/// id: "%3"
/// token: 3f0c7f52a2f04c3fa4a3fb0ad8b9ab5d
/// pid: 4711
/// started: 123456
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Binding {
    pub socket: PathBuf,
    /// Id of the pane, such as `%3`; `terminal`; or the address of a pane of another multiplexer.
    pub id: String,
    /// The token in its pane option `@ensemble_pane`.
    pub token: String,
    pub pid: u32,
    /// When that process started, in clock ticks since boot (`/proc/PID/stat`, field 22); absent if the system does
    /// not reveal it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<u64>,
}

impl TmuxServer {
    /// Binds the pane that `target` names: an id (`%3`, the value of `TMUX_PANE`) or an exact name
    /// (`=session`, `=session:window.pane`). Prefixes and patterns are refused, because they hit
    /// another pane when the one that was meant is gone. Binding a pane twice gives the same token.
    pub fn bind(&self, target: &str) -> Result<Binding> {
        const OPERATION: &str = "bind a pane";
        let refuse = |detail: String| Err(self.error(OPERATION, TmuxFailure::Refused(detail)));
        if !(is_pane_id(target) || target.starts_with('=')) || !is_one_line(target) {
            return refuse(format!(
                "{target:?} names no pane beyond doubt: give its id (%3, see `tmux list-panes -a`) \
                 or an exact name (=session:window.pane)"
            ));
        }
        let id = self.resolve(target)?;
        let token = uuid::Uuid::now_v7().simple();
        // `-o` keeps a token that exists: another process may have bound the same pane.
        let lines = self.lines(
            OPERATION,
            &format!(
                "set-option -p -q -o -t {id} {TOKEN_OPTION} {token} ; \
                 set-option -p -t {id} {CLOCK_OPTION} '%s' ; \
                 display-message -p -t {id} '{}'",
                super::snapshot::IDENTITY
            ),
        )?;
        match lines.first().and_then(|line| PaneIdentity::parse(line)) {
            Some(identity) if identity.id == id && is_token(&identity.token) => Ok(Binding {
                socket: self.socket().to_owned(),
                started: start_time(identity.pid),
                id: identity.id,
                token: identity.token,
                pid: identity.pid,
            }),
            Some(identity) if identity.id == id => refuse(format!(
                "the option {TOKEN_OPTION} of {id} has an unknown value: remove it \
                 with `tmux set-option -p -t {id} -u {TOKEN_OPTION}`"
            )),
            _ => refuse(format!("there is no pane {target}: see `tmux list-panes -a`")),
        }
    }

    /// Whether a binding still names the pane that was bound: `None` if so.
    pub fn check(&self, binding: &Binding) -> Result<Option<Deferral>> {
        binding.validate(self.socket())?;
        let id = quote(&binding.id);
        let line = format!("display-message -p -t {id} '{}'", super::snapshot::IDENTITY);
        match self.query_lines(&line) {
            Ok(lines) => {
                let identity = lines.first().and_then(|line| PaneIdentity::parse(line));
                Ok(binding.mismatch(identity.as_ref()))
            }
            Err(TmuxFailure::NoServer) => Ok(Some(Deferral::ServerGone)),
            Err(failure) => Err(self.error("check a binding", failure)),
        }
    }

    /// Closes the pane that was bound, and ends what runs in it. A pane that is gone already, or is
    /// another one by now, is fine: whether it was closed by this call is returned.
    pub fn close(&self, binding: &Binding) -> Result<bool> {
        binding.validate(self.socket())?;
        let (id, token) = (quote(&binding.id), &binding.token);
        // The server compares and closes in one breath. Closing its last pane ends it, so that the
        // answer may be missing.
        let line = format!(
            "if-shell -F -t {id} '#{{==:#{{{TOKEN_OPTION}}},{token}}}' {{ kill-pane -t {id} }} \
             {{ display-message -p other }}"
        );
        let closed = self.act_locked(&line).is_ok_and(|lines| lines.is_empty());
        match self.check(binding)? {
            Some(Deferral::PaneGone | Deferral::PaneReused | Deferral::ServerGone) => Ok(closed),
            _ => {
                let detail = format!("{} is still there", binding.id);
                Err(self.error("close a pane", TmuxFailure::Refused(detail)))
            }
        }
    }

    fn resolve(&self, target: &str) -> Result<String> {
        const OPERATION: &str = "find a pane";
        if is_pane_id(target) {
            return Ok(target.to_owned());
        }
        // list-panes complains about an unknown target, where display-message falls back.
        let whole = if target.contains(':') { target.to_owned() } else { format!("{target}:") };
        let line = format!(
            "list-panes -t {0} -F '' ; display-message -p -t {0} '#{{pane_id}}'",
            quote(&whole)
        );
        let lines = self.lines(OPERATION, &line)?;
        match lines.last().filter(|id| is_pane_id(id)) {
            Some(id) => Ok(id.clone()),
            None => {
                let detail = format!("there is no pane {target}: see `tmux list-panes -a`");
                Err(self.error(OPERATION, TmuxFailure::Refused(detail)))
            }
        }
    }
}

impl Binding {
    /// Refuses what no [`TmuxServer::bind`] has made; a binding comes from a file and its parts go into
    /// commands.
    pub(super) fn validate(&self, socket: &Path) -> Result<()> {
        let wrong = |field: &str, detail: String| Err(Error::malformed(socket, field, detail));
        if !is_pane_id(&self.id) {
            return wrong(
                "id",
                format!("{:?} is not a pane id like %3: bind the pane again", self.id),
            );
        }
        if !is_token(&self.token) {
            return wrong("token", "not made by us: bind the pane again".to_owned());
        }
        if self.socket != socket {
            let detail = format!("the pane was bound on {}", self.socket.display());
            return wrong("socket", detail);
        }
        Ok(())
    }

    /// How `identity` differs from what was bound; `None` if it does not.
    pub(super) fn mismatch(&self, identity: Option<&PaneIdentity>) -> Option<Deferral> {
        let Some(identity) = identity.filter(|identity| identity.id == self.id) else {
            return Some(Deferral::PaneGone);
        };
        // The process of a dead pane has no start time any more.
        let same_process = identity.pid == self.pid && (identity.dead || self.is_same_process());
        (identity.token != self.token || !same_process).then_some(Deferral::PaneReused)
    }

    /// Whether it names one of our terminals instead of a pane of tmux.
    pub fn is_terminal(&self) -> bool {
        self.id == TERMINAL_ID
    }

    /// Whether the first process runs. One that has ended and was not collected does not.
    pub fn lives(&self) -> bool {
        is_running(self.pid, self.started)
    }

    /// Names the terminal behind this socket, in which this process was started.
    pub fn of_terminal(socket: PathBuf, pid: u32) -> Self {
        let token = uuid::Uuid::now_v7().simple().to_string();
        Self { socket, id: TERMINAL_ID.to_owned(), token, pid, started: start_time(pid) }
    }

    /// Whether the first process is still the one that was bound, if the system reveals that.
    pub fn is_same_process(&self) -> bool {
        self.started.is_none() || start_time(self.pid) == self.started
    }

    pub(super) fn follow(&mut self, pid: u32) {
        self.pid = pid;
        self.started = start_time(pid);
    }
}

/// Whether `text` is a token as [`TmuxServer::bind`] makes them; nothing else may enter a command.
fn is_token(text: &str) -> bool {
    text.len() == uuid::fmt::Simple::LENGTH && text.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Process 7 in pane `%3`, with a token of zeros.
    pub(in crate::tmux) fn binding() -> Binding {
        Binding {
            socket: "/tmp/s".into(),
            id: "%3".to_owned(),
            token: "0".repeat(32),
            pid: 7,
            started: None,
        }
    }

    #[test]
    fn another_pane_is_noticed() {
        let same = PaneIdentity::parse(&format!("%3 7 0 0 0 0 0 0 {}", "0".repeat(32)));
        assert_eq!(binding().mismatch(same.as_ref()), None);
        let other_token = PaneIdentity::parse("%3 7 0 0 0 0 0 0 ");
        assert_eq!(binding().mismatch(other_token.as_ref()), Some(Deferral::PaneReused));
        let other_process = PaneIdentity::parse(&format!("%3 8 0 0 0 0 0 0 {}", "0".repeat(32)));
        assert_eq!(binding().mismatch(other_process.as_ref()), Some(Deferral::PaneReused));
        assert_eq!(binding().mismatch(None), Some(Deferral::PaneGone));
    }
}
