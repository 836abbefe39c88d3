//! Where the mailboxes are, and the last news of those on servers.

use std::collections::BTreeSet;
use std::sync::PoisonError;

use ensemble_core::Result;
use ensemble_core::message::{MessageId, Name, Timestamp};
use ensemble_core::spool::Spool;
use ensemble_project::Project;
use ensemble_project::workload::Workload;
use ensemble_team::driver::TaskEnds;
use ensemble_team::holdings::{HeldAs, Holding};
use serde_json::{Value, json};

use crate::mail::{MailSource, RemoteMail};
use crate::servers::{ServerNews, SharedObservation, SharedSight};

pub(super) type NewMail = (Name, Vec<MessageId>);

pub(super) struct ServerSight(Option<TeamSight>);

struct TeamSight {
    mail: RemoteMail,
    workload: Workload,
    condition: Value,
    sight: SharedSight,
}

impl ServerSight {
    pub(super) fn new(project: &Project, sight: SharedSight) -> Result<Self> {
        let sight = |()| TeamSight {
            mail: RemoteMail::default(),
            workload: Workload::default(),
            condition: json!({ "connected": false }),
            sight,
        };
        Ok(Self(project.is_shared()?.then_some(()).map(sight)))
    }

    /// Takes news of the servers. Returns the changed mailbox with its new messages, and the agents that hold, or wait
    /// for, something else now.
    pub(super) fn take_news(&mut self, news: ServerNews) -> (Option<NewMail>, Vec<Name>) {
        let Some(team) = &mut self.0 else { return (None, Vec::new()) };
        match news {
            ServerNews::Mail { mailbox, ids } => {
                let new = team.mail.update_mailbox(mailbox.clone(), ids);
                return (Some((mailbox, new)), Vec::new());
            }
            ServerNews::Workload(news) => {
                let changed = team.workload.changed(&news).cloned().collect();
                team.workload = news;
                return (None, changed);
            }
            ServerNews::Condition(news) => team.condition = news,
            // The engine raises the alarm, and notifies the author.
            ServerNews::Gone(_) | ServerNews::UnfitAck(_) => {}
        }
        (None, Vec::new())
    }

    /// Whether this host has all the mailboxes.
    pub(super) const fn is_alone(&self) -> bool {
        self.0.is_none()
    }

    pub(super) fn mail<'a>(&'a self, spool: &'a Spool) -> &'a dyn MailSource {
        self.0.as_ref().map_or(spool, |team| &team.mail)
    }

    /// What agents hold and wait for on the servers; `None` where the mailboxes are in the directory.
    pub(super) fn workload(&self) -> Option<&Workload> {
        self.0.as_ref().map(|team| &team.workload)
    }

    /// How many messages of the servers an agent holds; `None` where the mailboxes are in the directory.
    pub(super) fn mail_held_by(&self, agent: &Name) -> Option<usize> {
        let workload = &self.0.as_ref()?.workload;
        let held = workload.holds.get(agent).map(|held| held.iter().filter(|it| is_mail(it)));
        Some(held.map_or(0, Iterator::count))
    }

    /// The agents that hold messages of the servers; `None` where the mailboxes are in the directory.
    pub(super) fn mail_holders(&self) -> Option<BTreeSet<Name>> {
        let workload = &self.0.as_ref()?.workload;
        let holds = workload.holds.iter().filter(|(_, held)| held.iter().any(is_mail));
        Some(holds.map(|(agent, _)| agent.clone()).collect())
    }

    /// Whether the servers can be used, or the mailboxes are in the directory.
    pub(super) fn are_reached(&self) -> bool {
        self.0.as_ref().is_none_or(|team| team.condition["connected"] == true)
    }

    /// Whether the thread that follows the servers has yet to receive or end the task of a file of this time.
    pub(super) fn has_end(&self, written_at: Timestamp) -> bool {
        let Some(team) = &self.0 else { return false };
        let sight = team.sight.lock().unwrap_or_else(PoisonError::into_inner);
        !sight.unsigned.is_empty()
            || sight.reports.iter().any(|it| it.written_at == written_at)
            || sight.acks.iter().any(|it| TaskEnds::written_at(&it.file.stat) == written_at)
    }

    /// Tells the thread that follows the servers what was seen; nothing where the mailboxes are in the directory.
    pub(super) fn share_observation(&self, change: impl FnOnce(&mut SharedObservation)) {
        if let Some(team) = &self.0 {
            change(&mut team.sight.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    pub(super) fn summary(&self) -> Value {
        self.0.as_ref().map_or(Value::Null, |team| team.condition.clone())
    }

    /// How many requests wait on the servers; `None` where they are in the directory.
    pub(super) fn requests(&self) -> Option<Value> {
        self.0.as_ref()?.condition.get("requests").cloned()
    }
}

fn is_mail(holding: &Holding) -> bool {
    holding.held_as == HeldAs::Message
}
