//! What the loop and the thread that follows the servers tell each other.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ensemble_core::message::{MessageId, Name};
use serde_json::Value;

use crate::workload::Workload;

/// News of the servers, for the loop.
#[derive(Debug)]
#[cfg_attr(not(feature = "nats"), allow(dead_code, reason = "no thread follows servers"))]
pub(crate) enum ServerNews {
    /// The messages that wait in a mailbox.
    Mail {
        mailbox: Name,
        /// Up to a limit.
        ids: Vec<MessageId>,
    },
    /// What the agents of this host hold and wait for.
    Workload(Workload),
    /// The state of the connection, for `status`.
    Condition(Value),
}

/// The members that are gone, with the evidence: the thread expires the requests that they would
/// have answered.
pub(crate) type Absent = Arc<Mutex<BTreeMap<Name, String>>>;
