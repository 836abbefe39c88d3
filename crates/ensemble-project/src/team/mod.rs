//! The team in its tmux session: configured agents, running agents, and starting the missing ones.
//!
//! ```text
//! ensemble.yaml ─┐
//!                ├─▶ Plan ─▶ Team::bring_up ─▶ roster (generation, pass) ─▶ window ─▶ roster (pane) ─▶ panes/
//! roster ────────┘                 │
//!                                  └─ a running agent stays unchanged
//! ```
//!
//! All that starts an agent prepares it by `ProjectTeam::prepare_launch`: `up`, `agent start`, `agent restart`, the wrappers, and
//! a handshake that finds the program of a pane ended ([`MemberPane`]). So all give it the same command, hooks,
//! environment, pass, generation and row.
//!
//! The roster stores the generation and the digest of the pass *before* the agent starts, so that
//! no agent runs with an unknown pass. It stores the pane *after* the start, since only then the
//! pane exists. A process killed in between leaves an agent without a recorded pane. Its window
//! carries a mark with its name. The next process finds the mark and takes the agent over instead
//! of starting it twice.

mod hooks;
mod launch;
mod member_pane;
mod name;
mod place;
mod plan;
mod program;
mod remains;
mod wrapped;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ensemble_core::durable::{FileLock, make_directory};
use ensemble_core::event_log::Recorder;
use ensemble_core::message::{Digest, Name};
use ensemble_core::spool::Spool;
use ensemble_core::{Error, Result};
use ensemble_team::roster::{Roster, refuse_agent};
use ensemble_tmux::reaper::PASS_VARIABLE;
use ensemble_tmux::tmux::{PaneSigns, SessionOrder, TeamSession, TmuxError, TmuxServer};

use crate::project::{Project, QUEUE_VARIABLE};

pub use hooks::{GivenWays, HookedCommand, given_ways, hooked_words};
pub use launch::{HowBrought, LaunchedAgent};
pub use member_pane::{MemberPane, PaneOpener};
pub use plan::AgentPlan;
pub use wrapped::PreparedLaunch;

const SOCKET_FILE: &str = "tmux.sock";
/// The longest path of a socket, in bytes (`sun_path` with its terminator).
const SOCKET_BYTES_MAX: usize = 107;
const SIDECAR_WINDOW: &str = "ensemble";
/// Variables that identify an agent and must not be inherited from the process that starts the
/// team.
pub const AGENT_VARIABLES: [&str; 4] =
    ["ENSEMBLE_AGENT_ID", "LIZA_AGENT_ID", PASS_VARIABLE, GENERATION_VARIABLE];
/// The variable that tells an agent its generation.
pub const GENERATION_VARIABLE: &str = "ENSEMBLE_GENERATION";
/// Columns and lines of a session without an attached client.
const SIZE_DEFAULT: (u16, u16) = (200, 50);
/// How long to wait for another process that is bringing up the same team.
const LOCK_PATIENCE: Duration = Duration::from_secs(30);

pub struct ProjectTeam<'a> {
    project: &'a Project,
    spool: &'a Spool,
    recorder: Arc<dyn Recorder>,
    actor: Name,
    server: TmuxServer,
    /// Its id in the marks of sessions and panes.
    mark: String,
    /// Our own command, which hooks run.
    ensemble: Option<PathBuf>,
}

impl<'a> ProjectTeam<'a> {
    /// Opens the team of a project as `actor`. Starts no process and opens no connection yet.
    pub fn new(
        project: &'a Project,
        spool: &'a Spool,
        recorder: Arc<dyn Recorder>,
        actor: Name,
    ) -> Result<Self> {
        let server = TmuxServer::brief(socket_of(project)?);
        let mark = mark_of(project);
        Ok(Self { project, spool, recorder, actor, server, mark, ensemble: None })
    }

    /// Starts agents with hooks that run this program, the command `ensemble`. Without it, our hooks are not
    /// installed.
    pub fn with_command(mut self, ensemble: impl Into<PathBuf>) -> Self {
        self.ensemble = Some(ensemble.into());
        self
    }

    pub const fn server(&self) -> &TmuxServer {
        &self.server
    }

    pub fn session(&self) -> Result<Option<TeamSession>> {
        team_session(self.project)
    }

    /// The panes that the team has opened, in all sessions of its server. A pane that several sessions show comes once for
    /// each.
    pub fn panes(&self) -> Result<Vec<PaneSigns>> {
        let mut panes = self.server.all_pane_signs()?;
        panes.retain(|pane| pane.is_opened_by(&self.mark));
        Ok(panes)
    }

    pub fn roster(&self) -> Roster {
        self.project.roster()
    }

    /// Takes the name of an agent for this host, before anything is started for it. One of a team on one host is free.
    pub fn claim_name(&self, agent: &Name) -> Result<()> {
        refuse_agent(agent, &self.project.config.people)?;
        name::claim(self.project, agent)
    }

    /// Starts the session, if the team has none, with `sidecar` in its first window, as `sh -c`
    /// takes it. Returns whether it was started.
    pub fn start_session(&self, sidecar: &str) -> Result<bool> {
        self.with_order(sidecar, |order| self.server.start_team(order))
    }

