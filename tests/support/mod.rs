//! Shared by the torture tests: one printed seed, and waiting for a condition. Child processes that
//! do not outlive their test, a project in a temporary directory, and a history outside it.
#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]

pub mod history;
pub mod traced;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use ensemble_core::durable::Durability;
use ensemble_core::message::{Envelope, Name};
use ensemble_core::sim::SimRng;
use ensemble_core::spool::{Settings, Spool, SpoolOptions};
use tempfile::TempDir;

/// How long a condition may take to come true; far above what a loaded machine needs.
pub const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// Says to the re-executed test program what it is to be.
const ROLE_VARIABLE: &str = "TORTURE_ROLE";
/// The test in which a re-executed test program plays its role.
const ROLE_TEST: &str = "a_child_process_plays_its_role";

pub fn setting(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")),
        Err(_) => default,
    }
}

#[track_caller]
pub fn eventually<T>(
    patience: Duration,
    what: &str,
    mut condition: impl FnMut() -> Option<T>,
) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(start.elapsed() < patience, "not within {patience:?}: {what}");
        std::thread::sleep(LOOK_INTERVAL);
    }
}

#[track_caller]
pub fn eventually_true(patience: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    eventually(patience, what, || condition().then_some(()));
}

/// Lets others run before the next look at something that was not there yet.
pub fn pause() {
    std::thread::sleep(LOOK_INTERVAL);
}

/// All random choices of a test come from one seed: that of `TORTURE_SEED`, or a fresh one; printed,
/// so that a run can be repeated.
pub fn printed_random(test: &str) -> SimRng {
    let fresh = u64::from(std::process::id()) << 20
        ^ std::time::UNIX_EPOCH.elapsed().map_or(0, |t| u64::from(t.subsec_micros()));
    let seed = setting("TORTURE_SEED", fresh);
    println!("{test}: TORTURE_SEED={seed}");
    SimRng::new(seed)
}

/// A process that is killed, if it still runs, when this is dropped.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    #[track_caller]
    pub fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).spawn().expect("the program starts"))
    }

    #[track_caller]
    pub fn role(role: &str, variables: &[(&str, &str)]) -> Self {
        Self::start(&mut role_command(role, variables))
    }

    pub fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.0)
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(self.pid(), signal).expect("a child can be signalled");
    }

    pub fn kill(mut self) {
        self.0.kill().expect("a child can be killed");
        self.0.wait().expect("a killed child ends");
    }

    pub fn is_running(&mut self) -> bool {
        self.0.try_wait().expect("a child can be waited for").is_none()
    }

    #[track_caller]
    pub fn end(&mut self, patience: Duration) -> ExitStatus {
        eventually(patience, "a child process ends", || self.0.try_wait().expect("a child"))
    }

    #[track_caller]
    pub fn succeeds(mut self) {
        let status = self.end(PATIENCE);
        assert!(status.success(), "a child process ended with {status}");
    }

    pub fn child(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The command that starts this test program again, to play a role: `module::role`.
pub fn role_command(role: &str, variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a test program"));
    let (module, role) = role.rsplit_once("::").map_or(("", role), |(at, role)| (at, role));
    let test = [module, ROLE_TEST].join("::");
    command.args(["--exact", test.trim_start_matches(':'), "--nocapture"]).env(ROLE_VARIABLE, role);
    command.envs(variables.iter().copied()).stdout(Stdio::null());
    command
}

/// Role of this process; `None` in the test program itself. A process with a role dies with its
/// parent.
pub fn role() -> Option<String> {
    let role = std::env::var(ROLE_VARIABLE).ok()?;
    die_with_parent();
    Some(role)
}

/// Lets this process be killed when the thread that has started it ends.
pub fn die_with_parent() {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .expect("a death signal can be set");
}

pub fn given(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| panic!("{variable} was not given"))
}

pub fn name(name: &str) -> Name {
    Name::new(name).expect("a name")
}

/// `process` unless `TORTURE_DURABILITY=power`: a killed process loses nothing either way.
pub fn durability() -> Durability {
    match std::env::var("TORTURE_DURABILITY").as_deref() {
        Ok("power") => Durability::Power,
        _ => Durability::Process,
    }
}

pub fn options() -> SpoolOptions {
    SpoolOptions { durability: durability(), ..SpoolOptions::default() }
}

/// A project's directory; removed when its owner is dropped.
#[derive(Debug)]
pub enum Home {
    Owned(TempDir),
    Lent(PathBuf),
}

impl Home {
    pub fn path(&self) -> &Path {
        match self {
            Self::Owned(directory) => directory.path(),
            Self::Lent(path) => path,
        }
    }
}

/// A project in its own directory: a queue with the mailboxes `dispatch` and `conductor`, its
/// state directory and its configuration.
#[derive(Debug)]
pub struct Bed {
    pub home: Home,
    staged: std::sync::atomic::AtomicU64,
}

impl Bed {
    pub fn new() -> Self {
        Self::with(&Settings::default(), "")
    }

    pub fn with(settings: &Settings, config: &str) -> Self {
        let bed = Self::in_directory(tempfile::tempdir().expect("a temporary directory"));
        bed.fill(settings, config);
        bed
    }

    /// In a directory that the caller removes.
    pub fn at(home: &Path) -> Self {
        let bed = Self::found(home);
        bed.fill(&Settings::default(), "");
        bed
    }

    /// An existing project, in a directory that the caller removes.
    pub fn found(home: &Path) -> Self {
        let home = Home::Lent(home.to_owned());
        Self { home, staged: std::sync::atomic::AtomicU64::new(0) }
    }

    fn in_directory(home: TempDir) -> Self {
        Self { home: Home::Owned(home), staged: std::sync::atomic::AtomicU64::new(0) }
    }

