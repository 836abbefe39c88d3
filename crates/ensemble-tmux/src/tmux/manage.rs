//! Making, listing and ending servers, sessions and panes: for demos, tests and `status`.

use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use super::attach_lock::AttachLock;
use super::failure::TmuxFailure;
use super::quote::{is_one_line, quote};
use super::spawned::{self, TmuxReply};
use super::{EXCHANGE_LIMIT, TeamSession, TmuxServer, left_behind};
use ensemble_core::{Error, Result};

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct PaneInfo {
    pub id: String,
    pub pid: u32,
    pub dead: bool,
    pub window: u32,
    pub session: String,
    pub command: String,
    pub title: String,
}

/// How often to look whether a server that was asked to end has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// Names may hold anything, so each but the last goes with its length in bytes. The program's name
/// is looked up each time it is named, so it is named once.
const PANE_FORMAT: &str = "#{pane_id} #{pane_pid} #{pane_dead} #{window_index} \
    #{n:session_name} #{n:pane_title} #{session_name} #{pane_title} #{pane_current_command}";

impl TmuxServer {
    /// Starts a detached session of one pane of `columns` × `lines` cells that runs `command` with
    /// the user's shell. Starts the server if there is none. Returns the pane's id. A server
    /// started here reads no configuration file, so it behaves the same everywhere.
    pub fn new_session(
        &self,
        name: &str,
        command: &str,
        columns: u16,
        lines: u16,
    ) -> Result<String> {
        const OPERATION: &str = "start a session";
        self.require_one_line(OPERATION, &[name, command])?;
        let mut tmux = std::process::Command::new("tmux");
        tmux.args(["-u", "-f", "/dev/null", "-S"])
            .arg(self.socket())
            .env_remove("TMUX")
            .env_remove("TMUX_PANE")
            .args(["new-session", "-d", "-P", "-F", "#{pane_id}", "-s", name])
            .args(["-x", &columns.to_string(), "-y", &lines.to_string(), "--", command]);
        let lock = AttachLock::wait_for_lock(self.socket());
        let lines = spawned::run(tmux);
        drop(lock);
        self.reset();
        self.one_line(OPERATION, lines)
    }

    /// Splits the window of pane `id` and runs `command` in the new pane; returns its id.
    pub fn split(&self, id: &str, command: &str) -> Result<String> {
        const OPERATION: &str = "split a window";
        self.require_one_line(OPERATION, &[id, command])?;
        let line =
            format!("split-window -d -P -F '#{{pane_id}}' -t {} {}", quote(id), quote(command));
        self.one_line(OPERATION, self.act_locked(&line))
    }

    pub fn kill_pane(&self, id: &str) -> Result<()> {
        self.end("end a pane", &["kill-pane", "-t", id])
    }

    pub fn kill_team_session(&self, session: &TeamSession) -> Result<()> {
        self.end("end a session", &["kill-session", "-t", &session.id])
    }

    /// Ends the server and everything in it, and waits until it answers no more. A missing server
    /// is not an error.
    pub fn kill_server(&self) -> Result<()> {
        const OPERATION: &str = "end the server";
        let mut tmux = spawned::command(self.socket());
        tmux.arg("kill-server");
        let ended = spawned::run(tmux);
        self.reset();
        match ended.and_then(|_| self.wait_until_gone()) {
            Ok(()) | Err(TmuxFailure::NoServer) => Ok(()),
            Err(failure) => Err(self.error(OPERATION, failure)),
        }
    }

    /// Runs one tmux command and returns the lines it prints, for commands that have no method here (`set-option`,
    /// `resize-window` …).
    pub fn run(&self, arguments: &[&str]) -> Result<Vec<String>> {
        const OPERATION: &str = "run a command";
        self.require_one_line(OPERATION, arguments)?;
        let line: Vec<String> = arguments.iter().map(|argument| quote(argument)).collect();
        self.act(&line.join(" "))
            .and_then(TmuxReply::into_lines)
            .map_err(|failure| self.error(OPERATION, failure))
    }

