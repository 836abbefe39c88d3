//! `budget` in `ensemble.yaml`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ensemble_core::message::Name;
use ensemble_core::{Error, Result};
use ensemble_team::budget::{BudgetLimit, ProjectBudgets};
use ensemble_usage::Prices;
use serde::{Deserialize, Serialize};

use super::trusted::read_trusted_text;

const PRICES_BYTES_MAX: usize = 1024 * 1024;

/// What agents, tasks and the team may use (docs/guides/usage.md).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct BudgetConfig {
    /// Limit of each agent.
    pub agent: BudgetLimit,
    /// Limit of each task.
    pub task: BudgetLimit,
    /// Limit of all agents together.
    pub team: BudgetLimit,
    /// Limits of single agents, instead of `agent`.
    pub agents: BTreeMap<Name, BudgetLimit>,
    /// Limits of single tasks, instead of `task`.
    pub tasks: BTreeMap<String, BudgetLimit>,
    /// File with prices of models, beside this one, in addition to the built-in ones.
    #[serde(deserialize_with = "super::paths::read")]
    pub prices: Option<PathBuf>,
}

impl BudgetConfig {
    pub(super) fn or(self, fallback: Self) -> Self {
        let or = |own: BudgetLimit, other: BudgetLimit| if own.is_none() { other } else { own };
        Self {
            agent: or(self.agent, fallback.agent),
            task: or(self.task, fallback.task),
            team: or(self.team, fallback.team),
            agents: if self.agents.is_empty() { fallback.agents } else { self.agents },
            tasks: if self.tasks.is_empty() { fallback.tasks } else { self.tasks },
            prices: self.prices.or(fallback.prices),
        }
    }

    pub(super) fn check(&self, path: &Path) -> Result<()> {
        let common = [("agent", &self.agent), ("task", &self.task), ("team", &self.team)];
        let common = common.into_iter().map(|(place, limit)| (place.to_owned(), limit));
        let agents = self.agents.iter().map(|(name, limit)| (format!("agents.{name}"), limit));
        let tasks = self.tasks.iter().map(|(task, limit)| (format!("tasks.{task}"), limit));
        for (place, limit) in common.chain(agents).chain(tasks) {
            if let Some(usd) = limit.usd.filter(|usd| !usd.is_finite() || *usd < 0.0) {
                let detail = format!("is {usd}, which is not an amount of money: write 0 or more");
                return Err(Error::malformed(path, format!("budget.{place}.usd"), detail));
            }
        }
        Ok(())
    }

    pub fn budgets(&self) -> ProjectBudgets {
        let mut budgets = ProjectBudgets::default();
        (budgets.agent, budgets.task, budgets.team) = (self.agent, self.task, self.team);
        budgets.agents.clone_from(&self.agents);
        budgets.tasks.clone_from(&self.tasks);
        budgets
    }

    /// The built-in prices and those of the project at `root`.
    pub fn prices(&self, root: &Path) -> Result<Prices> {
        let Some(file) = &self.prices else { return Ok(Prices::built_in()) };
        let path = root.join(file);
        let Some(text) = read_trusted_text(&path, None, PRICES_BYTES_MAX)? else {
            return Err(Error::malformed(&path, "file", "does not exist"));
        };
        Ok(Prices::built_in().overridden_by(Prices::parse(&text, &path)?))
    }
}
