//! A host: its directory with a repository, its watcher, and the verbs that run on it.

use std::io::Read as _;
use std::process::{Child, Command};

use ensemble_core::durable::FileLock;
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_project::Project;
use ensemble_team::roster::{Member, Roster};

use crate::git::ISOLATED;
use crate::support::{eventually_true, name};

use super::*;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_ensemble");
/// How long a received message or a claim is held without a sign of life, in seconds.
pub const LEASE_SECONDS: u64 = 6;
/// How long a command waits for the servers in all, in seconds.
const PATIENCE_SECONDS: u64 = 4;
/// Longer than any run may need: no message becomes a dead letter because its receivers were killed.
const ATTEMPTS_MAX: u64 = 100_000;
/// Longer than any task may wait for its worker: a ladder that ends would give the attempt up.
const PHASE_SECONDS: u64 = 600;
/// How long an instruction is held that Dispatch has taken and not begun before it was killed.
const INSTRUCTION_LEASE_SECONDS: u64 = 120;
pub const MAILBOXES: [&str; 2] = ["m0", "m1"];

/// Others have the place, or the servers do not answer.
pub const BUSY: i32 = 75;

#[derive(Clone, Debug)]
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// The first line that was printed, if it is such an object.
    pub fn row<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_str(self.stdout.lines().next()?).ok()
    }
}

pub struct Host {
    pub name: &'static str,
    pub project: PathBuf,
    watcher: Mutex<Option<Process>>,
    /// Verbs that run now and may be killed.
    verbs: Mutex<Vec<u32>>,
    _home: tempfile::TempDir,
}

impl Host {
    /// With a running watcher. The first host makes the mailboxes and the blackboard.
    pub fn new(name: &'static str, net: &Net, at: usize) -> Self {
        let home = tempfile::Builder::new().prefix("hosts-").tempdir().unwrap();
        let project = home.path().join(name);
        std::fs::create_dir_all(&project).unwrap();
        let config = format!(
            "durability: process\npoll_interval: 1\ntransport: {}\n\
             nats: {{team: hosts, replicas: 3, patience: {PATIENCE_SECONDS}}}\n\
             identity: {{outsiders: allow}}\n\
             readiness: {{wait: 5, retry: 1}}\n\
             ladder: {{phase: {PHASE_SECONDS}}}\n\
             steps: {{postgres: '{}', patience: {PATIENCE_SECONDS}}}\n",
            net.urls(at),
            net.steps(at)
        );
        std::fs::write(project.join("ensemble.yaml"), config).unwrap();
        std::fs::write(project.join("README"), "one line\n").unwrap();
        for line in ["init -q -b main", "add README", "commit -q -m begin"] {
            git(&project, &line.split(' ').collect::<Vec<_>>());
        }
        git(&project, &["branch", "integration"]);
        std::fs::write(project.join(".git/info/exclude"), "/ensemble.yaml\n").unwrap();
        let (watcher, verbs) = (Mutex::default(), Mutex::default());
        let host = Self { name, project, watcher, verbs, _home: home };
        host.ok("init");
        if at == 0 {
            host.furnish();
        }
        host.start_watcher();
        host
    }

    fn furnish(&self) {
        let add = |mailbox: &str, lease: u64| {
            self.ok(&format!(
                "mailbox add {mailbox} --lease {lease}s --attempts-max {ATTEMPTS_MAX}"
            ));
        };
        let workers = dispatch::WORKERS.iter().map(|worker| worker.1);
        let leavers = departures::LEAVERS.iter().map(|leaver| leaver.name);
        for mailbox in MAILBOXES.into_iter().chain([POOL]).chain(workers).chain(leavers) {
            add(mailbox, LEASE_SECONDS);
        }
        add(dispatch::DISPATCH, INSTRUCTION_LEASE_SECONDS);
        let callers = departures::LEAVERS.iter().map(|leaver| leaver.caller);
        for mailbox in ["lead", "planner", ORCHESTRATOR].into_iter().chain(callers) {
            self.ok(&format!("mailbox add {mailbox}"));
        }
        self.ok("board init");
        let short = format!("sed -i s/lease_duration:.*/lease_duration:\\ {LEASE_SECONDS}/");
        let edited = self.command(&["board", "edit", "--editor", &short]).output().unwrap();
        assert!(edited.status.success(), "{edited:?}");
    }

