//! What the built-in profiles make of screens that the real agents have drawn.
//!
//! `SCREENS=DIR make test-agents` records them, a file for each agent and width: a heading with the
//! state, a line with the program and the title of the pane, then the screen with the cursor as `▮`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{Profiles, diagnose};
use crate::agent::AgentState;
use crate::pane::PaneState;

const WIDTHS: [usize; 3] = [80, 110, 200];
/// The agents that were recorded, and the name of their program.
const PROGRAMS: [(&str, &str); 4] =
    [("claude", "claude"), ("codex", "node"), ("gemini", "node"), ("opencode", "opencode")];
/// What each agent must have been recorded in at each width.
const NEEDED: [&str; 6] =
    ["ready", "busy", "draft", "permission", "limited", "limited without end"];

struct Recording {
    name: String,
    pane: PaneState,
}

fn recordings(agent: &str, width: usize, program: &str) -> Vec<Recording> {
    let file = format!("src/provider/recorded/{agent}-{width}.txt");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let sections = text.split("=== ").skip(1);
    sections.map(|section| recording(section, program)).collect()
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

/// The state that a heading stands for.
fn meant(agent: &str, name: &str) -> AgentState {
    match name {
        "trust" => AgentState::Trust,
        "dialog" => AgentState::Dialog,
        "ready" => AgentState::Ready,
        "busy" => AgentState::Busy,
        "draft" => AgentState::Draft,
        "permission" => AgentState::Permission,
        // Seconds before a trust dialog covers its composer.
        "loading" => AgentState::Unknown,
        // It tries again by itself and shows nothing of that.
        "limited" | "limited without end" if agent == "gemini" => AgentState::Busy,
        "limited" | "limited without end" => AgentState::RateLimited,
        other => panic!("an unknown heading: {other}"),
    }
}

/// The profiles of programs that draw no screen of their own.
const WITHOUT_SCREENS: [&str; 2] = ["generic", "shell"];

#[test]
fn every_profile_of_an_agent_is_recorded() {
    let profiles = Profiles::embedded().expect("profiles");
    let drawn = profiles.names().filter(|name| !WITHOUT_SCREENS.contains(name));
    assert_eq!(drawn.collect::<Vec<_>>(), PROGRAMS.map(|(agent, _)| agent));
}

#[test]
fn each_recorded_screen_is_read_as_what_it_is() {
    let profiles = Profiles::embedded().expect("profiles");
    for (agent, program) in PROGRAMS {
        let profile = profiles.get(agent).expect("a profile");
        for width in WIDTHS {
            for Recording { name, pane } in recordings(agent, width, program) {
                let seen = diagnose(&profile, &pane);
                let screen = pane.screen.join("\n");
                let what = format!("{agent} at {width}, {name}: {:?}\n{screen}", seen.evidence);
                assert_eq!(seen.state, meant(agent, &name), "{what}");
                assert_eq!(seen.deferral.is_none(), seen.state == AgentState::Ready, "{what}");
            }
        }
    }
}

#[test]
fn each_agent_was_recorded_in_each_state_at_each_width() {
    let mut missing: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for (agent, program) in PROGRAMS {
        for width in WIDTHS {
            let found = recordings(agent, width, program);
            for needed in NEEDED {
                if !found.iter().any(|recording| recording.name == needed) {
                    missing.entry(format!("{agent}-{width}")).or_default().insert(needed);
                }
            }
        }
    }
    assert!(missing.is_empty(), "not recorded: {missing:?}");
}
