//! `ensemble settle`: the work is done.

use serde_json::json;

use crate::context::Context;
use crate::exit::Outcome;
use crate::held::Which;
use crate::queue::Queue;
use crate::settling::Settling;

/// Mark the work of a received message as done
///
/// Refused once the lease is over and another agent may have the message, and for a request that has no
/// answer yet.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: ensemble settle 0199aa10-4c5e-7b3a-a1b2-3c4d5e6f7081")]
pub(crate) struct Arguments {
    #[command(flatten)]
    which: Which,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let queue = Queue::open(context)?;
        let lease = self.which.lease(context, &*queue)?;
        let (project, recorder) = (context.project()?, context.recorder()?);
        let (kinds, ends) = (project.kinds()?, project.task_ends());
        Settling { queue: &queue, kinds, ends, recorder: &*recorder }.settle(&lease)?;
        if context.out.is_json() {
            return context
                .out
                .object(&json!({ "id": lease.id, "mailbox": lease.mailbox, "state": "settled" }));
        }
        context.out.line(format!("settled {}", lease.id))
    }
}
