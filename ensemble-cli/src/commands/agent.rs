use ensemble_app::failure::Outcome;

use crate::context::Context;

mod exit;
mod handoff;
mod heartbeat;
mod register;
mod unregister;
mod verify;

/// Start, adopt and inspect agents
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    Register(register::RegisterAgent),
    Verify(verify::VerifyAgent),
    Heartbeat(heartbeat::AgentHeartbeat),
    Handoff(handoff::Arguments),
    Exit(exit::AnnounceExit),
    Unregister(unregister::UnregisterAgent),
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        match self.verb {
            Verb::Register(register) => register.run(context),
            Verb::Verify(verify) => verify.run(context),
            Verb::Heartbeat(heartbeat) => heartbeat.run(context),
            Verb::Handoff(handoff) => handoff.run(context),
            Verb::Exit(exit) => exit.run(context),
            Verb::Unregister(unregister) => unregister.run(context),
        }
    }
}
