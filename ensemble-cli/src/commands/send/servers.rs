//! Sending to mailboxes on servers: over the outbox of this host, so that an unreachable server
//! stops no sender.

use std::time::{Duration, Instant};

use ensemble_app::content::fill;
use ensemble_app::diagnostics::say;
use ensemble_app::exit_code::VerbExit;
use ensemble_app::failure::{Failure, Outcome};
use ensemble_app::mail::answers;
use ensemble_app::queue::{ProjectQueue, check_name};
use ensemble_app::receipt::Receipt;
use ensemble_app::text::age;
use ensemble_core::Error;
use ensemble_core::broker::Broker;
use ensemble_core::env::PublishOutcome;
use ensemble_core::message::{Envelope, Name};
use ensemble_core::spool::State;
use ensemble_core::transfer::{Outbox, PostOutcome};
use ensemble_nats::{NatsOptions, NatsTransport};

use super::Arguments;
use crate::context::Context;

/// How long a wait continues before it looks again although nothing was heard.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

impl Arguments {
    /// As `run`, for a team on several hosts.
    pub(super) fn send_to_servers(self, context: &Context, options: &NatsOptions) -> Outcome {
        if let Some(wanted) = self.waiting.until().filter(|wanted| wanted.is_logged()) {
            let text = format!("`{wanted}` is known on the host of the reader only");
            return Err(Failure::usage(text).with_hint("wait for `acked` or `settled`"));
        }
        let sender = context.actor()?;
        let mut options = options.clone();
        options.creates = self.create;
        let servers = match NatsTransport::connect(&options) {
            Ok(servers) => {
                check_name(context, &servers)?;
                Some(servers)
            }
            Err(error @ Error::Server { unreachable: true, .. }) => {
                say(&format!("{error}: kept in the outbox of this host until it is back"));
                None
            }
            Err(error) => return Err(error.into()),
        };
        let recipients = self.recipients_on(context, servers.as_ref(), &sender)?;
        self.check_one_recipient(&recipients)?;
        if self.wait_for_reply.is_some() && servers.is_none() {
            let text = "the servers do not answer, and the reply comes from there";
            return Err(Failure::new(VerbExit::Busy, text));
        }
        let mut headers = self.envelope(context, &recipients[0])?;
        if let (Some(servers), Some(time)) = (&servers, self.expires) {
            // All hosts judge it by the servers' time.
            headers.expires_at = Some(servers.now().plus(time));
        }
        let outbox = context.project()?.open_outbox()?;
        let envelope = fill(context, outbox.spool(), headers, self.content.read()?)?;
        if let (true, None) = (self.plan, &servers) {
            let text = "the servers do not answer, and a plan is demanded there";
            return Err(Failure::new(VerbExit::Busy, text));
        }
        if let Some(servers) = &servers {
            self.demand_plan(context, servers, &envelope.from)?;
        }
        let deadline = self.waiting.deadline();
        let (mut failed, mut is_told, mut is_refused) = (None, false, false);
        for to in &recipients {
            match self.post(
                context,
                &outbox,
                servers.as_ref(),
                &envelope.addressed_to(to.clone()),
                deadline,
            ) {
                Ok(late) => {
                    failed = failed.or(late);
                    // The id is printed once some mailbox or the outbox has the message.
                    if !is_told && !context.out.is_json() && self.wait_for_reply.is_none() {
                        context.out.line(&envelope.id)?;
                    }
                    is_told = true;
                }
                Err(failure) => {
                    is_refused = true;
                    super::note_failure(context, (&envelope.id, to), &mut failed, failure)?;
                }
            }
        }
        if let (Some(servers), true) = (&servers, is_told) {
            answers::sent(context, servers, &envelope);
        }
        super::outcome(failed, is_told && is_refused, &envelope.id)
    }

    /// Sends one message and waits for what is wanted. Returns why that was not reached.
    fn post(
        &self,
        context: &Context,
        outbox: &Outbox,
        servers: Option<&NatsTransport>,
        envelope: &Envelope,
        deadline: Option<Instant>,
    ) -> Outcome<Option<Failure>> {
        let posted = outbox.post(servers.map(|servers| servers as &dyn Broker), envelope)?;
        if let (PostOutcome::Kept(why), Some(_)) = (&posted, servers) {
            say(&format!("kept in the outbox of this host for `{}`: {why}", envelope.to));
        }
        let waited = match (self.waiting.until(), servers, &posted) {
            (Some(wanted), Some(servers), PostOutcome::Sent(_)) => {
                wait(servers, envelope, wanted, deadline)
            }
            _ => Ok(Receipt::Stored),
        };
        // It is sent, no matter what can be learned of it.
        let (reached, unseen) =
            waited.map_or_else(|why| (Receipt::Stored, Some(why)), |reached| (reached, None));
        let mut told = vec![
            ("already_stored", (posted == PostOutcome::Sent(PublishOutcome::AlreadyStored)).into()),
            ("outbox", matches!(posted, PostOutcome::Kept(_)).into()),
        ];
        if matches!(posted, PostOutcome::Sent(_)) {
            told.extend(self.recall_replaced(context, envelope)?);
            if self.wait_for_reply.is_some() {
                let asked_in = ProjectQueue::open(context)?;
                told.push(("reply", self.print_reply(context, envelope, &asked_in)?));
            }
        }
        super::report(context, (&envelope.id, &envelope.to), reached, &told)?;
        let late = self.waiting.until().filter(|wanted| reached < *wanted).map(|wanted| {
            let patience = age(self.waiting.patience().unwrap_or_default());
            Failure::nothing(format!("after {patience} the message is {reached}, not {wanted}"))
        });
        Ok(unseen.or(late))
    }

    /// Every recipient once, all of them known if that can be asked.
    fn recipients_on(
        &self,
        context: &Context,
        servers: Option<&NatsTransport>,
        sender: &Name,
    ) -> Outcome<Vec<Name>> {
        let Some(servers) = servers else {
            if self.all {
                return Err(Failure::refused(
                    "who is in the team is not known while the servers are away",
                ));
            }
            return Ok(self.names());
        };
        self.recipients(context, servers, sender)
    }
}

/// Waits until a message has reached a state. Returns the state it reached.
fn wait(
    servers: &NatsTransport,
    envelope: &Envelope,
    wanted: Receipt,
    deadline: Option<Instant>,
) -> Outcome<Receipt> {
    servers.due_ids(&envelope.to, 1)?;
    let mut seen = 0;
    loop {
        let reached = match servers.state(&envelope.to, &envelope.id)? {
            Some(State::Settled) => Receipt::Settled,
            Some(State::Acked { .. }) => Receipt::Acked,
            Some(State::Queued { epoch, .. }) if epoch > 0 => Receipt::Acked,
            Some(State::Dead) => {
                let text = format!("message `{}` is a dead letter", envelope.id);
                return Err(Failure::refused(text));
            }
            Some(_) | None => Receipt::Stored,
        };
        let left =
            deadline.map_or(LOOK_INTERVAL, |at| at.saturating_duration_since(Instant::now()));
        if reached >= wanted || left.is_zero() {
            return Ok(reached);
        }
        seen = servers.wait_for_news(seen, left.min(LOOK_INTERVAL));
    }
}
