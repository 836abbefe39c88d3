//! Agents that have ended with something in their hands.

use std::collections::{BTreeMap, BTreeSet};

use ensemble_core::broker::Broker;
use ensemble_core::env::Lease;
use ensemble_core::event_log::{Recorder, types};
use ensemble_core::mailboxes::{BadMailbox, visit_mailboxes};
use ensemble_core::message::Name;
use ensemble_core::{Error, Result};
use ensemble_project::status::ACTOR;
use ensemble_team::board::AlarmCondition;
use ensemble_team::roster::PaneObservation;
use serde_json::{Value, json};

const NAMED_MAX: usize = 5;

/// The agents that are gone. An agent is gone once two looks saw it gone, the second of which began
/// after the first. The first may be of a pane that the agent has left for another.
#[derive(Debug, Default)]
pub(crate) struct GoneAgents {
    /// Seen once, with what was held then.
    suspected: BTreeMap<Name, Vec<Lease>>,
    returned: BTreeSet<Name>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum GoneVerdict {
    Nothing,
    LookAgain,
    Ended(GoneAgent),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GoneAgent {
    pub(crate) agent: Name,
    pub(crate) why: String,
    /// The messages that it held when it was first seen gone, by their leases.
    pub(crate) leases: Vec<Lease>,
}

impl GoneAgents {
    /// Agents that an earlier watcher has seen gone: what they held was returned then.
    pub(crate) fn known(agents: impl IntoIterator<Item = Name>) -> Self {
        Self { suspected: BTreeMap::new(), returned: agents.into_iter().collect() }
    }

    /// An agent's pane was observed. `held` lists the leases that it has now.
    pub(crate) fn observed(
        &mut self,
        agent: &Name,
        observation: &PaneObservation,
        is_script: bool,
        held: impl FnOnce() -> Result<Vec<Lease>>,
    ) -> Result<GoneVerdict> {
        if matches!(observation, PaneObservation::Unseen) {
            return Ok(GoneVerdict::Nothing);
        }
        let Some(why) = observation.absence(is_script) else {
            self.suspected.remove(agent);
            self.returned.remove(agent);
            return Ok(GoneVerdict::Nothing);
        };
        if self.returned.contains(agent) {
            return Ok(GoneVerdict::Nothing);
        }
        if let Some(leases) = self.suspected.remove(agent) {
            self.returned.insert(agent.clone());
            return Ok(GoneVerdict::Ended(GoneAgent { agent: agent.clone(), why, leases }));
        }
        self.suspected.insert(agent.clone(), held()?);
        Ok(GoneVerdict::LookAgain)
    }

    /// Forgets the returns that have waited for the servers until their agents were back: what those have now is new.
    pub(crate) fn retain_gone(&self, ended: &mut Vec<GoneAgent>) {
        ended.retain(|ended| self.returned.contains(&ended.agent));
    }

    /// The supervisor of an agent was found dead; whether that is new.
    pub(crate) fn lost_supervisor(&mut self, agent: &Name) -> bool {
        self.returned.insert(agent.clone())
    }

    pub(crate) fn has_supervisor(&mut self, agent: &Name) {
        self.returned.remove(agent);
    }
}

pub(crate) fn held_by(agent: &Name, queue: &dyn Broker) -> Result<Vec<Lease>> {
    let mut held = Vec::new();
    let bad = visit_mailboxes(queue.mailboxes()?, |mailbox| {
        let leases = queue.observe(mailbox)?.into_iter().map(|observed| observed.lease);
        held.extend(leases.filter(|lease| lease.holder == *agent));
        Ok(())
    })?;
    for BadMailbox { name, error, .. } in bad {
        tracing::warn!(%name, %error, "what a gone agent held there is not returned");
    }
    Ok(held)
}

#[derive(Debug, Default)]
pub(crate) struct ReturnedWork {
    pub(crate) mailboxes: Vec<Name>,
    messages: Vec<Value>,
    others: Vec<Value>,
}

impl ReturnedWork {
    /// The alarm of an agent that ended with messages or steps in its hands. The board has its own alarms
    /// for claims and reviews.
    pub(crate) fn alarm(&self, agent: &Name, why: &str) -> Option<AlarmCondition> {
        let messages = self.messages.iter().map(|message| {
            format!("message {} of {}", text_of(message, "id"), text_of(message, "mailbox"))
        });
        let steps = self.others.iter().filter(|other| other["step_index"].is_u64());
        let steps = steps
            .map(|step| format!("step {} of {}", step["step_index"], text_of(step, "task_id")));
        let held: Vec<String> = messages.chain(steps).collect();
        if held.is_empty() {
            return None;
        }
        // An attempt is held once, so no two ends have the same mark.
        let mark = format!("{:?} {:?}", self.messages, self.others);
        let named = held.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = match held.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let text = format!("{agent} is gone ({why}); taken back: {named}{more}");
        Some(AlarmCondition::agent_gone(agent.as_str(), &mark, text))
    }
}

fn text_of<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// Returns what an agent held: its messages, and then what `take_others` takes back from board and steps.
pub(crate) fn return_all(
    agent: &Name,
    why: &str,
    leases: &[Lease],
    queue: &dyn Broker,
    take_others: impl FnOnce() -> Vec<Value>,
    recorder: &dyn Recorder,
) -> ReturnedWork {
    let reason = format!("its holder is gone: {why}");
    let mut returned = ReturnedWork::default();
    for lease in leases {
        match queue.take_back(lease, &reason) {
            Ok(true) => {
                returned.messages.push(
                    json!({ "id": lease.id, "mailbox": lease.mailbox, "attempt": lease.epoch }),
                );
                returned.mailboxes.push(lease.mailbox.clone());
            }
            Ok(false) | Err(Error::LeaseLost { .. }) => {}
            // Its lease expires.
            Err(error) => tracing::warn!(%error, %lease, "cannot return what an ended agent held"),
        }
    }
    returned.others = take_others();
    let ReturnedWork { messages, others, .. } = &returned;
    if !messages.is_empty() || !others.is_empty() {
        let data = json!({ "agent": agent, "why": why, "messages": messages, "others": others });
        recorder.record(types::LEASE_HOLDER_GONE, ACTOR, data);
    }
    returned
}
