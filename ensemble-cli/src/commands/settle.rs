//! `ensemble settle`: the work is done.

use ensemble_app::failure::Outcome;
use ensemble_app::held::HeldMessage;
use ensemble_app::mail::delivered::{count_waiting, more_waiting};
use ensemble_app::mail::settling::{Settling, Standing};
use ensemble_app::queue::Queue;
use ensemble_app::text;
use ensemble_core::message::{MessageId, Name};
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
        let queue = Queue::open(context)?;
        let recorder = context.recorder()?;
        let settling = Settling::of(context, queue.request_store(), &*recorder)?;
        let which = HeldMessage::from(self.which).completed(context, &queue)?;
        let (agent, id) = (context.agent()?, &which.id);
        let (mailbox, state) = which.find(&*queue, agent.as_ref())?;
        let message = (&mailbox, id);
        let lease = match settling.standing(message, &state, agent.as_ref(), which.epoch)? {
            Standing::Reported(task) => {
                let how = format!("the report of {}", text::one_line(&task));
                return settled_before(context, message, &how);
            }
            Standing::Answered => return settled_before(context, message, "its answer"),
            Standing::Again(lease) => lease,
            Standing::None => which.lease_of((mailbox, state), agent)?,
        };
        settling.settle(&lease)?;
        let waiting = count_waiting(&queue, &lease.mailbox);
        if context.out.is_json() {
            return context.out.object(&json!({
                "id": lease.id, "mailbox": lease.mailbox, "state": "settled", "waiting": waiting,
            }));
        }
        context.out.line(format!("settled {}", lease.id))?;
        more_waiting(waiting).map_or(Ok(()), |more| context.out.line(more))
    }
}

/// Nothing is left to do: something else has settled the message.
fn settled_before(context: &Context, (mailbox, id): (&Name, &MessageId), how: &str) -> Outcome {
    if context.out.is_json() {
        let settled = json!({
            "id": id, "mailbox": mailbox, "state": "settled", "already_settled": true,
        });
        return context.out.object(&settled);
    }
    context.out.line(format!("{id} was settled by {how}"))
}
