//! Budgets of the running team: reads what agents have used, and parks those that have exceeded their limits.
//!
//! ```text
//! every BUDGET_INTERVAL, if ensemble.yaml has a limit
//!   read what agents' records and the event log say since the last look
//!     a large record takes several looks, soon after one another, until which nothing is judged
//!   over its limit, not parked     park it, alarm `over_budget`, record budget.parked
//!   parked, no longer over         lift it, record budget.lifted
//! ```
//!
//! The file is written first, so after *a crash* the agent is parked without an alarm, but `status` shows it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ensemble_core::Result;
use ensemble_core::env::{Clock as _, Monotonic, SystemClock};
use ensemble_core::event_log::types;
use ensemble_core::message::Name;
use ensemble_project::consumption::UsageReader;
use ensemble_team::board::AlarmCondition;
use ensemble_team::budget::{BudgetFile, ParkedScope};
use ensemble_usage::{Prices, ReadingLimit, UsageTotals, by_task};
use serde_json::json;

use crate::context::WatchContext;

const BUDGET_INTERVAL: Duration = Duration::from_secs(15);
/// How much of them one look reads, in bytes: a twentieth of a second's work, because the loop waits for it.
const BYTES_A_LOOK: u64 = 16 * 1024 * 1024;
/// When the next look follows one that has not read everything.
const UNFINISHED_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) struct BudgetWatch {
    context: Arc<WatchContext>,
    next: Monotonic,
    is_limited: bool,
    usage: UsageReader,
}

impl BudgetWatch {
    pub(crate) fn new(now: Monotonic, context: &Arc<WatchContext>) -> Self {
        let project = &context.project;
        let config = &project.config.budget;
        let prices = config.prices(project.root()).unwrap_or_else(|error| {
            tracing::warn!(%error, "using the built-in prices");
            Prices::built_in()
        });
        Self {
            context: Arc::clone(context),
            next: now,
            is_limited: !config.budgets().are_none(),
            usage: UsageReader::new(project, prices),
        }
    }

    /// When the next look is due; never without a limit.
    pub(crate) fn next_timeout(&self) -> Option<Monotonic> {
        self.is_limited.then_some(self.next)
    }

    pub(crate) fn drive(&mut self, now: Monotonic) -> Vec<AlarmCondition> {
        if !self.is_limited || now < self.next {
            return Vec::new();
        }
        self.next = now + BUDGET_INTERVAL;
        self.check_usage(now).unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot compare what was used with the budgets");
            Vec::new()
        })
    }

    fn check_usage(&mut self, now: Monotonic) -> Result<Vec<AlarmCondition>> {
        let project = &self.context.project;
        let mut limit = ReadingLimit::of(BYTES_A_LOOK);
        let usage = self.usage.update_within(&mut limit)?;
        if limit.is_reached() {
            // Too little is known: a budget that is used up must not be lifted.
            self.next = now + UNFINISHED_INTERVAL;
            return Ok(Vec::new());
        }
        let tasks = by_task(&usage);
        let agents: BTreeMap<Name, UsageTotals> =
            usage.into_iter().map(|(name, usage)| (name, usage.spent)).collect();

        let file = BudgetFile::open(&project.state);
        let mut locked = file.lock()?;
        let mut budgets = project.config.budget.budgets();
        budgets.allowed = locked.allowed().collect();
        let before = locked.parked().to_vec();
        let new = locked.park(budgets.over(&agents, &tasks), SystemClock.wall());
        let after = locked.parked().to_vec();
        if before == after {
            return Ok(Vec::new());
        }
        locked.write()?;
        let is_gone = |parked: &&ParkedScope| after.iter().all(|now| now.scope != parked.scope);
        for lifted in before.iter().filter(is_gone) {
            self.context.record(types::BUDGET_LIFTED, json!({ "scope": lifted.scope.to_string() }));
        }
        for parked in &new {
            let data = json!({
                "scope": parked.scope.to_string(), "limit": parked.limit, "used": parked.used,
            });
            self.context.record(types::BUDGET_PARKED, data);
        }
        Ok(new.iter().map(alarm).collect())
    }
}

fn alarm(parked: &ParkedScope) -> AlarmCondition {
    let text = format!(
        "the budget of {} is used up: {} of {}; no work of it begins",
        parked.scope, parked.used, parked.limit
    );
    AlarmCondition::over_budget(&parked.scope.arguments(), &parked.since.to_string(), text)
}
