use ensemble_app::failure::Outcome;
use ensemble_app::held::{SettledMessage, settle_message};
use ensemble_app::mail::delivered::more_waiting;
use ensemble_app::queue::ProjectQueue;
use serde_json::json;

use crate::context::Context;
use crate::flags::held::HeldFlags;

/// Mark the work of a received message as done
///
/// The last holder may settle it although its lease has expired, unless it was delivered again since.
/// The report of a task settles its messages by itself. Refused if another agent holds the message,
/// and for a request that has no answer yet.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: ensemble settle 0199aa10-4c5e-7b3a-a1b2-3c4d5e6f7081")]
pub(crate) struct Arguments {
    #[command(flatten)]
    which: HeldFlags,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let queue = ProjectQueue::open(context)?;
        let (lease, waiting) = match settle_message(context, &queue, self.which.into())? {
            SettledMessage::Now { lease, waiting } => (lease, waiting),
            // Nothing is left to do: something else has settled the message.
            SettledMessage::Before { mailbox, id, how } => {
                let settled = json!({
                    "id": id, "mailbox": mailbox, "state": "settled", "already_settled": true,
                });
                return context.out.print_answer(&settled, format!("{id} was settled by {how}"));
            }
        };
        if context.out.is_json() {
            return context.out.object(&json!({
                "id": lease.id, "mailbox": lease.mailbox, "state": "settled", "waiting": waiting,
            }));
        }
        context.out.line(format!("settled {}", lease.id))?;
        let more = more_waiting(context, (&lease.mailbox, &lease.holder), waiting)?;
        more.map_or(Ok(()), |more| context.out.line(more))
    }
}
