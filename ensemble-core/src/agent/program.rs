//! Settings of an agent's program.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::message::{NAME_BYTES_MAX, Name};
use crate::pane::{NUDGE_BYTES_MAX, NudgeText};

/// The settings of an agent's program that drivers need.
///
/// ```
/// use ensemble_core::agent::ProgramSettings;
/// let program = ProgramSettings::plain("my-agent");
/// let text = program.nudge_text(&"worker-1".parse()?, 3, false);
/// assert_eq!(text.as_str(), "ensemble: 3 messages for worker-1");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramSettings {
    pub name: String,
    /// The command that starts it; `None` if there is nothing to start.
    pub open: Option<String>,
    /// Lines that notify it of mail, the best first. `{messages}` and `{mailbox}` stand for values; the last line
    /// must fit for every mailbox.
    pub nudges: Vec<String>,
    /// How long to wait after a key before anything else is pressed or typed.
    pub key_gap: Duration,
    /// How long to wait after a reset before anything else is typed.
    pub reset_pause: Duration,
    /// The actions of phases 2 and 3 of the ladder.
    pub escalation: EscalationPlan,
    /// Whether a line on its screen counts as its pong (seed 000).
    pub pong_on_screen: bool,
}

impl ProgramSettings {
    /// A program that is only notified of mail: no key is pressed, nothing is started.
    pub fn plain(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            open: None,
            nudges: PLAIN_NUDGES.map(str::to_owned).to_vec(),
            key_gap: Duration::ZERO,
            reset_pause: Duration::ZERO,
            escalation: EscalationPlan::default(),
            pong_on_screen: false,
        }
    }

    /// The line that notifies the agent of its mail: the first template that fits into a nudge, however long the
    /// mailbox's name is. With `more` the count is a lower bound.
    pub fn nudge_text(&self, mailbox: &Name, count: usize, more: bool) -> NudgeText {
        self.nudges
            .iter()
            .map(|template| fill(template, mailbox.as_str(), count, more))
            .find_map(|line| NudgeText::new(line).ok())
            .unwrap_or_else(NudgeText::plain)
    }

    /// Whether a template fits for the longest name and the largest count.
    pub fn always_fits(template: &str) -> bool {
        let longest = "x".repeat(NAME_BYTES_MAX);
        let line = fill(template, &longest, usize::MAX, true);
        line.len() <= NUDGE_BYTES_MAX && NudgeText::new(line).is_ok()
    }
}

const PLAIN_NUDGES: [&str; 2] =
    ["ensemble: {messages} for {mailbox}", "ensemble: mail for {mailbox}"];

fn fill(template: &str, mailbox: &str, count: usize, more: bool) -> String {
    let messages = match (count, more) {
        (1, false) => "1 message".to_owned(),
        (_, false) => format!("{count} messages"),
        (_, true) => format!("{count} or more messages"),
    };
    template.replace("{messages}", &messages).replace("{mailbox}", mailbox)
}

/// A step of a phase of seed 002's ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EscalationStep {
    Escape,
    CtrlC,
    /// Type the profile's reset command and submit it.
    Reset,
    Nudge,
}

/// The actions of phases 2 and 3 of seed 002's ladder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EscalationPlan {
    /// Leave input modes.
    #[serde(default)]
    pub phase_2: Vec<EscalationStep>,
    /// Reset the context.
    #[serde(default)]
    pub phase_3: Vec<EscalationStep>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_program_has_a_line_for_every_mailbox() {
        assert!(ProgramSettings::always_fits(PLAIN_NUDGES[1]));
        let program = ProgramSettings::plain("script");
        let mailbox = Name::new("n".repeat(NAME_BYTES_MAX)).expect("a name");
        let text = program.nudge_text(&mailbox, usize::MAX, true);
        assert!(text.as_str().contains(mailbox.as_str()), "{text}");
    }
}
