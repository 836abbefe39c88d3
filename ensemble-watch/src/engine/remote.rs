//! What the loop knows of mailboxes on servers: what the thread that follows them has told.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use ensemble_core::Result;
use ensemble_core::env::Monotonic;
use ensemble_core::message::{MessageId, Name};
use ensemble_core::spool::Spool;
use serde_json::{Value, json};

use super::Engine;
use crate::mail::{Mail, RemoteMail};
use crate::members::Source;
use crate::project::Project;
use crate::workload::Workload;

/// News of the servers.
#[derive(Debug)]
#[cfg_attr(not(feature = "nats"), allow(dead_code, reason = "no servers are followed"))]
pub(crate) enum Told {
    /// What waits in a mailbox now.
    Mail {
        /// The changed mailbox.
        mailbox: Name,
        /// The ids, up to a limit.
        ids: Vec<MessageId>,
    },
    /// What the agents of this host hold and wait for.
    Workload(Workload),
    /// How the connection is, for `status`.
    Condition(Value),
}

/// Who should be here and is seen to be gone, and how that is known: told to the thread that sees to
/// the requests on servers.
pub(crate) type Absent = Arc<Mutex<BTreeMap<Name, String>>>;

/// The place of the mailboxes.
pub(super) enum Remote {
    /// In the queue's directory.
    Directory,
    /// On servers.
    Servers { mail: RemoteMail, workload: Workload, condition: Value, absent: Absent },
}

impl Remote {
    pub(super) fn new(project: &Project, absent: Absent) -> Result<Self> {
        Ok(match project.servers()? {
            None => Self::Directory,
            Some(_) => Self::Servers {
                mail: RemoteMail::default(),
                workload: Workload::default(),
                condition: json!({ "connected": false }),
                absent,
            },
        })
    }

    /// Where notifier learn what waits.
    pub(super) fn mail<'a>(&'a self, spool: &'a Spool) -> &'a dyn Mail {
        match self {
            Self::Directory => spool,
            Self::Servers { mail, .. } => mail,
        }
    }

    /// Where it is learned what agents hold and wait for.
    pub(super) fn source<'a>(&'a self, spool: &'a Spool) -> Source<'a> {
        match self {
            Self::Directory => Source::Directory(spool),
            Self::Servers { workload, .. } => Source::Told(workload),
        }
    }

    /// These agents are seen to be gone now.
    pub(super) fn note_absent<'m>(&self, gone: impl Iterator<Item = (&'m Name, &'m str)>) {
        if let Self::Servers { absent, .. } = self {
            let gone = gone.map(|(agent, why)| (agent.clone(), why.to_owned())).collect();
            *absent.lock().unwrap_or_else(PoisonError::into_inner) = gone;
        }
    }

    /// For `status`.
    pub(super) fn summary(&self) -> Value {
        match self {
            Self::Directory => Value::Null,
            Self::Servers { condition, .. } => condition.clone(),
        }
    }
}

impl Remote {
    /// How many requests wait on the servers; `None` where they are in the directory.
    pub(super) fn requests(&self) -> Option<Value> {
        match self {
            Self::Directory => None,
            Self::Servers { condition, .. } => condition.get("requests").cloned(),
        }
    }
}

impl Engine {
    /// The thread that follows the servers has something to say.
    pub(super) fn told(&mut self, now: Monotonic, told: Told) {
        let Remote::Servers { mail, workload, condition, .. } = &mut self.remote else { return };
        match told {
            Told::Mail { mailbox, ids } => {
                for id in mail.take(mailbox.clone(), ids) {
                    self.notifier.notice(&mailbox, id);
                }
                self.changed.insert(mailbox);
            }
            Told::Workload(told) => {
                let stirred: Vec<Name> = workload.changed(&told).cloned().collect();
                *workload = told;
                self.members.stir_all(now, stirred);
            }
            Told::Condition(told) => *condition = told,
        }
    }
}
