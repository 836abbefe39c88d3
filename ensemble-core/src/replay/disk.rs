//! What lies on disk, as plain values: whoever compares puts it together.

use std::collections::BTreeMap;

/// What a project's directories hold. Parts that were not looked at are empty, and what the log tells of
/// them is then missing; `None` where that must not count.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    /// Mailboxes by name.
    pub mailboxes: BTreeMap<String, DiskMailbox>,
    /// Requests by id.
    pub requests: BTreeMap<String, DiskRequest>,
    /// The blackboard; `None` if there is none, or it was not looked at.
    pub board: Option<DiskBoard>,
    /// Steps by task and index; `None` if they were not looked at.
    pub steps: Option<BTreeMap<(String, u64), DiskStep>>,
}

/// A mailbox.
#[derive(Clone, Debug, Default)]
pub struct DiskMailbox {
    /// How long settled messages are kept, in days.
    pub done_days: u64,
    /// Its messages by id. One that lies in two places at once has two entries.
    pub messages: BTreeMap<String, Vec<DiskMessage>>,
}

/// A message's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskMessage {
    /// Its state.
    pub place: MessagePlace,
    /// Its file, below the project.
    pub path: String,
    /// What its lease was extended to, in seconds, and the sequence number of that.
    pub extended: Option<(u64, u64)>,
}

/// Where a message is on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessagePlace {
    /// Waits, after so many deliveries.
    Queued {
        /// How many.
        epoch: u64,
    },
    /// Somebody has it.
    Held {
        /// Who.
        holder: String,
        /// The number of this delivery.
        epoch: u64,
    },
    /// Done.
    Settled,
    /// Given up.
    Dead,
}

impl MessagePlace {
    /// In words.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Self::Queued { epoch } => format!("queued, epoch {epoch}"),
            Self::Held { holder, epoch } => format!("held by {holder}, epoch {epoch}"),
            Self::Settled => "settled".to_owned(),
            Self::Dead => "dead".to_owned(),
        }
    }
}

/// A request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskRequest {
    /// `pending`, `approved`, `rejected`, `expired` or `cancelled`.
    pub state: String,
    /// Who decided.
    pub by: Option<String>,
}

/// The blackboard.
#[derive(Clone, Debug, Default)]
pub struct DiskBoard {
    /// Its file, below the project.
    pub path: String,
    /// How often it was written.
    pub revision: u64,
    /// The SHA-256 of its text.
    pub sha256: String,
    /// Tasks by id.
    pub tasks: BTreeMap<String, DiskTask>,
    /// The epochs of registrations by agent.
    pub agents: BTreeMap<String, u64>,
}

/// A task on the blackboard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskTask {
    /// Its status.
    pub status: String,
    /// Whose it is.
    pub holder: Option<String>,
    /// Under which number.
    pub epoch: Option<u64>,
}

/// A step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskStep {
    /// Its status.
    pub status: String,
    /// How often it was handed out.
    pub epoch: u64,
}
