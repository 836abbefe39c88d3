//! The programs of agents for which there are hooks.

use std::path::PathBuf;

/// A program that has hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum AgentProgram {
    /// Claude Code
    Claude,
    /// Codex
    Codex,
    /// Gemini CLI
    Gemini,
    /// OpenCode, by our plugins
    Opencode,
    /// Any other program whose hooks have the JSON of Claude Code
    #[value(hide = true)]
    Compatible,
    /// Any program without a terminal that speaks the Agent Client Protocol
    #[value(skip)]
    Acp,
}

impl AgentProgram {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Opencode => "opencode",
            Self::Compatible => "compatible",
            Self::Acp => "acp",
        }
    }

    /// Whether a person sees at the screen what a waiter has said. Claude Code shows that something came, but not what.
    pub const fn shows_wakes(self) -> bool {
        matches!(self, Self::Codex | Self::Opencode | Self::Acp)
    }

    /// Whether the program hears what is said when a session starts so. Gemini CLI 0.61 does not after `/clear`, and
    /// OpenCode never does: they are introduced at the next prompt.
    pub fn hears_start(self, source: Option<&str>) -> bool {
        match self {
            Self::Claude | Self::Codex | Self::Compatible | Self::Acp => true,
            Self::Gemini => source != Some("clear"),
            Self::Opencode => false,
        }
    }
}

/// The programs for which there are hooks.
pub const PROGRAMS: [AgentProgram; 4] =
    [AgentProgram::Claude, AgentProgram::Codex, AgentProgram::Opencode, AgentProgram::Gemini];
pub fn installed_programs() -> Vec<&'static str> {
    PROGRAMS
        .into_iter()
        .map(AgentProgram::word)
        .filter(|word| find_on_path(word).is_some())
        .collect()
}

pub fn find_on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}