    /// The same project for another thread; the directory stays this one's.
    pub fn lend(&self) -> Self {
        let home = Home::Lent(self.home.path().to_owned());
        Self { home, staged: std::sync::atomic::AtomicU64::new(1 << 32) }
    }

    fn fill(&self, settings: &Settings, config: &str) {
        let spool = Spool::create(&self.queue(), options()).expect("a queue");
        for mailbox in ["dispatch", "conductor"] {
            spool.add_mailbox(&name(mailbox), settings).expect("a mailbox");
        }
        let word = if durability() == Durability::Power { "power" } else { "process" };
        let config = format!("durability: {word}\n{config}");
        fs::write(self.home.path().join("ensemble.yaml"), config).expect("a configuration");
        fs::create_dir(self.home.path().join("outside")).expect("a directory");
    }

    pub fn queue(&self) -> PathBuf {
        self.home.path().join("queue")
    }
    pub fn state(&self) -> PathBuf {
        self.home.path().join(".ensemble")
    }
    pub fn outside(&self) -> PathBuf {
        self.home.path().join("outside")
    }
    pub fn in_queue(&self, below: &str) -> PathBuf {
        self.queue().join(below)
    }
    pub fn spool(&self) -> Spool {
        Spool::open(&self.queue(), options()).expect("the queue")
    }

    /// A file outside the queue, in the same file system.
    pub fn stage(&self, content: impl AsRef<[u8]>) -> PathBuf {
        let number = self.staged.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = self.outside().join(format!("staged-{number}"));
        fs::write(&path, content).expect("a file");
        path
    }

    pub fn land(&self, below: &str, content: impl AsRef<[u8]>) {
        fs::rename(self.stage(content), self.in_queue(below)).expect("a file lands");
    }

    /// What was routed to a mailbox: each source file with the bodies of its messages, in any state, sorted. Not in
    /// the order in which they were made. The times of files do not show it, because two are often made in one step
    /// of the file system's clock.
    pub fn routed(&self, mailbox: &str) -> BTreeMap<String, Vec<String>> {
        let mut routed: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (_, envelope) in messages(&self.queue(), mailbox) {
            if let Some(source) = envelope.source {
                routed.entry(source).or_default().push(envelope.body);
            }
        }
        routed.values_mut().for_each(|bodies| bodies.sort());
        routed
    }

    /// The bodies that were routed to `dispatch` from one file, sorted.
    pub fn bodies(&self, source: &str) -> Vec<String> {
        self.routed("dispatch").remove(source).unwrap_or_default()
    }

    /// Waits until a file was routed `times` times, and gives the bodies, sorted.
    #[track_caller]
    pub fn routed_times(&self, source: &str, times: usize) -> Vec<String> {
        let what = format!("{source} is routed {times} times: {:?}", self.bodies(source));
        eventually(PATIENCE, &what, || Some(self.bodies(source)).filter(|b| b.len() >= times))
    }

    pub fn total(&self, mailbox: &str) -> u64 {
        let counts = self.spool().counts(&name(mailbox)).expect("the mailbox can be counted");
        counts.queued + counts.acked + counts.settled + counts.dead
    }

    pub fn records(&self, kind: &str) -> Vec<serde_json::Value> {
        let Ok(records) = ensemble_core::event_log::read_all(&self.state().join("logs")) else {
            return Vec::new();
        };
        records
            .filter(|r| r.kind.to_string() == kind)
            .map(|r| serde_json::Value::Object(r.data))
            .collect()
    }

    #[track_caller]
    pub fn assert_clean(&self) {
        let findings = self.spool().fsck(false).expect("the queue can be checked");
        assert!(findings.is_empty(), "{findings:#?}");
    }
}

/// The files of a mailbox that are messages, with what they say.
pub fn messages(queue: &Path, mailbox: &str) -> Vec<(PathBuf, Envelope)> {
    let mut found = Vec::new();
    for state in ["new", "front", "cur", "done", "dead"] {
        for path in files(&queue.join("mailbox").join(mailbox).join(state)) {
            if path.to_string_lossy().ends_with("@reason.yaml") {
                continue;
            }
            // It may move while the directory is read.
            let Ok(content) = fs::read(&path) else { continue };
            let envelope = Envelope::decode(&content, &path)
                .unwrap_or_else(|error| panic!("a torn message can be seen: {error}"));
            found.push((path, envelope));
        }
    }
    found
}

/// A directory in memory where that is possible, in which no name goes with its file.
pub fn in_memory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory")
}

pub fn files(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    entries.filter_map(|entry| entry.ok().map(|e| e.path())).collect()
}

#[derive(Debug)]
pub struct Mount(PathBuf);

impl Mount {
    /// Mounts a tmpfs; `None`, with the reason printed, if that is not permitted here.
    pub fn tmpfs(at: &Path, options: &str) -> Option<Self> {
        Self::with(at, &["-t", "tmpfs", "-o", options, "torture"])
    }

    pub fn ext4(at: &Path, image: &Path) -> Option<Self> {
        let file = fs::File::create(image).unwrap();
        file.set_len(32 << 20).unwrap();
        let made = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(image).status();
        let image = image.to_str().unwrap();
        made.is_ok_and(|made| made.success())
            .then(|| Self::with(at, &["-o", "loop,errors=remount-ro", image]))?
    }

    fn with(at: &Path, words: &[&str]) -> Option<Self> {
        match Command::new("mount").args(words).arg(at).output() {
            Ok(output) if output.status.success() => Some(Self(at.to_owned())),
            Ok(output) => {
                println!("skipped: no mount: {}", String::from_utf8_lossy(&output.stderr).trim());
                None
            }
            Err(error) => {
                println!("skipped: no `mount`: {error}");
                None
            }
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
