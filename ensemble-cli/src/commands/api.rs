use ensemble_app::door_hints::HintReader;

use crate::api::{VerbCall, serve};
use crate::context::{Context, Outcome};

/// Answer calls of another program, one line of JSON each
///
/// One process for a whole orchestrator: each line of stdin calls a command, each answer is a line on stdout.
/// `wait` and `subscribe` report mail, states, requests and events as they happen. It ends when stdin ends. The
/// schema of its lines is `ensemble admin schema api`.
#[derive(Debug, clap::Args)]
#[command(after_help = r#"Example:
  echo '{"id":1,"method":"send","params":{"to":"w1","text":"hello"}}' | ensemble admin api"#)]
pub(crate) struct Arguments {}

impl Arguments {
    pub(crate) fn run(
        self,
        context: &Context,
        call_verb: VerbCall,
        read_hint: HintReader,
    ) -> Outcome {
        serve(context, call_verb, read_hint)
    }
}
