//! Runs the program `git` with a deadline and in a controlled environment.

use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group};

use super::GitError;
use ensemble_core::durable::{Durability, FileLock};
use ensemble_core::{Error, Result};

/// Poll interval for the end of a program whose output another process still holds open.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
const OUTPUT_BYTES_MAX: usize = 64 * 1024 * 1024;
const DETAIL_BYTES_MAX: usize = 2_000;

/// Variables that would make git work on another repository or in another way (`git rev-parse
/// --local-env-vars`, and the programs that prompt people).
const REMOVED: &str = "GIT_ALTERNATE_OBJECT_DIRECTORIES GIT_ASKPASS GIT_COMMON_DIR GIT_CONFIG GIT_CONFIG_COUNT \
    GIT_CONFIG_PARAMETERS GIT_DIR GIT_EXTERNAL_DIFF GIT_GLOB_PATHSPECS GIT_GRAFT_FILE \
    GIT_ICASE_PATHSPECS GIT_IMPLICIT_WORK_TREE GIT_INDEX_FILE GIT_INTERNAL_SUPER_PREFIX \
    GIT_LITERAL_PATHSPECS GIT_NAMESPACE GIT_NOGLOB_PATHSPECS GIT_NO_REPLACE_OBJECTS \
    GIT_OBJECT_DIRECTORY GIT_PREFIX GIT_QUARANTINE_PATH GIT_REPLACE_REF_BASE GIT_SHALLOW_FILE \
    GIT_WORK_TREE";

/// The setting with which git runs no hooks. A hook that fails would undo what it cannot judge: a branch that is made, a
/// ref of saved work.
const NO_HOOKS: &str = "core.hooksPath=/dev/null";
/// The commands that run hooks: one is asked for by name, and a push may have to upload large files first.
const WITH_HOOKS: [&str; 2] = ["hook", "push"];

/// The directories above which git looks for no repository. Without it, git takes a directory that is not a worktree
/// (any more) for a part of the repository around it.
pub(crate) const CEILING_VARIABLE: &str = "GIT_CEILING_DIRECTORIES";

/// A repository, and the settings for running git in it.
#[derive(Clone, Debug)]
pub(super) struct GitRepository {
    pub(super) limit: Duration,
    pub(super) durability: Durability,
    pub(super) variables: Vec<(OsString, OsString)>,
}

#[derive(Debug)]
pub(super) struct GitCall<'a> {
    git: &'a GitRepository,
    at: &'a Path,
    lock: Option<&'a FileLock>,
    limit: Duration,
    settings: Vec<String>,
    variables: Vec<(&'static str, OsString)>,
}

struct GitAnswer {
    status: ExitStatus,
    output: Vec<u8>,
    complaint: Vec<u8>,
}

impl GitRepository {
    pub(super) const fn at<'a>(&'a self, at: &'a Path) -> GitCall<'a> {
        GitCall {
            git: self,
            at,
            lock: None,
            limit: self.limit,
            settings: Vec::new(),
            variables: Vec::new(),
        }
    }
}

impl<'a> GitCall<'a> {
    /// Marks a command that changes the repository. The lock is held until git has ended, even if
    /// this process is killed.
    pub(super) const fn under(mut self, lock: &'a FileLock) -> Self {
        self.lock = Some(lock);
        self
    }

    pub(super) const fn within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Adds a setting, as `git -c` takes it.
    pub(super) fn set(mut self, setting: impl Into<String>) -> Self {
        self.settings.push(setting.into());
        self
    }

    pub(super) fn with(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.variables.push((name, value.into()));
        self
    }

    /// Runs the command and returns its output without the last newline.
    pub(super) fn run<S: AsRef<OsStr>>(self, arguments: &[S]) -> Result<String> {
        self.bytes(arguments).map(|bytes| String::from_utf8_lossy(&bytes).trim_end().to_owned())
    }

    pub(super) fn bytes<S: AsRef<OsStr>>(self, arguments: &[S]) -> Result<Vec<u8>> {
        let answer = self.answer(arguments)?;
        if answer.status.success() {
            return Ok(answer.output);
        }
        Err(failure(arguments, self.at, &answer).into())
    }

