//! The windows of a team: one session, one window an agent.
//!
//! A window is made, made to stay when its program ends, and marked as its agent's in one command
//! list. The server carries the list out before it reads anything else. So a process that is killed
//! while it starts an agent has started it with its mark or not at all. An agent's environment goes
//! to the server through the control client or the input of a process. It is on no command line,
//! which every user of the machine could read.

use std::path::Path;

use super::attach_lock::AttachLock;
use super::failure::Failure;
use super::quote::quote;
use super::server::Server;
use super::spawned::{self, Reply};
use crate::provider::process::exit_status;
use ensemble_core::message::{Name, Timestamp};
use ensemble_core::{Error, Result};

/// The pane option that says whose pane it is: `<name> <generation>`, or [`SIDECAR_MARK`].
const MEMBER_OPTION: &str = "@ensemble_member";
/// No agent's name: those have no `@`.
const SIDECAR_MARK: &str = "@sidecar";
/// What [`Server::team_panes`] asks for. The token and the mark come last, because any client can
/// write any text into them.
const SIGNS: &str = "#{pane_id} #{pane_pid} #{pane_dead} #{pane_dead_status}. \
    #{window_activity}. #{@ensemble_pane}|#{@ensemble_member}";

/// A session to be started.
#[derive(Clone, Debug)]
pub struct SessionOrder<'a> {
    /// Name of the session.
    pub session: &'a str,
    /// The name of its first window.
    pub window: &'a str,
    /// What runs in that, as `sh -c` takes it.
    pub command: &'a str,
    /// The start directory of the session.
    pub directory: &'a Path,
    /// The environment of every window of the session. Every user of the machine can read it.
    pub env: &'a [(&'a str, String)],
    /// Variables of this process that the server and its windows must not inherit.
    pub without: &'a [&'a str],
    /// Columns and lines while no client is attached.
    pub size: (u16, u16),
    /// The configuration that a server reads if it is started for this; `None` is the user's own.
    pub config: Option<&'a Path>,
}

/// An agent to be started in a window.
#[derive(Clone, Debug)]
pub struct WindowOrder<'a> {
    /// The agent; also the name of its window.
    pub member: &'a Name,
    /// Generation of the agent.
    pub generation: u64,
    /// What is run, as `sh -c` takes it.
    pub command: &'a str,
    /// The start directory of the agent.
    pub directory: &'a Path,
    /// What is added to its environment.
    pub env: &'a [(String, String)],
}

/// What can be seen of a pane without looking at its screen.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PaneSigns {
    /// Id of the pane, such as `%3`.
    pub id: String,
    /// Process id of its first process.
    pub pid: u32,
    /// Whether that process has ended.
    pub dead: bool,
    /// The exit status of the ended process.
    pub dead_status: Option<i32>,
    /// When its window has last shown something new, by the wall clock; absent where tmux does not
    /// tell.
    pub active_at: Option<Timestamp>,
    /// The token of a binding; empty if it was never bound.
    pub token: String,
    /// Whose it is, and of which generation, if it was started as an agent's.
    pub member: Option<(Name, u64)>,
    /// Whether it is the first window of a session that [`Server::start_team`] has started.
    pub is_sidecar: bool,
}

impl Server {
    /// Starts a session, and the server if there is none; `false` if the session is there already.
    ///
    /// # Errors
    /// tmux is missing, or it refused: the socket cannot be made, an argument has a control
    /// character.
    pub fn start_team(&self, order: &SessionOrder<'_>) -> Result<bool> {
        const OPERATION: &str = "start a session";
        if self.has_session(order.session)? {
            return Ok(false);
        }
        self.require_one_line(OPERATION, &[order.session, order.window, order.command])?;
        let mut tmux = std::process::Command::new("tmux");
        tmux.arg("-u");
        if let Some(config) = order.config {
            tmux.arg("-f").arg(config);
        }
        tmux.arg("-S").arg(self.socket()).env_remove("TMUX").env_remove("TMUX_PANE");
        for variable in order.without {
            tmux.env_remove(variable);
        }
        let (columns, lines) = order.size;
        tmux.args(["new-session", "-d", "-s", order.session, "-n", order.window]);
        tmux.args(["-x", &columns.to_string(), "-y", &lines.to_string(), "-c"]);
        tmux.arg(escaped(order.directory));
        for (name, value) in order.env {
            tmux.arg("-e").arg(format!("{name}={value}"));
        }
        tmux.args(["sh", "-c", order.command]);
        let end = format!("={}:{{end}}", order.session);
        tmux.args([";", "set-option", "-w", "-t", &end, "remain-on-exit", "on"]);
        tmux.args([";", "set-option", "-p", "-t", &end, MEMBER_OPTION, SIDECAR_MARK]);
        let session = format!("={}:", order.session);
        tmux.args([";", "set-option", "-t", &session, "destroy-unattached", "off"]);
        let lock = AttachLock::take(self.socket());
        let started = spawned::run(tmux).and_then(Reply::into_lines);
        drop(lock);
        self.reset();
        match started {
            Ok(_) => Ok(true),
            // Another process was quicker.
            Err(Failure::Refused(complaint)) if complaint.starts_with("duplicate session") => {
                Ok(false)
            }
            Err(failure) => Err(self.error(OPERATION, failure)),
        }
    }

