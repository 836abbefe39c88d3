//! `ensemble settle`: the work is done.

use ensemble_core::message::{MessageId, Name};
use serde_json::json;

use crate::context::Context;
use crate::exit::Outcome;
use crate::held::Which;
use crate::queue::Queue;
use crate::settling::{Settling, Standing};
use crate::text;

/// Mark the work of a received message as done
///
/// The last holder may settle it although its lease is over, unless it was delivered again since.
/// The report of a task settles its messages by itself. Refused if another agent holds the message,
/// and for a request that has no answer yet.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: ensemble settle 0199aa10-4c5e-7b3a-a1b2-3c4d5e6f7081")]
pub(crate) struct Arguments {
    #[command(flatten)]
    which: Which,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let queue = Queue::open(context)?;
        let (project, recorder) = (context.project()?, context.recorder()?);
        let (kinds, ends) = (project.kinds()?, project.task_ends());
        let settling = Settling { queue: &queue, kinds, ends, recorder: &*recorder };
        let which = self.which.completed(context, &queue)?;
        let (agent, id) = (context.agent()?, &which.id);
        let (mailbox, state) = which.find(&*queue, agent.as_ref())?;
        let message = (&mailbox, id);
        let lease = match settling.standing(message, &state, agent.as_ref(), which.epoch)? {
            Standing::Reported(task) => return reported(context, message, &task),
            Standing::Again(lease) => lease,
            Standing::None => which.lease_of((mailbox, state), agent)?,
        };
        settling.settle(&lease)?;
        if context.out.is_json() {
            return context
                .out
                .object(&json!({ "id": lease.id, "mailbox": lease.mailbox, "state": "settled" }));
        }
        context.out.line(format!("settled {}", lease.id))
    }
}

/// Nothing is left to do: the report of its task has settled the message.
fn reported(context: &Context, (mailbox, id): (&Name, &MessageId), task: &str) -> Outcome {
    if context.out.is_json() {
        let settled = json!({
            "id": id, "mailbox": mailbox, "state": "settled", "already_settled": true,
        });
        return context.out.object(&settled);
    }
    context.out.line(format!("{id} was settled by the report of {}", text::one_line(task)))
}
