//! `ensemble demo --scenario two-hosts`: a team on two "hosts" over a real NATS server.
//!
//! ```text
//! host-a: dispatch, watcher, tmux server          host-b: worker-1, worker-2, watcher, tmux server
//!         └── tasks ──> nats-server (killed and started again in the middle) ──> workers
//!                       dispatch <── reports <───────────────────────────────────┘
//! ```
//!
//! The hosts share nothing but the server: each has a directory, a queue, a watcher and a tmux server
//! of its own.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ensemble_core::Error;
use ensemble_core::event_log::{Follower, NullRecorder, types};
use ensemble_core::message::Name;
use ensemble_core::spool::Spool;
use ensemble_tmux::tmux::Server;
use ensemble_watch::panes::{self, PaneEntry};
use ensemble_watch::project::Project;
use serde_json::json;

use super::Settings;
use super::stage::{io_failure, quoted, start_watcher, stop, write};
use crate::context::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{GOOD, STRONG};

/// How many tasks go to the other host.
const TASKS: usize = 8;
/// After so many reports the server is killed.
const KILL_AFTER: usize = 3;
/// Between two looks at what has come.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// How long the server may take to answer.
const SERVER_PATIENCE: Duration = Duration::from_secs(60);

/// The server, a process of its own.
struct Hub {
    port: u16,
    home: PathBuf,
    process: Child,
}

impl Hub {
    fn start(home: PathBuf) -> Outcome<Self> {
        std::fs::create_dir(&home).map_err(|e| io_failure("create directory", &home, e))?;
        let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let port = port.map_err(|e| io_failure("listen on", Path::new("127.0.0.1"), e))?.port();
        let process = Self::run(&home, port)?;
        Ok(Self { port, home, process })
    }

    fn run(home: &Path, port: u16) -> Outcome<Child> {
        // Debian installs it in a directory that is missing in many a PATH.
        let in_sbin = Path::new("/usr/sbin/nats-server");
        let program = if in_sbin.exists() { in_sbin } else { Path::new("nats-server") };
        let mut command = Command::new(program);
        command.args(["-a", "127.0.0.1", "-p", &port.to_string(), "-js", "-sd"]).arg(home);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = command.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Failure::from(Error::MissingProgram {
                program: "nats-server",
                remedy: "for instance `apt-get install nats-server`",
            }),
            _ => io_failure("start", Path::new("nats-server"), error),
        })?;
        let start = Instant::now();
        while !answers(port) {
            if start.elapsed() > SERVER_PATIENCE {
                stop(&mut process);
                return Err(Failure::refused("the demo's nats-server does not answer"));
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        Ok(process)
    }

    /// SIGKILL, and up again with what it had on disk.
    fn crash(&mut self) -> Outcome {
        let _ = self.process.kill();
        let _ = self.process.wait();
        self.process = Self::run(&self.home, self.port)?;
        Ok(())
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        stop(&mut self.process);
    }
}

fn answers(port: u16) -> bool {
    let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let mut line = String::new();
    let patience = stream.set_read_timeout(Some(Duration::from_secs(1)));
    patience.is_ok()
        && BufReader::new(stream).read_line(&mut line).is_ok()
        && line.starts_with("INFO ")
}

/// A "host": a project, its watcher and its tmux server.
struct Host {
    name: &'static str,
    project: Project,
    server: Server,
    watcher: Child,
}

impl Host {
    fn set(name: &'static str, dir: &Path, port: u16) -> Outcome<Self> {
        std::fs::create_dir(dir).map_err(|e| io_failure("create directory", dir, e))?;
        let config = format!(
            "durability: process\ntransport: nats://127.0.0.1:{port}\nnats: {{team: demo}}\n"
        );
        write(&dir.join("ensemble.yaml"), &config)?;
        let project = Project::discover(Some(&dir.join("queue")))?;
        project.ensure_state()?;
        let options = project.spool_options(std::sync::Arc::new(NullRecorder));
        Spool::create(&project.queue, options)?;
        let watcher = start_watcher(&project)?;
        Ok(Self { name, project, server: Server::new(dir.join("tmux.sock")), watcher })
    }

