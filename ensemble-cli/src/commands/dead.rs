//! `ensemble dead`: the dead letters, and the ways back and out.

use clap_complete::engine::ArgValueCandidates;
use ensemble_core::Error;
use ensemble_core::broker::Broker;
use ensemble_core::message::{MessageId, Name};
use ensemble_core::spool::{DeadLetter, State};
use serde_json::json;

use crate::context::Context;
use crate::exit::{Failure, Outcome};
use crate::output::STRONG;
use crate::queue::Queue;
use crate::text::{one_line, plural};
use crate::{completion, ids};

/// Look at dead letters, give them back or drop them
///
/// A message dies when it was delivered too often, has expired or cannot be read.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    List(List),
    Show(Show),
    Retry(Retry),
    Drop(Drop),
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        match self.verb {
            Verb::List(list) => list.run(context),
            Verb::Show(show) => show.run(context),
            Verb::Retry(retry) => retry.run(context),
            Verb::Drop(drop) => drop.run(context),
        }
    }
}

/// List dead letters with their reasons, oldest first
#[derive(Debug, clap::Args)]
struct List {
    /// Only those of this mailbox
    #[arg(value_name = "MAILBOX", add = ArgValueCandidates::new(completion::mailboxes))]
    mailbox: Option<Name>,
}

impl List {
    fn run(self, context: &Context) -> Outcome {
        let letters = letters(&*Queue::open(context)?, self.mailbox.as_ref())?;
        if context.out.is_json() {
            return letters.iter().try_for_each(|letter| context.out.object(&described(letter)));
        }
        if letters.is_empty() {
            return context.out.line("no dead letters");
        }
        let shown = ids::shortened(letters.iter().map(|letter| letter.id.as_str()));
        let row = |letter: &DeadLetter| {
            vec![
                letter.id.as_str().chars().take(shown).collect(),
                letter.mailbox.to_string(),
                letter.at.map_or_else(|| "-".to_owned(), |at| at.to_string()),
                letter.reason.clone(),
            ]
        };
        context.out.table(&["id", "mailbox", "since", "reason"], letters.iter().map(row).collect())
    }
}

/// Show a dead letter: why it died, and what it says
#[derive(Debug, clap::Args)]
struct Show {
    /// The message's id, or a unique beginning of it
    #[arg(add = ArgValueCandidates::new(completion::dead_letters))]
    id: MessageId,
    /// Its mailbox, where the id alone is not clear
    #[arg(long, value_name = "NAME", add = ArgValueCandidates::new(completion::mailboxes))]
    mailbox: Option<Name>,
}

impl Show {
    fn run(self, context: &Context) -> Outcome {
        let queue = Queue::open(context)?;
        let letter = one(&*queue, &self.id, self.mailbox.as_ref())?;
        let envelope = match queue.peek(&letter.mailbox, &letter.id) {
            Ok(envelope) => Ok(envelope),
            // Why it cannot be read is what makes it interesting.
            Err(error @ (Error::Malformed { .. } | Error::TooLarge { .. })) => Err(error),
            Err(error) => return Err(error.into()),
        };
        if context.out.is_json() {
            let mut object = described(&letter);
            match envelope {
                Ok(envelope) => object["envelope"] = json!(envelope),
                Err(error) => object["error"] = json!(error.to_string()),
            }
            return context.out.object(&object);
        }
        let out = &context.out;
        out.line(format!("id       {}", out.paint(STRONG, &letter.id)))?;
        out.line(format!("mailbox  {}", letter.mailbox))?;
        out.line(format!("reason   {}", one_line(&letter.reason)))?;
        if let Some(at) = letter.at {
            out.line(format!("since    {at}"))?;
        }
        if let Some(holder) = &letter.holder {
            out.line(format!("holder   {holder}, delivery {}", letter.epoch))?;
        }
        match envelope {
            Ok(envelope) => {
                out.line(format!("from     {}", envelope.from))?;
                out.line(format!("type     {}", envelope.kind))?;
                super::recv::print_content(out, &envelope)
            }
            Err(error) => out.line(format!("error    {}", one_line(&error.to_string()))),
        }
    }
}

