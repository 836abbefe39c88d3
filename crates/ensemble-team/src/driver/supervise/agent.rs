//! The agent's program as a process of this supervisor.
//!
//! The command line defines how the agent gets its prompt. `{prompt}` in a word is replaced by the
//! prompt itself, `{prompt_file}` by the path of a file that contains it. Without either, the
//! prompt is the agent's standard input. With one of them the agent keeps the supervisor's terminal
//! and process group, so that Ctrl-C and window resizes reach it. Otherwise it gets its own process
//! group.
//!
//! Processes that the agent starts are identified by `ENSEMBLE_AGENT_MARK`, whose value is new for
//! each agent. They end with the agent.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::run::SupervisorRun;
use super::work::{HeldClaim, SupervisedWork};
use super::{
    EPOCH_VARIABLE, PROMPT_VARIABLE, TASK_EPOCH_VARIABLE, TASK_VARIABLE, WORKTREE_VARIABLE,
    supervisor_lock,
};
use crate::proto::supervise::ProgramEnding;
use crate::worktree::CEILING_VARIABLE;
use ensemble_core::durable::open_file;
use ensemble_core::message::Digest;
use ensemble_core::{Error, Result};
use ensemble_tmux::provider::process;
use ensemble_tmux::reaper::{MARK_VARIABLE, PASS_VARIABLE, ProcessSet, Reaper};

pub const PROMPT: &str = "{prompt}";
pub const PROMPT_FILE: &str = "{prompt_file}";
/// Longest word of a command line, in bytes (`MAX_ARG_STRLEN` of Linux).
const WORD_BYTES_MAX: usize = 131_071;
/// Size of a mark in bytes: 128 bits.
const MARK_BYTES: usize = 16;
const HAND_OVER: i32 = 42;

#[derive(Clone, Debug)]
pub(super) struct ProcessMark(String);

impl ProcessMark {
    pub(super) fn new() -> Result<Self> {
        const SOURCE: &str = "/dev/urandom";
        let mut bytes = [0; MARK_BYTES];
        File::open(SOURCE)
            .and_then(|mut source| source.read_exact(&mut bytes))
            .map_err(|error| Error::io("read", SOURCE, error))?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    pub(super) fn text(&self) -> &str {
        &self.0
    }

    pub(super) fn digest(&self) -> Digest {
        Digest::of(self.0.as_bytes())
    }
}

#[derive(Debug)]
pub(super) struct ProcessOrder<'a> {
    pub(super) command: &'a [String],
    pub(super) directory: &'a Path,
    pub(super) env: BTreeMap<String, OsString>,
    pub(super) prompt: &'a str,
    pub(super) prompt_file: &'a Path,
    pub(super) mark: &'a ProcessMark,
}

/// An agent process that runs, or has ended and was not waited for.
#[derive(Debug)]
pub(super) struct AgentProcess {
    child: Child,
    started: Option<u64>,
    mark: Digest,
    /// Processor times of its processes at the last look.
    activity: BTreeMap<u32, u64>,
}

impl AgentProcess {
    pub(super) fn start(order: &ProcessOrder<'_>) -> Result<Self> {
        let words = filled(order)?;
        let by_input = words == order.command;
        let (program, arguments) = words.split_first().ok_or_else(|| {
            Error::malformed("CMD", "command", "is empty: name the agent's program")
        })?;
        let mut command = Command::new(program);
        command.args(arguments).current_dir(order.directory).envs(&order.env);
        command.env(MARK_VARIABLE, &order.mark.0);
        if by_input {
            let path = order.prompt_file;
            let (file, _) = open_file(path)?
                .ok_or_else(|| Error::malformed(path, "prompt", "is missing: it was removed"))?;
            command.stdin(Stdio::from(file)).process_group(0);
        }
        let child = command.spawn().map_err(|error| Error::io("start", program, error))?;
        let started = process::start_time(child.id());
        let mark = order.mark.digest();
        Ok(Self { child, started, mark, activity: BTreeMap::new() })
    }

