//! A project for each test, and the command in an environment with nothing but the project.

use std::io::{ErrorKind, Read, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use ensemble_core::durable::FileLock;
use ensemble_core::message::Name;
use ensemble_core::watch::{FsWatcher, WatchError};
use ensemble_team::board::{Board, BoardOptions, State};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::tmux_support::{PATIENCE, eventually};

pub(crate) struct Bed {
    home: tempfile::TempDir,
}

/// Output of a run, and its exit code.
#[must_use]
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// It must have ended with this exit code.
    #[track_caller]
    pub(crate) fn ends(&self, code: i32) -> &Self {
        assert_eq!(self.code, code, "{self:?}");
        self
    }

    /// These must be on its stderr.
    #[track_caller]
    pub(crate) fn says<const N: usize>(&self, parts: [&str; N]) -> &Self {
        let missing = parts.iter().find(|part| !self.stderr.contains(**part));
        assert_eq!(missing, None, "{self:?}");
        self
    }

    /// These must be on its stdout.
    #[track_caller]
    pub(crate) fn shows<const N: usize>(&self, parts: [&str; N]) -> &Self {
        let missing = parts.iter().find(|part| !self.stdout.contains(**part));
        assert_eq!(missing, None, "{self:?}");
        self
    }
}

/// What a text must have, and what not.
pub(crate) trait SaidText: AsRef<str> {
    #[track_caller]
    fn has<const N: usize>(&self, parts: [&str; N]) -> &Self {
        let missing = parts.iter().find(|part| !self.as_ref().contains(**part));
        assert_eq!(missing, None, "{}", self.as_ref());
        self
    }

    #[track_caller]
    fn lacks<const N: usize>(&self, parts: [&str; N]) -> &Self {
        let found = parts.iter().find(|part| self.as_ref().contains(**part));
        assert_eq!(found, None, "{}", self.as_ref());
        self
    }

    #[track_caller]
    fn begins(&self, start: &str) -> &Self {
        assert!(self.as_ref().starts_with(start), "`{start}`: {}", self.as_ref());
        self
    }

    #[track_caller]
    fn finishes(&self, end: &str) -> &Self {
        assert!(self.as_ref().ends_with(end), "`{end}`: {}", self.as_ref());
        self
    }
}

impl<T: AsRef<str> + ?Sized> SaidText for T {}

/// What the members of an object must be.
pub(crate) trait JsonMembers {
    fn fits(&self, members: Value) -> &Self;
}

impl JsonMembers for Value {
    #[track_caller]
    fn fits(&self, members: Value) -> &Self {
        for (name, value) in members.as_object().unwrap() {
            assert_eq!(&self[name], value, "{name}: {self}");
        }
        self
    }
}

pub(crate) fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[track_caller]
pub(crate) fn git(at: &Path, line: &str) -> String {
    crate::git::git(at, &words(line))
}

pub(crate) fn is_running(text: &str) -> bool {
    !running(&[text]).is_empty()
}

pub(crate) fn running(texts: &[&str]) -> Vec<Pid> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let found = processes.flatten().filter(|process| {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        texts.iter().all(|text| line.contains(text))
    });
    found.filter_map(|it| Pid::from_raw(it.file_name().to_str()?.parse().ok()?)).collect()
}

/// A process of the command, which ends with its test.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn watch(bed: &Bed) -> Running {
    let watcher = Running(bed.start("admin watch"));
    let lock = bed.project().join(".ensemble/watch.lock");
    eventually("the watcher watches", || FileLock::holder(&lock) == Some(watcher.0.id()));
    watcher
}

impl Bed {
    /// A project without a queue, in which messages need not survive a power cut.
    pub(crate) fn empty() -> Self {
        let bed = Self { home: tempfile::tempdir().unwrap() };
        std::fs::create_dir(bed.project()).unwrap();
        std::fs::write(bed.project().join("ensemble.yaml"), "durability: process\n").unwrap();
        bed
    }

    /// A project with the mailboxes of `init`, and `w1`.
    pub(crate) fn new() -> Self {
        let bed = Self::empty();
        bed.ok("init");
        bed.ok("mailbox add w1");
        bed
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.home.path().join("project")
    }

