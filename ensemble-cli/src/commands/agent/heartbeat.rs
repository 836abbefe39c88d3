use ensemble_app::board_agents::{LifeSign, give_sign};
use ensemble_app::failure::Outcome;
use ensemble_team::proto::beat::extended;
use serde_json::json;

use crate::args::share;
use crate::context::Context;

/// Extend your leases
///
/// Takes no lock of the blackboard. A supervised agent needs it only where its supervisor cannot
/// see that it works: before it waits for long without using the processor.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: ensemble agent heartbeat --long \"make test\"")]
pub(super) struct AgentHeartbeat {
    /// Operation that takes up to 15 minutes; it is logged
    #[arg(long, value_name = "WHY")]
    long: Option<String>,
    /// Used share of your context; shown on the blackboard as `context_percent`
    #[arg(long, value_name = "PERCENT", allow_hyphen_values = true)]
    context_used: Option<String>,
}

impl AgentHeartbeat {
    pub(super) fn run(self, context: &Context) -> Outcome {
        let context_percent = self.context_used.as_deref().and_then(share);
        let says = LifeSign { long: self.long.as_deref(), context_percent };
        let (agent, sign) = give_sign(context, says)?;
        let seconds = sign.lease_seconds;
        let object = json!({
            "agent": agent.by, "epoch": agent.epoch, "sequence": sign.sequence,
            "lease_seconds": seconds, "context_percent": sign.context_percent,
        });
        let said = match self.long {
            Some(why) => extended(&ensemble_app::text::one_line(&why)),
            None => format!("alive, for {seconds} s"),
        };
        context.out.print_answer(&object, said)
    }
}
