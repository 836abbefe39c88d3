//! The workload of agents: the messages they hold, and the decisions they wait for.
//!
//! | mailboxes in | looked up by |
//! |---|---|
//! | the queue's directory | the caller, at once |
//! | servers, by a command | the command, over its own connection |
//! | servers, by the watcher | the thread that follows them, which notifies the loop of changes |
//!
//! So a server that does not answer blocks no caller: the loop continues with the last report.

use std::collections::BTreeMap;

use ensemble_core::Result;
use ensemble_core::broker::Broker;
use ensemble_core::message::Name;
use ensemble_core::requests::{Asked, RequestStore, Requests};

/// Number of held messages named for each agent.
const NAMED_MAX: usize = 8;

/// Messages that agents hold, and decisions they wait for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// Pending decisions between agents, in a few words.
    pub waits_for: BTreeMap<Name, String>,
    /// Tasks held by each agent, or ids of messages without a task.
    pub holds: BTreeMap<Name, Vec<String>>,
}

impl Workload {
    /// The workload of these agents, wherever the mailboxes are.
    ///
    /// # Errors
    /// The queue cannot be read.
    pub fn of(
        queue: &dyn Broker,
        store: &dyn RequestStore,
        who: impl Fn(&Name) -> bool,
    ) -> Result<Self> {
        Ok(Self { waits_for: waits_for(store)?, holds: holds(queue, who)? })
    }

    /// The tasks and messages that this agent holds.
    #[must_use]
    pub fn held_by(&self, agent: &Name) -> Vec<String> {
        self.holds.get(agent).cloned().unwrap_or_default()
    }

    /// The agents whose entry differs between the two.
    pub(crate) fn changed<'d>(&'d self, there: &'d Self) -> impl Iterator<Item = &'d Name> {
        let agents = |workload: &'d Self| workload.waits_for.keys().chain(workload.holds.keys());
        agents(self).chain(agents(there)).filter(|agent| {
            self.waits_for.get(*agent) != there.waits_for.get(*agent)
                || self.holds.get(*agent) != there.holds.get(*agent)
        })
    }
}

/// Pending decisions: agents with pending requests of their own, and the oldest request in a few
/// words. One look for the whole team.
///
/// # Errors
/// The requests cannot be listed.
pub fn waits_for(store: &dyn RequestStore) -> Result<BTreeMap<Name, String>> {
    let requests = Requests::new(store);
    let mut pending = Vec::new();
    for id in requests.ids()? {
        // Most requests are closed, which needs no reading to see.
        if !requests.is_closed(&id)?
            && let Ok(Some(entry)) = requests.find(id.as_str())
            && entry.decision.is_none()
        {
            pending.push(entry.request);
        }
    }
    // The oldest request is inserted last.
    pending.sort_by_key(|asked| std::cmp::Reverse(asked.created_at));
    let words = |asked: Asked| {
        let text = words(asked.kind.as_str(), asked.request_id.as_str(), &asked.to);
        (asked.from, text)
    };
    Ok(pending.into_iter().map(words).collect())
}

/// The pending decision of an agent.
pub(crate) fn words(kind: &str, id: &str, to: &Name) -> String {
    format!("{kind} {id} by {to}")
}

/// The tasks that these agents hold, or the ids of messages without a task.
///
/// # Errors
/// The queue cannot be read.
pub fn holds(
    queue: &dyn Broker,
    who: impl Fn(&Name) -> bool,
) -> Result<BTreeMap<Name, Vec<String>>> {
    let mut all: BTreeMap<Name, Vec<String>> = BTreeMap::new();
    for mailbox in queue.mailboxes()? {
        for lease in queue.observe(&mailbox)?.into_iter().map(|observed| observed.lease) {
            if !who(&lease.holder) {
                continue;
            }
            let held = all.entry(lease.holder).or_default();
            if held.len() < NAMED_MAX {
                let task = queue.peek(&mailbox, &lease.id).ok().and_then(|e| e.task_id);
                held.push(task.unwrap_or_else(|| lease.id.to_string()));
            }
        }
    }
    all.values_mut().for_each(|held| held.sort_unstable());
    Ok(all)
}