    pub(crate) fn write_file(&self, file: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        std::fs::write(self.project().join(file), content).unwrap();
    }

    pub(crate) fn read_file(&self, file: impl AsRef<Path>) -> String {
        std::fs::read_to_string(self.project().join(file)).unwrap()
    }

    /// With these settings, in which messages need not survive a power cut.
    pub(crate) fn configure(&self, settings: &str) {
        self.write_file("ensemble.yaml", format!("durability: process\n{settings}"));
    }

    #[track_caller]
    pub(crate) fn add_mailboxes(&self, names: &[&str]) {
        names.iter().for_each(|name| drop(self.ok(&format!("mailbox add {name}"))));
    }

    pub(crate) fn change_config(&self, change: impl FnOnce(String) -> String) {
        self.write_file("ensemble.yaml", change(self.read_file("ensemble.yaml")));
    }

    pub(crate) fn add_config(&self, more: &str) {
        self.change_config(|config| config + more);
    }

    /// Makes it a repository, in which git sees only texts.
    pub(crate) fn begin_repository(&self) {
        git(&self.project(), "init --quiet -b main");
        self.write_file(".gitignore", "*\n!*.txt\n");
        git(&self.project(), "add --force .gitignore");
        git(&self.project(), "commit --quiet -m begin");
    }

    #[track_caller]
    pub(crate) fn add_task(&self, task: &str) {
        self.ok(&format!("task add {task} -d work --spec s.md --done-when works"));
    }

    pub(crate) fn board(&self) -> State {
        Board::find(&self.project(), BoardOptions::new("test")).unwrap().read().unwrap()
    }

    /// The board's observer takes a task from its holder.
    pub(crate) fn end_lease(&self, task: &str) {
        let board = Board::find(&self.project(), BoardOptions::new("test")).unwrap();
        let (mut locked, task) = (board.lock().unwrap(), Name::new(task).unwrap());
        let epoch = locked.state().task(&task).unwrap().lease_epoch.unwrap();
        locked.release(&task, epoch, "the lease ran out").unwrap();
        locked.commit().unwrap();
    }

    pub(crate) fn mailbox(&self, below: &str) -> PathBuf {
        self.project().join("queue/mailbox").join(below)
    }

    /// The command, ready to run in the project.
    pub(crate) fn command<S: AsRef<std::ffi::OsStr>>(&self, args: &[S]) -> Command {
        let mut command = Command::new(program());
        command
            .args(args)
            .env_clear()
            .env("HOME", self.home.path())
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .current_dir(self.project())
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, line: &str) -> Ran {
        to_end(&mut self.command(&words(line)))
    }

    /// With these variables in its environment.
    pub(crate) fn run_in(&self, variables: &[(&str, &str)], line: &str) -> Ran {
        let mut command = self.command(&words(line));
        ran(command.envs(variables.iter().copied()).output().unwrap())
    }

    pub(crate) fn run_with(&self, line: &str, stdin: &[u8]) -> Ran {
        let mut child = self.start_piped(line);
        let written = child.stdin.take().unwrap().write_all(stdin);
        // A verb that has nothing to do ends without reading.
        let is_fine = written.as_ref().err().is_none_or(|e| e.kind() == ErrorKind::BrokenPipe);
        assert!(is_fine, "{written:?}");
        let ran = end(child);
        crate::contract::check_words(&words(line), &ran);
        ran
    }

    /// Starts a process that is waited for later.
    pub(crate) fn start(&self, line: &str) -> Child {
        start(&mut self.command(&words(line)))
    }

    /// The same, whose standard input is written.
    pub(crate) fn start_piped(&self, line: &str) -> Child {
        start(self.command(&words(line)).stdin(Stdio::piped()))
    }

