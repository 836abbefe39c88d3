//! What the holder of a message does with it.

use std::time::Duration;

use ensemble_app::diagnostics::say;
use ensemble_app::held::{
    HeldMessage, SettledMessage, extend_message, release_message, settle_message,
};
use ensemble_app::mail::delivered::more_waiting;
use ensemble_app::mail::replying::{ReplyOutcome, reply};
use ensemble_app::queue::ProjectQueue;
use ensemble_app::text::age;
use ensemble_core::message::period::whole_seconds;
use ensemble_core::message::{MessageId, Name};
use serde_json::json;

use crate::context::{Context, Outcome};
use crate::flags::ContentFlags;
use crate::{args, completion};

/// Which held message is meant.
#[derive(Debug, clap::Args)]
struct HeldFlags {
    /// The message's id, as `recv` has printed it, or a unique beginning of it
    #[arg(value_name = "ID", add = completion::messages())]
    id: MessageId,
    /// Its mailbox, if the id alone is ambiguous
    #[arg(long, value_name = "NAME", add = completion::mailboxes())]
    mailbox: Option<Name>,
    /// Refuse unless this is still the delivery that `recv` has printed
    #[arg(long, value_name = "N")]
    epoch: Option<u64>,
}

impl From<HeldFlags> for HeldMessage {
    fn from(flags: HeldFlags) -> Self {
        let HeldFlags { id, mailbox, epoch } = flags;
        Self { id, mailbox, epoch }
    }
}

/// Mark the work of a received message as done
///
/// The last holder may settle it although its lease has expired, unless it was delivered again since.
/// The report of a task settles its messages by itself. Refused if another agent holds the message,
/// and for a request that has no answer yet.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: ensemble settle 0199aa10-4c5e-7b3a-a1b2-3c4d5e6f7081")]
pub(crate) struct SettleMessage {
    #[command(flatten)]
    which: HeldFlags,
}

impl SettleMessage {
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

/// Return a received message to its mailbox
///
/// After as many deliveries as its mailbox allows it becomes a dead letter instead.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: ensemble mailbox release ID --delay 5m")]
pub(crate) struct ReleaseMessage {
    #[command(flatten)]
    which: HeldFlags,
    /// Deliver it again only after this time
    #[arg(long, value_name = "DURATION", value_parser = args::duration, default_value = "0")]
    delay: Duration,
}

impl ReleaseMessage {
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

/// Hold a received message for longer
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: ensemble mailbox extend ID 10m")]
pub(crate) struct ExtendMessage {
    #[command(flatten)]
    which: HeldFlags,
    /// How long the lease runs from now, 1s to 1d
    #[arg(value_name = "DURATION", value_parser = args::lease)]
    duration: Duration,
}

impl ExtendMessage {
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

/// Answer a message: the text goes to its sender, and a plain message is settled
///
/// Work stays yours until you report or settle it. A request is not answered in words: `ensemble request
/// answer` decides it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble reply 01a2213e-48b2 '42 lines in main.rs'
  ensemble reply 01a2213e-48b2 -f answer.md")]
pub(crate) struct ReplyMessage {
    /// The message's id, as `recv` has printed it, or a unique beginning of it
    #[arg(value_name = "ID", add = completion::messages())]
    id: MessageId,
    /// The mailbox it came from [default: your own]
    #[arg(long, value_name = "NAME", add = completion::mailboxes())]
    mailbox: Option<Name>,
    #[command(flatten)]
    content: ContentFlags,
}

impl ReplyMessage {
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
