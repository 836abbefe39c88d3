use ensemble_app::controls::authorize_resume;
use ensemble_app::diagnostics::say;
use ensemble_app::door_hints::name_queue;
use ensemble_app::overview::ask_if_meant;
use ensemble_app::text::{age, one_line, with_members};
use ensemble_app::usage::{TeamUsage, cost, describe_unclear, token_count};
use ensemble_core::event_log::types;
use ensemble_core::message::Name;
use ensemble_project::troubles::budget_help;
use ensemble_team::budget::{BudgetFile, BudgetLimit, BudgetScope, ParkedScope};
use ensemble_usage::{UsageTotals, by_task};
use serde_json::{Value, json};

use crate::context::{Context, Failure, Outcome};
use crate::output::{BAD, FAINT};

/// Show what the work took: time, turns, tokens and cost, by agent and task
///
/// The numbers are read from the records that Claude Code, Codex and Gemini CLI keep of their sessions. Their hooks
/// say which record is whose (docs/guides/usage.md). Without hooks, only Codex is listed: a record that could belong
/// to two agents is ignored. OpenCode's plugin reports its own. Costs are list prices of the models:
/// `budget: {prices: FILE}` in ensemble.yaml adds others.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    /// Only these agents
    #[arg(value_name = "AGENT")]
    agents: Vec<Name>,
    /// One line a task, of all agents together
    #[arg(long, conflicts_with = "agents")]
    by_task: bool,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Allow an agent, a task or the team more than its budget
    ///
    /// An agent or task without budget begins no work. This adds to the limit in ensemble.yaml, and lets work begin again.
    #[command(group = clap::ArgGroup::new("amount").required(true).multiple(true).args(["usd", "tokens"]))]
    Allow {
        /// Whose budget
        scope: ScopeKind,
        /// Name of the agent or task
        #[arg(required_if_eq_any = [("scope", "agent"), ("scope", "task")])]
        name: Option<String>,
        /// Additional US dollars
        #[arg(long, value_name = "AMOUNT")]
        usd: Option<f64>,
        /// Additional tokens
        #[arg(long, value_name = "COUNT")]
        tokens: Option<u64>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ScopeKind {
    /// One agent
    Agent,
    /// One task
    Task,
    /// All agents together
    Team,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        match self.verb {
            Some(Verb::Allow { scope, name, usd, tokens }) => {
                let more = BudgetLimit { usd, tokens };
                allow(context, scope, name.unwrap_or_default(), more)
            }
            None => self.show(context),
        }
    }

    fn show(self, context: &Context) -> Outcome {
        let mut usage = TeamUsage::read(context)?;
        for unclear in &usage.unclear {
            say(&format!("warning: {}", describe_unclear(unclear)));
        }
        let is_unknown = |name: &&Name| !usage.agents.contains_key(*name);
        if let Some(unknown) = self.agents.iter().find(is_unknown) {
            let known = usage.agents.keys().map(Name::as_str);
            let meant = ask_if_meant(unknown.as_str(), known);
            return Err(Failure::nothing(format!(
                "no record of agent `{unknown}` is known{meant}"
            )));
        }
        if !self.agents.is_empty() {
            usage.agents.retain(|name, _| self.agents.contains(name));
        }
        let rows = if self.by_task { task_rows(&usage) } else { agent_rows(&usage) };
        if context.out.is_json() {
            return rows.iter().try_for_each(|row| context.out.object(&row.json(&usage.parked)));
        }
        if usage.agents.is_empty() {
            return context.out.line("no records: no hook of an agent has named one yet");
        }
        print(context, &rows, &usage)
    }
}

struct UsageRow {
    scope: BudgetScope,
    /// The agent of a task that is listed below it.
    of: Option<Name>,
    spent: UsageTotals,
}

