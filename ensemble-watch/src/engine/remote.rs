//! Where the mailboxes are, and the last news of those on servers.

use std::collections::BTreeSet;
use std::sync::PoisonError;

use ensemble_core::Result;
use ensemble_core::message::Name;
use ensemble_core::spool::Spool;
use ensemble_project::Project;
use ensemble_project::workload::Workload;
use ensemble_team::holdings::{HeldAs, Holding};
use serde_json::{Value, json};

use crate::mail::{MailSource, RemoteMail};
use crate::member_watch::WorkloadSource;
use crate::servers::{SharedSight, Sighted};

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

    /// How many messages of the servers an agent holds; `None` where the mailboxes are in the directory.
    pub(super) fn mail_held_by(&self, agent: &Name) -> Option<usize> {
        let Self::Servers { workload, .. } = self else { return None };
        let held = workload.holds.get(agent).map(|held| held.iter().filter(|it| is_mail(it)));
        Some(held.map_or(0, Iterator::count))
    }

    /// The agents that hold messages of the servers; `None` where the mailboxes are in the directory.
    pub(super) fn mail_holders(&self) -> Option<BTreeSet<Name>> {
        let Self::Servers { workload, .. } = self else { return None };
        let holds = workload.holds.iter().filter(|(_, held)| held.iter().any(is_mail));
        Some(holds.map(|(agent, _)| agent.clone()).collect())
    }

    /// Tells the thread that follows the servers whether an agent is parked.
    pub(super) fn note_parked(&self, agent: &Name, is_parked: bool) {
        self.tell(|sight| match is_parked {
            true => drop(sight.parked.insert(agent.clone())),
            false => drop(sight.parked.remove(agent)),
        });
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

fn is_mail(holding: &Holding) -> bool {
    holding.held_as == HeldAs::Message
}
