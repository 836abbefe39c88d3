//! Mail: which mailboxes have changed, and notifying their agents.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use ensemble_core::Result;
use ensemble_core::driver::LadderPrompt;
use ensemble_core::env::Monotonic;
use ensemble_core::message::{DeliveryClass, Envelope, MessageId, Name, TASK_TYPE};
use ensemble_core::spool::Spool;
use ensemble_project::panes::PaneEntry;

use super::remote::ServerSight;
use crate::authority::AuthorityGuard;
use crate::context::WatchContext;
use crate::mail::RemoteMail;
use crate::notifier::{COUNT_MAX, MailNotifier};
use crate::servers::{ServerNews, SharedSight};
use crate::wakes::LoopWaker;

/// The types of messages that are announced at once even though a line was typed already, because work waits for
/// them.
const WEIGHTY_TYPES: [&str; 3] = [TASK_TYPE, "report.escalation", "report.summary"];

pub(super) struct ArrivedMessage {
    pub(super) mailbox: Name,
    pub(super) id: MessageId,
    content: OnceCell<Option<Envelope>>,
}

impl ArrivedMessage {
    fn new(mailbox: Name, id: MessageId) -> Self {
        Self { mailbox, id, content: OnceCell::new() }
    }

    /// What it says; `None` if it is gone already, or damaged.
    pub(super) fn envelope(&self, spool: &Spool) -> Option<&Envelope> {
        self.content.get_or_init(|| spool.peek(&self.mailbox, &self.id).ok()).as_ref()
    }

    pub(super) fn is_no_task(&self) -> bool {
        let read = self.content.get().and_then(Option::as_ref);
        read.is_some_and(|envelope| envelope.kind.as_str() != TASK_TYPE)
    }
}

pub(super) struct EngineMail {
    context: Arc<WatchContext>,
    pub(super) notifier: MailNotifier,
    pub(super) remote: ServerSight,
    changed: BTreeSet<Name>,
    pub(super) arrived: Vec<ArrivedMessage>,
    /// Without events: when each mailbox had changed at the last look, and which messages waited there.
    polled: BTreeMap<Name, SystemTime>,
    waiting: RemoteMail,
}

impl EngineMail {
    pub(super) fn new(
        context: &Arc<WatchContext>,
        waker: LoopWaker,
        sight: SharedSight,
    ) -> Result<Self> {
        Ok(Self {
            context: Arc::clone(context),
            notifier: MailNotifier::new(context, waker)?,
            remote: ServerSight::new(&context.project, sight)?,
            changed: BTreeSet::new(),
            arrived: Vec::new(),
            polled: BTreeMap::new(),
            waiting: RemoteMail::default(),
        })
    }

    pub(super) fn next_timeout(&self) -> Option<Monotonic> {
        self.notifier.next_timeout()
    }

    pub(super) fn landed(&mut self, mailbox: Name, file: &str) {
        if let Some(id) = message_id(file) {
            self.arrive(&mailbox, id);
        }
        self.changed.insert(mailbox);
    }

    /// Notes an arrival, once although its writer closes the file after the rename.
    fn arrive(&mut self, mailbox: &Name, id: MessageId) {
        if self.arrived.last().is_none_or(|last| last.id != id || last.mailbox != *mailbox) {
            self.notifier.landed(mailbox, id.clone());
            self.arrived.push(ArrivedMessage::new(mailbox.clone(), id));
        }
    }

    pub(super) fn changed(&mut self, mailboxes: impl IntoIterator<Item = Name>) {
        self.changed.extend(mailboxes);
    }

    /// Counts all mailboxes again: delayed messages become due without an event.
    pub(super) fn all_changed(&mut self) {
        self.changed.extend(self.notifier.mailboxes().cloned());
    }

    /// Finds messages that have landed since the last look, where no event says so. At the first look, all have.
    pub(super) fn poll(&mut self) {
        self.all_changed();
        let spool = Arc::clone(&self.context.spool);
        for mailbox in spool.mailboxes().unwrap_or_default() {
            let new = spool.root().join("mailbox").join(mailbox.as_str()).join("new");
            let Ok(changed) = new.metadata().and_then(|it| it.modified()) else { continue };
            if self.polled.insert(mailbox.clone(), changed) == Some(changed) {
                continue;
            }
            let Ok(ids) = spool.due_ids(&mailbox, COUNT_MAX) else { continue };
            for id in self.waiting.update_mailbox(mailbox.clone(), ids) {
                self.arrive(&mailbox, id);
            }
        }
    }

    pub(super) fn bind(&mut self, now: Monotonic, entries: Vec<PaneEntry>) {
        self.notifier.bind(now, entries);
        self.all_changed();
    }

    /// Takes news of the servers. Returns the agents that hold, or wait for, something else now.
    pub(super) fn take_news(&mut self, news: ServerNews) -> Vec<Name> {
        let (mail, agents) = self.remote.take_news(news);
        if let Some((mailbox, new)) = mail {
            for id in new {
                self.notifier.landed(&mailbox, id);
            }
            self.changed.insert(mailbox);
        }
        agents
    }

    pub(super) fn prompt(&mut self, now: Monotonic, prompt: &LadderPrompt) {
        // The line must count the task, too.
        self.notifier.count(now, &prompt.mailbox, self.remote.mail(&self.context.spool));
        self.notifier.prompt(now, prompt);
    }

    /// Announces tasks, escalations and summaries even after a line that announced less urgent mail, and interrupts
    /// working agents for messages that ask for it.
    pub(super) fn announce_weighty(&mut self, now: Monotonic, arrivals: &[ArrivedMessage]) {
        for arrived in arrivals {
            let ArrivedMessage { mailbox, id, .. } = arrived;
            if !self.notifier.has_agent(mailbox) {
                continue;
            }
            let Some(envelope) = arrived.envelope(&self.context.spool) else { continue };
            if WEIGHTY_TYPES.contains(&envelope.kind.as_str()) {
                self.notifier.weighty(now, mailbox, id);
            }
            if envelope.when == Some(DeliveryClass::Interrupt)
                && AuthorityGuard::new(&self.context.project).may_interrupt(envelope)
            {
                self.notifier.interrupt(mailbox);
            }
        }
        if !arrivals.is_empty() {
            self.notify(now);
        }
    }

    pub(super) fn notify_changed(&mut self, now: Monotonic) {
        if !self.changed.is_empty() {
            self.notify(now);
        }
    }

    pub(super) fn notify(&mut self, now: Monotonic) {
        let source = self.remote.mail(&self.context.spool);
        for mailbox in std::mem::take(&mut self.changed) {
            self.notifier.count(now, &mailbox, source);
        }
        self.notifier.drive(now, source);
    }
}

/// The id in the name of a message's file, which may name a holder, too.
fn message_id(file: &str) -> Option<MessageId> {
    let stem = file.split('@').next()?;
    MessageId::new(stem.trim_end_matches(".yaml")).ok()
}