    /// Runs what must succeed without a word on stderr; its stdout.
    #[track_caller]
    pub(crate) fn ok(&self, line: &str) -> String {
        let ran = self.run(line);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "ensemble {line}\n{ran:?}");
        ran.stdout
    }

    /// Runs what must fail with this exit code and nothing on stdout; its stderr.
    #[track_caller]
    pub(crate) fn fails(&self, code: i32, line: &str) -> String {
        let ran = self.run(line);
        assert_eq!((ran.code, ran.stdout.as_str()), (code, ""), "ensemble {line}\n{ran:?}");
        ran.stderr
    }

    /// Runs with `--json`; the objects.
    #[track_caller]
    pub(crate) fn json(&self, line: &str) -> Vec<Value> {
        objects(&self.ok(&format!("{line} --json")))
    }

    /// As [`Bed::json`], for one object.
    #[track_caller]
    pub(crate) fn object(&self, line: &str) -> Value {
        let mut objects = self.json(line);
        assert_eq!(objects.len(), 1, "ensemble {line}: {objects:?}");
        objects.remove(0)
    }

    /// Sends a message to `w1`; its id.
    #[track_caller]
    pub(crate) fn send(&self, text: &str) -> String {
        let args = ["send", "--to", "w1", "-m", text];
        let ran = to_end(&mut self.command(&args));
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
        ran.stdout.trim_end().to_owned()
    }
}

pub(crate) fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_ensemble"))
}

fn start(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

pub(crate) fn end(child: Child) -> Ran {
    ran(child.wait_with_output().unwrap())
}

/// Asks a process to end, which it must do well.
#[track_caller]
pub(crate) fn terminate(child: Child) {
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    end(child).ends(0);
}

/// Writes a program that can be run, and the directory of it.
pub(crate) fn write_program(path: impl AsRef<Path>, text: impl AsRef<[u8]>) {
    let path = path.as_ref();
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

/// Writes a file elsewhere and renames it into its place in the queue.
pub(crate) fn land(bed: &Bed, path: &str, content: &str) {
    let staged = bed.project().join("landing");
    std::fs::write(&staged, content).unwrap();
    std::fs::rename(staged, bed.project().join("queue").join(path)).unwrap();
}

pub(crate) fn ran(output: Output) -> Ran {
    Ran {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: without_polling(String::from_utf8(output.stderr).unwrap()),
    }
}

/// Whether this machine has no inotify instance left, so that everything polls.
pub(crate) fn polls() -> bool {
    static POLLS: LazyLock<bool> =
        LazyLock::new(|| matches!(FsWatcher::new(), Err(WatchError::InstancesExhausted)));
    *POLLS
}

/// Without what is said where everything polls. That is not what tests compare.
pub(crate) fn without_polling(said: String) -> String {
    let is_of_polling = |line: &str| line.contains("no inotify instance left");
    match polls() && is_of_polling(&said) {
        true => said.split_inclusive('\n').filter(|line| !is_of_polling(line)).collect(),
        false => said,
    }
}

/// Runs a command until it has ended and no process holds its output any more. A command that hangs
/// is ended, and the test prints the other running processes.
#[track_caller]
pub(crate) fn to_end(command: &mut Command) -> Ran {
    let mut child = start(command);
    let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let outputs = [all_of(stdout), all_of(stderr)];
    let deadline = Instant::now() + PATIENCE;
    let [stdout, stderr] = outputs.map(|output| {
        let left = deadline.saturating_duration_since(Instant::now());
        output.recv_timeout(left).unwrap_or_else(|_| {
            let processes = Command::new("ps").args(["axfo", "pid,stat,wchan,args"]).output();
            let processes = processes.map(|output| output.stdout).unwrap_or_default();
            let _ = child.kill();
            panic!("{command:?} has not ended:\n{}", String::from_utf8_lossy(&processes));
        })
    });
    let ran = ran(Output { status: child.wait().unwrap(), stdout, stderr });
    crate::contract::check(command, &ran);
    ran
}

fn all_of(mut output: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, all) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        output.read_to_end(&mut bytes).unwrap();
        // No reader waits for late output.
        let _ = sender.send(bytes);
    });
    all
}

#[track_caller]
pub(crate) fn objects(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub(crate) fn keys(object: &Value) -> Vec<&str> {
    object.as_object().unwrap().keys().map(String::as_str).collect()
}
