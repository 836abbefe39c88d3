//! Where the mail of a sender goes, for `ensemble send`, the tool `send` and a call of the API.
//!
//! | the mailboxes | a message goes |
//! |---|---|
//! | are in a directory | into its mailbox |
//! | are on servers | into its mailbox, behind what waits for it in the outbox of this host |
//! | are on servers that do not answer | into the outbox of this host |
//!
//! So an unreachable server stops no sender, and a sender's messages stay in order whichever door they come by.

use ensemble_core::broker::Broker;
use ensemble_core::event_log::Follower;
use ensemble_core::message::{Envelope, MessageId, Name};
use ensemble_core::transfer::{Outbox, PostOutcome};
use ensemble_project::Project;

use crate::App;
use crate::content::fill;
use crate::diagnostics::say;
use crate::exit_code::VerbExit;
use crate::failure::{Failure, Outcome};
use crate::mail::answers;
use crate::mail::recalling::{RecalledCopy, recall_replaced};
use crate::mail::sending::{MessageHeaders, all_recipients, known_recipients};
use crate::queue::ProjectQueue;
use crate::receipt::ReceiptTracker;

/// The way of one call's messages into the mailboxes of a project.
pub struct OutgoingMail<'a> {
    project: &'a Project,
    /// `None` while no server answers.
    queue: Option<&'a ProjectQueue>,
    /// Of a team on servers.
    outbox: Option<Outbox>,
}

impl<'a> OutgoingMail<'a> {
    /// To the mailboxes of `project`, whose queue is `None` if no server answers.
    pub fn new(project: &'a Project, queue: Option<&'a ProjectQueue>) -> Outcome<Self> {
        let is_shared = queue.is_none_or(|queue| queue.directory().is_none());
        let outbox = is_shared.then(|| project.open_outbox()).transpose()?;
        Ok(Self { project, queue, outbox })
    }

    /// Whether what cannot be delivered now is kept on this host.
    pub const fn has_outbox(&self) -> bool {
        self.outbox.is_some()
    }

    /// The queue, for what cannot be kept for later, such as a wait for a reply; a failure that names it while no
    /// server answers.
    pub fn reached_queue(&self, what: &str) -> Outcome<&'a ProjectQueue> {
        let away = || format!("the servers do not answer, and {what}");
        self.queue.ok_or_else(|| Failure::new(VerbExit::Busy, away()))
    }

    pub fn everyone(&self, sender: &Name) -> Outcome<Vec<Name>> {
        let text = "who is in the team is not known while the servers are away";
        let queue = self.queue.ok_or_else(|| Failure::refused(text))?;
        all_recipients(self.project, &**queue, sender)
    }

    /// Each of these mailboxes once. As long as a server answers, each is known, or created as [`known_recipients`] says.
    pub fn recipients(&mut self, names: &[Name], creates: bool) -> Outcome<Vec<Name>> {
        if let Some(queue) = self.queue {
            match known_recipients(self.project, &**queue, names, creates) {
                // A connection from before, whose server has gone.
                Err(failure) if failure.is_server_away() => self.queue = None,
                known => return known,
            }
        }
        let mut recipients: Vec<Name> = Vec::with_capacity(names.len());
        for name in names.iter().map(|name| self.project.mailbox_of(name)) {
            if !recipients.contains(&name) {
                recipients.push(name);
            }
        }
        Ok(recipients)
    }

    pub fn envelope(
        &self,
        app: &App,
        headers: MessageHeaders,
        (to, from_project): (&Name, Option<Name>),
        content: Vec<u8>,
    ) -> Outcome<Envelope> {
        let lifetime = headers.expires;
        let mut envelope = headers.envelope(app, to)?;
        envelope.project = from_project;
        if let (Some(team), Some(time)) = (self.queue.and_then(ProjectQueue::team_link), lifetime) {
            // All hosts judge it by the servers' time.
            envelope.expires_at = Some(team.now().plus(time));
        }
        self.fill(app, envelope, content)
    }

    /// Puts the content into a message; what is large is attached where [`OutgoingMail::post`] takes it from.
    pub fn fill(&self, app: &App, envelope: Envelope, content: Vec<u8>) -> Outcome<Envelope> {
        let here: &dyn Broker = match (&self.outbox, self.queue) {
            (Some(outbox), _) => outbox.spool(),
            (None, Some(queue)) => &**queue,
            (None, None) => unreachable!("without a queue there is an outbox"),
        };
        fill(app, here, envelope, content)
    }

    /// Demands a plan for a task. To be called before its message is stored, which must not overtake the demand.
    pub fn demand_plan(&self, task: &str, by: &Name) -> Outcome {
        let queue = self.reached_queue("a plan is demanded there")?;
        self.project.requests(queue.request_store())?.demand_plan(task, by)?;
        Ok(())
    }

    /// Stores a message. Says on stderr why it is kept on this host although a server answers.
    pub fn post(&self, envelope: &Envelope) -> Outcome<PostOutcome> {
        let queue = self.queue.map(|queue| &**queue);
        let posted = match (&self.outbox, queue) {
            (Some(outbox), server) => outbox.post(server, envelope)?,
            (None, Some(queue)) => PostOutcome::Sent(queue.publish(envelope)?),
            (None, None) => unreachable!("without a queue there is an outbox"),
        };
        if let (PostOutcome::Kept(why), Some(_)) = (&posted, queue) {
            say(&format!("kept in the outbox of this host for `{}`: {why}", envelope.to));
        }
        Ok(posted)
    }

    /// Does what follows from a message that some mailbox has: it may answer a request or a message of the sender.
    pub fn conclude(&self, app: &App, envelope: &Envelope) {
        if let Some(queue) = self.queue {
            answers::sent(app, queue.request_store(), envelope);
        }
    }

    /// Recalls the message that a posted one replaces, if its reader has not got it yet.
    pub fn recall_replaced(
        &self,
        app: &App,
        posted: &PostOutcome,
        envelope: &Envelope,
    ) -> Outcome<Option<RecalledCopy>> {
        match (posted, self.queue) {
            (PostOutcome::Sent(_), Some(queue)) => recall_replaced(app, queue, envelope),
            _ => Ok(None),
        }
    }

    /// Follows a posted message; `None` while it is kept on this host. `log` must begin before it was stored.
    pub fn tracker(
        &self,
        posted: &PostOutcome,
        (to, id): (Name, MessageId),
        log: Option<Follower>,
    ) -> Option<ReceiptTracker<'a>> {
        let queue = self.queue.filter(|_| matches!(posted, PostOutcome::Sent(_)))?;
        Some(ReceiptTracker::new(queue, to, id, log))
    }
}