    /// Runs the command and returns its output; `None` if it exits with 1.
    pub(super) fn ask<S: AsRef<OsStr>>(self, arguments: &[S]) -> Result<Option<String>> {
        let answer = self.answer(arguments)?;
        match answer.status.code() {
            Some(0) => Ok(Some(String::from_utf8_lossy(&answer.output).trim_end().to_owned())),
            Some(1) => Ok(None),
            _ => Err(failure(arguments, self.at, &answer).into()),
        }
    }

    /// Runs the command and returns its exit code, with its error text if the code is not 0.
    pub(super) fn attempt<S: AsRef<OsStr>>(self, arguments: &[S]) -> Result<(Option<i32>, String)> {
        let answer = self.answer(arguments)?;
        let words = match failure(arguments, self.at, &answer) {
            GitError::Failed { detail, .. } => detail,
            other => other.to_string(),
        };
        Ok((answer.status.code(), words))
    }

    fn answer<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Result<GitAnswer> {
        let mut command = without_git(Command::new("git"));
        if let Some(parent) = self.at.parent() {
            command.env(CEILING_VARIABLE, parent);
        }
        command.env("LC_ALL", "C").env("GIT_TERMINAL_PROMPT", "0").env("GIT_EDITOR", "true");
        command.env("GIT_OPTIONAL_LOCKS", "0");
        command.envs(self.git.variables.iter().map(|(n, v)| (n, v)));
        command.envs(self.variables.iter().map(|(n, v)| (n, v)));
        command.arg("-C").arg(self.at);
        let synced = match self.git.durability {
            Durability::Power => "core.fsync=all",
            Durability::Process => "core.fsync=none",
        };
        let quiet = ["core.fsmonitor=false", "log.showSignature=false"];
        for setting in [synced, "gc.auto=0", "maintenance.auto=false"].into_iter().chain(quiet) {
            command.args(["-c", setting]);
        }
        let word = arguments.first().map(AsRef::as_ref);
        if !WITH_HOOKS.iter().any(|known| word == Some(OsStr::new(known))) {
            command.args(["-c", NO_HOOKS]);
        }
        for setting in &self.settings {
            command.args(["-c", setting]);
        }
        command.args(arguments);
        command.stdin(match self.lock {
            Some(lock) => lock.as_input()?,
            None => Stdio::null(),
        });
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let child = command.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Error::MissingProgram {
                program: "git",
                remedy: "install it (2.36 or newer), for instance with `apt-get install git`",
            },
            _ => Error::io("start git in", self.at, error),
        })?;
        // Drop the command, which holds another handle of the lock.
        drop(command);
        let mut running = GitProcess(child);
        let limit = self.limit;
        running.answer(limit).map_err(|interrupted| {
            let (command, path) = (shown(arguments), self.at.to_owned());
            let error = match interrupted {
                GitInterruption::Overdue => GitError::Overdue { command, path, limit },
                GitInterruption::Failed(detail) => GitError::Failed { command, path, detail },
            };
            error.into()
        })
    }
}

/// Removes git's variables for a program that finds its repository by its working directory.
pub fn without_git(mut command: Command) -> Command {
    for name in REMOVED.split(' ') {
        command.env_remove(name);
    }
    command
}

/// Leave settings and long texts out of errors.
fn shown<S: AsRef<OsStr>>(arguments: &[S]) -> String {
    let words = arguments.iter().map(|word| word.as_ref().to_string_lossy());
    let short = words.map(|word| word.lines().next().unwrap_or_default().to_owned());
    short.collect::<Vec<_>>().join(" ")
}

fn failure<S: AsRef<OsStr>>(arguments: &[S], at: &Path, answer: &GitAnswer) -> GitError {
    let said = [&answer.complaint, &answer.output].into_iter().find(|said| !said.is_empty());
    let mut detail = last_bytes(said.map_or(&[], Vec::as_slice), DETAIL_BYTES_MAX);
    if detail.is_empty() {
        detail = answer.status.to_string();
    }
    GitError::Failed { command: shown(arguments), path: at.to_owned(), detail }
}

