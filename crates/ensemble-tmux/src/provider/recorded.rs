//! Diagnoses screens that the real agents have drawn with the built-in profiles.
//!
//! `SCREENS=DIR make test-agents` records them, a file for each agent and width. A screen has a
//! heading with the state and a line with the program and the title of the pane. Then follows the
//! screen with the cursor as `▮`. The file of an older version of a program has that version in its name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::profiles::of_all_versions;
use super::widths::BLIND;
use super::{
    DiagnosisContext, Profile, Profiles, TypingPurpose, diagnose, objection, stands_alone,
};
use ensemble_core::agent::AgentState;
use ensemble_core::pane::{Key, PaneState};

const WIDTHS: [usize; 3] = [80, 110, 200];
/// What each agent must have been recorded in at each width.
const NEEDED: [&str; 6] =
    ["ready", "busy", "draft", "permission", "limited", "limited without end"];

struct Recording {
    name: String,
    pane: PaneState,
}

fn recordings(profile: &Profile, width: usize) -> Vec<Recording> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/provider/recorded");
    let (name, seen) = (profile.name(), profile.seen_version().unwrap_or_default());
    let older = dir.join(format!("{name}-{seen}-{width}.txt"));
    let path = if older.exists() { older } else { dir.join(format!("{name}-{width}.txt")) };
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let program = profile.programs.iter().next().expect("`programs`");
    let sections = text.split("=== ").skip(1);
    sections.map(|section| recording(section, program)).collect()
}

/// The profiles that must be recorded: all that recognize what an agent shows, for each version of its program.
fn seeing() -> Vec<Profile> {
    let profiles = Profiles::embedded().expect("profiles");
    let names = profiles.names().filter(|name| !BLIND.contains(name));
    names.flat_map(of_all_versions).collect()
}

fn recording(section: &str, program: &str) -> Recording {
    let mut lines = section.lines();
    let name = lines.next().expect("a heading").to_owned();
    let (_, title) = lines.next().expect("a program and a title").split_once('|').expect("a bar");
    let screen: Vec<&str> = lines.collect();
    let cursor = screen.iter().enumerate().find_map(|(y, line)| {
        let before = line.split_once('▮')?.0;
        Some((super::cells::width(before), y))
    });
    let (x, y) = cursor.expect("a cursor");
    let pane = PaneState {
        bound: true,
        pid: 1,
        command: program.to_owned(),
        title: title.to_owned(),
        cursor_x: u32::try_from(x).expect("a column"),
        cursor_y: u32::try_from(y).expect("a line"),
        screen: screen.iter().map(|line| line.replace('▮', "").trim_end().to_owned()).collect(),
        ..PaneState::default()
    };
    Recording { name, pane }
}

fn meant(agent: &str, name: &str) -> AgentState {
    match name {
        "trust" => AgentState::Trust,
        "dialog" => AgentState::Dialog,
        "ready" | "ready after Escape" => AgentState::Ready,
        "busy" | "busy with hooks" => AgentState::Busy,
        "draft" | "draft over a message" => AgentState::Draft,
        "permission" => AgentState::Permission,
        // Seconds before a trust dialog covers its composer.
        "loading" => AgentState::Unknown,
        // These try again by themselves and show nothing of that.
        "limited" | "limited without end" if ["copilot", "gemini", "qwen"].contains(&agent) => {
            AgentState::Busy
        }
        "limited" | "limited without end" => AgentState::RateLimited,
        other => panic!("an unknown heading: {other}"),
    }
}

#[test]
fn each_recorded_screen_is_read_as_what_it_is() {
    for profile in seeing() {
        for width in WIDTHS {
            for Recording { name, pane } in recordings(&profile, width) {
                let seen = diagnose(&profile, &pane);
                let screen = pane.screen.join("\n");
                let agent = profile.name();
                let what = format!("{agent} at {width}, {name}: {:?}\n{screen}", seen.evidence);
                assert_eq!(seen.state, meant(agent, &name), "{what}");
                let said = seen.evidence.first().map_or("", |evidence| evidence.text.as_str());
                let is_named = said.chars().any(char::is_alphanumeric);
                assert!(seen.state != AgentState::Dialog || is_named, "{what}");
                assert_eq!(seen.deferral.is_none(), seen.state == AgentState::Ready, "{what}");
            }
        }
    }
}

/// A program may draw invisible characters around what was typed.
#[test]
fn a_draft_is_read_as_exactly_what_was_typed() {
    for profile in seeing() {
        for width in WIDTHS {
            let drafts = recordings(&profile, width).into_iter().filter(|it| it.name == "draft");
            for Recording { pane, .. } in drafts {
                let agent = profile.name();
                let is_read = |text| stands_alone(&profile, &pane, text);
                assert!(is_read("half a sentence"), "{agent} at {width}:\n{:?}", pane.screen);
                assert!(!is_read("half a sent"), "{agent} at {width}");
            }
        }
    }
}

/// On no recorded screen of an agent may a key be pressed that would kill it, or an Enter that does not follow our
/// own text.
#[test]
fn on_no_recorded_screen_is_a_harmful_key_pressed_or_a_line_submitted() {
    for profile in seeing() {
        for width in WIDTHS {
            for Recording { name, pane } in recordings(&profile, width) {
                let text = "ensemble: 3 messages for dispatch";
                let enter = TypingPurpose::Press(Key::Enter);
                for purpose in
                    [enter, TypingPurpose::Press(Key::CtrlC), TypingPurpose::Submit { text }]
                {
                    let refused = objection(&profile, &pane, &DiagnosisContext::default(), purpose);
                    assert!(
                        refused.is_some(),
                        "{} at {width}, {name}: {purpose:?}",
                        profile.name()
                    );
                }
            }
        }
    }
}

#[test]
fn each_agent_was_recorded_in_each_state_at_each_width() {
    let mut missing: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for profile in seeing() {
        for width in WIDTHS {
            let found = recordings(&profile, width);
            for needed in NEEDED {
                if !found.iter().any(|recording| recording.name == needed) {
                    let agent = format!("{}-{width}", profile.name());
                    missing.entry(agent).or_default().insert(needed);
                }
            }
        }
    }
    assert!(missing.is_empty(), "not recorded: {missing:?}");
}
