//! The demo's stage: sets up and removes its directory, queue, watcher and panes.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ensemble_app::failure::{Failure, Outcome};
use ensemble_app::watcher_start::await_report;
use ensemble_core::Error;
use ensemble_core::event_log::NullRecorder;
use ensemble_core::message::{Name, shell_quoted};
use ensemble_core::spool::Spool;
use ensemble_project::panes::{self, PaneEntry};
use ensemble_project::{Project, QUEUE_VARIABLE};
use ensemble_tmux::tmux::TmuxServer;

use super::Arguments;

const WATCHES: &str = "ensemble: watching ";
const AGENTS: [(&str, &str, &str); 4] = [
    ("conductor", include_str!("conductor.sh"), ""),
    ("dispatch", include_str!("dispatch.sh"), ""),
    ("worker-1", include_str!("worker.sh"), "worker-1"),
    ("worker-2", include_str!("worker.sh"), "worker-2"),
];
const INSTRUCTION: &str = r#"type: start_workers
worker_count: 2
tasks:
  - {id: count-rust, instruction: count the lines, files: "*.rs"}
  - {id: count-docs, instruction: count the lines, files: "*.md"}
  - {id: count-data, instruction: count the lines, files: "*.y*ml"}
  - {id: count-shell, instruction: count the lines, files: "*.sh"}
...
"#;
const WATCHER_PATIENCE: Duration = Duration::from_secs(10);
/// The longest path of a socket, in bytes, less what tmux appends.
const SOCKET_BYTES_MAX: usize = 100;

pub(super) struct DemoStage {
    pub(super) project: Project,
    pub(super) spool: Spool,
    panes: DemoPanes,
    watcher: Child,
    dir: PathBuf,
}

/// The tmux server of a scenario, which ends with it.
pub(super) struct DemoPanes {
    server: TmuxServer,
    all: Vec<(&'static str, String)>,
    struck: bool,
}

impl DemoPanes {
    pub(super) fn new(dir: &Path) -> Self {
        let server = TmuxServer::brief(dir.join("tmux.sock"));
        Self { server, all: Vec::new(), struck: false }
    }

    pub(super) fn open(&mut self, agent: &'static str, command: &str) -> Outcome<String> {
        let pane = match self.all.last() {
            None => self.server.new_session("ensemble", command, 160, 48)?,
            Some((_, last)) => self.server.split(last, command)?,
        };
        self.all.push((agent, pane.clone()));
        Ok(pane)
    }

    /// Each agent, and what its pane shows.
    pub(super) fn screens(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.all.iter().map(|(agent, pane)| {
            let lines = self.server.run(&["capture-pane", "-p", "-t", pane]).unwrap_or_default();
            (*agent, lines.join("\n").trim_end().to_owned())
        })
    }

    /// Whether it was still there.
    pub(super) fn strike(&mut self) -> bool {
        if std::mem::replace(&mut self.struck, true) {
            return false;
        }
        if let Err(error) = self.server.kill_server() {
            ensemble_app::diagnostics::say(&format!("warning: {error}"));
        }
        true
    }
}

impl Drop for DemoPanes {
    fn drop(&mut self) {
        self.strike();
    }
}

impl DemoStage {
    /// Sets it up: queue, watcher, and a tmux server with a pane for each agent but Conductor,
    /// whose entry begins the play.
    pub(super) fn set(settings: &Arguments, dir: &Path) -> Outcome<Self> {
        let dir = dir.to_owned();
        let project = Project::discover(Some(&dir.join("queue")))?;
        project.ensure_state()?;
        let spool = Spool::create(&project.queue, project.spool_options(Arc::new(NullRecorder)))?;
        for (agent, _, _) in AGENTS {
            spool.add_mailbox(&Name::new(agent).map_err(Error::from)?, &Default::default())?;
        }
        write(&dir.join("instruction.yaml"), INSTRUCTION)?;
        let watcher = start_watcher(&project)?;
        let mut stage = Self { project, spool, panes: DemoPanes::new(&dir), watcher, dir };
        stage.open_panes(settings)?;
        Ok(stage)
    }

    fn open_panes(&mut self, settings: &Arguments) -> Outcome {
        let work = match &settings.work {
            Some(work) => work.clone(),
            None => std::env::current_dir().map_err(|e| io_failure("find", Path::new("."), e))?,
        };
        for (agent, script, argument) in AGENTS.into_iter().skip(1) {
            let command = self.command(agent, script, argument, &work)?;
            self.open_pane(agent, &command)?;
        }
        // The conductor's pane is ready, but waits for `begin` to start its script.
        let (agent, script, argument) = AGENTS[0];
        let command = self.command(agent, script, argument, &work)?;
        let gate = format!(
            "until [ -e '{0}/begin' ]; do sleep 0.05; done; exec {command}",
            self.dir.display()
        );
        self.open_pane(agent, &gate)
    }

    fn command(&self, agent: &str, script: &str, argument: &str, work: &Path) -> Outcome<String> {
        let file = self.dir.join(format!("{agent}.sh"));
        write(&file, script)?;
        let ensemble = own_program()?;
        let variables = [
            ("ENSEMBLE", ensemble.as_path()),
            ("ENSEMBLE_QUEUE", &self.project.queue),
            ("QUEUE", &self.project.queue),
            ("DEMO", &self.dir),
            ("WORK", work),
        ];
        let set = variables.map(|(name, value)| format!("{name}={}", shell_quoted(value)));
        Ok(format!("env {} sh {} {argument}", set.join(" "), shell_quoted(&file)))
    }

