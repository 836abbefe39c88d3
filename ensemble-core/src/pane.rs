//! States of a pane, and what may be typed into one.
//!
//! A nudge is a hint that mail is waiting. It never carries content, so the worst that a nudge in
//! the wrong place can do is to show a line. The characters of [`NudgeText`] mean nothing to any
//! shell. A shell that is handed one answers "command not found" or does nothing.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The longest nudge, in bytes. Below the 4,096 bytes of a terminal's line buffer and the argument
/// limits of every tmux, and short enough to be read at a glance.
pub const NUDGE_BYTES_MAX: usize = 120;

/// A line that is harmless wherever it lands: at most [`NUDGE_BYTES_MAX`] bytes of
/// `A-Z a-z 0-9 space . _ : -`, not beginning with a dash.
///
/// ```
/// use ensemble_core::pane::NudgeText;
/// let hint = NudgeText::new("ensemble: 3 messages for dispatch")?;
/// assert!(NudgeText::new("rm -rf $HOME; echo").is_err());
/// # Ok::<(), ensemble_core::pane::NudgeTextError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct NudgeText(String);

impl NudgeText {
    pub fn new(text: impl Into<String>) -> Result<Self, NudgeTextError> {
        let text = text.into();
        if text.is_empty() || text.len() > NUDGE_BYTES_MAX {
            return Err(NudgeTextError::Length { bytes: text.len() });
        }
        if text.starts_with('-') {
            return Err(NudgeTextError::Character { character: '-', position: 0 });
        }
        match text.char_indices().find(|(_, c)| !is_harmless(*c)) {
            Some((position, character)) => Err(NudgeTextError::Character { character, position }),
            None => Ok(Self(text)),
        }
    }

    /// A line for when nothing better can be said.
    pub(crate) fn plain() -> Self {
        Self(": ensemble - mail".to_owned())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NudgeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

const fn is_harmless(c: char) -> bool {
    matches!(c, 'a'..='z' | 'A'..='Z' | '0'..='9' | ' ' | '.' | '_' | ':' | '-')
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NudgeTextError {
    #[error("a nudge has 1 to {NUDGE_BYTES_MAX} bytes, this one has {bytes}")]
    Length { bytes: usize },
    #[error(
        "a nudge may not have {character:?} (byte {position}): only letters, digits, space and . _ : -"
    )]
    Character { character: char, position: usize },
}

/// A key that a protocol may ask for; [`WorkerPane`](crate::WorkerPane) has an example. Text is never pressed key by
/// key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Key {
    /// Submits a composer or a line.
    Enter,
    /// Leaves a menu or an input mode; interrupts some agents.
    Escape,
    /// Ctrl-C: interrupts, and ends some agents.
    CtrlC,
}

impl Key {
    /// All keys.
    pub const ALL: [Self; 3] = [Self::Enter, Self::Escape, Self::CtrlC];
}

/// The visible state of a pane.
///
/// ```
/// use ensemble_core::pane::PaneState;
/// let busy = PaneState::showing(["$ make", "compiling"]).with_process(4711, "make");
/// assert_eq!((busy.cursor_line(), busy.bound), ("compiling", true));
/// assert!(PaneState::headless().screen.is_empty());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaneState {
    /// The pane exists and is the one that was bound (same id, same token, same first process).
    pub bound: bool,
    pub dead: bool,
    /// The exit status of the ended process, where the multiplexer kept it.
    pub dead_status: Option<i32>,
    /// A person scrolls or selects in it (tmux copy-mode and the like).
    pub in_mode: bool,
    pub input_off: bool,
    /// Keys sent to it go to other panes as well.
    pub synchronized: bool,
    pub pid: u32,
    /// Name of the program in the foreground.
    pub command: String,
    /// The processes in the foreground of its terminal, the leader of their group first; searched no further than the
    /// agent. Empty if the process table does not show them: then [`command`](Self::command) alone decides what runs
    /// there.
    pub foreground: Vec<ForegroundProcess>,
    /// The title the program has set.
    pub title: String,
    /// Cursor column, from 0.
    pub cursor_x: u32,
    /// Cursor line, from 0 at the top of the visible screen.
    pub cursor_y: u32,
    /// The visible screen, a line each, without trailing blanks.
    pub screen: Vec<String>,
}

