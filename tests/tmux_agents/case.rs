//! One pane with a scripted agent in it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Instant;

use ensemble_core::message::Name;
use ensemble_core::pane::{Deferral, NudgeOutcome, NudgeText};
use ensemble_core::provider::{AgentState, Diagnosis, Profiles, nudge_text};
use ensemble_core::tmux::{TextOutcome, TmuxPane};

use crate::tmux_support::{PATIENCE, TestServer, eventually};

/// A provider and the states its scripted program can show.
pub(crate) struct Provider {
    /// The profile.
    pub(crate) name: &'static str,
    /// What its program is called, as tmux sees it.
    pub(crate) program: &'static str,
    pub(crate) states: &'static [(&'static str, AgentState)],
}

/// A private tmux server and what the scripted programs need.
pub(crate) struct Stage {
    pub(crate) tmux: TestServer,
    provider: &'static Provider,
}

/// A scripted agent in a pane of its own, ended when this is dropped.
pub(crate) struct Case<'a> {
    stage: &'a Stage,
    id: String,
    dir: PathBuf,
}

impl Stage {
    pub(crate) fn new(provider: &'static Provider) -> Self {
        let tmux = TestServer::start("exec cat");
        let bin = tmux.dir.path().join("bin");
        fs::create_dir(&bin).expect("a directory");
        for name in ["bash", "vim", provider.program] {
            let link = bin.join(name);
            if !link.exists() {
                symlink("/bin/sh", link).expect("a link");
            }
        }
        Self { tmux, provider }
    }

    /// Starts the agent in a state and waits until it is diagnosed as `seen`.
    pub(crate) fn case(&self, state: &str, seen: AgentState) -> Case<'_> {
        let dir = tempfile::tempdir_in(self.tmux.dir.path()).expect("a directory").keep();
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/fake_agent.sh");
        // A crashed agent has left its shell; an editor may stand there in a shell's place.
        let (program, script) = match (state, self.provider.name) {
            ("crashed", _) => ("bash", "shell"),
            ("program", _) => ("vim", "shell"),
            (_, name) => (self.provider.program, name),
        };
        let program = self.tmux.dir.path().join("bin").join(program);
        let command = format!(
            "exec '{}' '{}' {script} {state} '{}'",
            program.display(),
            fixture.display(),
            dir.display()
        );
        let arguments = ["new-window", "-d", "-P", "-F", "#{pane_id}", &command];
        let id = self.tmux.server.run(&arguments).expect("a window").remove(0);
        let case = Case { stage: self, id, dir };
        eventually("it runs", || case.dir.join("running").exists());
        case.wait_for(seen);
        case
    }
}

impl Case<'_> {
    pub(crate) fn pane(&self) -> TmuxPane {
        self.stage.tmux.pane(&self.id, self.stage.provider.name)
    }

    pub(crate) fn wait_for(&self, seen: AgentState) {
        let mut pane = self.pane();
        let deadline = Instant::now() + PATIENCE / 2;
        loop {
            let diagnosis = pane.diagnose().expect("a diagnosis");
            if diagnosis.state == seen {
                break;
            }
            let screen = self.stage.tmux.screen(&self.id).join("\n");
            let name = self.stage.provider.name;
            assert!(Instant::now() < deadline, "{name}, not {seen:?}: {diagnosis:#?}\n{screen}");
        }
    }

    pub(crate) fn diagnosis(&self) -> Diagnosis {
        self.pane().diagnose().expect("a diagnosis")
    }

    /// Lets a starting agent paint.
    pub(crate) fn paint(&self) {
        fs::write(self.dir.join("paint"), "").expect("a file");
    }

    /// Nudges.
    pub(crate) fn nudge(&self) -> NudgeOutcome {
        self.nudge_with(|| {})
    }

    /// Nudges, and does something between the text and Enter. The agent may be slow on a loaded
    /// machine, so both wait for the text to be shown.
    pub(crate) fn nudge_with(&self, between: impl FnOnce()) -> NudgeOutcome {
        let mut pane = self.pane();
        let text = the_nudge(self.stage.provider.name);
        match pane.nudge_text(&text).expect("an outcome") {
            TextOutcome::Sent => NudgeOutcome::Sent,
            TextOutcome::Refused { deferral } => NudgeOutcome::Refused { deferral },
            TextOutcome::Typed(typed) => {
                eventually("the text is shown", || {
                    let screen = self.stage.tmux.screen(&self.id);
                    screen.iter().any(|line| line.contains(text.as_str()))
                });
                between();
                pane.nudge_enter(typed).expect("an outcome")
            }
        }
    }

    /// Types as a human would.
    pub(crate) fn human(&self, keys: &[&str]) {
        let mut command = vec!["send-keys", "-t", &self.id];
        command.extend(keys);
        self.stage.tmux.server.run(&command).expect("keys");
    }

    /// Waits until the agent has dealt with everything that was typed so far.
    pub(crate) fn settle(&self) {
        let synced = self.events_with_marks().len();
        self.human(&["C-]"]);
        eventually("the agent has read all keys", || {
            self.events_with_marks()[synced..].iter().any(|event| event == "SYNC")
        });
    }

    fn events_with_marks(&self) -> Vec<String> {
        let text = fs::read_to_string(self.dir.join("events")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// What came of the keys.
    pub(crate) fn events(&self) -> Vec<String> {
        self.events_with_marks().into_iter().filter(|event| event != "SYNC").collect()
    }

    /// Every byte that was typed, in words.
    pub(crate) fn received(&self) -> String {
        let bytes = fs::read(self.dir.join("received")).unwrap_or_default();
        let nudge = the_nudge(self.stage.provider.name).to_string();
        let text = String::from_utf8(bytes).expect("text").replace('\x1d', "");
        let words = text
            .replace(&nudge, " nudge ")
            .replace('\r', " Enter ")
            .replace('\x1b', " Escape ")
            .replace('\x03', " Ctrl-C ");
        words.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

impl Drop for Case<'_> {
    fn drop(&mut self) {
        let _ = self.stage.tmux.server.kill_pane(&self.id);
    }
}

/// Why nothing was typed.
pub(crate) fn refused(outcome: &NudgeOutcome) -> Option<&Deferral> {
    match outcome {
        NudgeOutcome::Sent => None,
        NudgeOutcome::TextOnly { deferral } => panic!("left standing: {deferral}"),
        NudgeOutcome::Refused { deferral } => Some(deferral),
    }
}

/// What is typed to tell of one message. Its `1` would answer many a menu.
pub(crate) fn the_nudge(profile: &str) -> NudgeText {
    let profile = Profiles::embedded().expect("profiles").get(profile).expect("a profile");
    nudge_text(&profile, &Name::new("dispatch").expect("a name"), 1, false)
}