    fn open_pane(&mut self, agent: &'static str, command: &str) -> Outcome {
        let pane = self.panes.open(agent, command)?;
        self.panes.server.run(&["select-layout", "-t", "=ensemble:", "tiled"])?;
        let agent = Name::new(agent).map_err(Error::from)?;
        let binding = self.panes.server.bind(&pane)?;
        let entry = PaneEntry::new(agent.clone(), agent, "shell", binding);
        Ok(panes::write(&self.project.panes(), &entry)?)
    }

    pub(super) fn begin(&self) -> Outcome {
        write(&self.dir.join("begin"), "")
    }

    pub(super) fn attach(&self) -> Outcome<Child> {
        let mut tmux = Command::new("tmux");
        tmux.arg("-u")
            .arg("-S")
            .arg(self.panes.server.socket())
            .args(["attach-session", "-t", "=ensemble"])
            .env_remove("TMUX");
        tmux.spawn().map_err(|e| io_failure("start", Path::new("tmux"), e))
    }

    pub(super) fn check_alive(&mut self) -> Outcome {
        match self.watcher.try_wait() {
            Ok(Some(status)) => {
                Err(Failure::refused(format!("the demo's watcher has ended: {status}")))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn screens(&self) -> String {
        let screen = |(agent, shown)| format!("--- {agent}\n{shown}");
        self.panes.screens().map(screen).collect::<Vec<_>>().join("\n")
    }

    pub(super) fn summary(&self) -> Outcome<String> {
        let path = self.project.queue.join("reports/completion-summary.yaml");
        let text = std::fs::read_to_string(&path).map_err(|e| io_failure("read", &path, e))?;
        let line = text.lines().find_map(|line| line.strip_prefix("summary: ")).unwrap_or_default();
        Ok(line.trim_matches('"').to_owned())
    }

    /// Takes everything down; the queue and the log stay.
    pub(super) fn strike(&mut self) {
        if self.panes.strike() {
            stop(&mut self.watcher);
        }
    }
}

impl Drop for DemoStage {
    fn drop(&mut self) {
        self.strike();
    }
}

pub(super) fn wait_for_viewer(mut viewer: Child, interrupted: &AtomicBool) {
    while matches!(viewer.try_wait(), Ok(None)) && !interrupted.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(50));
    }
}

pub(super) fn make_dir(wanted: Option<&Path>) -> Outcome<PathBuf> {
    let dir = match wanted {
        Some(dir) => {
            let made = std::fs::DirBuilder::new().mode(0o700).create(dir);
            made.map_err(|e| io_failure("create directory", dir, e))?;
            dir.canonicalize().map_err(|e| io_failure("find", dir, e))?
        }
        None => {
            let made = tempfile::Builder::new().prefix("ensemble-demo-").tempdir();
            made.map_err(|e| io_failure("create directory", &std::env::temp_dir(), e))?.keep()
        }
    };
    if dir.as_os_str().len() > SOCKET_BYTES_MAX {
        let text = format!("{} is too long a path for a socket", dir.display());
        return Err(Failure::refused(text).with_hint("choose a shorter one with `--dir`"));
    }
    Ok(dir)
}

/// Starts the watcher as its own process and waits until it says that it watches.
fn start_watcher(project: &Project) -> Outcome<Child> {
    let mut command = Command::new(own_program()?);
    command.env(QUEUE_VARIABLE, &project.queue).arg("watch");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut watcher =
        command.spawn().map_err(|e| io_failure("start", Path::new("ensemble admin watch"), e))?;
    let mut said = String::new();
    if let Some(stderr) = watcher.stderr.take() {
        let mut stderr = BufReader::new(stderr);
        // Warnings come before it.
        while !said.contains(WATCHES) && stderr.read_line(&mut said).is_ok_and(|bytes| bytes > 0) {}
        // Later output must not fill the pipe.
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
    }
    if said.contains(WATCHES) {
        await_report(project);
        return Ok(watcher);
    }
    stop(&mut watcher);
    Err(Failure::refused(format!("the demo's watcher did not start: {}", said.trim())))
}

fn stop(process: &mut Child) {
    let pid = i32::try_from(process.id()).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
    let start = Instant::now();
    while start.elapsed() < WATCHER_PATIENCE {
        match process.try_wait() {
            Ok(None) => std::thread::sleep(Duration::from_millis(5)),
            _ => return,
        }
    }
    let _ = process.kill();
    let _ = process.wait();
}

pub(super) fn own_program() -> Outcome<PathBuf> {
    std::env::current_exe().map_err(|e| io_failure("find", Path::new("ensemble"), e))
}

pub(super) fn write(path: &Path, content: &str) -> Outcome {
    std::fs::write(path, content).map_err(|e| io_failure("write", path, e))
}

pub(super) fn io_failure(operation: &'static str, path: &Path, source: std::io::Error) -> Failure {
    Error::Io { operation, path: path.to_owned(), source }.into()
}
