use ensemble_app::failure::Outcome;
use ensemble_team::board::NewAgent;
use ensemble_team::proto::agent;
use serde_json::json;

use crate::context::Context;

/// Register yourself on the blackboard
///
/// For agents and people without a supervisor, which does this itself. Prints the number of the
/// registration.
#[derive(Debug, clap::Args)]
pub(super) struct RegisterAgent {
    /// planner, coder or code-reviewer
    #[arg(long, value_name = "ROLE", value_parser = ["planner", "coder", "code-reviewer"])]
    role: String,
}

impl RegisterAgent {
    pub(super) fn run(self, context: &Context) -> Outcome {
        let name = context.agent_required()?;
        let board = context.board()?;
        let mut locked = board.lock()?;
        let holder = locked.register(&NewAgent::new(name.clone(), &*self.role))?;
        locked.agent_event(&holder, agent::Event::Ready)?;
        locked.commit()?;
        let object = json!({ "agent": name, "role": self.role, "epoch": holder.epoch });
        context.out.print_answer(&object, format!("{name} registered, number {}", holder.epoch))
    }
}