    pub fn command<S: AsRef<std::ffi::OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", PROGRAM]).args(arguments);
        command
            .env_clear()
            .envs(ISOLATED)
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.own())
            .env("TMPDIR", self.own())
            .env("ENSEMBLE", PROGRAM)
            .current_dir(&self.project)
            .stdin(Stdio::null());
        command
    }

    /// Where the test has its own files.
    pub fn own(&self) -> &Path {
        self._home.path()
    }

    /// Runs a command that nothing kills, and repeats it while the servers do not answer.
    #[track_caller]
    pub fn ok(&self, line: &str) -> String {
        let line: Vec<&str> = line.split_whitespace().collect();
        let mut output = None;
        eventually_true(PATIENCE, "the servers answer", || {
            let ended = output.insert(self.command(&line).output().unwrap());
            ended.status.code() != Some(BUSY)
        });
        let output = output.expect("it has run");
        assert!(output.status.success(), "{}: ensemble {line:?}: {output:?}", self.name);
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn drained(&self, mailbox: &str) -> Vec<Value> {
        let mut all = Vec::new();
        loop {
            let ran = self.verb(&["recv", "--as", mailbox, "--json"]);
            match ran.as_ref().map(|ran| ran.code) {
                Some(0) => {}
                Some(BUSY) => continue,
                _ => return all,
            }
            all.push(serde_json::from_str::<Value>(&ran.unwrap().stdout).unwrap());
        }
    }

    /// Runs a verb; `None` if it was killed.
    pub fn verb(&self, arguments: &[&str]) -> Option<Ran> {
        let mut command = self.command(arguments);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let pid = child.id();
        self.running().push(pid);
        let (stdout, stderr) = outputs(&mut child);
        // It has ended. It is reaped once no killer can choose its number, which another process may have then.
        self.running().retain(|other| *other != pid);
        let code = child.wait().expect("a child can be waited for").code()?;
        Some(Ran { code, stdout, stderr })
    }

    fn running(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        self.verbs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn kill_verb(&self, chosen: u64) -> bool {
        let running = self.running();
        let Some(count) = u64::try_from(running.len()).ok().filter(|count| *count > 0) else {
            return false;
        };
        let pid = running[usize::try_from(chosen % count).unwrap()];
        signal(pid, Signal::KILL)
    }

    fn start_watcher(&self) {
        let told = File::options().append(true).create(true).open(self.own().join("watcher"));
        let mut command = self.command(&["admin", "watch"]);
        let process = Process::start(command.stdout(Stdio::null()).stderr(told.unwrap()));
        let pid = u32::try_from(process.pid().as_raw_nonzero().get()).unwrap();
        *self.watcher.lock().unwrap() = Some(process);
        let lock = self.project.join(".ensemble/watch.lock");
        eventually_true(PATIENCE, "the watcher watches", || FileLock::holder(&lock) == Some(pid));
    }

    pub fn replace_watcher(&self) {
        if let Some(watcher) = self.watcher.lock().unwrap().take() {
            watcher.kill();
        }
        self.start_watcher();
    }

    #[track_caller]
    pub fn check_watcher(&self) {
        let mut watcher = self.watcher.lock().unwrap();
        let is_running = watcher.as_mut().is_some_and(Process::is_running);
        let told = std::fs::read_to_string(self.own().join("watcher")).unwrap_or_default();
        assert!(is_running, "the watcher of {} has ended by itself:\n{told}", self.name);
    }

    /// Puts an agent without a pane into the roster of this host, each time as its next generation.
    pub fn enlist(&self, agent: &str, role: &str) {
        let next = |before: Option<Member>| {
            let mut member = Member::new(name(agent), name(role), "shell", SystemClock.wall());
            member.generation = before.map_or(1, |before| before.generation + 1);
            Ok(Some(member))
        };
        self.roster().change(&name(agent), next).unwrap();
    }

    pub fn member(&self, agent: &str) -> Option<Member> {
        self.roster().get(&name(agent)).unwrap()
    }

    fn roster(&self) -> Roster {
        Roster::open(&self.project.join(".ensemble"))
    }

    /// Messages that wait here for the servers, and those that the servers can never accept.
    pub fn outbox(&self) -> (u64, u64) {
        let project = Project::discover(Some(&self.project.join("queue"))).unwrap();
        let outbox = project.open_outbox().unwrap();
        (outbox.waiting().unwrap(), outbox.dead().unwrap())
    }
}

fn outputs(child: &mut Child) -> (String, String) {
    let mut stderr = child.stderr.take().unwrap();
    let complaint = std::thread::spawn(move || {
        let mut text = String::new();
        let _ = stderr.read_to_string(&mut text);
        text
    });
    let mut text = String::new();
    let _ = child.stdout.take().unwrap().read_to_string(&mut text);
    (text, complaint.join().unwrap_or_default())
}
