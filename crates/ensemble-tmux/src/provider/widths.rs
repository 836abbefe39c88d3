//! Every built-in profile keeps two rules. A key that kills is never pressed, and a usage limit is
//! recognized at any width of the terminal.

use super::{
    DiagnosisContext, Judgement, Profile, Profiles, TypingPurpose, Zones, diagnose_with, objection,
};
use ensemble_core::agent::AgentState;
use ensemble_core::pane::{Deferral, Key, PaneState};

/// The profiles that recognize no dialog and no limit: a shell, a program without a screen, and one of which nothing is known.
pub(super) const BLIND: [&str; 3] = ["acp", "generic", "shell"];
const WIDTHS: [usize; 3] = [80, 110, 200];

/// A message of a limit, as an agent shows it.
struct Message {
    profile: &'static str,
    program: &'static str,
    text: &'static str,
    /// The screen below it, an empty composer last.
    below: &'static str,
    /// When the limit ends, as the message words it; `None` if it does not say.
    reset: Option<&'static str>,
    /// Whether a message that is too long is cut off at the edge rather than wrapped.
    is_cut: bool,
}

const CLAUDE: &str = "─────\n❯ \n─────\n  ? for shortcuts";
const CODEX: &str = "› Ask Codex to do anything\n\n  model default · ~/p\n  ? for shortcuts";
const GEMINI: &str = "╭────╮\n│ >   Type your message or @path/to/file │\n╰────╯";

const MESSAGES: [Message; 9] = [
    Message {
        profile: "claude",
        program: "claude",
        text: "  ⎿  Claude usage limit reached for this organization. Your limit will reset at 3pm (Europe/Berlin).",
        below: CLAUDE,
        reset: Some("3pm (Europe/Berlin)"),
        is_cut: false,
    },
    Message {
        profile: "claude",
        program: "claude",
        text: "  ⎿  You've hit your weekly limit for all of the models · resets Nov 24 at 3pm (America/Argentina/Buenos_Aires)",
        below: CLAUDE,
        reset: Some("Nov 24 at 3pm (America/Argentina/Buenos_Aires)"),
        is_cut: false,
    },
    Message {
        profile: "claude",
        program: "claude",
        text: "● API Error: Request rejected (429) · This request would exceed the rate limit of your organization. Please try again later.",
        below: CLAUDE,
        reset: None,
        is_cut: false,
    },
    Message {
        profile: "claude",
        program: "claude",
        text: "● API Error: Request rejected (429) · This request would exceed the rate limit of your organization, please retry after 30 seconds",
        below: CLAUDE,
        reset: Some("30 seconds"),
        is_cut: false,
    },
    Message {
        profile: "codex",
        program: "node",
        text: "■ You've hit your usage limit. Upgrade to Pro (https://chatgpt.com/explore/pro), visit https://chatgpt.com/codex/settings/usage to purchase more credits or try again at Jan 3rd, 2027 5:12 PM.",
        below: CODEX,
        reset: Some("Jan 3rd, 2027 5:12 PM"),
        is_cut: false,
    },
    Message {
        profile: "codex",
        program: "node",
        text: "■ The connection to the server of the model was refused again and again: exceeded retry limit, last status: 429 Too Many Requests",
        below: CODEX,
        reset: None,
        is_cut: false,
    },
    Message {
        profile: "gemini",
        program: "node",
        text: "✕ Request failed. You have tried often enough: Quota exceeded for quota metric 'Requests' and limit 'Requests per day'. Please retry in 30s.",
        below: GEMINI,
        reset: Some("30s"),
        is_cut: false,
    },
    Message {
        profile: "opencode",
        program: "opencode",
        text: "  ⬝⬝⬝⬝ Rate limit exceeded: too many requests for this model, please try again later. [retrying in 29s attempt #3]",
        below: "",
        reset: Some("in 29s"),
        is_cut: true,
    },
    Message {
        profile: "opencode",
        program: "opencode",
        text: "  ⬝⬝⬝⬝ The provider said: Too Many Requests. Wait. [retrying in 2s attempt #3]   esc interrupt",
        below: "",
        reset: Some("in 2s"),
        is_cut: true,
    },
];