/// A member of the foreground process group of a pane's terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForegroundProcess {
    pub pid: u32,
    /// The names by which it may be known: of its program, and of the script that its program runs.
    pub names: Vec<String>,
    /// Whether the process leads its process group.
    pub leads: bool,
    pub shell: bool,
    /// It is a shell that was started without a script and without a command: it reads commands.
    pub reads_commands: bool,
    /// It is a shell that was given its command with `-c`: it stands for what it runs.
    pub given_command: bool,
    /// It is `ensemble agent supervise`, which starts agents in this terminal or without one.
    pub supervises: bool,
}

impl ForegroundProcess {
    /// A program that is known by these names, the one to call it by first.
    pub fn program<N: Into<String>>(pid: u32, names: impl IntoIterator<Item = N>) -> Self {
        Self { pid, names: names.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Whether it is a shell that runs a script. Such a script may be an agent; a shell that reads commands is not.
    pub const fn runs_script(&self) -> bool {
        self.shell && !self.reads_commands && !self.given_command
    }

    pub fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }
}

impl PaneState {
    /// A pane without a screen, of an agent that its orchestrator knows by other means. It is bound and takes
    /// input.
    pub fn headless() -> Self {
        Self { bound: true, ..Self::default() }
    }

    /// A pane that was bound and shows this screen, with the cursor at the end of its last line.
    pub fn showing<L: Into<String>>(screen: impl IntoIterator<Item = L>) -> Self {
        let screen: Vec<String> = screen.into_iter().map(Into::into).collect();
        let length = |text: &str| u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
        Self {
            cursor_x: screen.last().map_or(0, |line| length(line)),
            cursor_y: u32::try_from(screen.len().saturating_sub(1)).unwrap_or(u32::MAX),
            screen,
            ..Self::headless()
        }
    }

    /// With the process that runs in it: its id, and the name of the program in the foreground.
    pub fn with_process(mut self, pid: u32, command: impl Into<String>) -> Self {
        (self.pid, self.command) = (pid, command.into());
        self
    }

    pub fn cursor_line(&self) -> &str {
        self.screen.get(self.cursor_y as usize).map_or("", String::as_str)
    }
}

/// Why nothing was typed. Each has a stable word for logs and `status`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Deferral {
    PaneGone,
    /// The id now belongs to another pane than the one that was bound.
    PaneReused,
    /// The process in the pane has ended.
    PaneDead,
    /// A person is scrolling or selecting in it.
    CopyMode,
    /// The pane's input is switched off.
    InputOff,
    /// Keys would go to other panes as well.
    Synchronized,
    /// The agent's program is gone and a shell is in its place.
    BareShell {
        command: String,
    },
    /// Another program than the agent's is in the foreground.
    OtherProgram {
        command: String,
    },
    /// A supervisor is in the foreground: it gives its agent the mail with the next prompt.
    Supervised,
    /// The composer or the line holds text that a person has typed.
    Draft,
    /// The agent is working and its profile says not to type then.
    Busy,
    /// A dialog or a permission prompt is open.
    Dialog {
        /// Which, in the profile's words.
        name: String,
    },
    /// The agent is not ready for another reason its profile names (login, rate limit, …).
    NotReady {
        /// Which, in the profile's words.
        state: String,
    },
    /// The screen changed between looking and typing.
    Moved,
    /// One of our lines that was typed and not submitted is not in the composer. A person has sent or
    /// deleted it, or the agent has not shown it yet.
    LineGone,
    /// The multiplexer's server is not running.
    ServerGone,
    /// The program that has started the agent in its own terminal is gone.
    TerminalGone,
    /// The multiplexer did not answer in time.
    Timeout,
    /// The attempt itself failed: a missing program, a binding that was refused, a lock that
    /// cannot be taken.
    Failed {
        detail: String,
    },
}

impl Deferral {
    /// Whether a line that we typed and did not submit is gone, or no longer ours alone.
    pub const fn ends_line(&self) -> bool {
        !matches!(
            self,
            Self::CopyMode
                | Self::InputOff
                | Self::Synchronized
                | Self::Busy
                | Self::Dialog { .. }
                | Self::NotReady { .. }
                | Self::Moved
                | Self::Timeout
        )
    }

