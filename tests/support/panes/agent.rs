//! A scripted agent in a pane of any place.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Instant;

use ensemble_core::env::Pane as _;
use ensemble_core::pane::{Deferral, NudgeOutcome};
use ensemble_tmux::provider::{AgentObserver, PASTE_BEGINS, PASTE_ENDS, Profiles, TypingPurpose};
use ensemble_tmux::terminal::BoundPane;
use ensemble_tmux::tmux::{Binding, PaneExamination, TmuxServer};

use crate::stage::PaneStage;
use crate::tmux_support::{LOOK_INTERVAL, PATIENCE, eventually, text_for};

/// The script that looks and behaves like Claude Code, in its own pane.
pub(crate) struct PlayedAgent<'a> {
    stage: &'a dyn PaneStage,
    pub(crate) binding: Binding,
    dir: PathBuf,
}

impl<'a> PlayedAgent<'a> {
    pub(crate) fn start(stage: &'a dyn PaneStage, state: &str) -> Self {
        let home = stage.directory();
        let bin = home.join("bin");
        fs::create_dir_all(&bin).expect("a directory");
        for name in ["bash", "claude"] {
            if !bin.join(name).exists() {
                symlink("/bin/sh", bin.join(name)).expect("a link");
            }
        }
        let dir = tempfile::tempdir_in(home).expect("a directory").keep();
        let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
        let mut scripts = above.map(|dir| dir.join("tests/fixtures/fake_agent.sh"));
        let script = scripts.find(|script| script.exists()).expect("the script");
        let command = format!(
            "exec '{}' '{}' claude {state} '{}'",
            bin.join("claude").display(),
            script.display(),
            dir.display()
        );
        let binding = stage.open_pane(&command);
        eventually("it runs", || dir.join("running").exists());
        Self { stage, binding, dir }
    }

    pub(crate) fn pane(&self) -> BoundPane {
        bound_pane(self.stage, &self.binding, "claude")
    }

    /// Waits until a look at the pane shows this.
    pub(crate) fn wait_for(&self, is_seen: impl Fn(&PaneExamination) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let seen = self.pane().examine(&[TypingPurpose::Nudge]).expect("a look");
            if is_seen(&seen) {
                return;
            }
            assert!(Instant::now() < deadline, "not seen: {seen:#?}");
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    pub(crate) fn refusal(&self) -> Deferral {
        match self.pane().nudge(&text_for("claude")).expect("an outcome") {
            NudgeOutcome::Refused { deferral } => deferral,
            other => panic!("not refused: {other:?}"),
        }
    }

    /// What came of the keys.
    pub(crate) fn events(&self) -> Vec<String> {
        let text = fs::read_to_string(self.dir.join("events")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    pub(crate) fn received(&self) -> String {
        let bytes = fs::read(self.dir.join("received")).unwrap_or_default();
        String::from_utf8(bytes)
            .expect("text")
            .replace(PASTE_BEGINS, "")
            .replace(PASTE_ENDS, "")
            .replace(text_for("claude").as_str(), " nudge ")
            .replace('\r', " Enter ")
    }
}

/// A pane as a process finds it that has never seen it.
pub(crate) fn bound_pane(stage: &dyn PaneStage, binding: &Binding, profile: &str) -> BoundPane {
    let profile = Profiles::embedded().expect("profiles").get(profile).expect("a profile");
    let (server, locks) = (TmuxServer::brief(&binding.socket), stage.directory().join("locks"));
    let observer = AgentObserver::new(profile);
    BoundPane::open(server, binding.clone(), observer, &locks).expect("a pane")
}

/// A script that appends each line it reads to a file, and the directory of its files.
pub(crate) fn reader_script(home: &Path) -> (PathBuf, String) {
    let dir = tempfile::tempdir_in(home).expect("a directory").keep();
    let script = dir.join("reader.sh");
    let text = "cd \"$(dirname \"$0\")\" || exit 1\n: > ready\n\
                while IFS= read -r line; do printf '%s\\n' \"$line\" >> received; done\n";
    fs::write(&script, text).expect("a script");
    (dir, format!("exec sh '{}'", script.display()))
}
