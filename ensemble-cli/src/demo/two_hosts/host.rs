//! A "host": a clone of the repository, with a queue, a watcher and its own tmux server.

use std::path::Path;
use std::process::{Child, Command};

use ensemble_app::failure::{Failure, Outcome};
use ensemble_core::Error;
use ensemble_core::event_log::{Follower, NullRecorder, types};
use ensemble_core::message::Name;
use ensemble_core::spool::Spool;
use ensemble_project::panes::{self, PaneEntry};
use ensemble_project::{Project, QUEUE_VARIABLE};
use ensemble_team::board::State;
use ensemble_tmux::tmux::TmuxServer;
use serde_json::Value;

use super::TASKS;
use crate::demo::repository::{self, git};
use crate::demo::stage::{io_failure, quoted, start_watcher, stop, write};

pub(super) struct DemoHost {
    pub(super) name: &'static str,
    pub(super) project: Project,
    server: TmuxServer,
    last_pane: Option<String>,
    watcher: Child,
}

impl DemoHost {
    /// `ports` lead to the servers of mail and of steps.
    pub(super) fn set(name: &'static str, demo: &Path, ports: (u16, Option<u16>)) -> Outcome<Self> {
        git(demo, &["clone", "-q", "team.git", name])?;
        let dir = demo.join(name);
        let mut config = format!(
            "durability: process\ntransport: nats://127.0.0.1:{}\nnats: {{team: demo}}\n\
             worktrees: {{remote: origin}}\n",
            ports.0
        );
        if let Some(port) = ports.1 {
            config +=
                &format!("steps: {{postgres: 'postgres://ensemble@127.0.0.1:{port}/postgres'}}\n");
        }
        write(&dir.join("ensemble.yaml"), &config)?;
        let agents = dir.join("agents");
        std::fs::create_dir(&agents).map_err(|e| io_failure("create directory", &agents, e))?;
        let project = Project::discover(Some(&dir.join("queue")))?;
        project.ensure_state()?;
        let options = project.spool_options(std::sync::Arc::new(NullRecorder));
        Spool::create(&project.queue, options)?;
        let watcher = start_watcher(&project)?;
        let server = TmuxServer::brief(dir.join("tmux.sock"));
        Ok(Self { name, project, server, last_pane: None, watcher })
    }

    /// A pane with an agent in it that gets mail.
    pub(super) fn agent(&mut self, agent: &str, script: &str, demo: &Path) -> Outcome {
        let file = self.project.root().join("agents").join(format!("{agent}.sh"));
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
        let pane = self.open(&command)?;
        let name = Name::new(agent).map_err(Error::from)?;
        let entry = PaneEntry::new(name.clone(), name, "shell", self.server.bind(&pane)?);
        Ok(panes::write(&self.project.panes(), &entry)?)
    }

    pub(super) fn supervise(&mut self, supervised: (&str, &str, &str)) -> Outcome {
        let agents = self.project.root().join("agents");
        let command = repository::supervisor(&agents, &self.project.queue, supervised)?;
        self.open(&command).map(drop)
    }

    fn open(&mut self, command: &str) -> Outcome<String> {
        let pane = match &self.last_pane {
            None => self.server.new_session("ensemble", command, 160, 60)?,
            Some(last) => self.server.split(last, command)?,
        };
        self.server.run(&["select-layout", "-t", "=ensemble:", "tiled"])?;
        self.last_pane = Some(pane.clone());
        Ok(pane)
    }

    /// Runs a verb on this host; its rows with `--json`.
    pub(super) fn verb(&self, line: &[&str]) -> Outcome<Vec<Value>> {
        let ensemble =
            std::env::current_exe().map_err(|e| io_failure("find", Path::new("ensemble"), e))?;
        let mut command = Command::new(ensemble);
        command
            .env(QUEUE_VARIABLE, &self.project.queue)
            .args(line)
            .current_dir(self.project.root());
        let ran = command.output().map_err(|e| io_failure("start", Path::new("ensemble"), e))?;
        if !ran.status.success() {
            let told = String::from_utf8_lossy(&ran.stderr);
            return Err(Failure::refused(format!("ensemble {}: {}", line.join(" "), told.trim())));
        }
        let text = String::from_utf8_lossy(&ran.stdout);
        Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }

    /// This host's copy of the blackboard.
    pub(super) fn board(&self) -> Outcome<State> {
        let options = self.project.board_options("ensemble", std::sync::Arc::new(NullRecorder));
        Ok(self.project.find_board(options, None)?.read()?)
    }

    /// How many lines its watcher has typed into panes.
    pub(super) fn nudges(&self) -> Outcome<u64> {
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

    /// Closes the terminals: supervisors take that as the request to leave.
    pub(super) fn close(&self) {
        if let Err(error) = self.server.kill_server() {
            ensemble_app::diagnostics::say(&format!("warning: {error}"));
        }
    }
}

impl Drop for DemoHost {
    fn drop(&mut self) {
        let _ = self.server.kill_server();
        stop(&mut self.watcher);
    }
}
