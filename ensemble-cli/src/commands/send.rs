use std::path::PathBuf;
use std::time::{Duration, Instant};

use ensemble_app::diagnostics::say;
use ensemble_app::interrupt::end_if_cancelled;
use ensemble_app::mail::awaiting::AwaitedReply;
use ensemble_app::mail::conversation::ensure_person;
use ensemble_app::mail::elsewhere::{Address, OtherProject, own_project};
use ensemble_app::mail::outgoing::OutgoingMail;
use ensemble_app::mail::readers::absent_reader;
use ensemble_app::mail::recalling::RecalledCopy;
use ensemble_app::mail::sending::{MessageHeaders, broadcast_type};
use ensemble_app::queue::{OpeningPurpose, ProjectQueue};
use ensemble_app::receipt::{Receipt, ReceiptTracker};
use ensemble_app::text::age;
use ensemble_app::wait_line::WaitLine;
use ensemble_core::env::PublishOutcome;
use ensemble_core::event_log::{Follower, types};
use ensemble_core::message::{DeliveryClass, Envelope, MessageId, Name, TraceParent};
use ensemble_core::transfer::PostOutcome;
use ensemble_project::Project;
use serde_json::{Value, json};

use crate::context::{Context, Failure, Outcome, VerbExit};
use crate::flags::{ContentFlags, WaitFlags};
use crate::printing::print_body;
use crate::{args, completion};

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
    #[arg(long, value_name = "NAME", value_delimiter = ',', add = completion::mailboxes())]
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
    /// Recall this earlier message if it is still unread; the new one names it
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
        let (project, sender) = (context.project()?, context.actor()?);
        let log = self.log_to_follow(project)?;
        let purpose = if self.create { OpeningPurpose::Begin } else { OpeningPurpose::Act };
        let queue = ProjectQueue::reach(context, purpose)?;
        let mut outgoing = OutgoingMail::new(project, queue.as_ref())?;
        let recipients = match self.all {
            true => outgoing.everyone(&sender)?,
            false => {
                let names: Vec<Name> = self.to.iter().map(|to| to.name.clone()).collect();
                outgoing.recipients(&names, self.create)?
            }
        };
        self.check_one_recipient(&recipients)?;
        if self.wait_for_reply.is_some() {
            outgoing.reached_queue("the reply comes from there")?;
        }
        let (headers, content) = (self.headers(), self.content.read()?);
        let envelope = outgoing.envelope(context, headers, (&recipients[0], None), content)?;
        if let (true, Some(task)) = (self.plan, &self.task) {
            outgoing.demand_plan(task, &envelope.from)?;
        }
        let (mut sent, mut failed) = (Vec::new(), None);
        for to in recipients {
            // Before the message is stored, so that no record is missed.
            let follower = log.as_deref().map(Follower::from_end).transpose()?;
            match outgoing.post(&envelope.addressed_to(to.clone())) {
                Ok(posted) => {
                    let follower = match (follower, &posted, &log) {
                        // Stored by an earlier run: its records may be old.
                        (Some(_), PostOutcome::Sent(PublishOutcome::AlreadyStored), Some(log)) => {
                            Some(Follower::from_start(log))
                        }
                        (follower, ..) => follower,
                    };
                    sent.push((to, posted, follower.map(|log| log.only(RECEIPT_RECORDS))));
                }
                // The others get theirs; sending the same id again reaches the missing ones.
                Err(failure) => note_failure(context, (&envelope.id, &to), &mut failed, failure)?,
            }
        }
        let unreached = failed.is_some() && !sent.is_empty();
        if !sent.is_empty() {
            outgoing.conclude(context, &envelope);
            if !context.out.is_json() && self.wait_for_reply.is_none() {
                context.out.line(&envelope.id)?;
                context.out.flush()?;
            }
        }
        let deadline = self.waiting.deadline();
        for copy in sent {
            let answers = self.wait_for_reply.is_some() && failed.is_none();
            let more = self.follow(context, (&outgoing, deadline), &envelope, copy, answers)?;
            failed = failed.or(more);
        }
        outcome(failed, unreached, &envelope.id)
    }

    /// Waits for what is wanted of one stored copy, and reports it. Returns why that was not reached.
    fn follow(
        &self,
        context: &Context,
        (outgoing, deadline): (&OutgoingMail<'_>, Option<Instant>),
        envelope: &Envelope,
        (to, posted, follower): (Name, PostOutcome, Option<Follower>),
        is_answer_printed: bool,
    ) -> Outcome<Option<Failure>> {
        let tracker = outgoing.tracker(&posted, (to.clone(), envelope.id.clone()), follower);
        // It is sent, no matter what can be learned of it; but a cancelled call waits for no other copy.
        let (reached, late) = self
            .wait_for(tracker, deadline)
            .or_else(|failure| end_if_cancelled().map(|()| (Receipt::Stored, Some(failure))))?;
        let copy = envelope.addressed_to(to);
        let is_kept = matches!(posted, PostOutcome::Kept(_));
        let mut more = vec![("already_stored", posted.was_stored_before().into())];
        if outgoing.has_outbox() {
            more.push(("outbox", is_kept.into()));
        }
        if copy.replaces.is_some() {
            let recalled = outgoing.recall_replaced(context, &posted, &copy)?;
            more.push(("replaced", say_recalled(context, &copy, recalled).into()));
        }
        if is_answer_printed && !is_kept {
            let asked_in = outgoing.reached_queue("the reply comes from there")?;
            more.push(("reply", self.print_reply(context, envelope, asked_in)?));
        }
        report(context, &copy, reached, &more)?;
        let text = format!("{} is kept on this host, so no answer was awaited", envelope.id);
        let unasked = (is_answer_printed && is_kept).then(|| {
            Failure::new(VerbExit::Busy, text).with_hint("a later answer comes to your mailbox")
        });
        Ok(late.or(unasked))
    }

    /// The event log, if that alone says what is waited for.
    fn log_to_follow(&self, project: &Project) -> Outcome<Option<PathBuf>> {
        let Some(wanted) = self.waiting.until().filter(|wanted| wanted.is_logged()) else {
            return Ok(None);
        };
        if project.is_shared()? {
            let text = format!("`{wanted}` is known on the host of the reader only");
            return Err(Failure::usage(text).with_hint("wait for `acked` or `settled`"));
        }
        Ok(Some(project.logs()))
    }

    fn wait_for(
        &self,
        tracker: Option<ReceiptTracker<'_>>,
        deadline: Option<Instant>,
    ) -> Outcome<(Receipt, Option<Failure>)> {
        let (Some(wanted), Some(mut tracker)) = (self.waiting.until(), tracker) else {
            return Ok((Receipt::Stored, self.late(Receipt::Stored)));
        };
        let _line = WaitLine::new(format!("the message to be {wanted}"), self.waiting.patience());
        let reached = tracker.wait(wanted, deadline)?;
        Ok((reached, self.late(reached)))
    }

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
        let outgoing = OutgoingMail::new(other.app.project()?, Some(&other.queue))?;
        let (to, from_project) = (other.recipient(name)?, Some(own_project(context)?));
        let (headers, content) = (self.headers(), self.content.read()?);
        let envelope = outgoing.envelope(context, headers, (&to, from_project), content)?;
        let posted = outgoing.post(&envelope)?;
        let mut object = json!({
            "id": envelope.id, "mailbox": envelope.to, "project": project, "state": "stored",
            "already_stored": posted.was_stored_before(),
        });
        if self.wait_for_reply.is_some() {
            object["reply"] = self.print_reply(context, &envelope, &other.queue)?;
        } else if !context.out.is_json() {
            context.out.line(&envelope.id)?;
        }
        if let Some(warning) = absent_reader(other.app.project()?, &envelope) {
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
            && let Some(warning) = absent_reader(context.project()?, question)
        {
            say(&warning);
        }
        let patience = self.wait_for_reply.unwrap_or_default();
        let _line = WaitLine::new(format!("{} to answer", question.to), Some(patience));
        let awaited = AwaitedReply { question, asked_in, mailbox, patience };
        let answer = awaited.wait(context, &queue, || false)?;
        let Some(answer) = answer else { return Ok(Value::Null) };
        if !context.out.is_json() {
            print_body(&context.out, &queue, &answer)?;
            if answer.attachment.is_none() && !answer.body.ends_with('\n') {
                context.out.line("")?;
            }
        }
        awaited.show_answer(context, &queue, &answer)
    }

    fn headers(&self) -> MessageHeaders {
        MessageHeaders {
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
        }
    }
}