    pub fn panes(&self) -> Result<Vec<PaneInfo>> {
        /// How tmux says that there is no session to start from.
        const NO_SESSIONS: &str = "no current target";
        let line = format!("list-panes -a -F '{PANE_FORMAT}'");
        match self.query_lines(&line) {
            Ok(lines) => Ok(lines.iter().filter_map(|line| parse_pane(line)).collect()),
            Err(TmuxFailure::Refused(complaint)) if complaint == NO_SESSIONS => Ok(Vec::new()),
            Err(failure) => Err(self.error("list panes", failure)),
        }
    }

    pub fn pid(&self) -> Result<u32> {
        const OPERATION: &str = "ask for its process id";
        let line =
            self.one_line(OPERATION, Ok(self.lines(OPERATION, "display-message -p '#{pid}'")?))?;
        line.parse().map_err(|_| self.error(OPERATION, TmuxFailure::Refused(line)))
    }

    /// tmux answers `kill-server` before it has ended; a session started now would die with it.
    fn wait_until_gone(&self) -> Result<(), TmuxFailure> {
        let began = Instant::now();
        let mut left_alone = true;
        while UnixStream::connect(self.socket()).is_ok() {
            if began.elapsed() >= EXCHANGE_LIMIT {
                return Err(TmuxFailure::Timeout);
            }
            if began.elapsed() >= left_behind::PATIENCE && std::mem::take(&mut left_alone) {
                left_behind::end_all(self.socket());
            }
            thread::sleep(LOOK_INTERVAL);
        }
        Ok(())
    }

    /// By its own process: what ends may be what our client is attached to.
    fn end(&self, operation: &'static str, arguments: &[&str]) -> Result<()> {
        let mut tmux = spawned::command(self.socket());
        tmux.args(arguments);
        let _lock = AttachLock::wait_for_lock(self.socket());
        let ended = spawned::run(tmux);
        ended.map(drop).map_err(|failure| self.error(operation, failure))
    }

    pub(super) fn require_one_line(
        &self,
        operation: &'static str,
        arguments: &[&str],
    ) -> Result<()> {
        match arguments.iter().find(|argument| !is_one_line(argument)) {
            None => Ok(()),
            Some(bad) => {
                let detail = format!("an argument has a control character: {bad:?}");
                Err(self.error(operation, TmuxFailure::Refused(detail)))
            }
        }
    }

    pub(super) fn one_line(
        &self,
        operation: &'static str,
        lines: Result<Vec<String>, TmuxFailure>,
    ) -> Result<String, Error> {
        match lines {
            Ok(lines) if lines.len() == 1 => Ok(lines.into_iter().collect()),
            Ok(lines) => {
                let detail = format!("expected one line, got {}", lines.len());
                Err(self.error(operation, TmuxFailure::Refused(detail)))
            }
            Err(failure) => Err(self.error(operation, failure)),
        }
    }
}

fn parse_pane(line: &str) -> Option<PaneInfo> {
    let mut fields = line.splitn(7, ' ');
    let mut next = || fields.next();
    let (id, pid, dead, window) = (next()?, next()?, next()?, next()?);
    let (session_bytes, title_bytes) = (next()?.parse().ok()?, next()?.parse().ok()?);
    let (session, rest) = split_prefix(next()?, session_bytes)?;
    let (title, command) = split_prefix(rest, title_bytes)?;
    Some(PaneInfo {
        id: id.to_owned(),
        pid: pid.parse().ok()?,
        dead: dead == "1",
        window: window.parse().ok()?,
        session: session.to_owned(),
        command: command.to_owned(),
        title: title.to_owned(),
    })
}

/// The first `bytes` of `text`, and what follows after a space.
fn split_prefix(text: &str, bytes: usize) -> Option<(&str, &str)> {
    let (first, rest) = text.split_at_checked(bytes)?;
    Some((first, rest.strip_prefix(' ')?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_hold_spaces() {
        let pane = parse_pane("%3 77 0 2 7 7 my team a title my sh ").expect("a pane");
        assert_eq!((pane.id.as_str(), pane.pid, pane.window), ("%3", 77, 2));
        assert_eq!((pane.session.as_str(), pane.command.as_str()), ("my team", "my sh "));
        assert_eq!(parse_pane("%3 77 0 2 70 6 my team"), None);
        assert_eq!(parse_pane(""), None);
    }
}