    pub(super) fn process(&self) -> (u32, Option<u64>) {
        (self.child.id(), self.started)
    }

    /// How the agent ended; `None` while it runs.
    pub(super) fn ended(&mut self) -> Result<Option<ProgramEnding>> {
        let path = PathBuf::from(format!("/proc/{}", self.child.id()));
        let status = self.child.try_wait().map_err(|error| Error::io("wait for", path, error))?;
        Ok(status.map(|status| match (status.code(), status.signal()) {
            (Some(code), _) => ending(code),
            (None, signal) => ProgramEnding::Killed(signal.unwrap_or_default()),
        }))
    }

    /// Waits at most `limit` for the agent to end; a signal to this process ends the wait.
    pub(super) fn wait(&self, limit: Duration) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let Some(Ok(fd)) = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) else { return };
        let timeout = Timespec::try_from(limit).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        // The caller checks afterwards in any case whether it has ended.
        let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout));
    }

    /// Whether a process of the agent has used the processor, started or ended since the last look.
    pub(super) fn has_moved(&mut self) -> bool {
        let (pid, started) = self.process();
        let processes = ProcessSet::new().with_root(pid, started).with_mark(self.mark);
        let now = Reaper::new(processes).activity().unwrap_or_default();
        let before = std::mem::replace(&mut self.activity, now);
        before != self.activity
    }

    pub(super) fn end(&mut self) -> Result<usize> {
        let (pid, started) = self.process();
        // An agent that was waited for has no process any more; its pid may be another process's.
        let root = self.child.try_wait().is_ok_and(|status| status.is_none());
        let ended = supervisor_lock::end_all(self.mark, root.then_some((pid, started)));
        let _ = self.child.try_wait();
        ended
    }
}

impl SupervisorRun<'_> {
    pub(super) fn environment(&self, work: &SupervisedWork) -> BTreeMap<String, OsString> {
        let mut env = self.order.env.clone();
        let mut set = |name: &str, value: OsString| drop(env.insert(name.to_owned(), value));
        let id = self.order.id.as_str();
        set("ENSEMBLE_AGENT_ID", id.into());
        set("LIZA_AGENT_ID", id.into());
        set(PROMPT_VARIABLE, self.lock.prompt_path().into());
        if let Some(registered) = &self.registered {
            set(EPOCH_VARIABLE, registered.epoch.to_string().into());
        }
        if let Some(HeldClaim { id, holder, path }) = work.claim() {
            set(TASK_VARIABLE, id.as_str().into());
            set(TASK_EPOCH_VARIABLE, holder.epoch.to_string().into());
            set(WORKTREE_VARIABLE, self.board.project_in(path).into());
            // Otherwise git would work in the person's checkout wherever the worktree has lost its `.git`.
            set(CEILING_VARIABLE, path.parent().unwrap_or(path).into());
        }
        if let Some(pass) = self.desk.pass() {
            set(PASS_VARIABLE, pass.into());
        }
        env
    }
}

pub(super) const fn ending(code: i32) -> ProgramEnding {
    match code {
        0 => ProgramEnding::Done,
        HAND_OVER => ProgramEnding::HandOver,
        code => ProgramEnding::Failed(code),
    }
}

fn filled(order: &ProcessOrder<'_>) -> Result<Vec<String>> {
    let file = order.prompt_file.display().to_string();
    let fill = |word: &String| {
        let word = word.replace(PROMPT_FILE, &file).replace(PROMPT, order.prompt);
        if word.len() > WORD_BYTES_MAX {
            let what = format!("the prompt as an argument (use {PROMPT_FILE} instead)");
            let (bytes, limit) = (word.len() as u64, WORD_BYTES_MAX as u64);
            return Err(Error::TooLarge { what, bytes, limit });
        }
        Ok(word)
    };
    order.command.iter().map(fill).collect()
}
