//! `ensemble recv`: takes the next message. Taking it is its ack.

use std::time::Duration;

use ensemble_app::diagnostics::say;
use ensemble_app::interrupt::Interrupt;
use ensemble_app::introduction;
use ensemble_app::mail::answers;
use ensemble_app::mail::conversation::{ShownMessage, ensure_person, read_received, read_waiting};
use ensemble_app::mail::delivered::{DeliveryInstructions, sender_of};
use ensemble_app::mail::message_view::MessageView;
use ensemble_app::mail::receiving::{AwaitedMail, explain_nothing};
use ensemble_app::queue::ProjectQueue;
use ensemble_app::receipt::note_read;
use ensemble_core::env::Delivery;
use ensemble_core::message::Name;

use crate::context::{Context, Failure, Outcome};
use crate::printing::conversation::print_shown;
use crate::printing::print_body;
use crate::{args, completion};

/// Receive the next message; exit code 3 if there is none
///
/// Urgent messages come first, then the oldest. The message is held for you until its lease has ended;
/// the watcher extends it while it sees you working. What is printed has the commands that
/// answer and settle this message, and how many more wait. With --json, `body`
/// is an object where the text is a YAML mapping, and `body_text` is the text.
///
/// Outside of an agent it shows you all that waits in your mailbox, and settles it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble recv
  ensemble recv --as worker-1 --wait 10m
  ensemble recv --as worker-1 --json | jq -r .id
  ensemble recv --as worker-1 --mailbox reviewers --lease 30m")]
pub(crate) struct Arguments {
    /// Mailbox to receive from [default: your own]
    #[arg(long, value_name = "NAME", add = completion::mailboxes())]
    mailbox: Option<Name>,
    /// Wait up to DURATION for a message
    #[arg(long, value_name = "DURATION", value_parser = args::duration)]
    wait: Option<Duration>,
    /// Hold the message for DURATION, 1s to 1d [default: as the mailbox says]
    #[arg(long, value_name = "DURATION", value_parser = args::lease)]
    lease: Option<Duration>,
    /// Print the content only, of the attachment if there is one
    #[arg(long, conflicts_with = "json")]
    body: bool,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let project = context.project()?;
        let mailbox = self.mailbox.as_ref().map(|mailbox| project.mailbox_of(mailbox));
        if context.is_person()? && mailbox.is_none_or(|it| Ok(it) == context.actor().map_err(drop))
        {
            return self.read_as_person(context);
        }
        let agent = context.agent_required()?;
        let mailbox = self.mailbox.clone().map_or_else(|| context.own_mailbox(), Ok)?;
        let queue = ProjectQueue::open(context)?;
        let interrupt = Interrupt::install()?;
        let mut delivery = queue.receive(&mailbox, &agent)?;
        if let (None, Some(patience)) = (&delivery, self.wait) {
            let mail = AwaitedMail::begin(project, &queue, &mailbox, &agent);
            delivery = mail.receive_within(patience, &interrupt)?;
        }
        let Some(mut delivery) = delivery else {
            return Err(explain_nothing(context, &queue, (&mailbox, &agent))?);
        };
        let remark = correlate(context, &queue, &delivery);
        let delivered = self.hand_over((context, &queue), &interrupt, &mut delivery, remark);
        if delivered.is_err() {
            // The message was not shown: other consumers may have it at once, not only when the
            // lease has ended.
            queue.release(&delivery.lease, Duration::ZERO)?;
            interrupt.end_if_noted();
        } else if let Err(failure) = note_read(context, &delivery) {
            say(&format!("warning: {}", failure.text()));
        }
        delivered
    }

    fn read_as_person(&self, context: &Context) -> Outcome {
        if self.lease.is_some() {
            return Err(Failure::usage(
                "what you read is settled at once, so `--lease` means nothing",
            ));
        }
        let queue = ProjectQueue::open(context)?;
        let person = context.actor()?;
        ensure_person(&*queue, &person)?;
        let interrupt = Interrupt::install()?;
        let mut show = |message: &ShownMessage<'_>| {
            print_shown(context, &queue, message, self.body)?;
            context.out.flush()
        };
        let mut count = read_waiting(context, &queue, &mut show)?;
        if let (0, Some(patience)) = (count, self.wait)
            && let Some(first) = AwaitedMail::begin(context.project()?, &queue, &person, &person)
                .receive_within(patience, &interrupt)?
        {
            read_received(context, &queue, &first, &mut show)?;
            count = 1 + read_waiting(context, &queue, show)?;
        }
        match count {
            0 => Err(Failure::nothing("no new mail for you")),
            _ => Ok(()),
        }
    }

    fn hand_over(
        &self,
        (context, queue): (&Context, &ProjectQueue),
        interrupt: &Interrupt,
        delivery: &mut Delivery,
        remark: Option<String>,
    ) -> Outcome {
        if let Some(lease) = self.lease {
            queue.extend(&delivery.lease, lease)?;
            delivery.lease_duration = lease;
        }
        if interrupt.is_noted() {
            return Err(Failure::refused("interrupted: the message was returned"));
        }
        if context.out.is_json() {
            let view = MessageView::delivered(context, queue, delivery, remark)?;
            context.out.object(&view.to_json())?;
        } else if self.body {
            print_body(&context.out, queue, &delivery.envelope)?;
        } else {
            print_message(context, queue, delivery)?;
        }
        context.out.flush()
    }
}

/// A message of another program may ask something. It decides something only if its file proves its
/// sender: any program could have put it there. The message is delivered in any case.
fn correlate(context: &Context, queue: &ProjectQueue, delivery: &Delivery) -> Option<String> {
    let envelope = &delivery.envelope;
    answers::correlate(context, queue.request_store(), envelope, sender_of(queue, delivery))
}

fn print_message(context: &Context, queue: &ProjectQueue, delivery: &Delivery) -> Outcome {
    let told = DeliveryInstructions::new(context, queue, delivery)?;
    if let Some(introduction) = introduction::at_first_recv(context, &delivery.lease.holder)? {
        context.out.line(introduction)?;
    }
    let envelope = &delivery.envelope;
    context.out.content(told.text(envelope, &envelope.body, None).as_bytes())?;
    context.out.line("")?;
    told.more.map_or(Ok(()), |more| context.out.line(more))
}
