use ensemble_app::diagnostics::say;
use ensemble_app::failure::Outcome;
use ensemble_app::mail::delivered::more_waiting;
use ensemble_app::mail::replying::{ReplyOutcome, reply};
use ensemble_app::queue::ProjectQueue;
use ensemble_core::message::{MessageId, Name};

use crate::completion;
use crate::context::Context;
use crate::flags::content::ContentFlags;

/// Answer a message: the text goes to its sender, and a plain message is settled
///
/// Work stays yours until you report or settle it. A request is not answered in words: `ensemble request
/// answer` decides it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble reply 01a2213e-48b2 '42 lines in main.rs'
  ensemble reply 01a2213e-48b2 -f answer.md")]
pub(crate) struct Arguments {
    /// The message's id, as `recv` has printed it, or a unique beginning of it
    #[arg(value_name = "ID", add = completion::messages())]
    id: MessageId,
    /// The mailbox it came from [default: your own]
    #[arg(long, value_name = "NAME", add = completion::mailboxes())]
    mailbox: Option<Name>,
    #[command(flatten)]
    content: ContentFlags,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let queue = ProjectQueue::open(context)?;
        let mailbox = match self.mailbox {
            Some(mailbox) => mailbox,
            None => context.own_mailbox()?,
        };
        let replied = reply(context, &queue, &mailbox, &self.id, self.content.read()?)?;
        if context.out.is_json() {
            return context.out.object(&replied.object());
        }
        let ReplyOutcome { to, settled, waiting, warning, .. } = replied;
        warning.iter().for_each(|warning| say(warning));
        let end = if settled { "; settled the message" } else { "; the work stays yours" };
        context.out.line(format!("replied to {to}{end}"))?;
        let more = more_waiting(context, (&mailbox, &context.actor()?), waiting)?;
        more.map_or(Ok(()), |more| context.out.line(more))
    }
}
