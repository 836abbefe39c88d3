//! What is typed to an agent in each of its states, in a real tmux server. Scripted programs imitate the agents,
//! write down every byte, and do what the agents would do with it. With `BLESS=1`, this test writes what it has seen
//! to docs/reference/provider-states.md; otherwise it compares.

mod case;
mod ladder;
mod ours;

use case::{Case, Provider, Stage, refused, the_nudge};
use ensemble_core::agent::AgentState::*;
use ensemble_core::agent::Source;

use crate::*;

const DOCUMENT: &str = "docs/reference/provider-states.md";
const HEAD: &str = "| state | seen as | Enter | Escape | Ctrl-C | nudge | reset | phase 1 | phase 2 \
                    | phase 3 |\n|---|---|---|---|---|---|---|---|---|---|\n";

/// What the scripted programs can show, as what it is seen, and which of them show it.
const STATES: [(&str, AgentState, &[&str]); 26] = [
    ("ready", Ready, &["claude", "codex", "gemini", "generic", "opencode", "shell"]),
    ("starting", Unknown, &["claude", "codex", "gemini"]),
    ("starting", Starting, &["opencode"]),
    ("busy", Busy, EVERY),
    ("draft", Draft, &["claude", "codex", "gemini", "opencode", "shell"]),
    ("busy-draft", Draft, EVERY),
    ("permission", Permission, EVERY),
    ("plan", Dialog, &["claude"]),
    ("title", Dialog, &["codex"]),
    ("trust", Trust, &["claude", "codex", "gemini"]),
    ("mcp", Dialog, &["claude"]),
    ("hooks", Dialog, &["codex"]),
    ("menu", Dialog, &["gemini"]),
    ("rewind", Dialog, &["claude", "codex"]),
    ("leaving", Dialog, &["claude"]),
    ("escaped", Ready, &["codex"]),
    ("login", Login, EVERY),
    ("limited", RateLimited, EVERY),
    ("limit-over", Ready, &["claude", "codex"]),
    ("unfinished", Draft, &["shell"]),
    ("program", Unknown, &["shell"]),
    ("says-idle", Ready, &["claude", "opencode"]),
    ("says-busy", Busy, &["claude", "opencode"]),
    ("says-permission", Permission, &["claude", "opencode"]),
    ("says-limited", RateLimited, &["opencode"]),
    ("crashed", Crashed, &["claude", "codex", "gemini", "generic", "opencode"]),
];
const EVERY: &[&str] = &["claude", "codex", "gemini", "opencode"];

static CLAUDE: Provider = Provider { name: "claude", program: "claude" };
static CODEX: Provider = Provider { name: "codex", program: "node" };
static OPENCODE: Provider = Provider { name: "opencode", program: "opencode" };
static GEMINI: Provider = Provider { name: "gemini", program: "node" };
static SHELL: Provider = Provider { name: "shell", program: "bash" };
/// Of it nothing is known, so there is nothing to be seen but that it has ended.
static GENERIC: Provider = Provider { name: "generic", program: "agent" };

/// The profiles that know no composer and no dialog.
const BLIND: [&str; 2] = ["generic", "shell"];

