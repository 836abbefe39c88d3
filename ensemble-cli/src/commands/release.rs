use std::time::Duration;

use ensemble_app::failure::Outcome;
use ensemble_app::held::release_message;
use ensemble_app::queue::ProjectQueue;
use ensemble_app::text::age;
use serde_json::json;

use crate::args;
use crate::context::Context;
use crate::flags::held::HeldFlags;

/// Return a received message to its mailbox
///
/// After as many deliveries as its mailbox allows it becomes a dead letter instead.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: ensemble mailbox release ID --delay 5m")]
pub(crate) struct Arguments {
    #[command(flatten)]
    which: HeldFlags,
    /// Deliver it again only after this time
    #[arg(long, value_name = "DURATION", value_parser = args::duration, default_value = "0")]
    delay: Duration,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let queue = ProjectQueue::open(context)?;
        let (lease, state) = release_message(context, &queue, self.which.into(), self.delay)?;
        let object = json!({ "id": lease.id, "mailbox": lease.mailbox, "state": state });
        let said = match (state, self.delay) {
            ("dead", _) => format!("no attempt is left: {} is a dead letter now", lease.id),
            (_, Duration::ZERO) => format!("released {}", lease.id),
            (_, delay) => format!("released {}, due in {}", lease.id, age(delay)),
        };
        context.out.print_answer(&object, said)
    }
}
