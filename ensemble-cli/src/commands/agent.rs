//! `ensemble agent`: what an agent says of itself to the blackboard, and asks of it.

use crate::context::Context;
use crate::exit::Outcome;

mod register;
mod verify;

/// Be an agent on the blackboard
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    Register(register::Register),
    Verify(verify::Verify),
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        match self.verb {
            Verb::Register(register) => register.run(context),
            Verb::Verify(verify) => verify.run(context),
        }
    }
}
