//! Content of a pane, as each provider's profile judges it.
//!
//! An input is text. Its first line has the profile, the foreground program and perhaps flags
//! (`gone`, `dead`, `mode`, `off`, `sync`). Its second line is the title. The rest is the screen,
//! with `▮` for the cursor.

use std::sync::OnceLock;

use ensemble_core::agent::AgentState;
use ensemble_core::message::Timestamp;
use ensemble_core::pane::{Key, PaneState};
use ensemble_tmux::fuzzing::matching_rules;
use ensemble_tmux::provider::{
    DiagnosisContext, Profiles, TypingPurpose, Zones, diagnose, diagnose_with, objection,
};

/// Parsed once: judging an input takes microseconds.
static PROFILES: OnceLock<Profiles> = OnceLock::new();

const EXCERPT_BYTES_MAX: usize = 4 * 100;

/// A pane that shows a dialog is never ready, and typing is forbidden in every pane that is not
/// ready.
pub fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (profile, pane) = read(&text);
    let profiles = PROFILES.get_or_init(|| Profiles::embedded().expect("the built-in profiles"));
    let Ok(profile) = profiles.get(profile) else { return };
    let found = diagnose(&profile, &pane);
    let is_untouchable =
        !pane.bound || pane.dead || pane.in_mode || pane.input_off || pane.synchronized;
    let in_the_way = |state: &AgentState| {
        matches!(state, AgentState::Permission | AgentState::Trust | AgentState::Dialog)
    };
    let shows_dialog = matching_rules(&profile, &pane).iter().any(in_the_way);
    let nothing = DiagnosisContext::default();
    let may_nudge = objection(&profile, &pane, &nothing, TypingPurpose::Nudge).is_none();
    if is_untouchable || shows_dialog {
        assert_ne!(found.state, AgentState::Ready, "{found:#?}");
        assert!(found.deferral.is_some() && !may_nudge, "{found:#?}");
        let nudge = profile.program().nudge_text(&"worker-1".parse().expect("a name"), 3, false);
        for purpose in
            [TypingPurpose::Submit { text: nudge.as_str() }, TypingPurpose::Press(Key::CtrlC)]
        {
            let is_pressing = matches!(purpose, TypingPurpose::Press(_));
            if is_untouchable || !is_pressing {
                assert!(objection(&profile, &pane, &nothing, purpose).is_some(), "{purpose:?}");
            }
        }
    }
    if is_untouchable {
        assert!(objection(&profile, &pane, &nothing, TypingPurpose::Open).is_some());
    }
    assert_eq!(found.deferral.is_none(), may_nudge);
    if found.state == AgentState::Ready {
        assert!(found.deferral.is_none(), "{found:#?}");
    }
    assert!(!found.evidence.is_empty());
    for evidence in &found.evidence {
        assert!(evidence.text.len() <= EXCERPT_BYTES_MAX, "{evidence:?}");
        assert!(!evidence.text.chars().any(char::is_control), "{evidence:?}");
    }
    let zones = Zones::utc();
    let time = Some((Timestamp::from_unix_millis(1_768_469_400_000), &zones));
    let dated =
        diagnose_with(&profile, &pane, &DiagnosisContext { time, ..DiagnosisContext::default() });
    if shows_dialog || is_untouchable {
        assert_ne!(dated.state, AgentState::Ready, "{dated:#?}");
    }
}

/// The profile's name and the pane.
fn read(text: &str) -> (&str, PaneState) {
    let (head, rest) = text.split_once('\n').unwrap_or((text, ""));
    let (title, screen) = rest.split_once('\n').unwrap_or((rest, ""));
    let mut words = head.split(' ');
    let profile = words.next().unwrap_or_default();
    let mut pane = PaneState::default();
    (pane.bound, pane.pid) = (true, 1);
    pane.command = words.next().unwrap_or_default().to_owned();
    for word in words {
        match word {
            "gone" => (pane.bound, pane.pid) = (false, 0),
            "reused" => pane.bound = false,
            "dead" => pane.dead = true,
            "mode" => pane.in_mode = true,
            "off" => pane.input_off = true,
            "sync" => pane.synchronized = true,
            _ => {}
        }
    }
    pane.title = title.to_owned();
    let lines: Vec<&str> = screen.lines().collect();
    let cursor = lines.iter().enumerate().find_map(|(y, line)| Some((line.split_once('▮')?.0, y)));
    let (x, y) = cursor.map_or((0, lines.len()), |(before, y)| (before.chars().count(), y));
    (pane.cursor_x, pane.cursor_y) =
        (u32::try_from(x).unwrap_or(u32::MAX), u32::try_from(y).unwrap_or(u32::MAX));
    pane.screen = lines.iter().map(|line| line.replace('▮', "").trim_end().to_owned()).collect();
    (profile, pane)
}
