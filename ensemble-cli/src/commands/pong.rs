use ensemble_app::diagnostics::say;
use ensemble_app::failure::{Failure, Outcome};
use ensemble_app::worker::TargetAgent;
use ensemble_core::driver::PongBox;
use ensemble_core::message::Name;
use ensemble_core::proto::ready::{ATTEMPTS_LIMIT, PongToken};
use serde_json::json;

use crate::completion;
use crate::context::Context;

/// Answer `AGENT_TEAM_PING WORKER ATTEMPT`: report that a worker is ready
///
/// Only the agent itself can answer, and only the ping that is being waited for. The answer is the file
/// `.ensemble/ready/<WORKER>@<ATTEMPT>.pong`, so `touch` does it as well.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: ensemble agent pong worker-1 2")]
pub(crate) struct Arguments {
    /// The worker, as the ping has named it
    #[arg(add = completion::mailboxes())]
    worker: Name,
    /// The attempt, as the ping has named it
    #[arg(value_parser = clap::value_parser!(u8).range(1..=i64::from(ATTEMPTS_LIMIT)))]
    attempt: u8,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let Self { worker, attempt } = self;
        TargetAgent::find(context, &worker)?;
        if let Some(other) = context.agent()?.filter(|agent| *agent != worker) {
            let text = format!("the ping asks {worker}, and you are {other}");
            return Err(Failure::refused(text).with_hint("only the agent that is asked can answer"));
        }
        // A pong needs the same proof of the agent's name as any command.
        context.check_name(&worker)?;
        let pongs = PongBox::open(context.project()?.ready())?;
        let pong = PongToken { worker, attempt };
        match pongs.asked(&pong.worker)? {
            Some(ping) if ping.attempt == attempt => {}
            Some(ping) => say(&format!("note: the ping that is waited for is {ping}")),
            None => say(&format!("note: no handshake asks {} at the moment", pong.worker)),
        }
        pongs.answer(&pong)?;
        let object = json!({ "worker": pong.worker, "attempt": attempt });
        context.out.print_answer(&object, &pong)
    }
}
