//! Budgets: what an agent, a task or the whole team may use. A scope that has used up its budget is *parked*: work in
//! progress continues, but no new work begins until a person allows more.
//!
//! | scope | has used | then |
//! |---|---|---|
//! | agent, task or team | less than its limit | nothing |
//! | agent | its limit or more | it begins no work |
//! | task | its limit or more | no agent begins it |
//! | team | its limit or more | no agent begins any work |
//!
//! A limit is the configured one, and what was allowed on top of it. It is in US dollars, in tokens, or both: the first
//! that is reached counts. Tokens of a model without a known price cost nothing, so a limit in dollars does not see them.
//!
//! State: `.ensemble/budget.json` has what was allowed and what is parked. The watcher and `ensemble agent usage allow`
//! change it under its lock; each door reads it. *A crash* leaves it as it was. A watcher that does not run parks nothing.

mod state;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use ensemble_core::message::Name;
use serde::{Deserialize, Serialize};

use ensemble_usage::UsageTotals;

pub use state::{BudgetFile, LockedBudget, ParkedScope};

/// Most dollars and tokens of a budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct BudgetLimit {
    /// US dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usd: Option<f64>,
    /// Tokens of all kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "scope", content = "name")]
pub enum BudgetScope {
    Agent(Name),
    Task(String),
    /// That of all agents together.
    Team,
}

impl BudgetScope {
    /// As the arguments of the command that allows more.
    pub fn arguments(&self) -> String {
        match self {
            Self::Team => "team".to_owned(),
            Self::Agent(_) | Self::Task(_) => self.to_string(),
        }
    }
}

impl fmt::Display for BudgetScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent(name) => write!(f, "agent {name}"),
            Self::Task(task) => write!(f, "task {task}"),
            Self::Team => f.write_str("the team"),
        }
    }
}

/// A limit that is reached.
#[derive(Clone, Debug, PartialEq)]
pub struct BudgetOverrun {
    pub scope: BudgetScope,
    pub limit: BudgetLimit,
    pub used: BudgetLimit,
}

/// The budgets of a project: `budget` in `ensemble.yaml`, and what was allowed since.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProjectBudgets {
    /// Of each agent that is not in `agents`.
    pub agent: BudgetLimit,
    /// Of each task that is not in `tasks`.
    pub task: BudgetLimit,
    pub team: BudgetLimit,
    pub agents: BTreeMap<Name, BudgetLimit>,
    pub tasks: BTreeMap<String, BudgetLimit>,
    /// The amounts allowed on top of the above.
    pub allowed: BTreeMap<BudgetScope, BudgetLimit>,
}

impl BudgetLimit {
    pub const fn is_none(&self) -> bool {
        self.usd.is_none() && self.tokens.is_none()
    }

    pub const fn of(spent: &UsageTotals) -> Self {
        Self { usd: Some(spent.cost_usd), tokens: Some(spent.tokens.total()) }
    }

    pub fn is_reached(&self, used: &Self) -> bool {
        let usd = self.usd.is_some_and(|limit| used.usd.is_some_and(|used| used >= limit));
        usd || self.tokens.is_some_and(|limit| used.tokens.is_some_and(|used| used >= limit))
    }

    /// With more allowed. A scope without a limit stays without one.
    pub fn plus(self, more: Self) -> Self {
        Self {
            usd: self.usd.map(|usd| usd + more.usd.unwrap_or(0.0)),
            tokens: self.tokens.map(|tokens| tokens.saturating_add(more.tokens.unwrap_or(0))),
        }
    }
}

impl fmt::Display for BudgetLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.usd, self.tokens) {
            (Some(usd), Some(tokens)) => write!(f, "${usd:.2}, {tokens} tokens"),
            (Some(usd), None) => write!(f, "${usd:.2}"),
            (None, Some(tokens)) => write!(f, "{tokens} tokens"),
            (None, None) => f.write_str("no limit"),
        }
    }
}

impl ProjectBudgets {
    pub fn are_none(&self) -> bool {
        let single = self.agents.values().chain(self.tasks.values());
        [&self.agent, &self.task, &self.team].into_iter().chain(single).all(BudgetLimit::is_none)
    }

    pub fn limit(&self, scope: &BudgetScope) -> BudgetLimit {
        let limit = match scope {
            BudgetScope::Agent(name) => self.agents.get(name).copied().unwrap_or(self.agent),
            BudgetScope::Task(task) => self.tasks.get(task).copied().unwrap_or(self.task),
            BudgetScope::Team => self.team,
        };
        limit.plus(self.allowed.get(scope).copied().unwrap_or_default())
    }

    /// All limits that are reached, by what agents and tasks have used.
    pub fn over(
        &self,
        agents: &BTreeMap<Name, UsageTotals>,
        tasks: &BTreeMap<String, UsageTotals>,
    ) -> Vec<BudgetOverrun> {
        let mut team = UsageTotals::default();
        agents.values().for_each(|spent| team.merge(spent));
        let agents = agents.iter().map(|(name, spent)| (BudgetScope::Agent(name.clone()), spent));
        let tasks = tasks.iter().map(|(task, spent)| (BudgetScope::Task(task.clone()), spent));
        let all = std::iter::once((BudgetScope::Team, &team)).chain(agents).chain(tasks);
        let reached = all.filter_map(|(scope, spent)| {
            let (limit, used) = (self.limit(&scope), BudgetLimit::of(spent));
            limit.is_reached(&used).then_some(BudgetOverrun { scope, limit, used })
        });
        reached.collect()
    }
}
