use ensemble_app::acting::{check_planner, check_registered};
use ensemble_app::board_agents::directory_of;
use ensemble_app::failure::{Failure, Outcome};
use ensemble_app::overview::ask_if_meant;
use ensemble_core::message::Name;
use ensemble_team::board::{Board, State};
use ensemble_team::driver::supervise::{end_orphan, seated};
use ensemble_team::proto::task::TaskHolder;
use serde_json::json;

use crate::context::Context;

/// Remove an agent from the blackboard, and release what it held
///
/// For an entry that a dead agent or another program has left. An agent that still runs without its
/// supervisor is ended first. Refused while a supervisor of the agent runs, while its lease runs
/// (unless `--force`), and to other agents than planners and the agent itself.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: ensemble agent unregister coder-1")]
pub(super) struct UnregisterAgent {
    /// The agent's name
    name: Name,
    /// Why
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    /// Also while its lease runs
    #[arg(long)]
    force: bool,
}

impl UnregisterAgent {
    pub(super) fn run(self, context: &Context) -> Outcome {
        let board = context.board()?;
        let state = board.read()?;
        let Some(entry) = state.agents.get(&self.name) else {
            let meant = ask_if_meant(self.name.as_str(), state.agents.keys().map(Name::as_str));
            let text = format!("`{}` is not registered on the blackboard{meant}", self.name);
            return Err(Failure::nothing(text).with_hint("`ensemble board show` lists the agents"));
        };
        let agent = TaskHolder { by: self.name.clone(), epoch: entry.epoch.unwrap_or_default() };
        self.check_asker(context, &state)?;
        self.check_unused(context, &board, &state)?;
        let processes = end_orphan(directory_of(&board), &agent.by, agent.epoch)?;
        let reason = Some(self.reason.trim()).filter(|reason| !reason.is_empty());
        let mut locked = board.lock()?;
        locked.unregister(&agent, reason.unwrap_or("it was unregistered"))?;
        let after = locked.commit()?;
        let released: Vec<&Name> = held(&state, &agent.by)
            .filter(|id| !held(&after, &agent.by).any(|left| left == *id))
            .collect();
        let object = json!({
            "agent": agent.by, "epoch": agent.epoch, "released": released, "processes": processes,
        });
        let tasks: Vec<&str> = released.iter().map(|id| id.as_str()).collect();
        let said = match tasks.is_empty() {
            true => format!("{} unregistered; it held nothing", agent.by),
            false => format!("{} unregistered; returned: {}", agent.by, tasks.join(", ")),
        };
        context.out.print_answer(&object, said)
    }

    /// An agent may take itself off, and a planner others.
    fn check_asker(&self, context: &Context, state: &State) -> Outcome {
        match context.agent()? {
            Some(asker) if asker == self.name => check_registered(context, state).map(drop),
            _ => check_planner(context, state),
        }
    }

    fn check_unused(&self, context: &Context, board: &Board, state: &State) -> Outcome {
        if let Some((seat, true)) = seated(directory_of(board), &self.name)? {
            let text = format!("a supervisor of `{}` runs (pid {})", self.name, seat.pid);
            let hint = format!("`kill {}` ends it, and it unregisters its agent itself", seat.pid);
            return Err(Failure::refused(text).with_hint(hint));
        }
        match board.check_over(state, &self.name, context.now()) {
            Err(error) if !self.force => {
                let failure = Failure::from(error);
                Err(failure.with_hint("wait until it ends, or use `--force`"))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

fn held<'a>(state: &'a State, agent: &'a Name) -> impl Iterator<Item = &'a Name> {
    let leases = ensemble_team::board::leases(state);
    let is_held =
        move |id: &Name| leases.iter().any(|lease| lease.by() == agent && lease.task() == Some(id));
    state.tasks.iter().map(|task| &task.id).filter(move |id| is_held(id))
}
