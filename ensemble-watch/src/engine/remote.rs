//! Where the mailboxes are, and the last news of those on servers.

use std::sync::PoisonError;

use ensemble_core::Result;
use ensemble_core::message::Name;
use ensemble_core::spool::Spool;
use serde_json::{Value, json};

use crate::mail::{MailSource, RemoteMail};
use crate::members::WorkloadSource;
use crate::project::Project;
use crate::servers::{SharedSight, Sighted};
use crate::workload::Workload;

/// The queue that has the mailboxes.
pub(super) enum Remote {
    /// In the queue's directory.
    Directory,
    /// On servers.
    Servers { mail: RemoteMail, workload: Workload, condition: Value, sight: SharedSight },
}

impl Remote {
    pub(super) fn new(project: &Project, sight: SharedSight) -> Result<Self> {
        Ok(match project.servers()? {
            None => Self::Directory,
            Some(_) => Self::Servers {
                mail: RemoteMail::default(),
                workload: Workload::default(),
                condition: json!({ "connected": false }),
                sight,
            },
        })
    }

    /// Whether the mailboxes are in the queue's directory.
    pub(super) const fn is_directory(&self) -> bool {
        matches!(self, Self::Directory)
    }

    /// The messages that wait.
    pub(super) fn mail<'a>(&'a self, spool: &'a Spool) -> &'a dyn MailSource {
        match self {
            Self::Directory => spool,
            Self::Servers { mail, .. } => mail,
        }
    }

    /// What agents hold and wait for.
    pub(super) fn source<'a>(&'a self, spool: &'a Spool) -> WorkloadSource<'a> {
        match self {
            Self::Directory => WorkloadSource::Directory(spool),
            Self::Servers { workload, .. } => WorkloadSource::Servers(workload),
        }
    }

    /// Tells the thread that follows the servers which members are gone.
    pub(super) fn note_absent<'m>(&self, gone: impl Iterator<Item = (&'m Name, &'m str)>) {
        self.tell(|sight| {
            sight.absent = gone.map(|(agent, why)| (agent.clone(), why.to_owned())).collect();
        });
    }

    /// Tells the thread that follows the servers what was seen; nothing where the mailboxes are in the directory.
    pub(super) fn tell(&self, change: impl FnOnce(&mut Sighted)) {
        if let Self::Servers { sight, .. } = self {
            change(&mut sight.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// For `status`.
    pub(super) fn summary(&self) -> Value {
        match self {
            Self::Directory => Value::Null,
            Self::Servers { condition, .. } => condition.clone(),
        }
    }

    /// How many requests wait on the servers; `None` where they are in the directory.
    pub(super) fn requests(&self) -> Option<Value> {
        match self {
            Self::Directory => None,
            Self::Servers { condition, .. } => condition.get("requests").cloned(),
        }
    }
}
