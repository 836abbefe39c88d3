//! The messages between the loop and the thread that follows the servers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ensemble_core::dropbox::CompleteFile;
use ensemble_core::env::Monotonic;
use ensemble_core::message::{MessageId, Name, Timestamp};
use ensemble_project::workload::Workload;
use ensemble_team::board::AlarmCondition;
use serde_json::Value;

use crate::held_work::{GoneAgent, WorkingAgents};

const TASK_PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) enum ServerNews {
    Mail {
        mailbox: Name,
        ids: Vec<MessageId>,
    },
    Workload(Workload),
    Condition(Value),
    /// An agent has ended with messages in its hands, which are taken back.
    Gone(AlarmCondition),
    /// An `ack/` file fits no open task of the team.
    UnfitAck(Box<AckFile>),
}

/// Observations of the loop, for the thread that follows the servers.
#[derive(Debug, Default)]
pub(crate) struct SharedObservation {
    /// The members that are gone, with the evidence: the thread expires the requests that they would have
    /// answered.
    pub(crate) absent: BTreeMap<Name, String>,
    /// The agents that are seen working: the thread extends their leases.
    pub(crate) working: WorkingAgents,
    /// Agents that were seen at a usage limit since the thread has looked: it extends their leases once.
    pub(crate) parked: BTreeSet<Name>,
    /// Agents that have ended since the thread has looked: it returns what they hold.
    pub(crate) ended: Vec<GoneAgent>,
    /// `ack/` files that were read since: the thread receives the messages of their tasks.
    pub(crate) acks: Vec<AckFile>,
    /// Tasks whose reports were routed since and name no author: the thread settles what an `ack/` file has received.
    pub(crate) unsigned: Vec<String>,
    /// Reports that were routed since: the thread settles the messages of their tasks.
    pub(crate) reports: Vec<EndingReport>,
}

#[derive(Clone, Debug)]
pub(crate) struct AckFile {
    pub(crate) task: String,
    pub(crate) file: CompleteFile,
    pub(crate) since: Monotonic,
    pub(crate) is_recorded: bool,
}

impl AckFile {
    pub(crate) fn may_wait(&self, now: Monotonic) -> bool {
        now < self.since + TASK_PATIENCE
    }
}

#[derive(Clone, Debug)]
pub(crate) struct EndingReport {
    pub(crate) task: String,
    pub(crate) author: Name,
    pub(crate) written_at: Timestamp,
    pub(crate) attempt: Option<u32>,
}

pub(crate) type SharedSight = Arc<Mutex<SharedObservation>>;
