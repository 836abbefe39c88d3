//! `ensemble send`: stores a message for one or several mailboxes.

#[cfg(feature = "nats")]
mod servers;

use std::time::{Duration, Instant};

use clap_complete::engine::ArgValueCandidates;
use ensemble_app::content::fill;
use ensemble_app::diagnostics::say;
use ensemble_app::failure::{Failure, Outcome};
use ensemble_app::interrupt::end_if_cancelled;
use ensemble_app::mail::answers;
use ensemble_app::mail::awaiting::AwaitedReply;
use ensemble_app::mail::conversation::ensure_person;
use ensemble_app::mail::elsewhere::{Address, OtherProject, own_project};
use ensemble_app::mail::readers::absent_reader;
use ensemble_app::mail::recalling::{RecalledCopy, recall_replaced};
use ensemble_app::mail::sending::{
    MessageHeaders, all_recipients, broadcast_type, known_recipients,
};
use ensemble_app::queue::ProjectQueue;
use ensemble_app::receipt::{Receipt, ReceiptTracker};
use ensemble_app::text::age;
use ensemble_app::wait_line::WaitLine;
use ensemble_core::broker::Broker;
use ensemble_core::env::PublishOutcome;
use ensemble_core::event_log::{Follower, types};
use ensemble_core::message::{DeliveryClass, Envelope, MessageId, Name, TraceParent};
use ensemble_core::requests::{RequestStore, Requests};

use serde_json::{Value, json};

use crate::args;
use crate::completion;
use crate::context::Context;
use crate::flags::content::ContentFlags;
use crate::flags::waiting::WaitFlags;

const RECEIPT_RECORDS: [&str; 3] =
    [types::RECEIPT_NOTIFIED, types::RECEIPT_SUBMITTED, types::RECEIPT_CONFIRMED];

/// Send a message and print its id
///
/// When this returns, the message is as safe as `durability` promises. Content that is larger
/// than 60 KiB or not UTF-8 is stored as an attachment which the message names.
///
/// An agent at work reads a message after its current tool; `--when turn` waits for the end of the turn. With
/// `--when interrupt` it overtakes other mail; from a person or a lead it also interrupts the agent.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble send --to worker-1 'the tests are red again'
  ensemble send --to worker-1 -f task.md
  ensemble send --to worker-1 --wait-for-reply 10m 'how many lines has main.rs?'
  ensemble send --to worker-1 --when interrupt 'stop: wrong branch'
  git diff | ensemble send --to reviewer --type review --until settled --wait 30m
  ensemble send --all --priority 5 'stop at the next checkpoint'")]
