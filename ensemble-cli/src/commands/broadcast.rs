//! `ensemble broadcast`: one message to all other agents.

use std::path::Path;

use ensemble_core::Error;
use ensemble_core::message::{Envelope, MessageId, Name};
use serde_json::json;

use super::send::{content_of, fill, fill_for_servers};
use crate::context::Context;
use crate::exit::{Failure, Outcome};
use crate::queue::Queue;

/// Send a message to every mailbox but your own
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble broadcast 'main is red: rebase before you push'
  git log -1 | ensemble broadcast --type news -")]
pub(crate) struct Arguments {
    /// The text; `-` for stdin
    #[arg(value_name = "BODY|-", allow_hyphen_values = true)]
    body: String,
    /// Type of the message
    #[arg(long = "type", value_name = "TYPE", default_value = "broadcast")]
    kind: Name,
    /// An id of your own: sending it again reaches only those who did not get it [default: a new
    /// UUIDv7]
    #[arg(long)]
    id: Option<MessageId>,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let queue = Queue::open(context)?;
        let sender = context.actor()?;
        let mut recipients = queue.mailboxes()?;
        recipients.retain(|name| *name != sender);
        let Some(first) = recipients.first() else {
            return Err(Failure::refused("there is no other mailbox to send to"));
        };
        let content = match self.body.as_str() {
            "-" => content_of(Path::new("-"))?,
            text => text.as_bytes().to_owned(),
        };
        let mut envelope = Envelope::new(first.clone(), String::new()).with_kind(self.kind);
        if let Some(id) = self.id {
            envelope = envelope.with_id(id);
        }
        envelope = envelope.from(sender);
        let envelope = match queue.directory() {
            Some(spool) => fill(spool, envelope, content)?,
            None => fill_for_servers(envelope, content)?,
        };
        let mut missed: Vec<(Name, Error)> = Vec::new();
        for to in &recipients {
            let outcome = queue.publish(&envelope.addressed_to(to.clone()));
            if context.out.is_json() {
                let state = if outcome.is_ok() { "stored" } else { "refused" };
                context.out.object(&json!({ "id": envelope.id, "mailbox": to, "state": state }))?;
            }
            missed.extend(outcome.err().map(|error| (to.clone(), error)));
        }
        let reached = recipients.len() - missed.len();
        if reached > 0 && !context.out.is_json() {
            let reached = crate::text::plural(reached as u64, "mailbox");
            context.out.line(format!("{} to {reached}", envelope.id))?;
        }
        if missed.is_empty() {
            return Ok(());
        }
        let why: Vec<String> = missed.iter().map(|(to, error)| format!("{to} ({error})")).collect();
        let text = format!("not delivered to {}", why.join("; "));
        let again = format!("the same again with `--id {}` reaches only them", envelope.id);
        Err(Failure::refused(text).with_hint(again))
    }
}
