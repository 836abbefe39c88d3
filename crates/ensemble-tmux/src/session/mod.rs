//! What an agent's hooks have reported: one file for each agent, `.ensemble/sessions/<name>.json`.
//!
//! | state | written at the event | by the agent's machinery that means |
//! |---|---|---|
//! | `idle` | start, stop, a notification that it waits for input | no turn runs |
//! | `working` | prompt, after a tool | a turn runs |
//! | `blocked` | permission, a notification of one | a person must answer |
//! | `limited` | failure: a usage limit | the turn has ended in a limit |
//! | `failed` | failure: anything else | the turn has ended in an error |
//! | `ended` | session end | the session has ended |
//!
//! *Owner.* The hooks of one agent write its file, one after another, under the file's lock. All others read it
//! without a lock: it is replaced as a whole. *A crash* leaves the file as it was before or after a change. A hook
//! that is killed between receiving a message and writing its answer leaves an entry in `carrying`. The next hook of
//! the agent, or the watcher, finds that its process has exited and releases the message
//! ([`AgentSession::abandoned`]). *Silence.* A state is as old as its event. It counts while the agent's process
//! lives ([`AgentSession::lives`]). No hook reports an interrupted turn, so `working` alone proves nothing: see
//! `roster::presence` of the crate `ensemble-team`.
//!
//! An agent without hooks has `<name>.introduced` instead: the generation that its first `recv` has introduced.
//!
//! A waiter of the session holds `<name>.waiter.lock` while it can wake the idle agent. The lock is released when the
//! waiter's process exits ([`Sessions::waiter_lives`]).

mod record;
#[cfg(test)]
mod tests;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ensemble_core::document::{DocumentOptions, LockedDocument};
use ensemble_core::durable::{Dir, Durability, FileLock, FileModes, write_document};
use ensemble_core::message::Name;
use ensemble_core::{Error, Result, allow_missing};

pub use record::{
    Activity, AgentSession, CarriedMessage, DeliveryWay, REMEMBERED_MAX, SESSION_VERSION,
};

pub const SESSIONS_DIRECTORY: &str = "sessions";
pub const SESSION_BYTES_MAX: usize = 64 * 1024;
const FILE_END: &str = ".json";
const WAITER_END: &str = ".waiter.lock";
/// How the name of the note ends that an agent without hooks was introduced.
const INTRODUCED_END: &str = ".introduced";
/// The largest such note, in bytes.
const INTRODUCED_BYTES_MAX: usize = 64;
/// How long a hook waits for another hook of the same agent. A turn waits for it.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Clone, Debug)]
pub struct Sessions {
    dir: PathBuf,
    state: PathBuf,
}

/// A session file under its lock.
#[derive(Debug)]
pub struct LockedSession {
    document: LockedDocument,
    before: AgentSession,
    /// The record; written by [`LockedSession::write`].
    pub session: AgentSession,
}

impl Sessions {
    /// The session files below this state directory. Nothing is opened or made yet.
    pub fn open(state_dir: &Path) -> Self {
        Self { dir: state_dir.join(SESSIONS_DIRECTORY), state: state_dir.to_owned() }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn agent_of(file: &str) -> Option<Name> {
        file.strip_suffix(FILE_END).and_then(|name| Name::new(name).ok())
    }

    /// The last session of an agent; `None` if no hook of it has reported.
    pub fn get(&self, agent: &Name) -> Result<Option<AgentSession>> {
        let Some(dir) = allow_missing(Dir::open(&self.dir))? else { return Ok(None) };
        let file = format!("{agent}{FILE_END}");
        let Some(content) = dir.read(&file, SESSION_BYTES_MAX)? else { return Ok(None) };
        AgentSession::parse(&content, &self.dir.join(file)).map(Some)
    }

    /// The last sessions of all agents, by name. A damaged file is left out.
    pub fn all(&self) -> Result<Vec<AgentSession>> {
        Ok(self.entries()?.into_iter().flatten().collect())
    }

    /// As [`Sessions::all`], with the error of each damaged file.
    pub fn entries(&self) -> Result<Vec<Result<AgentSession>>> {
        let files = match std::fs::read_dir(&self.dir) {
            Ok(files) => files,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Error::io("list", &self.dir, error)),
        };
        let agents = files.filter_map(|file| Self::agent_of(file.ok()?.file_name().to_str()?));
        let mut agents: Vec<Name> = agents.collect();
        agents.sort_unstable();
        Ok(agents.iter().filter_map(|agent| self.get(agent).transpose()).collect())
    }