    /// A pane with an agent in it.
    fn agent(
        &self,
        agent: &str,
        script: &str,
        demo: &Path,
        before: Option<&str>,
    ) -> Outcome<String> {
        let file = self.project.root().join(format!("{agent}.sh"));
        write(&file, script)?;
        let ensemble =
            std::env::current_exe().map_err(|e| io_failure("find", Path::new("ensemble"), e))?;
        let command = format!(
            "env ENSEMBLE={} ENSEMBLE_QUEUE={} DEMO={} TASKS={TASKS} sh {} {agent}",
            quoted(&ensemble),
            quoted(&self.project.queue),
            quoted(demo),
            quoted(&file),
        );
        let pane = match before {
            None => self.server.new_session("ensemble", &command, 120, 40)?,
            Some(last) => self.server.split(last, &command)?,
        };
        let name = Name::new(agent).map_err(Error::from)?;
        let entry = PaneEntry {
            agent: name.clone(),
            mailbox: name,
            provider: "shell".to_owned(),
            binding: self.server.bind(&pane)?,
        };
        panes::write(&self.project.panes(), &entry)?;
        Ok(pane)
    }

    /// How many lines its watcher has typed into panes.
    fn nudges(&self) -> Outcome<u64> {
        let mut nudges = 0;
        let mut follower = Follower::from_start(&self.project.logs()).only([types::NUDGE_SENT]);
        loop {
            let records = follower.poll()?;
            if records.is_empty() {
                return Ok(nudges);
            }
            nudges += records.len() as u64;
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.server.kill_server();
        stop(&mut self.watcher);
    }
}

/// Runs it.
pub(super) fn run(context: &Context, settings: &Settings, dir: &Path) -> Outcome {
    let interrupted = super::interruption()?;
    let mut hub = Hub::start(dir.join("server"))?;
    let tell = |line: String| match context.out.is_json() {
        true => Ok(()),
        false => context.out.line(line).and_then(|()| context.out.flush()),
    };
    tell(context.out.paint(STRONG, format!("two hosts and a server in {}", dir.display())))?;
    let near = Host::set("host-a", &dir.join("host-a"), hub.port)?;
    let far = Host::set("host-b", &dir.join("host-b"), hub.port)?;
    add_mailboxes(&near)?;
    let worker = include_str!("far_worker.sh");
    let first = far.agent("worker-1", worker, dir, None)?;
    far.agent("worker-2", worker, dir, Some(&first))?;
    near.agent("dispatch", include_str!("far_dispatch.sh"), dir, None)?;
    tell(format!("{TASKS} tasks go from {} to {}", near.name, far.name))?;
    let start = Instant::now();
    let mut killed_at = None;
    let reports = loop {
        let reports = reports(dir);
        if reports.len() >= KILL_AFTER && killed_at.is_none() {
            killed_at = Some(reports.len());
            hub.crash()?;
            tell(format!(
                "after {} reports the server was killed and started again",
                reports.len()
            ))?;
        }
        if reports.len() >= TASKS {
            break reports;
        }
        if start.elapsed() > settings.timeout || interrupted.load(Ordering::Relaxed) {
            let text =
                format!("the demo did not finish: {} of {TASKS} reports came", reports.len());
            return Err(Failure::new(Exit::Nothing, text));
        }
        std::thread::sleep(LOOK_INTERVAL);
    };
    let (near_nudges, far_nudges) = (near.nudges()?, far.nudges()?);
    drop((near, far));
    let mut times: BTreeMap<String, u64> = BTreeMap::new();
    for id in reports {
        *times.entry(id).or_default() += 1;
    }
    let doubled = times.values().filter(|n| **n > 1).count();
    if context.out.is_json() {
        context.out.object(&json!({
            "tasks": TASKS, "reports": times.len(), "doubled": doubled, "server_killed_after": killed_at,
            "nudges_on_host_a": near_nudges, "nudges_on_host_b": far_nudges,
        }))?;
    }
    if times.len() != TASKS || doubled > 0 {
        let text = format!("{} different reports came, {doubled} of them twice", times.len());
        return Err(Failure::new(Exit::Corrupt, text));
    }
    tell(format!(
        "{} all {TASKS} reports came, each once; nudges typed: {near_nudges} on host-a, {far_nudges} on host-b",
        context.out.paint(GOOD, "done:")
    ))
}

fn add_mailboxes(host: &Host) -> Outcome {
    let options = host.project.nats_options()?;
    let missing = || Failure::refused("the demo has no servers");
    let queue = ensemble_nats::NatsTransport::connect(&options.ok_or_else(missing)?)?;
    for agent in ["dispatch", "worker-1", "worker-2"] {
        match queue.add_mailbox(&Name::new(agent).map_err(Error::from)?, &Default::default()) {
            Ok(()) | Err(Error::MailboxExists { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The reports that dispatch has settled so far; a line that is being written does not count.
fn reports(dir: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(dir.join("reports")).unwrap_or_default();
    text.split_inclusive('\n').filter(|l| l.ends_with('\n')).map(|l| l.trim().to_owned()).collect()
}