#[command(group = clap::ArgGroup::new("recipients").required(true).multiple(true).args(["to", "all"]))]
pub(crate) struct Arguments {
    /// The recipient's mailbox; may be repeated. NAME@PROJECT is a mailbox of another of your projects
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    #[arg(add = ArgValueCandidates::new(completion::mailboxes))]
    to: Vec<Address>,
    /// Send to all agents but the sender
    #[arg(long, alias = "broadcast", conflicts_with_all = ["to", "create"])]
    all: bool,
    /// Create mailboxes that do not exist
    #[arg(long)]
    create: bool,
    /// Type of the message [default: message; with --all: broadcast]
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<Name>,
    /// Your own id: sending it again stores nothing [default: a new UUIDv7]
    #[arg(long)]
    id: Option<MessageId>,
    /// 0 to 9; higher is received first
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = args::priority)]
    priority: u8,
    /// When a busy agent reads it: interrupt (now), tool (after the current tool) or turn (after the turn) [default: tool]
    #[arg(long, value_name = "CLASS")]
    when: Option<DeliveryClass>,
    /// Recall this earlier message unless it was read; this one says that it replaces it
    #[arg(long, value_name = "ID")]
    replaces: Option<MessageId>,
    /// Wait up to DURATION for the answer, and print it instead of the id
    #[arg(long, value_name = "DURATION", value_parser = args::duration)]
    #[arg(conflicts_with_all = ["all", "until", "wait"])]
    wait_for_reply: Option<Duration>,
    /// The task it is about
    #[arg(long, value_name = "ID", value_parser = args::header)]
    task: Option<String>,
    /// The recipient submits a plan for that task first: it can settle the task only after the plan is approved
    #[arg(long, requires = "task")]
    plan: bool,
    /// Number of the attempt at that task
    #[arg(long, value_name = "N")]
    attempt: Option<u32>,
    /// The request it belongs to
    #[arg(long, value_name = "ID", value_parser = args::header)]
    correlation: Option<String>,
    /// The trace it belongs to, as W3C Trace Context writes it [default: $TRACEPARENT]
    #[arg(long, value_name = "TRACE")]
    traceparent: Option<TraceParent>,
    /// If it was not received after this time it becomes a dead letter
    #[arg(long, value_name = "DURATION", value_parser = args::duration)]
    expires: Option<Duration>,
    #[command(flatten)]
    waiting: WaitFlags<Receipt>,
    #[command(flatten)]
    content: ContentFlags,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        if self.to.iter().any(|to| to.project.is_some()) {
            return self.send_elsewhere(context);
        }
        #[cfg(feature = "nats")]
        if let Some(options) = context.nats_options()? {
            return self.send_to_servers(context, &options);
        }
        let spool = context.spool()?;
        let sender = context.actor()?;
        let recipients = self.recipients(context, &spool, &sender)?;
        self.check_one_recipient(&recipients)?;
        let content = self.content.read()?;
        let envelope = fill(context, &spool, self.envelope(context, &recipients[0])?, content)?;
        self.demand_plan(context, &spool, &envelope.from)?;
        let log = match self.waiting.until().is_some_and(Receipt::is_logged) {
            true => Some(context.project()?.logs()),
            false => None,
        };
        let mut sent = Vec::new();
        let mut failed = None;
        for to in recipients {
            // Before the message is stored, so that no record is missed.
            let follower = log.as_deref().map(Follower::from_end).transpose()?;
            match spool.publish(&envelope.addressed_to(to.clone())) {
                Ok(published) => sent.push((to, published, follower)),
                // The others get theirs; sending the same id again reaches the missing ones.
                Err(error) => {
                    note_failure(context, (&envelope.id, &to), &mut failed, error.into())?
                }
            }
        }
        if !sent.is_empty() {
            answers::sent(context, &spool, &envelope);
        }
        if !sent.is_empty() && !context.out.is_json() && self.wait_for_reply.is_none() {
            context.out.line(&envelope.id)?;
            context.out.flush()?;
        }
        let deadline = self.waiting.deadline();
        let unreached = failed.is_some() && !sent.is_empty();
        for (to, published, follower) in sent {
            let follower = match (follower, published, &log) {
                // Stored by an earlier run: its records may be old.
                (Some(_), PublishOutcome::AlreadyStored, Some(log)) => {
                    Some(Follower::from_start(log))
                }
                (follower, ..) => follower,
            };
            let follower = follower.map(|follower| follower.only(RECEIPT_RECORDS));
            let tracker = {
                let (to, id) = (to.clone(), envelope.id.clone());
                ReceiptTracker::new(&spool, Some(spool.root().to_owned()), to, id, follower)
            };
            let (reached, late) = self.wait_for(tracker, deadline)?;
            let already_stored = (published == PublishOutcome::AlreadyStored).into();
            let mut more = vec![("already_stored", already_stored)];
            more.extend(self.recall_replaced(context, &envelope.addressed_to(to.clone()))?);
            if self.wait_for_reply.is_some() && failed.is_none() {
                let asked_in = ProjectQueue::open(context)?;
                more.push(("reply", self.print_reply(context, &envelope, &asked_in)?));
            }
            report(context, (&envelope.id, &to), reached, &more)?;
            if let Some(late) = late {
                failed = failed.or(Some(late));
            }
        }
        outcome(failed, unreached, &envelope.id)
    }

    /// Before the message is stored: it must not overtake the demand.
    fn demand_plan(&self, context: &Context, store: &dyn RequestStore, by: &Name) -> Outcome {
        if let (true, Some(task)) = (self.plan, &self.task) {
            let requests = Requests::new(store).with_kinds(context.project()?.kinds()?);
            requests.demand_plan(task, by)?;
        }
        Ok(())
    }

    /// How far the message got, and the failure if that is not far enough.
    fn wait_for(
        &self,
        mut tracker: ReceiptTracker<'_>,
        deadline: Option<Instant>,
    ) -> Outcome<(Receipt, Option<Failure>)> {
        let Some(wanted) = self.waiting.until() else { return Ok((Receipt::Stored, None)) };
        let _line = WaitLine::new(format!("the message to be {wanted}"), self.waiting.patience());
        let reached = tracker.wait(wanted, deadline)?;
        Ok((reached, self.late(reached)))
    }

    /// The failure of a message that did not get far enough.
    fn late(&self, reached: Receipt) -> Option<Failure> {
        let wanted = self.waiting.until().filter(|wanted| reached < *wanted)?;
        let patience = age(self.waiting.patience().unwrap_or_default());
        Some(Failure::nothing(format!("after {patience} the message is {reached}, not {wanted}")))
    }

    fn check_one_recipient(&self, recipients: &[Name]) -> Outcome {
        match (self.wait_for_reply, recipients) {
            (None, _) | (Some(_), [_]) => Ok(()),
            _ => Err(Failure::usage("`--wait-for-reply` waits for the answer of one recipient")),
        }
    }

    /// Recalls what the stored message replaces. Returns what a program reads of that.
    fn recall_replaced(
        &self,
        context: &Context,
        stored: &Envelope,
    ) -> Outcome<Option<(&'static str, Value)>> {
        if self.replaces.is_none() {
            return Ok(None);
        }
        let recalled = recall_replaced(context, &ProjectQueue::open(context)?, stored)?;
        let is_recalled = recalled.as_ref().is_some_and(|copy| copy.read_by.is_none());
        if !is_recalled && !context.out.is_json() {
            let absent = || format!("{} has no such message to replace", stored.to);
            say(&recalled.as_ref().map_or_else(absent, RecalledCopy::sentence));
        }
        Ok(Some(("replaced", is_recalled.into())))
    }

    /// Sends to a mailbox of another project of this user.
    fn send_elsewhere(&self, context: &Context) -> Outcome {
        let [Address { name, project: Some(project) }] = &self.to[..] else {
            let text = "a message to another project has one recipient";
            return Err(Failure::usage(text));
        };
        if self.plan || self.replaces.is_some() || self.waiting.until().is_some() {
            let text = "`--plan`, `--replaces`, `--until` and `--wait` work in this project only";
            return Err(Failure::usage(text));
        }
        let other = OtherProject::open_to_send(context, project)?;
        let mut envelope = self.envelope(context, &other.recipient(name)?)?;
        envelope.project = Some(own_project(context)?);
        let envelope = fill(context, &*other.queue, envelope, self.content.read()?)?;
        let published = other.queue.publish(&envelope)?;
        let mut object = json!({
            "id": envelope.id, "mailbox": envelope.to, "project": project, "state": "stored",
            "already_stored": published == PublishOutcome::AlreadyStored,
        });
        if self.wait_for_reply.is_some() {
            object["reply"] = self.print_reply(context, &envelope, &other.queue)?;
        } else if !context.out.is_json() {
            context.out.line(&envelope.id)?;
        }
        if let Some(warning) = absent_reader(other.app.project()?, &envelope.to) {
            match context.out.is_json() {
                true => object["warning"] = warning.into(),
                false => say(&warning),
            }
        }
        if context.out.is_json() { context.out.object(&object) } else { Ok(()) }
    }

    /// Waits for the answer to a stored message, and prints its content. Returns it for programs.
    fn print_reply(
        &self,
        context: &Context,
        question: &Envelope,
        asked_in: &ProjectQueue,
    ) -> Outcome<Value> {
        let queue = ProjectQueue::open(context)?;
        let mailbox = context.own_mailbox()?;
        if context.is_person()? {
            ensure_person(&*queue, &mailbox)?;
        }
        if !context.out.is_json()
            && question.project.is_none()
            && let Some(warning) = absent_reader(context.project()?, &question.to)
        {
            say(&warning);
        }
        let patience = self.wait_for_reply.unwrap_or_default();
        let _line = WaitLine::new(format!("{} to answer", question.to), Some(patience));
        let awaited = AwaitedReply { question, asked_in, mailbox, patience };
        let answer = awaited.wait(context, &queue, || {
            end_if_cancelled();
            false
        })?;
        let Some(answer) = answer else { return Ok(Value::Null) };
        if !context.out.is_json() {
            match &answer.attachment {
                Some(attachment) => context.out.content(&queue.attached(attachment)?)?,
                None => context.out.content(answer.body.as_bytes())?,
            }
            if answer.attachment.is_none() && !answer.body.ends_with('\n') {
                context.out.line("")?;
            }
        }
        awaited.show_answer(context, &queue, &answer)
    }

    fn names(&self) -> Vec<Name> {
        self.to.iter().map(|to| to.name.clone()).collect()
    }

    /// The message without its content.
    fn envelope(&self, context: &Context, to: &Name) -> Outcome<Envelope> {
        let headers = MessageHeaders {
            kind: self.kind.clone().or_else(|| self.all.then(broadcast_type)),
            id: self.id.clone(),
            priority: self.priority,
            when: self.when,
            replaces: self.replaces.clone(),
            task: self.task.clone(),
            attempt: self.attempt,
            correlation: self.correlation.clone(),
            traceparent: self.traceparent.clone().or_else(args::trace_around),
            expires: self.expires,
        };
        headers.envelope(context, to)
    }

    /// Every recipient once, all of them known.
    fn recipients(
        &self,
        context: &Context,
        queue: &dyn Broker,
        sender: &Name,
    ) -> Outcome<Vec<Name>> {
        match self.all {
            true => all_recipients(context, queue, sender),
            false => known_recipients(context, queue, &self.names(), self.create),
        }
    }
}

