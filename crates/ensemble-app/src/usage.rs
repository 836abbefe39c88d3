//! Usage by agents and tasks, and those that have exceeded their budgets.

use std::collections::BTreeMap;
use std::time::Duration;

use ensemble_core::message::Name;
use ensemble_project::Project;
use ensemble_project::consumption::UsageReader;
use ensemble_team::budget::{BudgetFile, ParkedScope};
use ensemble_usage::{AgentUsage, UnclearRollout, UsageTotals};

use crate::App;
use crate::failure::Outcome;
use crate::text::{age, plural};

pub struct TeamUsage {
    pub agents: BTreeMap<Name, AgentUsage>,
    pub parked: Vec<ParkedScope>,
    pub unclear: Vec<UnclearRollout>,
}

pub fn open_usage(project: &Project) -> Outcome<UsageReader> {
    Ok(UsageReader::new(project, project.config.budget.prices(project.root())?))
}

impl TeamUsage {
    pub fn read(app: &App) -> Outcome<Self> {
        let project = app.existing_project()?;
        let mut reader = open_usage(project)?;
        let agents = reader.update()?;
        let parked = BudgetFile::open(&project.state).parked()?;
        Ok(Self { agents, parked, unclear: reader.unclear.to_vec() })
    }
}

/// A record that counts for no agent, in words.
pub fn describe_unclear(UnclearRollout { path, agents, .. }: &UnclearRollout) -> String {
    let agents: Vec<&str> = agents.iter().map(Name::as_str).collect();
    format!("{} may be of {}, and counts for no agent", path.display(), agents.join(" or "))
}

pub fn describe_spent(spent: &UsageTotals) -> String {
    format!(
        "{} in {}, {}, {} tokens, {}",
        age(Duration::from_secs(spent.seconds)),
        plural(spent.turns, "turn"),
        plural(spent.requests, "request"),
        token_count(spent.tokens.total()),
        cost(spent)
    )
}

/// A number of tokens, in at most four digits.
pub fn token_count(tokens: u64) -> String {
    match tokens {
        0..10_000 => tokens.to_string(),
        10_000..10_000_000 => format!("{}k", tokens / 1_000),
        _ => format!("{}M", tokens / 1_000_000),
    }
}

/// The cost in dollars; `?` where a price is not known.
pub fn cost(spent: &UsageTotals) -> String {
    match (spent.cost_usd, spent.unpriced_tokens) {
        (0.0, 1..) => "no price".to_owned(),
        (usd, 0) => format!("${usd:.2}"),
        (usd, _) => format!("${usd:.2} + ?"),
    }
}
