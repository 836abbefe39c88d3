//! Panes of a zellij session to which a person is attached, in a pane of tmux.

use std::path::Path;
use std::process::Command;

use ensemble_tmux::terminal::hosted::bind_address;
use ensemble_tmux::tmux::Binding;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::stage::PaneStage;
use crate::tmux_support::{LOOK_INTERVAL, PATIENCE, TestServer, eventually};

/// Without questions and tips of a first start.
const CONFIG: &str = "show_startup_tips false\nshow_release_notes false\npane_frames false\n\
                      default_shell \"sh\"\nsession_serialization false\n";

pub(crate) struct ZellijStage {
    session: String,
    dir: TempDir,
    person: TestServer,
}

impl ZellijStage {
    /// `None`, with the reason printed, where zellij is not installed.
    pub(crate) fn start() -> Option<Self> {
        if let Err(error) = Command::new("zellij").arg("--version").output() {
            println!("skipped: no zellij on PATH: {error}");
            return None;
        }
        // A socket's path is short.
        let dir = tempfile::tempdir_in("/tmp").expect("a directory");
        std::fs::write(dir.path().join("config.kdl"), CONFIG).expect("a file");
        let session = format!("suite-{}", std::process::id());
        let variables = variables(dir.path());
        let words: Vec<String> = variables.iter().map(|(k, v)| format!("{k}='{v}'")).collect();
        let attach = format!("exec env {} zellij attach --create {session}", words.join(" "));
        let stage = Self { session, dir, person: TestServer::start(&attach) };
        // A session that is asked before its first client has come may never begin.
        let draws = || stage.person.screen("%0").iter().any(|line| line.contains("Tab #1"));
        eventually("the session is drawn", draws);
        Some(stage)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut zellij = Command::new("zellij");
        zellij.args(words).envs(variables(self.dir.path()));
        for variable in ["ZELLIJ", "ZELLIJ_SESSION_NAME", "ZELLIJ_PANE_ID"] {
            zellij.env_remove(variable);
        }
        zellij
    }

    fn act(&self, words: &[&str]) -> String {
        let words = [&["--session", &self.session, "action"], words].concat();
        let output = self.command(&words).output().expect("zellij runs");
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// The panes, unless the session is too busy to answer.
    fn listed(&self) -> Option<Vec<u8>> {
        let words = ["--session", &self.session, "action", "list-panes", "--json", "--all"];
        self.command(&words).output().ok().filter(|it| it.status.success()).map(|it| it.stdout)
    }

    fn pane_of_tab(&self, tab: &str) -> Option<u64> {
        let panes: Value = self.listed().and_then(|listed| serde_json::from_slice(&listed).ok())?;
        let number: Option<u64> = tab.parse().ok();
        let is_it = |pane: &&Value| {
            pane["tab_id"].as_u64() == number && pane["is_plugin"] == Value::Bool(false)
        };
        panes.as_array()?.iter().find(is_it)?["id"].as_u64()
    }
}

/// Everything that zellij reads and writes is in our directory.
fn variables(dir: &Path) -> Vec<(&'static str, String)> {
    let dir = dir.display();
    let homes = ["HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR"];
    let mut all: Vec<_> = homes.map(|name| (name, format!("{dir}/{name}"))).into();
    all.push(("ZELLIJ_SOCKET_DIR", format!("{dir}/z")));
    all.push(("ZELLIJ_CONFIG_FILE", format!("{dir}/config.kdl")));
    all.push(("TERM", "xterm-256color".to_owned()));
    all
}

fn target(binding: &Binding) -> String {
    let (_, pane) = binding.id.rsplit_once('/').expect("an address");
    format!("terminal_{pane}")
}

impl PaneStage for ZellijStage {
    fn directory(&self) -> &Path {
        self.dir.path()
    }
    fn open_pane(&self, command: &str) -> Binding {
        let tab = self.act(&["new-tab", "--close-on-exit", "--", "sh", "-c", command]);
        let deadline = std::time::Instant::now() + PATIENCE;
        loop {
            let address =
                self.pane_of_tab(&tab).map(|pane| format!("zellij:{}/{pane}", self.session));
            let address = address.map(|it| it.parse().expect("an address"));
            let found = address.map(|address| bind_address(&address, &|_| None));
            if let Some(Ok(binding)) = found {
                return binding;
            }
            assert!(std::time::Instant::now() < deadline, "{tab}: {found:?}");
            std::thread::sleep(LOOK_INTERVAL);
        }
    }
    /// The tab that was opened last has the focus of the person's client.
    fn type_keys(&self, _: &Binding, keys: &str) {
        self.person.human(&["-l", "--", keys]);
    }
    fn close_pane(&self, binding: &Binding) {
        self.act(&["close-pane", "--pane-id", &target(binding)]);
    }
}

impl Drop for ZellijStage {
    fn drop(&mut self) {
        let _ = self.command(&["kill-session", &self.session]).output();
        // Its server is the one whose socket is in our directory.
        let ours = self.dir.path().as_os_str().as_encoded_bytes().to_vec();
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let is_ours = line.windows(ours.len()).any(|part| part == ours);
            let is_server = line.windows(8).any(|part| part == b"--server");
            let pid = entry.file_name().to_str().and_then(|name| Pid::from_raw(name.parse().ok()?));
            if let Some(pid) = pid.filter(|_| is_ours && is_server) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}
