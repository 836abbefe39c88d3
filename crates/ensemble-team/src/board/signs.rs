//! Signs that an agent gives between its writes to the board. A sign states that the agent is alive,
//! that it will be busy for long, or how it is about to end.
//!
//! A sign is one file, `leases/<agent>@<epoch>.sign` beside the board, with the epoch of the
//! registration. The agent's own commands replace it (`ensemble agent heartbeat`, `handoff`,
//! `exit`). Its supervisor reads it. An observer of leases counts it like a beat, so an agent
//! without a supervisor renews its leases itself. No lock is taken: two simultaneous commands of
//! one agent count as one sign.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::leases::BEATS;
use crate::proto::beat::{LEASE_DURATION, LONG_OPERATION};
use crate::proto::task::TaskHolder;
use ensemble_core::Result;
use ensemble_core::durable::{Dir, Durability, FileModes};
use ensemble_core::message::yaml;

pub(super) const ENDING: &str = ".sign";
const BYTES_MAX: usize = 8_192;
const WORDS_MAX: usize = 1_000;

/// An announced exit, for programs that cannot choose their own exit status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnnouncedExit {
    /// The intended exit status: 0, 42 or another.
    pub code: i32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentSign {
    pub sequence: u64,
    /// How long the sign counts, in seconds.
    pub lease_seconds: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub long: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leaving: Option<AnnouncedExit>,
    /// Share of its context that the agent says is used, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_percent: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignContent<'a> {
    Alive,
    Long(&'a str),
    Leaving { code: i32, reason: &'a str },
}

impl AgentSign {
    /// The last sign of a registration; `None` if it is missing or unreadable.
    pub fn read(directory: &Path, agent: &TaskHolder) -> Option<Self> {
        let dir = Dir::open(directory).ok()?.open_child(BEATS).ok()?;
        Self::read_in(&dir, agent)
    }

    pub(super) fn read_in(dir: &Dir, agent: &TaskHolder) -> Option<Self> {
        let name = file_name(agent);
        let bytes = dir.read(&name, BYTES_MAX).ok()??;
        yaml::parse(std::str::from_utf8(&bytes).ok()?, Path::new(&name)).ok()
    }

    /// Writes a registration's next sign and returns it. `directory` is the board's; `usual` is the
    /// usual duration of its leases.
    pub fn write_sign(
        directory: &Path,
        agent: &TaskHolder,
        say: &SignContent<'_>,
        usual: Duration,
    ) -> Result<Self> {
        let dir = Dir::open(directory)?.ensure_child(BEATS, FileModes::default())?;
        let before = Self::read_in(&dir, agent).unwrap_or_default();
        let mut sign = Self {
            sequence: before.sequence + 1,
            lease_seconds: usual.as_secs().max(1),
            long: None,
            leaving: None,
            context_percent: before.context_percent,
        };
        match say {
            SignContent::Alive => {}
            SignContent::Long(what) => {
                sign.lease_seconds = LONG_OPERATION.max(usual).as_secs();
                sign.long = Some(clipped(what));
            }
            SignContent::Leaving { code, reason } => {
                sign.leaving = Some(AnnouncedExit { code: *code, reason: clipped(reason) });
            }
        }
        sign.write(&dir, agent)?;
        Ok(sign)
    }

    /// Writes how much of its context an agent has used, with the sign that it gave before.
    pub fn note_context(
        mut self,
        directory: &Path,
        agent: &TaskHolder,
        percent: u64,
    ) -> Result<Self> {
        let dir = Dir::open(directory)?.ensure_child(BEATS, FileModes::default())?;
        self.sequence += 1;
        self.context_percent = Some(percent);
        self.write(&dir, agent)?;
        Ok(self)
    }

    fn write(&self, dir: &Dir, agent: &TaskHolder) -> Result<()> {
        let name = file_name(agent);
        let tmp = format!(".{name}.{}.tmp", std::process::id());
        dir.remove(&tmp)?;
        let text = yaml::render(self);
        dir.replace_by(&name, text.as_bytes(), dir, &tmp, FileModes::default(), Durability::Process)
    }

    pub fn lease(&self) -> Duration {
        match self.lease_seconds {
            0 => LEASE_DURATION,
            seconds => Duration::from_secs(seconds),
        }
    }
}

pub(super) fn file_name(agent: &TaskHolder) -> String {
    format!("{}@{}{ENDING}", agent.by, agent.epoch)
}

fn clipped(text: &str) -> String {
    let mut text = text.trim().to_owned();
    let end = (0..=WORDS_MAX.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.truncate(end.unwrap_or(0));
    text
}