    /// Locks the session of an agent. A file that is none is begun again: it holds nothing that the next events do
    /// not bring again.
    ///
    /// Blocks for at most 2 s while another hook of the agent writes.
    pub fn lock(&self, agent: &Name) -> Result<LockedSession> {
        let dir = self.make()?;
        let path = dir.path().join(format!("{agent}{FILE_END}"));
        // A change that a power cut loses is repeated by the next event.
        let (bytes_max, durability) = (SESSION_BYTES_MAX, Durability::Process);
        let options = DocumentOptions { bytes_max, durability, ..DocumentOptions::default() };
        let document = LockedDocument::lock_with(&path, PATIENCE, options)?;
        let content = document.read().unwrap_or_default();
        let parsed = content.and_then(|content| AgentSession::parse(&content, &path).ok());
        let session = parsed.filter(|session| session.agent == *agent);
        let session = session.unwrap_or_else(|| AgentSession::new(agent.clone()));
        Ok(LockedSession { document, before: session.clone(), session })
    }

    /// Changes the session of an agent under its lock.
    pub fn change(&self, agent: &Name, change: impl FnOnce(&mut AgentSession)) -> Result<()> {
        let mut locked = self.lock(agent)?;
        change(&mut locked.session);
        locked.write()
    }

    /// Whether an agent without hooks is to be introduced: once a generation, which is noted.
    pub fn introduce_once(&self, agent: &Name, generation: u64) -> Result<bool> {
        let (dir, file) = (self.make()?, format!("{agent}{INTRODUCED_END}"));
        let text = format!("{generation}\n");
        if dir.read(&file, INTRODUCED_BYTES_MAX)?.as_deref() == Some(text.as_bytes()) {
            return Ok(false);
        }
        let path = dir.path().join(file);
        write_document(&path, text.as_bytes(), Durability::Process).map(|()| true)
    }

    /// Takes the lock of the agent's waiter, waiting for it at most `patience`.
    pub fn become_waiter(&self, agent: &Name, patience: Duration) -> Result<FileLock> {
        let dir = self.make()?;
        FileLock::acquire(&dir.path().join(format!("{agent}{WAITER_END}")), patience)
    }

    /// Whether a turn of the agent may have begun that its screen does not show yet ([`AgentSession::is_turn_beginning`]).
    pub fn is_turn_beginning(&self, agent: &Name) -> bool {
        self.get(agent).ok().flatten().is_some_and(|session| session.is_turn_beginning())
    }

    /// Whether a process can wake the agent while it is idle.
    pub fn waiter_lives(&self, agent: &Name) -> bool {
        let path = self.dir.join(format!("{agent}{WAITER_END}"));
        FileLock::is_held(&path).unwrap_or_default()
    }

    fn make(&self) -> Result<Dir> {
        Dir::open(&self.state)?.ensure_child(SESSIONS_DIRECTORY, FileModes::default())
    }
}

impl LockedSession {
    /// Writes the record if it has changed. The lock stays.
    ///
    /// # Errors
    /// The disk failed; the file is as it was.
    pub fn write(&mut self) -> Result<()> {
        self.session.shorten();
        if self.session == self.before {
            return Ok(());
        }
        self.document.replace(self.session.render().as_bytes())?;
        self.before = self.session.clone();
        Ok(())
    }
}
