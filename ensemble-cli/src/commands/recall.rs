use ensemble_app::mail::recalling::recall;
use ensemble_app::queue::ProjectQueue;
use ensemble_core::message::{MessageId, Name};

use crate::completion;
use crate::context::{Context, Failure, Outcome};

/// Recall one of your messages that has not been read yet
///
/// A recalled message is never delivered. What was read cannot be recalled: the exit code is 1 then, and the reader is
/// named. `ensemble send --replaces ID` recalls a message and sends another one in its place.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble mailbox recall 01a2213e-48b2
  ensemble mailbox recall 01a2213e-48b2 --mailbox worker-1")]
pub(crate) struct Arguments {
    /// The message's id, as `send` printed it, or a unique beginning of it
    #[arg(value_name = "ID", add = completion::messages())]
    id: MessageId,
    /// Recall it only from this mailbox
    #[arg(long, value_name = "NAME", add = completion::mailboxes())]
    mailbox: Option<Name>,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let queue = ProjectQueue::open(context)?;
        let copies = recall(context, &queue, &self.id, self.mailbox.as_ref())?;
        for copy in &copies {
            match context.out.is_json() {
                true => context.out.object(&copy.object())?,
                false if copy.read_by.is_none() => context.out.line(copy.sentence())?,
                false => {}
            }
        }
        let mut read = copies.iter().filter(|copy| copy.read_by.is_some());
        match read.next() {
            None => Ok(()),
            Some(copy) => Err(Failure::refused(copy.sentence()).with_hint(format!(
                "`ensemble send --to {} --replaces {} TEXT` corrects it",
                copy.mailbox, copy.id
            ))),
        }
    }
}