/// Reports how far the message got for one recipient: under `--json` in one object, otherwise only what is wrong.
fn report(
    context: &Context,
    (id, to): (&MessageId, &Name),
    state: Receipt,
    more: &[(&str, Value)],
) -> Outcome {
    let warning = absent_reader(context.project()?, to);
    if !context.out.is_json() {
        warning.iter().for_each(|warning| say(warning));
        return Ok(());
    }
    let mut object = json!({ "id": id, "mailbox": to, "state": state });
    for (field, value) in more {
        object[*field] = value.clone();
    }
    if let Some(warning) = warning {
        object["warning"] = warning.into();
    }
    context.out.object(&object)
}

/// Keeps the failure for one of several recipients as the outcome. The one before is said; under `--json` each has its
/// object.
fn note_failure(
    context: &Context,
    (id, to): (&MessageId, &Name),
    failed: &mut Option<Failure>,
    failure: Failure,
) -> Outcome {
    if context.out.is_json() {
        context.out.object(&json!({
            "id": id, "mailbox": to, "state": "refused", "already_stored": false,
            "error": failure.text(),
        }))?;
    }
    let before = failed.replace(failure);
    if let Some(Failure::Told { text, .. }) = before.filter(|_| !context.out.is_json()) {
        say(&text);
    }
    Ok(())
}

/// The outcome of a message that some recipients may lack.
fn outcome(failed: Option<Failure>, is_partly_sent: bool, id: &MessageId) -> Outcome {
    let again = format!("the same with `--id {id}` reaches only those who lack it");
    match failed {
        None => Ok(()),
        Some(failure) if is_partly_sent => Err(failure.with_hint(again)),
        Some(failure) => Err(failure),
    }
}
