//! One session, as described by its file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::provider::process;
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::message::{MessageId, Name, Timestamp, describe_json_fault};
use ensemble_core::{Error, Result};
use serde::{Deserialize, Serialize};

/// The newest format of a session file that this reads, and the one that it writes.
pub const SESSION_VERSION: u32 = 1;
/// How long an agent may take to show that a turn has begun. Until then its screen looks idle, and a line that is typed
/// would be left in the composer of a turn that runs.
const TURN_BEGINS: Duration = Duration::from_secs(3);
/// How many lines are kept for the person at the screen.
const UNSHOWN_MAX: usize = 16;
/// How many ids of messages are remembered of each kind, the newest ones.
pub const REMEMBERED_MAX: usize = 256;
const RECORD_PATHS_BYTES_MAX: usize = 24 * 1024;
const TEXT_CHARS_MAX: usize = 200;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentSession {
    pub version: u32,
    pub agent: Name,
    /// Which program it is; names a profile.
    #[serde(default)]
    pub provider: String,
    /// The program's own id of the session, which changes with `/clear`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Start of that process, in clock ticks since boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<u64>,
    #[serde(default)]
    pub activity: Activity,
    /// What it is blocked by, or why its turn has failed, in a few words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    pub since: Timestamp,
    /// The session that has received its name and role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub introduced: Option<String>,
    /// The waiting messages that were announced to this session without their content.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub hinted: BTreeSet<MessageId>,
    /// The messages for which an end of a turn was prevented.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub blocked_for: BTreeSet<MessageId>,
    /// The held messages of which this session was reminded, with the number of the delivery.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reminded: BTreeMap<MessageId, u64>,
    /// The messages that this session received before and was asked about, with the number of that delivery.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub asked: BTreeMap<MessageId, u64>,
    /// The ping that was delivered to this session: its attempt, and when its file was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinged: Option<String>,
    /// Messages that were handed over and that the program's own record does not show yet.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub unconfirmed: BTreeSet<MessageId>,
    /// Lines for the person at the agent's screen about messages that a waiter has handed over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unshown: Vec<String>,
    /// Messages that a hook is handing over at this moment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub carrying: Vec<CarriedMessage>,
    /// The program's own records of this agent's sessions, the oldest first: transcripts, rollouts, chats.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub records: Vec<PathBuf>,
    /// When a hook last handed something over, in milliseconds since the machine was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handed_over_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ways: BTreeMap<DeliveryWay, u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    #[default]
    Idle,
    Working,
    /// A person must answer.
    Blocked,
    /// The turn has ended in a usage limit.
    Limited,
    /// The turn has ended in an error.
    Failed,
    Ended,
}

/// By which hook a message came to its agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryWay {
    Prompt,
    /// After a tool, in the middle of a turn.
    Tool,
    Stop,
    /// By the waiter of an idle session.
    Waiter,
}

impl DeliveryWay {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Prompt => "prompt",
            Self::Tool => "tool",
            Self::Stop => "stop",
            Self::Waiter => "waiter",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarriedMessage {
    pub mailbox: Name,
    pub id: MessageId,
    pub epoch: u64,
    pub pid: u32,
    /// Start of the hook, in clock ticks since boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<u64>,
}

impl CarriedMessage {
    /// A message that this process is about to receive as delivery `epoch`.
    pub fn by_this_process(mailbox: Name, id: MessageId, epoch: u64) -> Self {
        let pid = std::process::id();
        Self { mailbox, id, epoch, pid, started: process::start_time(pid) }
    }

    /// Whether the hook has ended without saying that the message arrived.
    pub fn is_abandoned(&self) -> bool {
        self.pid != std::process::id() && !process::is_running(self.pid, self.started)
    }
}

impl AgentSession {
    pub fn new(agent: Name) -> Self {
        Self {
            version: SESSION_VERSION,
            agent,
            provider: String::new(),
            id: None,
            pid: None,
            started: None,
            activity: Activity::default(),
            detail: None,
            since: SystemClock.wall(),
            introduced: None,
            hinted: BTreeSet::new(),
            blocked_for: BTreeSet::new(),
            reminded: BTreeMap::new(),
            asked: BTreeMap::new(),
            pinged: None,
            unconfirmed: BTreeSet::new(),
            unshown: Vec::new(),
            carrying: Vec::new(),
            records: Vec::new(),
            handed_over_ms: None,
            ways: BTreeMap::new(),
        }
    }

    /// Another activity, since now unless it is the same.
    pub fn set(&mut self, activity: Activity, detail: Option<String>) {
        if self.activity != activity || self.detail != detail {
            (self.activity, self.detail, self.since) = (activity, detail, SystemClock.wall());
        }
    }

    /// A hook hands something over now, so a turn begins or continues.
    pub fn mark_hand_over(&mut self) {
        self.handed_over_ms = Some(millis_since_boot());
    }

    /// The turn has ended that an earlier hand-over began, so the screen shows what the agent does.
    pub const fn end_turn(&mut self) {
        self.handed_over_ms = None;
    }

    /// Whether a hook has handed something over so recently that the screen may not show the turn yet.
    pub fn is_turn_beginning(&self) -> bool {
        let ago = self.handed_over_ms.and_then(|at| millis_since_boot().checked_sub(at));
        ago.is_some_and(|ago| Duration::from_millis(ago) < TURN_BEGINS)
    }

    pub fn add_record(&mut self, path: &Path) {
        if self.records.iter().all(|known| known != path) {
            self.records.push(path.to_owned());
        }
    }

    /// Whether the process of the agent lives. Without a process, the session counts as living until it has ended.
    pub fn lives(&self) -> bool {
        self.pid.is_none_or(|pid| process::is_running(pid, self.started))
    }

    /// The messages that hooks have received and never handed over.
    pub fn abandoned(&self) -> impl Iterator<Item = &CarriedMessage> {
        self.carrying.iter().filter(|carried| carried.is_abandoned())
    }

    pub(super) fn parse(content: &[u8], path: &Path) -> Result<Self> {
        let session: Self = serde_json::from_slice(content)
            .map_err(|error| Error::malformed(path, "file", describe_json_fault(&error)))?;
        if session.version > SESSION_VERSION {
            let detail = format!("is {}, this program reads {SESSION_VERSION}", session.version);
            return Err(Error::malformed(path, "version", detail));
        }
        Ok(session)
    }

    pub(super) fn render(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// Keeps the record below the limit of its file. The oldest ids go first: ids sort by time.
    pub(super) fn shorten(&mut self) {
        for ids in [&mut self.hinted, &mut self.blocked_for] {
            while ids.len() > REMEMBERED_MAX {
                ids.pop_first();
            }
        }
        for ids in [&mut self.reminded, &mut self.asked] {
            while ids.len() > REMEMBERED_MAX {
                ids.pop_first();
            }
        }
        let too_many = self.unshown.len().saturating_sub(UNSHOWN_MAX);
        self.unshown.drain(..too_many);
        let size =
            |paths: &[PathBuf]| paths.iter().map(|path| path.as_os_str().len()).sum::<usize>();
        while size(&self.records) > RECORD_PATHS_BYTES_MAX {
            self.records.remove(0);
        }
        for text in [&mut self.id, &mut self.detail, &mut self.introduced] {
            if let Some(text) = text
                && let Some((end, _)) = text.char_indices().nth(TEXT_CHARS_MAX)
            {
                text.truncate(end);
            }
        }
    }
}

fn millis_since_boot() -> u64 {
    u64::try_from(SystemClock.boottime().as_duration().as_millis()).unwrap_or(u64::MAX)
}
