//! The windows of a team: one session, one window an agent.
//!
//! People rename sessions and move windows, so that names say nothing. The session has the option `@ensemble_team`, and
//! each pane that was opened for the team has `@ensemble_member`. Both are found wherever the server has them now.
//!
//! A window is made, made to stay when its program ends, and marked as its agent's in one command
//! list. The server carries the list out before it reads anything else. So a process that is killed
//! while it starts an agent has started it with its mark or not at all. An agent's environment goes
//! to the server through the control client or the input of a process. It is on no command line,
//! which every user of the machine could read.

use std::path::Path;

use super::attach_lock::AttachLock;
use super::failure::TmuxFailure;
use super::quote::quote;
use super::server::TmuxServer;
use super::spawned;
use crate::provider::process::exit_status;
use ensemble_core::message::{Name, Timestamp};
use ensemble_core::{Error, Result};

/// The session option that says whose session it is: the id of the team that has started it.
const TEAM_OPTION: &str = "@ensemble_team";
/// The pane option that says whose pane it is: `<name> <generation> <team>`, or [`SIDECAR_MARK`] and the team.
const MEMBER_OPTION: &str = "@ensemble_member";
/// No agent's name: those have no `@`.
const SIDECAR_MARK: &str = "@sidecar";
/// The format for [`TmuxServer::pane_signs`]. The token and the mark come last, because any client can write any text
/// into them.
const SIGNS: &str = "#{pane_id} #{session_id} #{pane_pid} #{pane_dead} #{pane_dead_status}. \
    #{window_activity}. #{@ensemble_pane}|#{@ensemble_member}";
/// The format for [`TmuxServer::team_session`]. A name may hold anything, and so may the option.
const SESSION_SIGNS: &str = "#{session_id} #{n:session_name} #{session_name} #{@ensemble_team}";

#[derive(Clone, Debug)]
pub struct SessionOrder<'a> {
    /// Id of the team, without blanks.
    pub team: &'a str,
    pub session: &'a str,
    pub window: &'a str,
    /// The command that runs in it, for `sh -c`.
    pub command: &'a str,
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

#[derive(Clone, Debug)]
pub struct WindowOrder<'a> {
    /// Id of the team, without blanks.
    pub team: &'a str,
    pub member: &'a Name,
    pub generation: u64,
    /// The command that runs in it, for `sh -c`.
    pub command: &'a str,
    pub directory: &'a Path,
    pub env: &'a [(String, String)],
}

/// The facts about a pane that do not need its screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaneSigns {
    pub id: String,
    /// Id of a session that shows it, such as `$1`.
    pub session: String,
    pub pid: u32,
    pub dead: bool,
    pub dead_status: Option<i32>,
    /// When its window has last shown something new, by the wall clock; absent if tmux does not report it.
    pub active_at: Option<Timestamp>,
    /// The token of a binding; empty if it was never bound.
    pub token: String,
    /// Whose it is, and of which generation, if it was started as an agent's.
    pub member: Option<(Name, u64)>,
    pub is_sidecar: bool,
    /// Id of the team that has opened it; empty if none has.
    pub team: String,
}

/// A team's session, whose name people may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TeamSession {
    pub id: String,
    pub name: String,
    /// Whether the team started it. If not, it existed before, or its mark is gone.
    pub is_started_by_team: bool,
}

impl PaneSigns {
    /// Whether this team has opened it: for an agent, or for its sidecar.
    pub fn is_opened_by(&self, team: &str) -> bool {
        self.team == team && (self.is_sidecar || self.member.is_some())
    }
}