/// A test for each provider, and the list of all of them.
macro_rules! act_out_each {
    ($($(#[$is:meta])* $name:ident: $provider:ident),* $(,)?) => {
        static ALL: &[&Provider] = &[$(&$provider),*];
        $(
            #[test]
            $(#[$is])*
            fn $name() {
                act_out(&$provider);
            }
        )*
    };
}

act_out_each! {
    #[ignore = "long"]
    claude: CLAUDE,
    codex: CODEX,
    gemini: GEMINI,
    generic: GENERIC,
    #[ignore = "long"]
    opencode: OPENCODE,
    shell: SHELL,
}

/// The agents whose composer and dialogs are known.
fn seeing() -> impl Iterator<Item = &'static Provider> {
    ALL.iter().copied().filter(|provider| !BLIND.contains(&provider.name))
}

impl Provider {
    fn states(&self) -> impl Iterator<Item = (&'static str, AgentState)> {
        let its = STATES.iter().filter(|(_, _, programs)| programs.contains(&self.name));
        its.map(|(state, seen, _)| (*state, *seen))
    }
}

/// What is done to an agent; `None` if there is nothing of the kind to do.
type Action = fn(&Case<'_>) -> Option<NudgeOutcome>;

/// Every state, every action.
fn act_out(provider: &'static Provider) {
    let stage = Stage::new(provider);
    let mut table = format!("## {}\n\n{HEAD}", provider.name);
    for (state, seen) in provider.states() {
        let row = act_out_state(&stage, provider, state, seen);
        writeln!(table, "| {state} | {} |", row.join(" | ")).expect("a row");
    }
    compare(provider.name, &table);
}

fn act_out_state(stage: &Stage, provider: &Provider, state: &str, seen: AgentState) -> Vec<String> {
    let mut pressed = Vec::new();
    // One pane for all that is refused; a new one after something was typed.
    let mut case = stage.case(state, seen);
    let first = case.diagnosis();
    let reason =
        first.deferral.as_ref().map_or_else(|| "may be typed to".to_owned(), |d| d.to_string());
    let actions: [Action; 5] = [
        |case| Some(case.pane().press(Key::Enter).expect("an outcome")),
        |case| Some(case.pane().press(Key::Escape).expect("an outcome")),
        |case| Some(case.pane().press(Key::CtrlC).expect("an outcome")),
        |case| Some(case.nudge()),
        |case| {
            let mut pane = case.pane();
            pane.profile().reset_command()?;
            Some(pane.reset_context().expect("an outcome"))
        },
    ];
    for action in actions {
        let outcome = action(&case);
        if outcome.as_ref().is_none_or(|outcome| refused(outcome).is_some()) {
            pressed.push(String::new());
            continue;
        }
        case.settle();
        judge(provider.name, state, &case.received(), &case.events());
        assert_ne!(case.received(), "", "{state}: {outcome:?}");
        pressed.push(case.received());
        case = stage.case(state, seen);
    }
    case.settle();
    assert_eq!(case.received(), "", "{state}: it was said that nothing is typed");
    pressed.extend(ladder::climb(&case));
    let whole = pressed[5..].join(" ");
    judge(provider.name, state, whole.trim(), &case.events());
    if state == "starting" {
        case.paint();
        case.wait_for(Ready);
        assert_eq!(case.nudge(), NudgeOutcome::Sent);
        case.settle();
        assert_eq!(case.events(), [format!("SUBMIT {}", the_nudge(provider.name))], "first paint");
    }
    let dash = |typed: String| if typed.is_empty() { "–".to_owned() } else { typed };
    let own = if first.source == Source::MachineReadable { " (its own word)" } else { "" };
    let seen = format!("{}{own}: {reason}", first.state.word());
    std::iter::once(seen).chain(pressed.into_iter().map(dash)).collect()
}

/// The scripted agents do notice: what a careless controller or a human types has its effect.
#[test]
fn a_wrong_key_shows() {
    let merged = "SUBMIT please merge PR 10 only aftergo";
    for (provider, state, seen, keys, event) in [
        (&CLAUDE, "trust", Trust, &["Enter"][..], "EXITED"),
        (&CLAUDE, "permission", Permission, &["Enter"], "APPROVED"),
        (&CLAUDE, "permission", Permission, &["1"], "APPROVED"),
        (&CLAUDE, "plan", Dialog, &["Escape"], "ANSWERED"),
        (&CLAUDE, "busy", Busy, &["Escape"], "INTERRUPTED"),
        (&CLAUDE, "leaving", Dialog, &["C-c"], "EXITED"),
        (&CLAUDE, "rewind", Dialog, &["C-c", "Enter"], "REWOUND"),
        (&CLAUDE, "draft", Draft, &["C-c"], "LOST please merge PR 10 only after"),
        (&CODEX, "ready", Ready, &["C-c"], "EXITED"),
        (&CODEX, "escaped", Ready, &["C-c"], "EXITED"),
        (&CODEX, "title", Dialog, &["Escape"], "DENIED"),
        (&CODEX, "trust", Trust, &["Enter"], "TRUSTED"),
        (&OPENCODE, "ready", Ready, &["C-c"], "EXITED"),
        (&OPENCODE, "starting", Starting, &["Enter"], "LOST Enter"),
        (&SHELL, "draft", Draft, &["Enter"], "RAN please merge PR 10 only after"),
    ] {
        let stage = Stage::new(provider);
        let case = stage.case(state, seen);
        case.human(keys);
        case.settle();
        assert_eq!(case.events(), [event], "{} in the state {state}, {keys:?}", provider.name);
    }
    for provider in seeing() {
        let stage = Stage::new(provider);
        let case = stage.case("draft", Draft);
        case.human(&["go"]);
        case.settle();
        case.human(&["Enter"]);
        case.settle();
        assert_eq!(case.events(), [merged], "{}", provider.name);
    }
}

#[test]
fn a_dialog_that_opens_behind_the_text_gets_no_enter() {
    for provider in seeing() {
        let stage = Stage::new(provider);
        let case = stage.case("ready", Ready);
        let outcome = case.nudge_with(|| {
            case.human(&["C-^"]);
            case.wait_for(Permission);
        });
        let deferral = Deferral::Dialog { name: "permission".to_owned() };
        assert_eq!(outcome, NudgeOutcome::TextOnly { deferral }, "{}", provider.name);
        case.settle();
        assert_eq!(case.events(), [""; 0], "{}", provider.name);
    }
}

/// A reset command whose Enter was held back is ours, and not a person's draft.
#[test]
fn a_reset_command_that_stands_is_taken_back_or_submitted() {
    for provider in seeing() {
        let stage = Stage::new(provider);
        let interrupted = || {
            let case = stage.case("ready", Ready);
            let outcome = case.reset_with(|| {
                case.human(&["C-^"]);
                case.wait_for(Permission);
            });
            let deferral = Deferral::Dialog { name: "permission".to_owned() };
            assert_eq!(outcome, NudgeOutcome::TextOnly { deferral }, "{}", provider.name);
            // As long as it asks, nothing is taken back either.
            assert!(refused(&case.nudge()).is_some(), "{}", provider.name);
            case.human(&["Escape"]);
            case.wait_for(Ready);
            case
        };
        // A later nudge: much may have happened since the reset was typed.
        let case = interrupted();
        assert_eq!(refused(&case.nudge()), Some(&Deferral::Moved), "{}", provider.name);
        case.wait_for(Ready);
        assert_eq!(case.nudge(), NudgeOutcome::Sent, "{}", provider.name);
        case.settle();
        let nudged = format!("SUBMIT {}", the_nudge(provider.name));
        assert_eq!(case.events(), ["DENIED", &nudged], "{}", provider.name);
        // Who wants a reset.
        let case = interrupted();
        let outcome = case.pane().reset_context().expect("an outcome");
        assert_eq!(outcome, NudgeOutcome::Sent, "{}", provider.name);
        case.settle();
        assert_eq!(case.events(), ["DENIED", "RESET"], "{}", provider.name);
        // The same words, typed by a person, are a draft like any other; so they are after ours were
        // dealt with.
        case.human(&["-l", if provider.name == "opencode" { "/new" } else { "/clear" }]);
        case.wait_for(Draft);
        assert_eq!(refused(&case.nudge()), Some(&Deferral::Draft), "{}", provider.name);
        let outcome = case.pane().reset_context().expect("an outcome");
        assert_eq!(refused(&outcome), Some(&Deferral::Draft), "{}", provider.name);
        case.settle();
        assert_eq!(case.events(), ["DENIED", "RESET"], "{}", provider.name);
    }
}

/// The states for which a profile forbids keys and that its scripted program does not show. No rule
/// leads to the first three and the last; the menus of OpenCode are screens of `provider/screens.rs`.
const NEVER_SEEN: [(&str, AgentState); 5] = [
    ("claude", Starting),
    ("codex", Starting),
    ("gemini", Starting),
    ("opencode", Dialog),
    ("opencode", Unknown),
];

/// A profile that is added without its screens fails here: it is acted out, or judged by recorded screens.
/// So does a forbidden key of a profile that is acted out and that no test presses.
#[test]
fn every_profile_is_acted_out_or_recorded() {
    let profiles = Profiles::embedded().expect("profiles");
    let acted: Vec<&str> = ALL.iter().map(|provider| provider.name).collect();
    assert!(acted.iter().all(|name| profiles.get(name).is_ok()), "{acted:?}");
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/provider/recorded");
    // An agent without a terminal has a pane that shows nothing of the program.
    let has_screen = |name: &&str| !acted.contains(name) && *name != "acp";
    for name in profiles.names().filter(has_screen) {
        assert!(recorded.join(format!("{name}-80.txt")).is_file(), "{name} has no screens");
    }
    for provider in seeing() {
        for needed in ["ready", "starting", "busy", "draft", "permission", "limited", "crashed"] {
            assert!(provider.states().any(|(state, _)| state == needed), "{needed}");
        }
    }
    let mut untested = Vec::new();
    for provider in ALL {
        let profile = profiles.get(provider.name).expect("a profile");
        for state in AgentState::ALL {
            let forbids = Key::ALL.iter().any(|key| profile.forbids(state, *key));
            let is_acted = provider.states().any(|(_, seen)| seen == state);
            if forbids && !is_acted {
                untested.push((provider.name, state));
            }
        }
    }
    assert_eq!(untested, NEVER_SEEN, "act this state out, or say why it cannot be seen");
}

/// The states in which an agent waits for a line.
const WAITING: [&str; 4] = ["ready", "says-idle", "limit-over", "escaped"];

/// Nothing was submitted, approved, lost or ended but by what was typed on purpose to an agent that
/// waits for it.
fn judge(provider: &str, state: &str, typed: &str, events: &[String]) {
    let nudge = the_nudge(provider);
    let reset = match provider {
        "opencode" => "/new",
        _ => "/clear",
    };
    let wanted: Vec<String> = match state {
        state if WAITING.contains(&state) => {
            let words: Vec<&str> = typed.split(' ').collect();
            words
                .windows(2)
                .filter(|pair| pair[1] == "Enter")
                .map(|pair| match pair[0] {
                    "nudge" if provider == "shell" => format!("RAN {nudge}"),
                    "nudge" => format!("SUBMIT {nudge}"),
                    word if word == reset => "RESET".to_owned(),
                    other => panic!("{provider}: Enter after {other}"),
                })
                .collect()
        }
        _ => Vec::new(),
    };
    assert_eq!(events, wanted, "{provider} in the state {state}, typed: {typed}");
    let is_harmless = WAITING.contains(&state) || typed.is_empty();
    assert!(is_harmless, "{provider} in the state {state}, typed: {typed}");
}

/// The section of a provider in the document.
fn compare(name: &str, table: &str) {
    static DOCUMENT_LOCK: Mutex<()> = Mutex::new(());
    let _lock = DOCUMENT_LOCK.lock();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(DOCUMENT);
    let document = fs::read_to_string(&path).expect(DOCUMENT);
    let head = format!("## {name}\n");
    let start = document.find(&head).unwrap_or(document.len());
    let after = start + head.len().min(document.len() - start);
    let end = document[after..].find("\n## ").map_or(document.len(), |at| after + at + 1);
    let section = document[start..end].trim_end();
    if section == table.trim_end() {
        return;
    }
    assert!(
        std::env::var_os("BLESS").is_some(),
        "{DOCUMENT} does not say what was seen (BLESS=1 writes it anew):\n{table}"
    );
    let gap = if end == document.len() { "" } else { "\n" };
    let renewed = format!("{}{}\n{gap}{}", &document[..start], table.trim_end(), &document[end..]);
    fs::write(&path, renewed).expect(DOCUMENT);
}
