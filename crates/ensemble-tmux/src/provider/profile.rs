//! A profile: what is known of one agent program, as data.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use regex_lite::Regex;
use serde::{Deserialize, Serialize};

use super::hooks::HookConfig;
use super::server::ServerConfig;
use ensemble_core::agent::{AgentState, ProgramSettings};
use ensemble_core::pane::{ForegroundProcess, Key, PaneState};

pub const PASTE_BEGINS: &str = "\x1b[200~";
pub const PASTE_ENDS: &str = "\x1b[201~";

/// The profile of one agent program. Made from YAML by [`Profiles`](super::Profiles); docs/reference/providers.md
/// describes the file.
#[derive(Clone, Debug)]
pub struct Profile {
    pub(super) program: ProgramSettings,
    pub(super) seen: Option<String>,
    pub(super) seen_on: Option<String>,
    pub(super) programs: BTreeSet<String>,
    /// How long to wait between the text of a nudge and its Enter. Zero: both go together.
    pub enter_delay: Duration,
    /// How long to wait between a line that goes as a bracketed paste and its Enter; `None` if lines go as keys.
    pub paste_delay: Option<Duration>,
    pub(super) composer: Composer,
    pub(super) rules: Vec<StateRule>,
    pub(super) otherwise: AgentState,
    pub(super) types_when_busy: bool,
    pub(super) steers: bool,
    pub(super) reset: Option<String>,
    pub(super) forbidden: BTreeMap<AgentState, BTreeSet<Key>>,
    pub(super) machine: Option<MachineSource>,
    pub(super) server: ServerConfig,
    pub(super) hooks: HookConfig,
}

/// Where an agent takes input, and how to see whether there is a draft.
#[derive(Clone, Debug)]
pub(super) enum Composer {
    /// A shell's line editor, or a program that reads lines: the cursor's line.
    ShellLine {
        /// Lines that look like a prompt and continue an unfinished command.
        continuations: Vec<Regex>,
    },
    /// A box whose first line begins with a prompt.
    Prompt {
        /// The prompt, from the beginning of the line.
        prompt: Regex,
        /// What the program shows there while it is empty.
        placeholders: Vec<Regex>,
    },
    /// A box with a side at the left and an edge at the bottom, as wide as that edge.
    Boxed {
        /// How each of its lines begins.
        side: Regex,
        /// Its lower edge, from the beginning of the line to the end at the right.
        bottom: Regex,
        /// How many of its lowest lines are not for input.
        foot: usize,
        /// What the program shows there while it is empty.
        placeholders: Vec<Regex>,
    },
    /// Not known: anything may be typed at any time.
    Anywhere,
}

#[derive(Clone, Debug)]
pub(super) struct StateRule {
    pub(super) state: AgentState,
    pub(super) name: String,
    pub(super) region: Region,
    pub(super) pattern: Regex,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Region {
    Screen,
    /// Its last lines that are not blank.
    Bottom(usize),
    CursorLine,
    Title,
}

impl Region {
    pub(super) fn text(self, state: &PaneState) -> String {
        match self {
            Self::Screen => state.screen.join("\n"),
            Self::CursorLine => state.cursor_line().to_owned(),
            Self::Title => state.title.clone(),
            Self::Bottom(count) => {
                let mut lines: Vec<&str> = state
                    .screen
                    .iter()
                    .rev()
                    .filter(|line| !line.is_empty())
                    .take(count)
                    .map(String::as_str)
                    .collect();
                lines.reverse();
                lines.join("\n")
            }
        }
    }
}

/// The interface over which an agent reports its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MachineSource {
    /// `~/.claude/sessions/<pid>.json`, what `claude agents --json` prints.
    ClaudeSessions,
    /// `GET /session/status` and `GET /permission` of an OpenCode server on the loopback.
    OpencodeHttp,
}

impl Profile {
    pub const fn program(&self) -> &ProgramSettings {
        &self.program
    }

    pub fn name(&self) -> &str {
        &self.program.name
    }

    /// Whether the program calls itself a later version than the one with which the profile was tried; `None` if
    /// nothing is known of one of them.
    pub fn is_older_than(&self, version: &str) -> Option<bool> {
        Some(version_numbers(self.seen.as_deref()?)? < version_numbers(version)?)
    }

    pub fn seen_version(&self) -> Option<&str> {
        self.seen.as_deref()
    }

    /// The day when it was tried with that version.
    pub fn seen_date(&self) -> Option<&str> {
        self.seen_on.as_deref()
    }

    /// The command that starts the agent; `None` if there is nothing to start.
    pub fn open_command(&self) -> Option<&str> {
        self.program.open.as_deref()
    }

    /// The command that resets the agent's context, typed as it is; `None` if there is none.
    pub fn reset_command(&self) -> Option<&str> {
        self.reset.as_deref()
    }

    /// The interface over which the agent reports its state.
    pub const fn machine_source(&self) -> Option<MachineSource> {
        self.machine
    }

