//! `ensemble agent heartbeat`: a sign of life.

use ensemble_team::board::{Say, Sign};
use ensemble_team::proto::task::Holder;
use serde_json::json;

use super::directory;
use crate::acting;
use crate::context::Context;
use crate::exit::Outcome;

/// Extend your leases
///
/// Takes no lock of the blackboard. A supervised agent needs it only where its supervisor cannot
/// see that it works: before it waits for long without using the processor.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: ensemble agent heartbeat --long \"make test\"")]
pub(super) struct Heartbeat {
    /// Operation that takes up to 15 minutes; it is logged
    #[arg(long, value_name = "WHY")]
    long: Option<String>,
}

impl Heartbeat {
    pub(super) fn run(self, context: &Context) -> Outcome {
        let (agent, sign) = live(context, self.long.as_deref())?;
        let seconds = sign.lease_seconds;
        if context.out.is_json() {
            let object = json!({
                "agent": agent.by, "epoch": agent.epoch, "sequence": sign.sequence,
                "lease_seconds": seconds,
            });
            return context.out.object(&object);
        }
        match self.long {
            Some(why) => {
                context.out.line(ensemble_team::proto::beat::extended(&crate::text::one_line(&why)))
            }
            None => context.out.line(format!("alive, for {seconds} s")),
        }
    }
}

/// Gives the sign of life of the asking agent: an ordinary one, or that it is at something long.
pub(crate) fn live(context: &Context, long: Option<&str>) -> Outcome<(Holder, Sign)> {
    let board = context.board()?;
    let state = board.read()?;
    let agent = acting::registered(context, &state)?;
    let on_board = state.agents.get(&agent.by).and_then(|entry| entry.epoch);
    acting::check_number(&agent, on_board)?;
    let say = long.map_or(Say::Alive, Say::Long);
    let sign = Sign::give(directory(&board), &agent, &say, state.config.lease_duration())?;
    Ok((agent, sign))
}