/// Says why the message that a stored one replaces is not recalled. Whether it is.
fn say_recalled(context: &Context, stored: &Envelope, recalled: Option<RecalledCopy>) -> bool {
    let is_recalled = recalled.as_ref().is_some_and(|copy| copy.read_by.is_none());
    if !is_recalled && !context.out.is_json() {
        let absent = || format!("{} has no such message to replace", stored.to);
        say(&recalled.as_ref().map_or_else(absent, RecalledCopy::sentence));
    }
    is_recalled
}

/// Reports how far the message got for one recipient: under `--json` in one object, otherwise only what is wrong.
fn report(context: &Context, copy: &Envelope, state: Receipt, more: &[(&str, Value)]) -> Outcome {
    let warning = absent_reader(context.project()?, copy);
    if !context.out.is_json() {
        warning.iter().for_each(|warning| say(warning));
        return Ok(());
    }
    let mut object = json!({ "id": copy.id, "mailbox": copy.to, "state": state });
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

fn outcome(failed: Option<Failure>, is_partly_sent: bool, id: &MessageId) -> Outcome {
    let again = format!("the same with `--id {id}` reaches only those who lack it");
    match failed {
        None => Ok(()),
        Some(failure) if is_partly_sent => Err(failure.with_hint(again)),
        Some(failure) => Err(failure),
    }
}