    /// Whether there is a session of exactly this name. No server has none.
    ///
    /// # Errors
    /// The server could not be asked.
    pub fn has_session(&self, session: &str) -> Result<bool> {
        let line = format!("has-session -t {}", quote(&format!("={session}")));
        match self.look(&line).and_then(Reply::into_lines) {
            Ok(_) => Ok(true),
            Err(Failure::NoServer) => Ok(false),
            Err(Failure::Refused(complaint)) if is_absence(&complaint) => Ok(false),
            Err(failure) => Err(self.error("look for a session", failure)),
        }
    }

    /// Opens a window behind the last one of a session and starts an agent in it; the pane's id.
    ///
    /// # Errors
    /// There is no such session, or the server could not be asked. After
    /// [`TmuxError`](super::TmuxError) it may have been opened: [`Server::team_panes`] tells.
    pub fn open_window(&self, session: &str, order: &WindowOrder<'_>) -> Result<String> {
        const OPERATION: &str = "open a window";
        let end = quote(&format!("={session}:{{end}}"));
        let line = format!(
            "new-window -d -a -P -F '#{{pane_id}}' -t {end} -n {} {} ; \
             set-option -w -t {end} remain-on-exit on ; \
             set-option -p -t {end} {MEMBER_OPTION} {}",
            quote(order.member.as_str()),
            self.program(OPERATION, order)?,
            order.mark(),
        );
        self.one_line(OPERATION, self.act_locked(&line).and_then(Reply::into_lines))
    }

    /// Starts the sidecar again in the first window of the session, in place of what runs there. If
    /// that window was closed, starts it in a window of its own.
    ///
    /// # Errors
    /// As for [`Server::open_window`].
    pub fn restart_sidecar(&self, order: &SessionOrder<'_>) -> Result<()> {
        const OPERATION: &str = "start the sidecar";
        self.require_one_line(OPERATION, &[order.window, order.command])?;
        let panes = self.team_panes(order.session)?;
        let place = format!("-c {}", quote(&escaped(order.directory)));
        let command = quote(order.command);
        let line = match panes.iter().find(|pane| pane.is_sidecar) {
            Some(pane) => {
                format!("respawn-pane -k -t {} {place} sh -c {command}", quote(&pane.id))
            }
            None => {
                let end = quote(&format!("={}:{{end}}", order.session));
                format!(
                    "new-window -d -a -t {end} -n {} {place} sh -c {command} ; \
                     set-option -w -t {end} remain-on-exit on ; \
                     set-option -p -t {end} {MEMBER_OPTION} {SIDECAR_MARK}",
                    quote(order.window)
                )
            }
        };
        let done = self.act_locked(&line).and_then(Reply::into_lines);
        done.map(drop).map_err(|failure| self.error(OPERATION, failure))
    }

    /// Starts an agent in a pane whose process has ended.
    ///
    /// # Errors
    /// There is no such pane, something runs in it, or the server could not be asked.
    pub fn refill(&self, id: &str, order: &WindowOrder<'_>) -> Result<()> {
        const OPERATION: &str = "start an agent in its pane";
        let id = quote(id);
        // Without -k: what runs is left alone.
        let line = format!(
            "respawn-pane -t {id} {} ; set-option -p -t {id} {MEMBER_OPTION} {}",
            self.program(OPERATION, order)?,
            order.mark(),
        );
        let done = self.act_locked(&line).and_then(Reply::into_lines);
        done.map(drop).map_err(|failure| self.error(OPERATION, failure))
    }

