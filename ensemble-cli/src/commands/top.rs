use crate::context::{Context, Outcome};
use crate::live;

/// Watch the team: what needs you, the agents, and the last events
///
/// The worst comes first. Keys show the story of a line, attach to an agent, answer a request or send a message. One
/// key runs the suggested command, after a question. The view itself only reads. Without a verb, `ensemble` opens it
/// in a project, on a terminal.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        live::run(context)
    }
}
