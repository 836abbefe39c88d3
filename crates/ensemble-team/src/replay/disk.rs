//! The state on disk as plain values, for the caller of the comparison to fill in.

use std::collections::BTreeMap;

use serde::Serialize;

/// Where the blackboard usually is, relative to the project.
pub const BOARD_PATH: &str = ".ensemble/state.yaml";

/// Content of a project's directories. Parts that were not read are empty, so the log's entries for
/// them count as missing; `None` excludes a part from the comparison.
#[derive(Clone, Debug, Default)]
pub struct DiskState {
    pub mailboxes: BTreeMap<String, DiskMailbox>,
    pub requests: BTreeMap<String, DiskRequest>,
    /// The blackboard; `None` if it does not exist or was not read.
    pub board: Option<DiskBoard>,
    /// Steps by task and index; `None` if they were not read.
    pub steps: Option<BTreeMap<(String, u64), DiskStep>>,
    /// What could not be read, and is not compared.
    pub unread: Vec<UnreadPlace>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnreadPlace {
    /// Its path, relative to the project, as differences in it or below it name it.
    pub unread: String,
    pub text: String,
}

impl DiskState {
    pub fn add_unread(&mut self, path: impl Into<String>, why: &impl ToString) {
        self.unread.push(UnreadPlace { unread: path.into(), text: why.to_string() });
    }

    pub(super) fn is_unread(&self, path: &str) -> bool {
        let is_below = |rest: &str| rest.is_empty() || rest.starts_with('/');
        self.unread.iter().any(|part| path.strip_prefix(&*part.unread).is_some_and(is_below))
    }
}

#[derive(Clone, Debug, Default)]
pub struct DiskMailbox {
    /// Retention of settled messages, in days.
    pub done_days: u64,
    /// Its messages by id. A message in two places at once has two entries.
    pub messages: BTreeMap<String, Vec<DiskMessage>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskMessage {
    pub place: MessagePlace,
    pub path: String,
    /// Seconds its lease was extended to, and the sequence number of that extension.
    pub extended: Option<(u64, u64)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessagePlace {
    /// Waiting, after this many deliveries.
    Queued {
        epoch: u64,
    },
    Held {
        holder: String,
        epoch: u64,
    },
    Settled,
    Dead,
}

impl MessagePlace {
    pub fn words(&self) -> String {
        match self {
            Self::Queued { epoch } => format!("queued, epoch {epoch}"),
            Self::Held { holder, epoch } => format!("held by {holder}, epoch {epoch}"),
            Self::Settled => "settled".to_owned(),
            Self::Dead => "dead".to_owned(),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskRequest {
    /// `pending`, `approved`, `rejected`, `expired` or `cancelled`.
    pub state: String,
    pub by: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub struct DiskBoard {
    pub path: String,
    pub revision: u64,
    pub sha256: String,
    pub tasks: BTreeMap<String, DiskTask>,
    pub agents: BTreeMap<String, u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskTask {
    pub status: String,
    pub holder: Option<String>,
    pub epoch: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskStep {
    pub status: String,
    /// Number of hand-outs.
    pub epoch: u64,
}
