use std::time::Duration;

use ensemble_app::failure::Outcome;
use ensemble_app::held::extend_message;
use ensemble_app::queue::ProjectQueue;
use ensemble_app::text::age;
use ensemble_core::message::period::whole_seconds;
use serde_json::json;

use crate::args;
use crate::context::Context;
use crate::flags::held::HeldFlags;

/// Hold a received message for longer
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: ensemble mailbox extend ID 10m")]
pub(crate) struct Arguments {
    #[command(flatten)]
    which: HeldFlags,
    /// How long the lease runs from now, 1s to 1d
    #[arg(value_name = "DURATION", value_parser = args::lease)]
    duration: Duration,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let queue = ProjectQueue::open(context)?;
        let lease = extend_message(context, &queue, self.which.into(), self.duration)?;
        let answer = json!({
            "id": lease.id, "mailbox": lease.mailbox, "state": "acked",
            "lease_seconds": whole_seconds(self.duration),
        });
        context.out.print_answer(
            &answer,
            format!("{} is yours for {} from now", lease.id, age(self.duration)),
        )
    }
}