/// The end of a program's output, from a line's beginning if it is cut.
pub(super) fn last_bytes(bytes: &[u8], max: usize) -> String {
    let cut = bytes.len().saturating_sub(max);
    let text = String::from_utf8_lossy(&bytes[cut..]);
    let text = match text.split_once('\n') {
        Some((_, rest)) if cut > 0 => rest,
        _ => &text,
    };
    text.trim().to_owned()
}

#[derive(Debug)]
pub(super) enum GitInterruption {
    Overdue,
    Failed(String),
}

impl From<std::io::Error> for GitInterruption {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// A running program with all its children, which are killed when this is dropped.
pub(super) struct GitProcess(pub(super) Child);

impl GitProcess {
    fn answer(&mut self, limit: Duration) -> Result<GitAnswer, GitInterruption> {
        let deadline = Instant::now() + limit;
        let (mut output, mut complaint) = (Vec::new(), Vec::new());
        let (mut stdout, mut stderr) = (self.0.stdout.take(), self.0.stderr.take());
        let mut ended = None;
        loop {
            let status = self.0.try_wait()?;
            // All that the program wrote is already in the pipe. Later output comes from other
            // processes.
            let wait = if status.is_some() { Duration::ZERO } else { LOOK_INTERVAL };
            let is_quiet = !read_some(&mut stdout, &mut output, wait)?
                & !read_some(&mut stderr, &mut complaint, Duration::ZERO)?;
            match (ended, status) {
                (Some(status), _) if is_quiet => {
                    return Ok(GitAnswer { status, output, complaint });
                }
                (None, status) => ended = status,
                (Some(_), _) => {}
            }
            if stdout.is_none() && stderr.is_none() && ended.is_none() {
                ended = Some(self.wait_until(deadline)?);
            }
            if Instant::now() >= deadline {
                return Err(GitInterruption::Overdue);
            }
        }
    }

    pub(super) fn wait_until(&mut self, deadline: Instant) -> Result<ExitStatus, GitInterruption> {
        let mut pause = Duration::from_micros(200);
        loop {
            match self.0.try_wait()? {
                Some(status) => return Ok(status),
                None if Instant::now() >= deadline => {
                    return Err(GitInterruption::Overdue);
                }
                None => std::thread::sleep(pause),
            }
            pause = (pause * 2).min(LOOK_INTERVAL);
        }
    }
}

impl Drop for GitProcess {
    fn drop(&mut self) {
        // The child was reaped, so another process may have its pid by now.
        if matches!(self.0.try_wait(), Ok(Some(_))) {
            return;
        }
        if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Reads available bytes within `wait`; returns whether there were any. The end of the stream
/// closes `pipe`.
fn read_some<P: std::io::Read + std::os::fd::AsFd>(
    pipe: &mut Option<P>,
    bytes: &mut Vec<u8>,
    wait: Duration,
) -> Result<bool, GitInterruption> {
    let Some(open) = pipe else { return Ok(false) };
    let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(wait.subsec_nanos()) };
    let mut fds = [PollFd::from_borrowed_fd(open.as_fd(), PollFlags::IN)];
    match poll(&mut fds, Some(&timeout)) {
        Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(false),
        Ok(_) => {}
        Err(error) => return Err(GitInterruption::Failed(error.to_string())),
    }
    let mut buffer = [0; 64 * 1024];
    match open.read(&mut buffer) {
        Ok(0) => {
            *pipe = None;
            Ok(false)
        }
        Ok(n) if bytes.len() + n > OUTPUT_BYTES_MAX => {
            Err(GitInterruption::Failed("its output is too long".to_owned()))
        }
        Ok(n) => {
            bytes.extend_from_slice(&buffer[..n]);
            Ok(true)
        }
        Err(error) => Err(error.into()),
    }
}

pub(super) fn common_directory(git: &GitRepository, project: &Path) -> Result<PathBuf> {
    // A project may be a directory inside a repository.
    let call = git.at(project).with(CEILING_VARIABLE, "");
    let found = call.run(&["rev-parse", "--path-format=absolute", "--git-common-dir"]);
    found.map(PathBuf::from)
}