    /// The panes of a session. No session and no server have none.
    ///
    /// # Errors
    /// The server could not be asked.
    pub fn team_panes(&self, session: &str) -> Result<Vec<PaneSigns>> {
        let session = quote(&format!("={session}:"));
        self.signs(&format!("list-panes -s -t {session} -F '{SIGNS}'"))
    }

    /// One pane; `None` if it is gone, or its server is.
    ///
    /// # Errors
    /// The server could not be asked.
    pub fn pane_signs(&self, id: &str) -> Result<Option<PaneSigns>> {
        let panes = self.signs(&format!("display-message -p -t {} '{SIGNS}'", quote(id)))?;
        Ok(panes.into_iter().find(|pane| pane.id == id))
    }

    fn signs(&self, line: &str) -> Result<Vec<PaneSigns>> {
        match self.look(line).and_then(Reply::into_lines) {
            Ok(lines) => Ok(lines.iter().filter_map(|line| parse_signs(line)).map(ended).collect()),
            Err(Failure::NoServer) => Ok(Vec::new()),
            Err(Failure::Refused(complaint)) if is_absence(&complaint) => Ok(Vec::new()),
            Err(failure) => Err(self.error("list panes", failure)),
        }
    }

    /// The end of a command line that starts a program.
    fn program(&self, operation: &'static str, order: &WindowOrder<'_>) -> Result<String, Error> {
        self.require_one_line(operation, &[order.command])?;
        let mut line = format!("-c {}", quote(&escaped(order.directory)));
        for (name, value) in order.env {
            let variable = format!("{name}={value}");
            self.require_one_line(operation, &[&variable])?;
            line += &format!(" -e {}", quote(&variable));
        }
        // tmux gives a window the PATH of the client that opens it, whatever `-e` says.
        if let Some((_, path)) = order.env.iter().find(|(name, _)| name == "PATH") {
            line += &format!(" env {}", quote(&format!("PATH={path}")));
        }
        Ok(format!("{line} sh -c {}", quote(order.command)))
    }
}

impl WindowOrder<'_> {
    fn mark(&self) -> String {
        quote(&format!("{} {}", self.member, self.generation))
    }
}

/// A directory, of which tmux expands formats.
fn escaped(directory: &Path) -> String {
    directory.to_string_lossy().replace('#', "##")
}

/// How tmux says that there is nothing of that name, or nothing at all.
fn is_absence(complaint: &str) -> bool {
    complaint.starts_with("can't find") || complaint == "no current target"
}

/// Adds the exit status that tmux does not know.
fn ended(mut signs: PaneSigns) -> PaneSigns {
    if signs.dead {
        signs.dead_status = exit_status(signs.dead_status, signs.pid);
    }
    signs
}

fn parse_signs(line: &str) -> Option<PaneSigns> {
    let mut fields = line.splitn(6, ' ');
    let mut next = || fields.next();
    let (id, pid, dead, status) = (next()?, next()?, next()?, next()?);
    let active_at: Option<i64> = next()?.strip_suffix('.')?.parse().ok();
    let (token, mark) = next()?.split_once('|')?;
    let member = mark
        .split_once(' ')
        .and_then(|(name, generation)| Some((Name::new(name).ok()?, generation.parse().ok()?)));
    Some(PaneSigns {
        id: id.to_owned(),
        pid: pid.parse().ok()?,
        dead: dead == "1",
        dead_status: status.strip_suffix('.')?.parse().ok(),
        active_at: active_at.map(|seconds| Timestamp::from_unix_millis(seconds * 1000)),
        token: token.to_owned(),
        member,
        is_sidecar: mark == SIDECAR_MARK,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_are_read_whatever_the_options_hold() {
        let pane = parse_signs("%3 77 1 137. 1700000000. 0123|worker-1 4").expect("a pane");
        assert_eq!((pane.pid, pane.dead, pane.dead_status), (77, true, Some(137)));
        assert_eq!(pane.token, "0123");
        assert_eq!(pane.member, Some((Name::new("worker-1").unwrap(), 4)));
        let bare = parse_signs("%0 7 0 . . |").expect("a pane");
        assert_eq!((bare.dead_status, bare.token.as_str(), bare.member), (None, "", None));
        for mark in ["worker-1", "../x 3", "a b 3", "worker-1 -1"] {
            let pane = parse_signs(&format!("%0 7 0 . . |{mark}")).expect("a pane");
            assert_eq!(pane.member, None, "{mark}");
        }
        assert_eq!(parse_signs(""), None);
    }
}
