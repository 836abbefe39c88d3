//! The usage of a team's agents, by agent and task.

use std::collections::BTreeMap;

use ensemble_core::message::Name;
use serde::Serialize;

use super::{
    HeldTasks, Prices, ReadingLimit, RecordedProgram, UsageEntry, UsageRecords, UsageTotals,
};
use ensemble_tmux::session::AgentSession;

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AgentUsage {
    #[serde(flatten)]
    pub spent: UsageTotals,
    /// By the task that the agent held at the time. The rest belongs to no task.
    pub tasks: BTreeMap<String, UsageTotals>,
}

#[derive(Debug, Default)]
pub struct TeamRecords {
    agents: BTreeMap<Name, AgentRecords>,
}

#[derive(Debug)]
struct AgentRecords {
    records: UsageRecords,
    usage: AgentUsage,
    /// The version of the input for the sums.
    summed: Option<((u64, usize), u64)>,
}

impl AgentRecords {
    fn new(program: RecordedProgram) -> Self {
        Self { records: UsageRecords::new(program), usage: AgentUsage::default(), summed: None }
    }
}

impl TeamRecords {
    /// Reads what these sessions have written since the last call, as far as `limit` allows.
    pub fn update<'a>(
        &mut self,
        sessions: impl IntoIterator<Item = &'a AgentSession>,
        limit: &mut ReadingLimit,
    ) {
        for session in sessions {
            let Some(program) = RecordedProgram::of_provider(&session.provider) else { continue };
            let known = self.agents.entry(session.agent.clone());
            let agent = known.or_insert_with(|| AgentRecords::new(program));
            if agent.records.program() != program {
                *agent = AgentRecords::new(program);
            }
            agent.records.update(&session.records, limit);
        }
    }

    /// The usage of each agent. Only what has changed is summed again, so the prices must be the same in each call.
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

/// The usage of an agent. Entries for the same task that follow one another are one stretch of work.
fn usage(agent: &Name, entries: &[UsageEntry], held: &HeldTasks, prices: &Prices) -> AgentUsage {
    let mut usage = AgentUsage::default();
    usage.spent.add(entries, prices);
    let task_at = |entry: &UsageEntry| held.task_at(agent.as_str(), entry.at);
    for stretch in entries.chunk_by(|a, b| task_at(a) == task_at(b)) {
        if let Some(task) = task_at(&stretch[0]) {
            let spent = usage.tasks.entry(task.to_owned()).or_default();
            spent.add(stretch, prices);
        }
    }
    usage
}

pub fn by_task(agents: &BTreeMap<Name, AgentUsage>) -> BTreeMap<String, UsageTotals> {
    let mut tasks: BTreeMap<String, UsageTotals> = BTreeMap::new();
    for (task, spent) in agents.values().flat_map(|agent| &agent.tasks) {
        tasks.entry(task.clone()).or_default().merge(spent);
    }
    tasks
}
