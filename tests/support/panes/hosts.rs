//! Panes of tmux, and our terminals, whose screens are panes of tmux here.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use ensemble_tmux::provider::{AgentObserver, Profiles};
use ensemble_tmux::terminal::{PseudoTerminal, TerminalDoor, TerminalSnapshot};
use ensemble_tmux::tmux::{Binding, TmuxServer};

use crate::stage::PaneStage;
use crate::tmux_support::TestServer;

pub(crate) struct TmuxStage(pub(crate) TestServer);

impl TmuxStage {
    pub(crate) fn start() -> Self {
        Self(TestServer::start("exec cat"))
    }

    pub(crate) fn open_window(&self, command: &str) -> String {
        let words = ["new-window", "-d", "-P", "-F", "#{pane_id}", command];
        self.0.server.run(&words).expect("a window").remove(0)
    }

    pub(crate) fn type_into(&self, id: &str, keys: &str) {
        self.0.server.run(&["send-keys", "-t", id, "-l", "--", keys]).expect("keys");
    }

    pub(crate) fn close(&self, id: &str) {
        self.0.server.run(&["kill-pane", "-t", id]).expect("closed");
    }
}

impl PaneStage for TmuxStage {
    fn directory(&self) -> &Path {
        self.0.dir.path()
    }
    fn open_pane(&self, command: &str) -> Binding {
        self.0.server.bind(&self.open_window(command)).expect("a binding")
    }
    fn type_keys(&self, binding: &Binding, keys: &str) {
        self.type_into(&binding.id, keys);
    }
    fn close_pane(&self, binding: &Binding) {
        self.close(&binding.id);
    }
}

/// A wrapper's end of the terminal: a pane of tmux in place of a pseudo-terminal.
pub(crate) struct PaneScreen {
    pub(crate) server: TmuxServer,
    pub(crate) id: String,
}

impl PaneScreen {
    pub(crate) fn capture(&self) -> Option<Vec<String>> {
        self.server.run(&["capture-pane", "-p", "-t", &self.id]).ok()
    }

    pub(crate) fn write_bytes(&self, bytes: &[u8]) {
        let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut words = vec!["send-keys", "-t", &self.id, "-H"];
        words.extend(hex.iter().map(String::as_str));
        self.server.run(&words).expect("keys");
    }
}

impl PseudoTerminal for PaneScreen {
    fn shown(&self) -> TerminalSnapshot {
        let place = ["display-message", "-p", "-t", &self.id, "#{cursor_x} #{cursor_y}"];
        let place = self.server.run(&place).unwrap_or_default();
        let numbers = place.first().and_then(|line| line.split_once(' '));
        let cursor = numbers.and_then(|(x, y)| Some((x.parse().ok()?, y.parse().ok()?)));
        let mut shown = TerminalSnapshot::default();
        match self.capture().zip(cursor) {
            Some((screen, cursor)) => {
                shown.screen = screen.iter().map(|line| line.trim_end().to_owned()).collect();
                shown.cursor = cursor;
            }
            None => shown.ended = Some(None),
        }
        shown
    }
    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        self.write_bytes(bytes);
        Ok(())
    }
    fn wait_for_change(&self, _: u64, _: Instant) {
        thread::yield_now();
    }
}

pub(crate) struct TerminalStage(TmuxStage);

impl TerminalStage {
    pub(crate) fn start() -> Self {
        Self(TmuxStage::start())
    }

    fn pane_of(&self, binding: &Binding) -> String {
        let panes = self.0.0.server.panes().expect("panes");
        panes.into_iter().find(|pane| pane.pid == binding.pid).expect("a pane").id
    }
}

impl PaneStage for TerminalStage {
    fn directory(&self) -> &Path {
        self.0.directory()
    }
    fn open_pane(&self, command: &str) -> Binding {
        let id = self.0.open_window(command);
        let panes = self.0.0.server.panes().expect("panes");
        let pid = panes.iter().find(|pane| pane.id == id).expect("a pane").pid;
        let socket = self.directory().join(format!("terminal-{pid}"));
        let binding = Binding::of_terminal(socket.clone(), pid);
        let door = TerminalDoor::open(&socket).expect("a door");
        let profile = Profiles::embedded().expect("profiles");
        let name = if command.contains("claude") { "claude" } else { "shell" };
        let observer = AgentObserver::new(Arc::clone(&profile.get(name).expect("a profile")));
        let (screen, bound) = (PaneScreen { server: self.0.0.server.clone(), id }, binding.clone());
        // It answers until the test program ends.
        thread::spawn(move || door.serve(screen, &bound, observer));
        binding
    }
    fn type_keys(&self, binding: &Binding, keys: &str) {
        self.0.type_into(&self.pane_of(binding), keys);
    }
    fn close_pane(&self, binding: &Binding) {
        self.0.close(&self.pane_of(binding));
    }
}
