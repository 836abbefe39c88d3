//! The YAML form of a profile, and its way into a [`Profile`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use regex_lite::Regex;
use serde::Deserialize;

use super::hooks::HookConfig;
use super::profile::{Composer, MachineSource, Profile, Region, StateRule};
use super::server::ServerConfig;
use ensemble_core::agent::{AgentState, EscalationPlan, ProgramSettings};
use ensemble_core::message::yaml;
use ensemble_core::pane::Key;
use ensemble_core::{Error, Result};

/// How many lines `at: bottom` looks at unless a rule says otherwise.
const BOTTOM_LINES: usize = 12;
/// The longest delay before Enter, in milliseconds; others wait for the pane's lock in the meantime.
const ENTER_DELAY_MS_MAX: u64 = 3000;
/// The shortest time between two keys, in milliseconds: programs wait up to half a second for what
/// follows an Escape.
const KEY_GAP_MS_MIN: u64 = 600;
/// The longest time between two keys, in milliseconds.
const KEY_GAP_MS_MAX: u64 = 5000;
/// The pause after a reset unless a profile says otherwise, in milliseconds.
const RESET_PAUSE_MS: u64 = 5000;
const RESET_PAUSE_MS_MAX: u64 = 30_000;
const RESET_BYTES_MAX: usize = 32;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileFile {
    name: String,
    seen: Option<String>,
    seen_on: Option<String>,
    open: Option<String>,
    #[serde(default)]
    programs: BTreeSet<String>,
    nudge: Vec<String>,
    #[serde(default)]
    enter_delay_ms: u64,
    paste_delay_ms: Option<u64>,
    #[serde(default = "key_gap_ms")]
    key_gap_ms: u64,
    #[serde(default = "reset_pause_ms")]
    reset_pause_ms: u64,
    composer: ComposerFile,
    #[serde(default)]
    states: Vec<RuleFile>,
    otherwise: AgentState,
    #[serde(default)]
    types_when_busy: bool,
    #[serde(default)]
    steers: bool,
    #[serde(default)]
    pong_on_screen: bool,
    reset: Option<String>,
    #[serde(default)]
    forbidden: BTreeMap<AgentState, BTreeSet<Key>>,
    #[serde(default)]
    escalation: EscalationPlan,
    machine: Option<MachineSource>,
    #[serde(default)]
    server: ServerConfig,
    #[serde(default)]
    hooks: HookConfig,
}

const fn key_gap_ms() -> u64 {
    KEY_GAP_MS_MIN
}

