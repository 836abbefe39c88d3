//! `ensemble agent heartbeat`: a sign of life.

use ensemble_core::event_log::types;
use ensemble_team::board::{Say, Sign};
use ensemble_team::driver::supervise::seated;
use ensemble_team::proto::beat::extended;
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
    /// Used share of your context; shown on the blackboard as `context_percent`
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u64).range(0..=100))]
    context_used: Option<u64>,
}

/// What a sign of life says.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Live<'a> {
    /// The long operation that begins, if one does.
    pub(crate) long: Option<&'a str>,
    /// The used share of the agent's context, in percent.
    pub(crate) context_percent: Option<u64>,
}

impl Heartbeat {
    pub(super) fn run(self, context: &Context) -> Outcome {
        let says = Live { long: self.long.as_deref(), context_percent: self.context_used };
        let (agent, sign) = live(context, says)?;
        let seconds = sign.lease_seconds;
        if context.out.is_json() {
            let object = json!({
                "agent": agent.by, "epoch": agent.epoch, "sequence": sign.sequence,
                "lease_seconds": seconds, "context_percent": sign.context_percent,
            });
            return context.out.object(&object);
        }
        match self.long {
            Some(why) => context.out.line(extended(&crate::text::one_line(&why))),
            None => context.out.line(format!("alive, for {seconds} s")),
        }
    }
}

/// Gives the sign of life of the asking agent: an ordinary one, or that it is at something long.
pub(crate) fn live(context: &Context, says: Live<'_>) -> Outcome<(Holder, Sign)> {
    let board = context.board()?;
    let state = board.read()?;
    let agent = acting::registered(context, &state)?;
    let on_board = state.agents.get(&agent.by).and_then(|entry| entry.epoch);
    acting::check_number(&agent, on_board)?;
    let say = says.long.map_or(Say::Alive, Say::Long);
    let directory = directory(&board);
    let mut sign = board.give_sign(&agent, &say, state.config.lease_duration())?;
    if let Some(percent) = says.context_percent {
        sign = board.note_context(sign, &agent, percent)?;
    }
    // A supervisor that listens records it itself.
    let is_heard = seated(directory, &agent.by)?.is_some_and(|(_, lives)| lives);
    if let Some(long) = says.long.filter(|_| !is_heard) {
        let data = json!({ "agent": agent.by, "epoch": agent.epoch, "line": extended(long) });
        context.recorder()?.record(types::LEASE_EXTENDED_LONG, agent.by.as_str(), data);
    }
    Ok((agent, sign))
}
