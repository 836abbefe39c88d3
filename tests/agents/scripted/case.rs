//! One pane with a scripted agent in it.

use std::os::unix::fs::symlink;

use ensemble_core::agent::AgentPane as _;
use ensemble_tmux::provider::machine::{HttpPlace, SourcePlaces};
use ensemble_tmux::provider::{Judgement, PASTE_BEGINS, PASTE_ENDS};

use crate::http_server::HttpServer;
use crate::tmux_support::PATIENCE;

use crate::*;

pub(crate) struct Provider {
    pub(crate) name: &'static str,
    /// What its program is called, as tmux sees it.
    pub(crate) program: &'static str,
}

/// A private tmux server and what the scripted programs need.
pub(crate) struct Stage {
    pub(crate) tmux: TestServer,
    provider: &'static Provider,
}

/// A scripted agent in its own pane, ended when this is dropped.
pub(crate) struct Case<'a> {
    stage: &'a Stage,
    id: String,
    dir: PathBuf,
    /// The interface over which it reports its state, in the states `says-…`.
    places: SourcePlaces,
    server: Option<HttpServer>,
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
        let fixture =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/fake_agent.sh");
        // A crashed agent leaves its shell, and an editor may run in the shell's place.
        let view = if state.starts_with("says-") { "ready" } else { state };
        let (program, script) = match (state, self.provider.name) {
            ("crashed", _) => ("bash", "shell"),
            ("program", _) => ("vim", "shell"),
            (_, name) => (self.provider.program, name),
        };
        let program = self.tmux.dir.path().join("bin").join(program);
        let command = format!(
            "exec '{}' '{}' {script} {view} '{}'",
            program.display(),
            fixture.display(),
            dir.display()
        );
        let arguments = ["new-window", "-d", "-P", "-F", "#{pane_id}", &command];
        let id = self.tmux.server.run(&arguments).expect("a window").remove(0);
        let (places, server) = (SourcePlaces::default(), None);
        let mut case = Case { stage: self, id, dir, places, server };
        if let Some(word) = state.strip_prefix("says-") {
            (case.places, case.server) = case.says(word);
        }
        eventually("it runs", || case.dir.join("running").exists());
        case.wait_for(seen);
        case
    }
}

impl Case<'_> {
    pub(crate) fn pane(&self) -> TmuxPane {
        let pane = self.stage.tmux.pane(&self.id, self.stage.provider.name);
        pane.with_places(self.places.clone())
    }

    /// Makes the agent report its state over its own interface.
    fn says(&self, word: &str) -> (SourcePlaces, Option<HttpServer>) {
        if self.stage.provider.name == "opencode" {
            let server = opencode_server(word);
            let place = HttpPlace::parse(&format!("http://{}", server.address), false);
            return (
                SourcePlaces::default().with_opencode(place.expect("an address")),
                Some(server),
            );
        }
        let pid = self.pane().binding().pid;
        let fields = match word {
            "permission" => r#""status":"waiting","waitingFor":"permission prompt""#.to_owned(),
            word => format!(r#""status":"{word}""#),
        };
        let sessions = self.dir.join(".claude/sessions");
        fs::create_dir_all(&sessions).expect("a directory");
        let text = format!(r#"{{"pid":{pid},{fields}}}"#);
        fs::write(sessions.join(format!("{pid}.json")), text).expect("a file");
        (SourcePlaces::in_home(&self.dir), None)
    }

    /// Types a line's text, does something, and continues with its Enter.
    pub(crate) fn reset_with(&self, between: impl FnOnce()) -> NudgeOutcome {
        let mut pane = self.pane();
        let command = pane.profile().reset_command().expect("a command").to_owned();
        let begun = pane.begin(TypedLine::Reset).expect("an outcome");
        assert!(matches!(begun, TypingStep::EnterAfter(_)), "{begun:?}");
        self.wait_for_text(&command);
        between();
        pane.finish(false).expect("an outcome")
    }

    pub(crate) fn wait_for_text(&self, text: &str) {
        eventually("the text is shown", || {
            self.stage.tmux.screen(&self.id).iter().any(|line| line.contains(text))
        });
    }

    pub(crate) fn wait_for_empty(&self, text: &str) {
        eventually("the text is gone", || {
            !self.stage.tmux.screen(&self.id).iter().any(|line| line.contains(text))
        });
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

    pub(crate) fn diagnosis(&self) -> Judgement {
        self.pane().diagnose().expect("a diagnosis")
    }

    pub(crate) fn paint(&self) {
        fs::write(self.dir.join("paint"), "").expect("a file");
    }

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
                self.wait_for_text(text.as_str());
                between();
                pane.nudge_enter(typed).expect("an outcome")
            }
        }
    }

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

    pub(crate) fn events(&self) -> Vec<String> {
        self.events_with_marks().into_iter().filter(|event| event != "SYNC").collect()
    }

    /// Every byte that was typed, in words.
    pub(crate) fn received(&self) -> String {
        let bytes = fs::read(self.dir.join("received")).unwrap_or_default();
        let nudge = the_nudge(self.stage.provider.name).to_string();
        let text = String::from_utf8(bytes).expect("text").replace('\x1d', "");
        let words = text
            .replace(PASTE_BEGINS, "")
            .replace(PASTE_ENDS, "")
            .replace(&nudge, " nudge ")
            .replace('\r', " Enter ")
            .replace('\x1b', " Escape ")
            .replace('\x03', " Ctrl-C ")
            .replace('\x7f', " Backspace ");
        words.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// Answers as OpenCode's server does while it is in a state.
fn opencode_server(word: &str) -> HttpServer {
    let (permissions, session) = match word {
        "permission" => (r#"[{"id":"per_1"}]"#, "busy"),
        word => ("[]", word),
    };
    let session = match session {
        "limited" => {
            r#""retry","attempt":1,"message":"Too Many Requests","next":32503680000000"#.to_owned()
        }
        word => format!("\"{word}\""),
    };
    let sessions = format!(r#"{{"ses_1":{{"type":{session}}}}}"#);
    HttpServer::start(move |request| match request.starts_with("GET /permission ") {
        true => ("200 OK", permissions.to_owned()),
        false => ("200 OK", sessions.clone()),
    })
}

impl Drop for Case<'_> {
    fn drop(&mut self) {
        let _ = self.stage.tmux.server.kill_pane(&self.id);
    }
}

pub(crate) fn refused(outcome: &NudgeOutcome) -> Option<&Deferral> {
    match outcome {
        NudgeOutcome::Sent => None,
        NudgeOutcome::TextOnly { deferral } => panic!("left standing: {deferral}"),
        NudgeOutcome::Refused { deferral } => Some(deferral),
    }
}

/// What is typed to report one message. Its `1` would answer many a menu.
pub(crate) fn the_nudge(profile: &str) -> NudgeText {
    let profile = Profiles::embedded().expect("profiles").get(profile).expect("a profile");
    profile.program().nudge_text(&Name::new("dispatch").expect("a name"), 1, false)
}