fn agent_rows(usage: &TeamUsage) -> Vec<UsageRow> {
    let mut rows = Vec::new();
    for (name, agent) in &usage.agents {
        let (scope, spent) = (BudgetScope::Agent(name.clone()), agent.spent.clone());
        rows.push(UsageRow { scope, of: None, spent });
        rows.extend(agent.tasks.iter().map(|(task, spent)| UsageRow {
            scope: BudgetScope::Task(task.clone()),
            of: Some(name.clone()),
            spent: spent.clone(),
        }));
    }
    rows
}

fn task_rows(usage: &TeamUsage) -> Vec<UsageRow> {
    let row = |(task, spent)| UsageRow { scope: BudgetScope::Task(task), of: None, spent };
    by_task(&usage.agents).into_iter().map(row).collect()
}

impl UsageRow {
    fn json(&self, parked: &[ParkedScope]) -> Value {
        let row = match (&self.scope, &self.of) {
            (BudgetScope::Task(task), of) => json!({ "task_id": task, "agent": of }),
            (BudgetScope::Agent(name), _) => json!({ "agent": name, "task_id": null }),
            (BudgetScope::Team, _) => json!({ "agent": null, "task_id": null }),
        };
        let mut row = with_members(row, &self.spent);
        row["parked"] = json!(parked.iter().find(|parked| parked.scope == self.scope));
        row
    }
}

fn print(context: &Context, rows: &[UsageRow], usage: &TeamUsage) -> Outcome {
    let mut team = UsageTotals::default();
    usage.agents.values().for_each(|agent| team.merge(&agent.spent));
    let cells = |row: &UsageRow| {
        let name = match (&row.scope, &row.of) {
            (BudgetScope::Task(task), Some(_)) => format!("  {}", one_line(task)),
            (BudgetScope::Task(task), None) => one_line(task),
            (BudgetScope::Agent(name), _) => name.to_string(),
            (BudgetScope::Team, _) => "team".to_owned(),
        };
        let UsageTotals { turns, requests, seconds, tokens, .. } = &row.spent;
        vec![
            name,
            age(std::time::Duration::from_secs(*seconds)),
            turns.to_string(),
            requests.to_string(),
            token_count(tokens.total()),
            cost(&row.spent),
        ]
    };
    let total = UsageRow { scope: BudgetScope::Team, of: None, spent: team };
    let all = rows.iter().chain([&total]).map(cells).collect();
    context.out.table(&["agent, task", "time", "turns", "requests", "tokens", "cost"], all)?;
    for ParkedScope { scope, limit, used, .. } in &usage.parked {
        let text = format!("{scope} has used {used} of {limit}: no work of it begins");
        context.out.line(context.out.paint(BAD, one_line(&text)))?;
        let help = name_queue(&budget_help(&scope.arguments()), context.queue_flag());
        context.out.line(context.out.paint(FAINT, format!("  {help}")))?;
    }
    Ok(())
}

fn allow(context: &Context, scope: ScopeKind, name: String, more: BudgetLimit) -> Outcome {
    let scope = match scope {
        ScopeKind::Agent => {
            BudgetScope::Agent(Name::new(&name).map_err(|error| Failure::usage(error.to_string()))?)
        }
        ScopeKind::Task => BudgetScope::Task(name),
        ScopeKind::Team if name.is_empty() => BudgetScope::Team,
        ScopeKind::Team => {
            let text = format!("the team has no name: write `agent {name}` or `task {name}`");
            return Err(Failure::usage(text));
        }
    };
    if more.usd.is_some_and(|usd| !usd.is_finite() || usd <= 0.0) || more.tokens == Some(0) {
        return Err(Failure::usage("allow an amount above zero"));
    }
    let project = context.existing_project()?;
    let by = authorize_resume(context)?;
    let mut locked = BudgetFile::open(&project.state).lock()?;
    locked.allow(&scope, more);
    locked.write()?;
    let data = json!({ "scope": scope.to_string(), "more": more });
    context.recorder()?.record(types::BUDGET_ALLOWED, by.as_str(), data.clone());
    context.out.print_answer(&data, format!("allowed {scope} {more} more"))
}
