//! The project: a small disk, a repository, a queue, a blackboard; and beside it, on another disk, what the
//! test itself writes.

use std::process::Output;

use rustix::time::{ClockId, clock_gettime};

use crate::git::ISOLATED;
use crate::support::Mount;
use crate::wall_clock::WallClock;

use super::*;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_ensemble");
/// How long a received message, a claim or a step is held without a sign of life, in seconds.
pub const LEASE_SECONDS: u64 = 6;
/// Room for an hour, in MiB.
const DISK_MIB: u64 = 768;

const SCRIPTS: [(&str, &str); 8] = [
    ("common.sh", include_str!("common.sh")),
    ("worker.sh", include_str!("worker.sh")),
    ("conductor.sh", include_str!("conductor.sh")),
    ("steps.sh", include_str!("steps.sh")),
    ("box.sh", include_str!("box.sh")),
    ("planned.sh", include_str!("planned.sh")),
    ("agent.sh", include_str!("../supervisors/agent.sh")),
    ("mailbox.sh", include_str!("../../../examples/worker.sh")),
];

pub struct Stage {
    pub home: PathBuf,
    /// The test's own directory.
    pub own: PathBuf,
    /// The wall clock of all processes, if there is a C compiler.
    clock: Option<WallClock>,
    pub has_disk: bool,
    _mount: Option<Mount>,
    _directories: [tempfile::TempDir; 2],
}

impl Stage {
    pub fn new() -> Self {
        let directory = || tempfile::Builder::new().prefix("whole-").tempdir().unwrap();
        let mut directories = [directory(), directory()];
        directories[1].disable_cleanup(std::env::var_os("WHOLE_KEEP").is_some());
        let [home, own] = [&directories[0], &directories[1]].map(|d| d.path().to_owned());
        let mount = Mount::tmpfs(&home, &format!("size={DISK_MIB}m,mode=700"));
        let has_disk = mount.is_some();
        let mut stage =
            Self { home, own, clock: None, has_disk, _mount: mount, _directories: directories };
        stage.prepare();
        stage
    }

    fn prepare(&mut self) {
        for directory in ["journals", "locks", "working", "told"] {
            fs::create_dir(self.own.join(directory)).unwrap();
        }
        for (name, text) in SCRIPTS {
            fs::write(self.own.join(name), text).unwrap();
        }
        self.clock = WallClock::build(&self.own);
        fs::write(self.home.join("README"), "one line\n").unwrap();
        fs::write(self.home.join("ensemble.yaml"), self.config()).unwrap();
        for line in ["init -q -b main", "add README", "commit -q -m begin", "branch integration"] {
            git(&self.home, &line.split(' ').collect::<Vec<_>>());
        }
        fs::write(self.home.join(".git/info/exclude"), "/ensemble.yaml\n/ballast\n").unwrap();
        self.ok("init");
        self.ok("board init");
        let board = self.home.join(".ensemble/state.yaml");
        let text = fs::read_to_string(&board).unwrap();
        let short = format!("lease_duration: {LEASE_SECONDS}");
        fs::write(&board, text.replace("lease_duration: 300", &short)).unwrap();
        let boxes = "worker-1 worker-2 worker-3 worker-4 box-1 mcp-1 tara devon";
        for name in boxes.split(' ') {
            self.ok(&format!("mailbox add {name} --lease {LEASE_SECONDS}s --attempts-max 8"));
        }
    }

    fn config(&self) -> String {
        let own = self.own.display();
        let scripted = |script: &str| format!("{{command: 'exec bash {own}/{script}.sh'}}");
        format!(
            "durability: process\npoll_interval: 5\nteam: {{name: whole}}\n\
             readiness: {{wait: 8}}\nladder: {{phase: 4}}\n\
             alarms: {{to: conductor, untaken: 20}}\nagents:\n\
             \x20 conductor: {}\n  worker-1: {worker}\n  worker-2: {worker}\n\
             \x20 coder-1: {{role: coder, command: 'exec {} {}'}}\n",
            scripted("conductor"),
            PROGRAM,
            self.supervise("coder", "coder-1").join(" "),
            worker = scripted("worker"),
        )
    }

    pub fn supervise(&self, role: &str, id: &str) -> Vec<String> {
        let script = self.own.join("planned.sh");
        let line = format!(
            "agent supervise --role {role} --id {id} --poll 500ms --restart-delay 200ms --hand-over-delay 200ms \
             -- bash {} {role}",
            script.display()
        );
        line.split_whitespace().map(str::to_owned).collect()
    }

    /// Libraries and variables that every process of the project has, and nothing else.
    pub fn prepare_command(&self, command: &mut Command) {
        command
            .env_clear()
            .envs(ISOLATED)
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", &self.own)
            .env("TMPDIR", &self.own)
            .env("XDG_CONFIG_HOME", "/nonexistent")
            .env("HERE", &self.own)
            .env("E", PROGRAM)
            .env("ENSEMBLE", PROGRAM)
            .env("STAMPED", "1")
            .env("JOURNAL", self.own.join("journals/supervised"))
            .env("JOURNALS", self.own.join("journals"))
            .env("LOCKS", self.own.join("locks"))
            .env("STOP", self.own.join("stop"))
            .env("LEASE", LEASE_SECONDS.to_string())
            .current_dir(&self.home)
            .stdin(Stdio::null());
        if let Some(clock) = &self.clock {
            command.envs(clock.variables());
        }
    }

    pub fn command<S: AsRef<std::ffi::OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = Command::new(PROGRAM);
        self.prepare_command(command.args(arguments));
        command
    }

    pub fn run(&self, line: &str) -> Output {
        self.command(&line.split_whitespace().collect::<Vec<_>>()).output().unwrap()
    }

    #[track_caller]
    pub fn ok(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(output.status.success(), "ensemble {line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Where a process writes its complaints.
    pub fn told(&self, name: &str) -> File {
        let path = self.own.join("told").join(name);
        File::options().append(true).create(true).open(path).unwrap()
    }

    pub fn note(&self, at: f64, line: &str) {
        let path = self.own.join("journals/test");
        let mut file = File::options().append(true).create(true).open(path).unwrap();
        file.write_all(format!("{at:.2} {line}\n").as_bytes()).unwrap();
    }

    /// Sets the wall clock of all processes, by this many seconds from the machine's.
    pub fn set_clock(&self, seconds: i64) {
        if let Some(clock) = &self.clock {
            clock.set(seconds);
        }
    }

    /// Copies the project beside the journals if they are kept. Returns where to investigate a failure.
    pub fn keep(&self) -> String {
        if std::env::var_os("WHOLE_KEEP").is_none() {
            return "no directory that is kept (WHOLE_KEEP=1)".to_owned();
        }
        let copy = self.own.join("project");
        let copied = Command::new("cp").arg("-a").arg(&self.home).arg(&copy).status();
        assert!(copied.is_ok_and(|status| status.success()), "the project can be copied");
        self.own.display().to_string()
    }

    /// What every process of the project has in its environment.
    pub fn mark(&self) -> String {
        self.own.display().to_string()
    }

    pub fn journals(&self) -> PathBuf {
        self.own.join("journals")
    }

    pub fn in_queue(&self, below: impl AsRef<Path>) -> PathBuf {
        self.home.join("queue").join(below)
    }
}

/// Seconds since boot, which all processes share and no process sets.
pub fn now() -> f64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}
