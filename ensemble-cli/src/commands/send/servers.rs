//! Sending to mailboxes on servers: over the outbox of this host, so that an unreachable server
//! stops no sender.

use std::time::Instant;

use ensemble_app::content::fill;
use ensemble_app::diagnostics::say;
use ensemble_app::exit_code::VerbExit;
use ensemble_app::failure::{Failure, Outcome};
use ensemble_app::mail::answers;
use ensemble_app::queue::{ProjectQueue, check_name};
use ensemble_app::receipt::{Receipt, ReceiptTracker};
use ensemble_core::Error;
use ensemble_core::broker::Broker;
use ensemble_core::env::PublishOutcome;
use ensemble_core::message::{Envelope, Name};
use ensemble_core::transfer::{Outbox, PostOutcome};
use ensemble_nats::{NatsOptions, NatsTransport};

use super::Arguments;
use crate::context::Context;

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
        let waited = match (servers, &posted) {
            (Some(servers), PostOutcome::Sent(_)) => {
                let (to, id) = (envelope.to.clone(), envelope.id.clone());
                self.wait_for(ReceiptTracker::new(servers, None, to, id, None), deadline)
            }
            _ => Ok((Receipt::Stored, self.late(Receipt::Stored))),
        };
        // It is sent, no matter what can be learned of it.
        let (reached, late) = waited.unwrap_or_else(|why| (Receipt::Stored, Some(why)));
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
        Ok(late)
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
