//! What the agents of a team took, by agent and task.

use std::collections::BTreeMap;

use ensemble_core::message::Name;
use serde::Serialize;

use super::{Entry, HeldTasks, Prices, Program, ReadingLimit, Records, Spent};
use crate::session::Session;

/// Usage of one agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct AgentUsage {
    /// All of it.
    #[serde(flatten)]
    pub spent: Spent,
    /// By the task that the agent held at the time. The rest belongs to no task.
    pub tasks: BTreeMap<String, Spent>,
}

/// The records of all agents, read as they grow.
#[derive(Debug, Default)]
pub struct TeamRecords {
    agents: BTreeMap<Name, Agent>,
}

/// The records of one agent, and the sums of them.
#[derive(Debug)]
struct Agent {
    records: Records,
    usage: AgentUsage,
    /// What the sums were made of.
    summed: Option<((u64, usize), u64)>,
}

impl Agent {
    fn new(program: Program) -> Self {
        Self { records: Records::new(program), usage: AgentUsage::default(), summed: None }
    }
}

impl TeamRecords {
    /// Reads what these sessions have written since the last call, as far as `limit` allows.
    pub fn update<'a>(
        &mut self,
        sessions: impl IntoIterator<Item = &'a Session>,
        limit: &mut ReadingLimit,
    ) {
        for session in sessions {
            let Some(program) = Program::of_provider(&session.provider) else { continue };
            let known = self.agents.entry(session.agent.clone());
            let agent = known.or_insert_with(|| Agent::new(program));
            if agent.records.program() != program {
                *agent = Agent::new(program);
            }
            agent.records.update(&session.records, limit);
        }
    }

    /// The usage of each agent. Only what has changed is summed again, so the prices must be the same in each call.
    #[must_use]
    pub fn usage(&mut self, held: &HeldTasks, prices: &Prices) -> BTreeMap<Name, AgentUsage> {
        for (name, agent) in &mut self.agents {
            let now = Some((agent.records.changes(), held.changes(name.as_str())));
            if agent.summed != now {
                agent.usage = usage(name, agent.records.entries(), held, prices);
                agent.summed = now;
            }
        }
        self.agents.iter().map(|(name, agent)| (name.clone(), agent.usage.clone())).collect()
    }
}

/// What an agent took. Entries for the same task that follow one another are one stretch of work.
fn usage(agent: &Name, entries: &[Entry], held: &HeldTasks, prices: &Prices) -> AgentUsage {
    let mut usage = AgentUsage::default();
    usage.spent.add(entries, prices);
    let task_at = |entry: &Entry| held.task_at(agent.as_str(), entry.at);
    for stretch in entries.chunk_by(|a, b| task_at(a) == task_at(b)) {
        if let Some(task) = task_at(&stretch[0]) {
            let spent = usage.tasks.entry(task.to_owned()).or_default();
            spent.add(stretch, prices);
        }
    }
    usage
}

/// What each task took, by all agents together.
#[must_use]
pub fn by_task(agents: &BTreeMap<Name, AgentUsage>) -> BTreeMap<String, Spent> {
    let mut tasks: BTreeMap<String, Spent> = BTreeMap::new();
    for (task, spent) in agents.values().flat_map(|agent| &agent.tasks) {
        tasks.entry(task.clone()).or_default().merge(spent);
    }
    tasks
}