    /// The address of that source for all agents of this kind, if it was configured.
    pub const fn server(&self) -> &ServerConfig {
        &self.server
    }

    pub const fn hooks(&self) -> &HookConfig {
        &self.hooks
    }

    /// The profile under which a line interrupts the agent's work, if a typed line steers it.
    pub fn steering(&self) -> Option<Self> {
        self.steers.then(|| Self { types_when_busy: true, ..self.clone() })
    }

    pub fn forbids(&self, state: AgentState, key: Key) -> bool {
        self.forbidden.get(&state).is_some_and(|keys| keys.contains(&key))
    }

    /// The states of all rules that match, whichever decides.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn matching(&self, pane: &PaneState) -> Vec<AgentState> {
        let matches = |rule: &&StateRule| rule.pattern.is_match(&rule.region.text(pane));
        self.rules.iter().filter(matches).map(|rule| rule.state).collect()
    }

    /// The names of the agent's program, if a look at the cursor's line is all that the profile
    /// asks for before typing.
    pub(crate) fn programs_at_rest(&self) -> Option<Vec<&str>> {
        let simple = |name: &String| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        let line_only = matches!(self.composer, Composer::ShellLine { .. })
            && self.rules.is_empty()
            && self.machine.is_none()
            && self.otherwise == AgentState::Ready;
        (line_only && !self.programs.is_empty() && self.programs.iter().all(simple))
            .then(|| self.programs.iter().map(String::as_str).collect())
    }

    /// The name by which one of these processes is the agent. A shell is it only as the leader of
    /// its group: below another program it is a tool of that program.
    pub(crate) fn program_among<'a>(&self, processes: &'a [ForegroundProcess]) -> Option<&'a str> {
        // A program beside a shell that reads commands belongs to its prompt.
        let is_prompt = processes.first().is_some_and(|first| first.reads_commands);
        if self.programs.is_empty() && is_prompt {
            return None;
        }
        let named = processes.iter().find_map(|process| self.name_as_program(process));
        // A shell that was given its command reads no other: with nothing else beside it, it is the program.
        let given = || processes.first().filter(|first| first.given_command);
        let is_any = self.programs.is_empty();
        named.or_else(|| given().filter(|_| is_any).map(ForegroundProcess::name))
    }

    pub(crate) fn name_as_program<'a>(&self, process: &'a ForegroundProcess) -> Option<&'a str> {
        if self.programs.is_empty() {
            // A shell's script comes last among its names.
            let script = process.names.last().filter(|_| process.runs_script());
            let program = || (!process.shell).then(|| process.name());
            return script.map(String::as_str).or_else(program);
        }
        let counts = |name: &&str| !is_shell(name) || process.leads;
        let mut names = process.names.iter().map(String::as_str);
        names.find(|name| self.programs.contains(*name) && counts(name))
    }

    /// Whether the program of this name is the agent. A profile that names no program takes any
    /// but a shell.
    pub(super) fn is_program(&self, command: &str) -> bool {
        self.programs.contains(command) || (self.programs.is_empty() && !is_shell(command))
    }
}

/// The numbers of the first version in a text such as `codex-cli 0.171.0`.
pub(super) fn version_numbers(text: &str) -> Option<Vec<u64>> {
    let mut words = text.split(|c: char| c.is_whitespace() || c == 'v' || c == '-');
    let version =
        words.find(|word| word.contains('.') && word.starts_with(|c: char| c.is_ascii_digit()))?;
    version.split('.').map(|number| number.parse().ok()).collect()
}

const SHELLS: [&str; 16] = [
    "ash", "bash", "busybox", "csh", "dash", "elvish", "fish", "ksh", "mksh", "nu", "pwsh",
    "rbash", "sh", "tcsh", "xonsh", "zsh",
];

pub(crate) fn is_shell(command: &str) -> bool {
    SHELLS.contains(&command)
}

/// A program's name as tmux gives it, without the dash of a login shell.
pub(crate) fn program_name(command: &str) -> &str {
    command.strip_prefix('-').unwrap_or(command)
}

#[cfg(test)]
mod tests {
    use crate::provider::Profiles;

    #[test]
    fn a_later_version_is_told_from_the_one_that_was_seen() {
        let profiles = Profiles::embedded().unwrap();
        let codex = profiles.get("codex").unwrap();
        let is_newer = |version: &str| codex.is_older_than(version);
        for version in ["codex-cli 0.172.0", "codex-cli 0.1000.0", "v1.0", "codex 1.0.0 (x)"] {
            assert_eq!(is_newer(version), Some(true), "{version}");
        }
        for version in ["codex-cli 0.171.0", "codex-cli 0.99.9"] {
            assert_eq!(is_newer(version), Some(false), "{version}");
        }
        assert_eq!(is_newer("codex"), None);
        assert_eq!(profiles.get("shell").unwrap().is_older_than("9.9"), None);
    }
}
