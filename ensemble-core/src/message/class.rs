//! When a working agent is to read a message.

use serde::{Deserialize, Serialize};
use std::str::FromStr;

use super::PRIORITY_MAX;

/// When a recipient at work reads a message. An idle one reads each at once.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryClass {
    /// Before anything else: the agent is interrupted where its program allows it.
    Interrupt,
    /// After the tool that runs.
    #[default]
    Tool,
    Turn,
}

impl DeliveryClass {
    const ALL: [Self; 3] = [Self::Interrupt, Self::Tool, Self::Turn];

    pub const fn word(self) -> &'static str {
        match self {
            Self::Interrupt => "interrupt",
            Self::Tool => "tool",
            Self::Turn => "turn",
        }
    }

    /// The least priority: what interrupts overtakes all that waits.
    pub const fn priority_min(self) -> u8 {
        match self {
            Self::Interrupt => PRIORITY_MAX,
            Self::Tool | Self::Turn => 0,
        }
    }
}

impl FromStr for DeliveryClass {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        let class =
            Self::ALL.into_iter().find(|class| class.word().eq_ignore_ascii_case(word.trim()));
        class.ok_or_else(|| format!("`{word}` is not interrupt, tool or turn"))
    }
}