    /// Starts `sidecar` in its own window of the session and replaces the program there.
    pub fn restart_sidecar(&self, sidecar: &str) -> Result<()> {
        let session = self.session_required()?;
        self.with_order(sidecar, |order| self.server.restart_sidecar(&session, order))
    }

    fn session_required(&self) -> Result<TeamSession> {
        let missing = || TmuxError::Refused {
            operation: "open a window",
            socket: self.server.socket().to_owned(),
            complaint: "the team has no session".to_owned(),
        };
        self.session()?.ok_or_else(|| missing().into())
    }

    fn with_order<T>(
        &self,
        sidecar: &str,
        order: impl FnOnce(&SessionOrder<'_>) -> Result<T>,
    ) -> Result<T> {
        let config = &self.project.config.team;
        let (columns, lines) = SIZE_DEFAULT;
        order(&SessionOrder {
            team: &self.mark,
            session: &session_of(self.project),
            window: SIDECAR_WINDOW,
            command: sidecar,
            directory: self.project.root(),
            env: &[(QUEUE_VARIABLE, self.project.queue.display().to_string())],
            without: &AGENT_VARIABLES,
            size: (config.columns.unwrap_or(columns), config.lines.unwrap_or(lines)),
            config: config.tmux_config.as_deref(),
        })
    }

    /// Excludes other processes from bringing up agents of this team, until the guard is dropped.
    ///
    /// [`Error::Locked`] names the holder.
    pub fn lock(&self) -> Result<FileLock> {
        FileLock::acquire(&self.lock_file()?, LOCK_PATIENCE)
    }

    /// As [`ProjectTeam::lock`], without waiting; `None` if another process has it.
    pub fn lock_if_free(&self) -> Result<Option<FileLock>> {
        FileLock::try_acquire(&self.lock_file()?)
    }

    fn lock_file(&self) -> Result<PathBuf> {
        // Started programs do not inherit the lock: it is opened close-on-exec.
        let locks = self.project.locks();
        make_directory(&locks)?;
        Ok(locks.join("up.lock"))
    }
}

/// The session of a project's team, under any name; `None` if none runs.
pub fn team_session(project: &Project) -> Result<Option<TeamSession>> {
    let server = TmuxServer::brief(socket_of(project)?);
    server.team_session(&mark_of(project), &session_of(project))
}

/// The name that a project's team gives to its session. A person may have given it another one since
/// ([`team_session`]).
pub fn session_of(project: &Project) -> String {
    let name = project.config.team.session.clone().unwrap_or_else(|| project.display_name());
    // tmux reserves dots and colons.
    let clean = |c: char| if c.is_alphanumeric() || c == '-' { c } else { '_' };
    let name: String = name.chars().map(clean).collect();
    if name.is_empty() { "team".to_owned() } else { name }
}

/// The id of a project's team in the marks of sessions and panes. It stays when the project is moved, and a copy has
/// another one. Empty without a state directory: such a team has started nothing.
fn mark_of(project: &Project) -> String {
    use std::os::unix::fs::MetadataExt as _;
    let place = std::fs::metadata(&project.state);
    place.map_or_else(|_| String::new(), |it| format!("{:x}-{:x}", it.dev(), it.ino()))
}

/// The socket of a project's team: the configured one, or by default one below the state directory. If that path is
/// too long for a socket, it is in a directory private to the user, named after the project:
/// `/tmp/ensemble-<uid>/<digest of the path>.sock`.
pub fn socket_of(project: &Project) -> Result<PathBuf> {
    match &project.config.team.socket {
        Some(socket) => Ok(project.root().join(socket)),
        None => socket_at(project, SOCKET_FILE),
    }
}

/// A socket below the state directory, or as for [`socket_of`] where that path is too long.
pub fn socket_at(project: &Project, file: &str) -> Result<PathBuf> {
    let socket = project.state.join(file);
    if socket.as_os_str().len() <= SOCKET_BYTES_MAX {
        return Ok(socket);
    }
    const DIGITS: usize = 32;
    let digest = Digest::of(socket.as_os_str().as_encoded_bytes()).short(DIGITS);
    Ok(private_directory()?.join(format!("{digest}.sock")))
}

/// A directory that only this user may enter; refused if another user made it.
fn private_directory() -> Result<PathBuf> {
    use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
    const PRIVATE: u32 = 0o700;
    let uid = rustix::process::getuid().as_raw();
    let path = PathBuf::from(format!("/tmp/ensemble-{uid}"));
    let io = |operation| {
        let path = path.clone();
        move |source| Error::Io { operation, path, source }
    };
    match std::fs::DirBuilder::new().mode(PRIVATE).create(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(io("create directory")(error));
        }
        _ => {}
    }
    let found = std::fs::symlink_metadata(&path).map_err(io("examine"))?;
    if found.is_dir() && found.uid() == uid && found.mode() & 0o777 == PRIVATE {
        return Ok(path);
    }
    Err(TmuxError::NotPrivate { path }.into())
}

#[cfg(test)]
mod tests;