/// The lines that a terminal of this width shows of a text.
fn shown(message: &Message, width: usize) -> Vec<String> {
    if message.is_cut {
        return vec![message.text.chars().take(width).collect()];
    }
    let indent = "     ";
    let mut lines: Vec<String> = vec![String::new()];
    for word in message.text.split_inclusive(' ') {
        let line = lines.last().expect("a line");
        if line.chars().count() + word.trim_end().chars().count() > width {
            lines.push(indent.to_owned());
        }
        lines.last_mut().expect("a line").push_str(word);
    }
    lines.into_iter().map(|line| line.trim_end().to_owned()).collect()
}

fn pane(message: &Message, width: usize) -> PaneState {
    let below = message.below.lines().map(str::to_owned);
    let mut state = PaneState::default();
    (state.bound, state.pid, state.command) = (true, 1, message.program.to_owned());
    state.screen = shown(message, width).into_iter().chain(below).collect();
    let composer = state.screen.iter().position(|line| line.contains(['❯', '›', '>']));
    state.cursor_y = u32::try_from(composer.unwrap_or(0)).expect("a line");
    state.cursor_x = if message.profile == "gemini" { 4 } else { 2 };
    state
}

#[test]
fn a_limit_is_known_at_every_width() {
    let profiles = Profiles::embedded().expect("profiles");
    let (now, zones) = ("2026-11-22T10:00:00Z".parse().expect("a time"), Zones::of_this_machine());
    for message in &MESSAGES {
        let profile = profiles.get(message.profile).expect("a profile");
        for width in WIDTHS {
            let pane = pane(message, width);
            let context =
                DiagnosisContext { time: Some((now, &zones)), ..DiagnosisContext::default() };
            let diagnosis = diagnose_with(&profile, &pane, &context);
            let at = format!("{} at {width}: {diagnosis:#?}", message.text);
            assert_eq!(diagnosis.state, AgentState::RateLimited, "{at}");
            // A bracket that was cut off does not contain the time.
            let is_whole = !message.is_cut || shown(message, width)[0].contains(']');
            let reset = message.reset.filter(|_| is_whole);
            assert_eq!(diagnosis.resets_at.as_deref(), reset, "{at}");
            assert_eq!(diagnosis.limited_until.is_some(), reset.is_some(), "{at}");
            assert_eq!(diagnosis.is_limited_without_end(), reset.is_none(), "{at}");
            // One without an end may be probed, unless the agent tries again by itself.
            let against = |purpose| objection(&profile, &pane, &context, purpose);
            let limited = Some(Deferral::NotReady { state: "rate_limited".to_owned() });
            assert_eq!(against(TypingPurpose::Nudge), limited, "{at}");
            let is_probed = reset.is_none() && message.profile != "opencode";
            assert_eq!(against(TypingPurpose::Probe).is_none(), is_probed, "{at}");
        }
    }
}

/// Tries every forbidden key of every profile, also of one that is added.
#[test]
fn every_forbidden_key_is_refused_and_no_other() {
    let profiles = Profiles::embedded().expect("profiles");
    for name in profiles.names() {
        let profile = profiles.get(name).expect("a profile");
        for state in AgentState::ALL {
            let judgement = Judgement::seen_on_screen(&profile, state);
            for key in Key::ALL {
                let purpose = TypingPurpose::Press(key);
                let objection = judgement.objection(&profile, &PaneState::default(), purpose);
                assert_eq!(
                    objection.is_some(),
                    profile.forbids(state, key),
                    "{name} {state:?} {key:?}"
                );
            }
        }
    }
}

#[test]
fn a_profile_that_sees_dialogs_never_presses_what_kills() {
    let profiles = Profiles::embedded().expect("profiles");
    for name in profiles.names().filter(|name| !BLIND.contains(name)) {
        let profile = profiles.get(name).expect("a profile");
        let occurs = |state| match state {
            AgentState::Trust => shows(&profile, state),
            // A shell has replaced the agent.
            AgentState::Crashed => false,
            _ => true,
        };
        for state in AgentState::ALL.into_iter().filter(|state| occurs(*state)) {
            for key in [Key::Enter, Key::CtrlC] {
                assert!(profile.forbids(state, key), "{name} {state:?} {key:?}");
            }
        }
    }
}

/// Whether any rule of the profile leads to a state.
fn shows(profile: &Profile, state: AgentState) -> bool {
    profile.rules.iter().any(|rule| rule.state == state)
}