const fn reset_pause_ms() -> u64 {
    RESET_PAUSE_MS
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ComposerFile {
    kind: ComposerKind,
    prompt: Option<String>,
    side: Option<String>,
    bottom: Option<String>,
    #[serde(default)]
    foot: usize,
    #[serde(default)]
    placeholders: Vec<String>,
    #[serde(default)]
    continuations: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ComposerKind {
    ShellLine,
    Prompt,
    Box,
    Anywhere,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleFile {
    state: AgentState,
    name: Option<String>,
    #[serde(default)]
    at: RegionFile,
    lines: Option<usize>,
    pattern: String,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RegionFile {
    Screen,
    #[default]
    Bottom,
    CursorLine,
    Title,
}

impl Profile {
    pub fn parse(text: &str, path: &Path) -> Result<Self> {
        let file: ProfileFile = yaml::parse(text, path)?;
        file.compile(path)
    }
}

impl ProfileFile {
    fn compile(self, path: &Path) -> Result<Profile> {
        let wrong = |field: &str, detail: &str| Err(Error::malformed(path, field, detail));
        if !self.nudge.last().is_some_and(|template| ProgramSettings::always_fits(template)) {
            return wrong(
                "nudge",
                "the last template must fit into a nudge for every name: `ensemble: mail for {mailbox}`",
            );
        }
        if self.enter_delay_ms > ENTER_DELAY_MS_MAX {
            return wrong("enter_delay_ms", "the delay before Enter is at most 3000 ms");
        }
        if self.paste_delay_ms.is_some_and(|delay| delay > self.enter_delay_ms) {
            return wrong("paste_delay_ms", "the delay after a paste is at most enter_delay_ms");
        }
        if !(KEY_GAP_MS_MIN..=KEY_GAP_MS_MAX).contains(&self.key_gap_ms) {
            return wrong("key_gap_ms", "the time between two keys is 600 to 5000 ms");
        }
        if self.reset_pause_ms > RESET_PAUSE_MS_MAX {
            return wrong("reset_pause_ms", "the pause after a reset is at most 30000 ms");
        }
        if !self.reset.as_deref().is_none_or(is_reset_command) {
            return wrong("reset", "a reset command is a slash and 1 to 31 letters or dashes");
        }
        self.server.check().map_err(|detail| Error::malformed(path, "server", detail))?;
        let program = ProgramSettings {
            name: self.name,
            open: self.open,
            nudges: self.nudge,
            key_gap: Duration::from_millis(self.key_gap_ms),
            reset_pause: Duration::from_millis(self.reset_pause_ms),
            escalation: self.escalation,
            pong_on_screen: self.pong_on_screen,
        };
        Ok(Profile {
            composer: self.composer.compile(path)?,
            rules: self
                .states
                .into_iter()
                .enumerate()
                .map(|(index, rule)| rule.compile(path, index))
                .collect::<Result<_>>()?,
            program,
            seen: self.seen,
            seen_on: self.seen_on,
            programs: self.programs,
            enter_delay: Duration::from_millis(self.enter_delay_ms),
            paste_delay: self.paste_delay_ms.map(Duration::from_millis),
            otherwise: self.otherwise,
            types_when_busy: self.types_when_busy,
            steers: self.steers,
            reset: self.reset,
            forbidden: self.forbidden,
            machine: self.machine,
            server: self.server,
            hooks: self.hooks,
        })
    }
}

impl ComposerFile {
    fn compile(self, path: &Path) -> Result<Composer> {
        let compile_all = |field: &str, patterns: Vec<String>| {
            patterns.iter().map(|p| compile(path, field, p)).collect::<Result<Vec<_>>>()
        };
        let required = |field: &str, pattern: Option<String>| {
            let missing = "missing: how does the line begin?";
            let pattern = pattern.ok_or_else(|| Error::malformed(path, field, missing))?;
            compile(path, field, &pattern)
        };
        Ok(match self.kind {
            ComposerKind::Anywhere => Composer::Anywhere,
            ComposerKind::ShellLine => Composer::ShellLine {
                continuations: compile_all("composer.continuations", self.continuations)?,
            },
            ComposerKind::Prompt => Composer::Prompt {
                prompt: required("composer.prompt", self.prompt)?,
                placeholders: compile_all("composer.placeholders", self.placeholders)?,
            },
            ComposerKind::Box => Composer::Boxed {
                side: required("composer.side", self.side)?,
                bottom: required("composer.bottom", self.bottom)?,
                foot: self.foot,
                placeholders: compile_all("composer.placeholders", self.placeholders)?,
            },
        })
    }
}

impl RuleFile {
    fn compile(self, path: &Path, index: usize) -> Result<StateRule> {
        let field = format!("states[{index}].pattern");
        Ok(StateRule {
            state: self.state,
            name: self.name.unwrap_or_else(|| self.state.word().to_owned()),
            region: match self.at {
                RegionFile::Screen => Region::Screen,
                RegionFile::Bottom => Region::Bottom(self.lines.unwrap_or(BOTTOM_LINES)),
                RegionFile::CursorLine => Region::CursorLine,
                RegionFile::Title => Region::Title,
            },
            pattern: compile(path, &field, &self.pattern)?,
        })
    }
}

fn compile(path: &Path, field: &str, pattern: &str) -> Result<Regex> {
    Regex::new(pattern).map_err(|error| Error::malformed(path, field, error.to_string()))
}

fn is_reset_command(text: &str) -> bool {
    let name = text.strip_prefix('/').unwrap_or_default();
    (1..RESET_BYTES_MAX).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')
}