    pub const fn word(&self) -> &'static str {
        match self {
            Self::PaneGone => "pane_gone",
            Self::PaneReused => "pane_reused",
            Self::PaneDead => "pane_dead",
            Self::CopyMode => "copy_mode",
            Self::InputOff => "input_off",
            Self::Synchronized => "synchronized",
            Self::BareShell { .. } => "bare_shell",
            Self::OtherProgram { .. } => "other_program",
            Self::Supervised => "supervised",
            Self::Draft => "draft",
            Self::Busy => "busy",
            Self::Dialog { .. } => "dialog",
            Self::NotReady { .. } => "not_ready",
            Self::Moved => "moved",
            Self::LineGone => "line_gone",
            Self::ServerGone => "server_gone",
            Self::TerminalGone => "terminal_gone",
            Self::Timeout => "timeout",
            Self::Failed { .. } => "failed",
        }
    }

    /// The reason to give for an attempt that ended in an error, in the error's own words.
    pub fn of(error: &crate::Error) -> Self {
        Self::Failed { detail: error.to_string() }
    }

    /// Whether waiting alone cannot help: a person has to bind the mailbox to a pane again.
    pub const fn is_permanent(&self) -> bool {
        matches!(self, Self::PaneGone | Self::PaneReused | Self::TerminalGone)
    }
}

impl fmt::Display for Deferral {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PaneGone => f.write_str("the pane is gone"),
            Self::PaneReused => f.write_str("the pane id now belongs to another pane"),
            Self::PaneDead => f.write_str("the process in the pane has ended"),
            Self::CopyMode => f.write_str("a person is scrolling in the pane"),
            Self::InputOff => f.write_str("the pane's input is switched off"),
            Self::Synchronized => f.write_str("the pane is synchronized with others"),
            Self::BareShell { command } => {
                write!(f, "the agent is gone, {command} runs in its pane")
            }
            Self::OtherProgram { command } => write!(f, "{command} is in the foreground"),
            Self::Supervised => {
                f.write_str("supervised: its supervisor gives it the mail with the next prompt")
            }
            Self::Draft => f.write_str("a person has typed a line and not sent it"),
            Self::Busy => f.write_str("the agent is working"),
            Self::Dialog { name } => write!(f, "a dialog is open: {name}"),
            Self::NotReady { state } if state == "ready" => {
                f.write_str("the profile of its program does not allow that")
            }
            Self::NotReady { state } => write!(f, "the agent is not ready: {state}"),
            Self::Moved => f.write_str("the screen changed while looking"),
            Self::LineGone => f.write_str("the line typed before is not in the composer"),
            Self::ServerGone => f.write_str("the tmux server is not running"),
            Self::TerminalGone => f.write_str("the terminal that it was started in is gone"),
            Self::Timeout => f.write_str("tmux did not answer within its limit"),
            Self::Failed { detail } => f.write_str(detail),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum NudgeOutcome {
    /// Typed and submitted; the multiplexer confirmed both under the guard.
    Sent,
    /// Typed but not submitted: the guard failed before Enter. The text is still in the input line.
    TextOnly { deferral: Deferral },
    /// Nothing was typed.
    Refused { deferral: Deferral },
}

impl NudgeOutcome {
    /// Why nothing was submitted.
    pub fn into_deferral(self) -> Option<Deferral> {
        match self {
            Self::Sent => None,
            Self::TextOnly { deferral } | Self::Refused { deferral } => Some(deferral),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_texts_are_refused() {
        for text in [
            "",
            "-l",
            "a;b",
            "a\nb",
            "a\rb",
            "\x1b[201~",
            "$(touch x)",
            "`x`",
            "a|b",
            "a&b",
            "#x",
            "'",
            "\"",
            "\u{202e}",
            "\u{9b}31m",
            "a\tb",
            "!1",
            "a>b",
            "~",
            "*",
            "{",
            "\\",
        ] {
            assert!(NudgeText::new(text).is_err(), "{text:?}");
        }
        assert!(NudgeText::new("x".repeat(NUDGE_BYTES_MAX)).is_ok());
        assert!(NudgeText::new("x".repeat(NUDGE_BYTES_MAX + 1)).is_err());
    }
}