impl TmuxServer {
    /// Starts a session, and the server if there is none; `false` if the team has a session already.
    pub fn start_team(&self, order: &SessionOrder<'_>) -> Result<bool> {
        const OPERATION: &str = "start a session";
        if self.team_session(order.team, order.session)?.is_some() {
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
        // First: a person's `exit-unattached` ends the server once this command has gone.
        tmux.args([";", "set-option", "-s", "exit-unattached", "off"]);
        let end = format!("={}:{{end}}", order.session);
        tmux.args([";", "set-option", "-w", "-t", &end, "remain-on-exit", "on"]);
        tmux.args([";", "set-option", "-p", "-t", &end, MEMBER_OPTION, &order.mark()]);
        let session = format!("={}:", order.session);
        tmux.args([";", "set-option", "-t", &session, TEAM_OPTION, order.team]);
        tmux.args([";", "set-option", "-t", &session, "destroy-unattached", "off"]);
        let lock = AttachLock::wait_for_lock(self.socket());
        let started = spawned::run(tmux);
        drop(lock);
        self.reset();
        match started {
            Ok(_) => Ok(true),
            // Another process was quicker.
            Err(TmuxFailure::Refused(complaint)) if complaint.starts_with("duplicate session") => {
                Ok(false)
            }
            Err(failure) => Err(self.error(OPERATION, failure)),
        }
    }

    /// The session of a team: the one it has started; otherwise the one that shows its sidecar or one of its agents;
    /// otherwise the one of this name.
    pub fn team_session(&self, team: &str, name: &str) -> Result<Option<TeamSession>> {
        let line = format!("list-sessions -F '{SESSION_SIGNS}'");
        let lines = self.lines_if_any("list sessions", &line)?;
        let mut sessions: Vec<(TeamSession, String)> =
            lines.iter().filter_map(|line| parse_session(line)).collect();
        for (session, owner) in &mut sessions {
            session.is_started_by_team = owner == team;
        }
        let sessions: Vec<TeamSession> = sessions.into_iter().map(|(session, _)| session).collect();
        if let Some(own) = sessions.iter().find(|session| session.is_started_by_team) {
            return Ok(Some(own.clone()));
        }
        let mut panes = self.all_pane_signs()?;
        panes.retain(|pane| pane.is_opened_by(team) && !pane.dead);
        panes.sort_by_key(|pane| !pane.is_sidecar);
        let shows = panes.first().map(|pane| pane.session.as_str());
        let is_meant = |session: &&TeamSession| Some(session.id.as_str()) == shows;
        let named = || sessions.iter().find(|session| session.name == name);
        Ok(sessions.iter().find(is_meant).or_else(named).cloned())
    }

    /// Opens a window behind the last one of a session and starts an agent in it; the pane's id.
    pub fn open_window(&self, session: &TeamSession, order: &WindowOrder<'_>) -> Result<String> {
        const OPERATION: &str = "open a window";
        let end = quote(&format!("{}:{{end}}", session.id));
        let line = format!(
            "new-window -d -a -P -F '#{{pane_id}}' -t {end} -n {} {} ; \
             set-option -w -t {end} remain-on-exit on ; \
             set-option -p -t {end} {MEMBER_OPTION} {}",
            quote(order.member.as_str()),
            self.program(OPERATION, order)?,
            order.mark(),
        );
        self.one_line(OPERATION, self.act_locked(&line))
    }

    /// Starts the sidecar again in its pane, in place of what runs there. If that pane was closed, opens a window for
    /// it in `session`.
    pub fn restart_sidecar(&self, session: &TeamSession, order: &SessionOrder<'_>) -> Result<()> {
        const OPERATION: &str = "start the sidecar";
        self.require_one_line(OPERATION, &[order.window, order.command])?;
        let panes = self.all_pane_signs()?;
        let place = format!("-c {}", quote(&escaped(order.directory)));
        let command = quote(order.command);
        let is_its = |pane: &&PaneSigns| pane.is_sidecar && pane.is_opened_by(order.team);
        let line = match panes.iter().find(is_its) {
            Some(pane) => {
                format!("respawn-pane -k -t {} {place} sh -c {command}", quote(&pane.id))
            }
            None => {
                let end = quote(&format!("{}:{{end}}", session.id));
                format!(
                    "new-window -d -a -t {end} -n {} {place} sh -c {command} ; \
                     set-option -w -t {end} remain-on-exit on ; \
                     set-option -p -t {end} {MEMBER_OPTION} {}",
                    quote(order.window),
                    quote(&order.mark()),
                )
            }
        };
        self.act_locked(&line).map(drop).map_err(|failure| self.error(OPERATION, failure))
    }

    pub fn refill(&self, id: &str, order: &WindowOrder<'_>) -> Result<()> {
        const OPERATION: &str = "start an agent in its pane";
        let id = quote(id);
        // Without -k: what runs is left alone.
        let line = format!(
            "respawn-pane -t {id} {} ; set-option -p -t {id} {MEMBER_OPTION} {}",
            self.program(OPERATION, order)?,
            order.mark(),
        );
        self.act_locked(&line).map(drop).map_err(|failure| self.error(OPERATION, failure))
    }

    /// The panes of all sessions; one that several sessions show comes once for each. No server has none.
    pub fn all_pane_signs(&self) -> Result<Vec<PaneSigns>> {
        self.signs(&format!("list-panes -a -F '{SIGNS}'"))
    }

    /// One pane; `None` if it is gone, or its server is.
    pub fn pane_signs(&self, id: &str) -> Result<Option<PaneSigns>> {
        let panes = self.signs(&format!("display-message -p -t {} '{SIGNS}'", quote(id)))?;
        Ok(panes.into_iter().find(|pane| pane.id == id))
    }

    fn signs(&self, line: &str) -> Result<Vec<PaneSigns>> {
        let lines = self.lines_if_any("list panes", line)?;
        Ok(lines.iter().filter_map(|line| parse_signs(line)).map(ended).collect())
    }

    /// The lines of an answer. If the target or the server does not exist, there are none.
    fn lines_if_any(&self, operation: &'static str, line: &str) -> Result<Vec<String>> {
        match self.query_lines(line) {
            Ok(lines) => Ok(lines),
            Err(TmuxFailure::NoServer) => Ok(Vec::new()),
            Err(TmuxFailure::Refused(complaint)) if is_absence(&complaint) => Ok(Vec::new()),
            Err(failure) => Err(self.error(operation, failure)),
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
        // tmux gives a window the PATH of the client that opens it, no matter what `-e` says.
        if let Some((_, path)) = order.env.iter().find(|(name, _)| name == "PATH") {
            line += &format!(" env {}", quote(&format!("PATH={path}")));
        }
        Ok(format!("{line} sh -c {}", quote(order.command)))
    }
}

impl WindowOrder<'_> {
    fn mark(&self) -> String {
        quote(&format!("{} {} {}", self.member, self.generation, self.team))
    }
}

impl SessionOrder<'_> {
    fn mark(&self) -> String {
        format!("{SIDECAR_MARK} {}", self.team)
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
    let mut fields = line.splitn(7, ' ');
    let mut next = || fields.next();
    let (id, session, pid) = (next()?, next()?, next()?);
    let (dead, status) = (next()?, next()?);
    let active_at: Option<i64> = next()?.strip_suffix('.')?.parse().ok();
    let (token, mark) = next()?.split_once('|')?;
    let (whose, rest) = mark.split_once(' ').unwrap_or((mark, ""));
    let is_sidecar = whose == SIDECAR_MARK;
    let (generation, team) = match is_sidecar {
        true => ("", rest),
        false => rest.split_once(' ').unwrap_or((rest, "")),
    };
    let generation = generation.parse().ok();
    let member = Name::new(whose).ok().zip(generation).filter(|_| !team.contains(' '));
    Some(PaneSigns {
        id: id.to_owned(),
        session: session.to_owned(),
        pid: pid.parse().ok()?,
        dead: dead == "1",
        dead_status: status.strip_suffix('.')?.parse().ok(),
        active_at: active_at.map(|seconds| Timestamp::from_unix_millis(seconds * 1000)),
        token: token.to_owned(),
        member,
        is_sidecar,
        team: team.to_owned(),
    })
}

fn parse_session(line: &str) -> Option<(TeamSession, String)> {
    let mut fields = line.splitn(3, ' ');
    let mut next = || fields.next();
    let (id, bytes) = (next()?, next()?.parse().ok()?);
    let (name, team) = next()?.split_at_checked(bytes)?;
    let (id, name) = (id.to_owned(), name.to_owned());
    let session = TeamSession { id, name, is_started_by_team: false };
    Some((session, team.strip_prefix(' ')?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_are_read_whatever_the_options_hold() {
        let pane = parse_signs("%3 $1 77 1 137. 1700000000. 0123|worker-1 4 t1").expect("a pane");
        assert_eq!((pane.pid, pane.dead, pane.dead_status), (77, true, Some(137)));
        assert_eq!((pane.session.as_str(), pane.token.as_str()), ("$1", "0123"));
        assert_eq!(pane.member, Some((Name::new("worker-1").unwrap(), 4)));
        assert!(pane.is_opened_by("t1") && !pane.is_opened_by("t2"));
        let sidecar = parse_signs("%3 $1 77 0 . . |@sidecar t1").expect("a pane");
        assert!(sidecar.is_sidecar && sidecar.is_opened_by("t1"));
        let bare = parse_signs("%0 $0 7 0 . . |").expect("a pane");
        assert_eq!((bare.dead_status, bare.token.as_str(), bare.member), (None, "", None));
        for mark in ["worker-1", "../x 3 t", "a b 3", "worker-1 -1 t", "w 1 t u"] {
            let pane = parse_signs(&format!("%0 $0 7 0 . . |{mark}")).expect("a pane");
            assert_eq!(pane.member, None, "{mark}");
        }
        assert_eq!(parse_signs(""), None);
    }

    #[test]
    fn a_session_may_have_any_name() {
        let (session, team) = parse_session("$3 7 my team t1").expect("a session");
        assert_eq!((session.id.as_str(), session.name.as_str()), ("$3", "my team"));
        assert_eq!(team, "t1");
        assert_eq!(parse_session("$3 7 my team ").map(|(_, team)| team), Some(String::new()));
        assert_eq!(parse_session("$3 70 my team "), None);
    }
}