/// Which dead letters are meant.
#[derive(Debug, clap::Args)]
struct Which {
    /// The message's id, or a unique beginning of it
    #[arg(required_unless_present = "all", add = ArgValueCandidates::new(completion::dead_letters))]
    id: Option<MessageId>,
    /// All of them, of one mailbox if `--mailbox` names it
    #[arg(long, conflicts_with = "id")]
    all: bool,
    /// Their mailbox
    #[arg(long, value_name = "NAME", add = ArgValueCandidates::new(completion::mailboxes))]
    mailbox: Option<Name>,
}

impl Which {
    fn letters(&self, queue: &dyn Broker) -> Outcome<Vec<DeadLetter>> {
        match &self.id {
            Some(id) => Ok(vec![one(queue, id, self.mailbox.as_ref())?]),
            None => letters(queue, self.mailbox.as_ref()),
        }
    }

    /// Does something to each letter and says so.
    fn each(
        &self,
        context: &Context,
        (done, state): (&str, &str),
        act: impl Fn(&dyn Broker, &DeadLetter) -> ensemble_core::Result<()>,
    ) -> Outcome {
        let queue = Queue::open(context)?;
        let letters = self.letters(&*queue)?;
        for letter in &letters {
            act(&*queue, letter)?;
            if context.out.is_json() {
                context.out.object(
                    &json!({ "id": letter.id, "mailbox": letter.mailbox, "state": state }),
                )?;
            }
        }
        match (context.out.is_json(), &letters[..]) {
            (true, _) => Ok(()),
            (false, [letter]) => context.out.line(format!("{done} {}", letter.id)),
            (false, all) => {
                context.out.line(format!("{done} {}", plural(all.len() as u64, "dead letter")))
            }
        }
    }
}

/// Give a dead letter back to its mailbox, with all its attempts
#[derive(Debug, clap::Args)]
struct Retry {
    #[command(flatten)]
    which: Which,
}

impl Retry {
    fn run(self, context: &Context) -> Outcome {
        self.which.each(context, ("gave back", "queued"), |queue, letter| {
            queue.redrive(&letter.mailbox, &letter.id)
        })
    }
}

/// Remove a dead letter for good
#[derive(Debug, clap::Args)]
struct Drop {
    #[command(flatten)]
    which: Which,
    /// Really all of them
    #[arg(long)]
    yes: bool,
}

impl Drop {
    fn run(self, context: &Context) -> Outcome {
        if self.which.all && !self.yes {
            let text = "dropping all dead letters cannot be undone: nothing was removed";
            return Err(Failure::refused(text).with_hint("`--yes` does it"));
        }
        self.which.each(context, ("dropped", "dropped"), |queue, letter| {
            queue.drop_dead(&letter.mailbox, &letter.id)
        })
    }
}

fn letters(queue: &dyn Broker, mailbox: Option<&Name>) -> Outcome<Vec<DeadLetter>> {
    let Some(mailbox) = mailbox else {
        let mut all = Vec::new();
        for mailbox in queue.mailboxes()? {
            all.extend(queue.dead_letters(&mailbox)?);
        }
        return Ok(all);
    };
    Ok(queue.dead_letters(mailbox)?)
}

/// The dead letter with this id.
fn one(queue: &dyn Broker, id: &MessageId, mailbox: Option<&Name>) -> Outcome<DeadLetter> {
    let id = &ids::message(queue, id)?;
    let candidates = match mailbox {
        Some(mailbox) => vec![mailbox.clone()],
        None => queue.mailboxes()?,
    };
    let mut holding = Vec::new();
    for mailbox in candidates {
        if queue.state(&mailbox, id)? == Some(State::Dead) {
            holding.push(mailbox);
        }
    }
    if let [_, _, ..] = &holding[..] {
        let mailboxes = holding.into_iter().map(String::from).collect();
        return Err(Error::Ambiguous { id: id.to_string(), mailboxes }.into());
    }
    let letter = match holding.pop() {
        None => None,
        Some(mailbox) => queue.dead_letters(&mailbox)?.into_iter().find(|l| l.id == *id),
    };
    let place = || "among the dead letters".to_owned();
    let absent = || Error::NoMessage { id: id.to_string(), place: place() };
    Ok(letter.ok_or_else(absent)?)
}

fn described(letter: &DeadLetter) -> serde_json::Value {
    json!({
        "id": letter.id,
        "mailbox": letter.mailbox,
        "reason": letter.reason,
        "at": letter.at,
        "holder": letter.holder,
        "epoch": letter.epoch,
    })
}
