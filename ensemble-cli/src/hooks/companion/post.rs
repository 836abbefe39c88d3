//! What keeps a server and a companion running for as long as their agent runs.
//!
//! ```text
//! ends            then                                                              by
//! the server      it is started again at its socket, and the program connects again  the companion
//! the companion   another one takes its place                                       its relief
//! the relief      another one waits                                                 the companion
//! the agent       all of them end
//! ```
//!
//! The first server and the first companion are children of the agent, and end with it by the system. What is started
//! later is not, so companions look whether their agent runs.
//!
//! Seen with codex-cli 0.171.0: for two minutes after its server has ended the program tries to connect again, and
//! continues its thread. After that it waits until a person starts it again.

use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ensemble_app::agent_program::AgentProgram;
use ensemble_app::failure::{Failure, Outcome};
use ensemble_core::driver::nap;
use ensemble_core::durable::FileLock;
use ensemble_core::message::Name;
use ensemble_tmux::provider::process;
use ensemble_tmux::session::Sessions;

use super::server::AppServer;
use super::start;
use crate::hooks::waiter;

/// How long a server may take until it listens. One that cannot start ends at once; a busy machine needs long.
pub(super) const START_PATIENCE: Duration = Duration::from_secs(60);
pub(super) const TRY_INTERVAL: Duration = Duration::from_millis(50);

pub(super) struct CompanionPost {
    agent: (u32, u64),
    socket: PathBuf,
    words: Vec<OsString>,
    relief: Option<Child>,
    server: Option<Child>,
}

impl CompanionPost {
    pub(super) fn parse(described: &[OsString]) -> Outcome<Self> {
        let [agent, socket, words @ ..] = described else {
            return Err(Failure::usage("give an agent's process, a socket and a program"));
        };
        let agent = agent.to_str().and_then(|pid| pid.parse().ok());
        let agent = agent.ok_or_else(|| Failure::usage("the process is not a number"))?;
        Self::new(agent, socket.into(), words.to_vec())
    }

    pub(super) fn new(agent: u32, socket: PathBuf, words: Vec<OsString>) -> Outcome<Self> {
        let started = process::start_time(agent);
        let started = started.ok_or_else(|| Failure::refused("the agent has ended"))?;
        Ok(Self { agent: (agent, started), socket, words, relief: None, server: None })
    }

    /// Pid and start of the agent's process.
    pub(super) const fn agent(&self) -> (u32, u64) {
        self.agent
    }

    pub(super) fn is_decided(&self) -> bool {
        self.words.iter().any(|word| start::DECIDING.iter().any(|option| word == option))
    }

    pub(super) fn agent_lives(&self) -> bool {
        process::is_running(self.agent.0, Some(self.agent.1))
    }

    pub(super) fn agent_ends_within(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        while self.agent_lives() {
            if Instant::now() >= until {
                return false;
            }
            nap(TRY_INTERVAL);
        }
        true
    }

    /// A process of this post: `accompany` is its companion, `relieve` the one that waits to be.
    pub(super) fn command(&self, event: &str) -> Outcome<Command> {
        let mut command = start::part(event, AgentProgram::Codex.word())?;
        command.arg(self.agent.0.to_string()).arg(&self.socket).args(&self.words);
        command.stdout(Stdio::null());
        Ok(command)
    }

    /// Starts the server, which ends with this process.
    pub(super) fn start_server(&self) -> Outcome<Child> {
        // A server that was killed leaves it behind.
        let _ = std::fs::remove_file(&self.socket);
        let mut host = start::part("host", AgentProgram::Codex.word())?;
        let (program, said) = self.words.split_first().unwrap_or_else(|| unreachable!("checked"));
        host.arg(program).args(["app-server", "--listen"]).arg(start::address(&self.socket));
        Ok(host.args(start::shared(said)).stdout(Stdio::null()).spawn()?)
    }

    pub(super) fn connect(&self) -> Outcome<AppServer> {
        let until = Instant::now() + START_PATIENCE;
        loop {
            match AppServer::connect(&self.socket) {
                Ok(server) => return Ok(server),
                Err(failure) if Instant::now() >= until || !self.agent_lives() => {
                    return Err(failure);
                }
                Err(_) => nap(TRY_INTERVAL),
            }
        }
    }

    pub(super) fn reach_server(&mut self) -> Outcome<AppServer> {
        // Two servers would have the agent's threads at once: one that is only slow is left alone.
        if UnixStream::connect(&self.socket).is_err() && !is_running(&mut self.server) {
            self.server = Some(self.start_server()?);
        }
        self.connect()
    }

    /// Sees to it that a relief waits. What cannot be started now is tried again at the next call.
    pub(super) fn keep_relief(&mut self) {
        if !is_running(&mut self.relief) {
            self.relief = self.command("relieve").ok().and_then(|mut it| it.spawn().ok());
        }
    }

    /// Waits until the companion before this one has ended. `None` once the agent has.
    pub(super) fn await_turn(
        &self,
        sessions: &Sessions,
        agent: &Name,
    ) -> Outcome<Option<FileLock>> {
        loop {
            nap(waiter::LOOK_INTERVAL);
            if !self.agent_lives() {
                return Ok(None);
            }
            if !sessions.waiter_lives(agent) {
                return Ok(Some(sessions.become_waiter(agent, waiter::TAKE_OVER)?));
            }
        }
    }
}

fn is_running(child: &mut Option<Child>) -> bool {
    child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
}
