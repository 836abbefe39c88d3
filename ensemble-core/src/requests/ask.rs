//! Asking: the gate, the request, and the message to its addressee.

use serde_json::json;

use super::file::clip;
use super::gate::{GateState, PlanGate};
use super::store::{RequestFile, RequestLock, WriteOutcome};
use super::{AskedRequest, RequestEntry, Requests};
use crate::broker::UnreadMail;
use crate::env::PublishOutcome;
use crate::event_log::types;
use crate::message::{BODY_BYTES_MAX, Envelope, FORMAT_VERSION, NAME_BYTES_MAX, Name, yaml};
use crate::proto::request::{AtExpiry, DecisionRefusal, PLAN_APPROVAL, RequestKind};
use crate::{Error, Result, sys};

/// The longest id of a request, in bytes: the ids of its messages are made from it.
pub const REQUEST_ID_BYTES_MAX: usize = NAME_BYTES_MAX - 16;
pub const CONTENT_BYTES_MAX: usize = 32 * 1024;
/// How many ids are tried before it is a fault.
const IDS_TRIED_MAX: usize = 64;
/// How often a gate is read again that others change at the same time.
const GATES_TRIED_MAX: usize = 64;

#[derive(Clone, Debug)]
#[must_use]
pub struct NewRequest {
    kind: String,
    from: Name,
    pub to: Name,
    content: Vec<u8>,
    id: Option<String>,
    task: Option<String>,
    source: Option<String>,
    deadline_seconds: Option<u64>,
    at_expiry: Option<AtExpiry>,
    pub unread_mail: Option<UnreadMail>,
    pub generation: Option<u64>,
    asked_by_message: Option<Name>,
}

impl NewRequest {
    pub fn new(kind: impl Into<String>, from: Name, to: Name, content: impl Into<Vec<u8>>) -> Self {
        Self {
            kind: kind.into(),
            from,
            to,
            content: content.into(),
            id: None,
            task: None,
            source: None,
            deadline_seconds: None,
            at_expiry: None,
            unread_mail: None,
            generation: None,
            asked_by_message: None,
        }
    }

    /// Under an id of the requester's own: asking the same again changes nothing.
    pub fn with_id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// About this task, which the requester may not begin before it is approved.
    pub fn with_task(mut self, task: impl Into<String>) -> Self {
        self.task = Some(task.into());
        self
    }

    pub fn with_source(mut self, source: impl Into<String>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// With another deadline than its kind's, in seconds; 0 does not wait for an answer.
    pub fn with_deadline_seconds(mut self, seconds: u64) -> Self {
        self.deadline_seconds = Some(seconds);
        self
    }

    /// With another meaning of silence than its kind's.
    pub fn with_expiry(mut self, at_expiry: AtExpiry) -> Self {
        self.at_expiry = Some(at_expiry);
        self
    }

    /// Asked already by this message, so that no second one is sent.
    pub(super) fn asked_by(mut self, message: Name) -> Self {
        self.asked_by_message = Some(message);
        self
    }
}

impl Requests<'_> {
    /// Asks: when this returns, the request is on disk and its addressee has the message. Asking the same under the
    /// same id again, or the same plan for the same task, gives the request that exists.
    pub fn ask(&self, ask: NewRequest) -> Result<RequestEntry> {
        let (kind, from, to) = (ask.kind.clone(), ask.from.clone(), ask.to.clone());
        let asked = self.ask_unlogged(ask);
        if let Some(refusal) = asked.as_ref().err().and_then(Error::area::<DecisionRefusal>) {
            let data = json!({
                "request_id": refusal.id(), "kind": super::printable(&kind), "from": from, "to": to,
                "by": from, "why": refusal.word(),
            });
            self.store.recorder().record(types::REQUEST_REFUSED, from.as_str(), data);
        }
        asked
    }

    fn ask_unlogged(&self, ask: NewRequest) -> Result<RequestEntry> {
        let known = || self.kinds.names().into_iter().map(str::to_owned).collect();
        let unknown =
            || DecisionRefusal::UnknownKind { kind: super::printable(&ask.kind), known: known() };
        let kind = self.kinds.find(&ask.kind).ok_or_else(unknown)?.clone();
        let id = ask.id.as_deref().map(check_id).transpose()?;
        if ask.from == ask.to {
            return Err(DecisionRefusal::AsksItself { by: ask.from }.into());
        }
        let broker = self.store.broker();
        broker.settings(&broker.mailbox_of(&ask.to))?;
        let mut asked = self.prepare(&kind, ask, id.clone().unwrap_or_else(new_id))?;
        let lock = self.store.lock()?;
        let tried = if id.is_some() { 1 } else { IDS_TRIED_MAX };
        for _ in 0..tried {
            // A gate must not name another requester's request.
            if id.is_none()
                && asked.task_id.is_some()
                && self.store.files(&asked.request_id)?.is_some()
            {
                asked.request_id = new_id();
                continue;
            }
            if let Some(same) = self.pass_before(&lock, &mut asked)? {
                return Ok(same);
            }
            if self.store(&asked)? {
                let entry = RequestEntry::new(asked, None);
                self.announce(&lock, &entry.request, true)?;
                return Ok(entry);
            }
            if let Some(id) = &id {
                return self.ask_again(&lock, &asked, id);
            }
            asked.request_id = new_id();
        }
        Err(DecisionRefusal::Taken { id: asked.request_id.into() }.into())
    }

    /// Closes the gate for a question about a task; what was asked before, if it is the same.
    fn pass_before(
        &self,
        lock: &RequestLock,
        asked: &mut AskedRequest,
    ) -> Result<Option<RequestEntry>> {
        let Some(task) = asked.task_id.clone() else { return Ok(None) };
        for _ in 0..GATES_TRIED_MAX {
            let gate = self.gate(&task, &asked.from)?;
            // Another question neither is the plan that is demanded nor replaces one that is approved.
            let is_kept = |gate: &PlanGate| gate.demanded && gate.state != GateState::Pending;
            if gate.as_ref().is_some_and(is_kept) && asked.kind.as_str() != PLAN_APPROVAL {
                return Ok(None);
            }
            if let Some(same) = self.before(lock, asked, gate.as_ref())? {
                return Ok(Some(same));
            }
            if self.store.close_gate(asked, gate.as_ref())? {
                return Ok(None);
            }
        }
        let path = self.store.place(&asked.request_id, RequestFile::Request);
        Err(Error::io("close the gate for", path, std::io::ErrorKind::WouldBlock))
    }

    fn prepare(
        &self,
        kind: &RequestKind,
        ask: NewRequest,
        request_id: Name,
    ) -> Result<AskedRequest> {
        let message_type = |name: &str| Name::new(name).map(Some);
        let (content, attachment) = self.content(ask.content)?;
        let read_by = |name: &Name| self.store.broker().mailbox_of(name);
        let asked = AskedRequest {
            version: FORMAT_VERSION,
            request_id,
            kind: Name::new(kind.name.as_ref())?,
            from_mailbox: Some(read_by(&ask.from)).filter(|mailbox| *mailbox != ask.from),
            to_mailbox: Some(read_by(&ask.to)).filter(|mailbox| *mailbox != ask.to),
            from: ask.from,
            to: ask.to,
            created_at: self.store.now(),
            deadline_seconds: ask.deadline_seconds.unwrap_or(kind.deadline.as_secs()),
            remind_every_seconds: kind.remind_every.as_secs(),
            at_expiry: ask.at_expiry.unwrap_or(kind.at_expiry),
            request_type: message_type(&kind.request_type)?,
            response_type: message_type(&kind.response_type)?,
            content_field: kind.content_field.to_string(),
            comment_field: kind.comment_field.to_string(),
            content,
            attachment,
            round: ask.task.is_some().then_some(1),
            task_id: ask.task,
            previous: None,
            previous_comment: None,
            source: ask.source,
            unread_mail: ask.unread_mail,
            generation: ask.generation,
            asked_by_message: ask.asked_by_message,
        };
        // What is invalid in an envelope is refused before anything is stored.
        let mut question = self.question(&asked);
        question.task_id.clone_from(&asked.task_id);
        question.encode()?;
        Ok(asked)
    }

    /// The content, or where it is attached if it is long or no text.
    fn content(&self, content: Vec<u8>) -> Result<(String, Option<crate::message::Attachment>)> {
        let content = match String::from_utf8(content) {
            // In the body every character may take several bytes.
            Ok(text)
                if text.len() <= CONTENT_BYTES_MAX
                    && yaml::render(&[&text]).len() <= BODY_BYTES_MAX / 2 =>
            {
                return Ok((text, None));
            }
            Ok(text) => text.into_bytes(),
            Err(error) => error.into_bytes(),
        };
        let attachment = self.store.broker().attach(&content)?;
        let text = format!(
            "The content is attached: attachments/{} ({} bytes).\n",
            attachment.sha256, attachment.bytes
        );
        Ok((text, Some(attachment)))
    }

    /// What an earlier plan for the same task means for this one.
    fn before(
        &self,
        lock: &RequestLock,
        asked: &mut AskedRequest,
        gate: Option<&PlanGate>,
    ) -> Result<Option<RequestEntry>> {
        let Some(gate) = gate else { return Ok(None) };
        // The gate of this very request, written before a crash, is not a round before it.
        if gate.request_id == asked.request_id {
            asked.round = Some(gate.round);
            asked.previous.clone_from(&gate.previous);
            asked.previous_comment = None;
            return Ok(None);
        }
        if let Some(unasked) = &gate.unasked {
            self.store(unasked)?;
        }
        let earlier = self.peek(gate.request_id.as_str())?;
        let earlier = earlier.map(|(home, decision)| RequestEntry::new(home.asked, decision));
        if gate.state == GateState::Pending
            && let Some(earlier) = earlier
        {
            if earlier.request.asks_the_same(asked) {
                self.announce_again(lock, &earlier.request)?;
                return Ok(Some(earlier));
            }
            let (id, task) = (earlier.request.request_id.into(), gate.task_id.clone());
            let (to, by) = (earlier.request.to, earlier.request.from);
            return Err(DecisionRefusal::PlanPending { id, task, to, by }.into());
        }
        if let Some(earlier) = earlier.filter(|_| gate.is_closed()) {
            asked.round = Some(gate.round.saturating_add(1));
            let comment = earlier.decision.map(|d| clip(&d.comment));
            asked.previous_comment = comment.filter(|comment| !comment.is_empty());
            asked.previous = Some(earlier.request.request_id);
        }
        Ok(None)
    }

    /// Puts the request into its place; `false` if the id is taken.
    pub(super) fn store(&self, asked: &AskedRequest) -> Result<bool> {
        let (id, text) = (&asked.request_id, yaml::render(asked));
        Ok(self.store.write_once(id, RequestFile::Request, &text)? == WriteOutcome::Done)
    }

    /// The id is taken: by the same question, or by another one?
    fn ask_again(
        &self,
        lock: &RequestLock,
        asked: &AskedRequest,
        id: &Name,
    ) -> Result<RequestEntry> {
        let Some((home, decision)) =
            self.peek(id.as_str())?.filter(|(home, _)| home.asked.asks_the_same(asked))
        else {
            return Err(DecisionRefusal::Taken { id: id.to_string() }.into());
        };
        let is_closed = home.is_closed;
        let entry = RequestEntry { is_closed, ..RequestEntry::new(home.asked, decision) };
        match &entry.decision {
            None => self.announce_again(lock, &entry.request)?,
            // The gate that was closed again for it.
            Some(decision) => self.open_gate(&entry.request, decision)?,
        }
        Ok(entry)
    }

    /// Makes sure that the addressee has the message.
    pub(super) fn announce(
        &self,
        lock: &RequestLock,
        asked: &AskedRequest,
        is_new: bool,
    ) -> Result<()> {
        let question = self.question(asked);
        let record = || {
            let (seconds, task) = (asked.deadline_seconds, &asked.task_id);
            let more =
                json!({ "deadline_seconds": seconds, "task_id": task, "round": asked.round });
            self.record(types::REQUEST_OPENED, asked.from.as_str(), asked, more);
        };
        if asked.asked_by_message.is_some() {
            if is_new {
                record();
            }
            return Ok(());
        }
        match self.store.broker().state(&question.to, &question.id) {
            // Who may not look stores it again, which changes nothing.
            Ok(None) | Err(Error::Server { unreachable: false, .. }) => {}
            other => return other.map(drop),
        }
        if !is_new {
            // The requester may have been killed before the request was safe.
            self.store.make_safe(None)?;
        }
        self.publish_recorded(lock, question, record)
    }

    /// As [`Requests::announce`], for a repeated request, whose first process may have died before its sync.
    fn announce_again(&self, lock: &RequestLock, asked: &AskedRequest) -> Result<()> {
        self.store.make_safe(None)?;
        self.announce(lock, asked, false)?;
        match asked.asked_by_message {
            None => self.publish(self.question(asked)).map(drop),
            Some(_) => Ok(()),
        }
    }

    /// Stores a message and records why, each once. A process that holds the lock records first, so that no crash
    /// leaves a message that is not in the log. Without a lock, the process that has stored the message records it.
    pub(super) fn publish_recorded(
        &self,
        lock: &RequestLock,
        envelope: Envelope,
        record: impl FnOnce(),
    ) -> Result<()> {
        if lock.is_alone() {
            record();
            return self.publish(envelope).map(drop);
        }
        if self.publish(envelope)? {
            record();
        }
        Ok(())
    }

    /// Stores a message of a request, once; `false` if it was stored before. One with another text, by
    /// another version of this program, counts as stored.
    pub(super) fn publish(&self, envelope: Envelope) -> Result<bool> {
        match self.store.broker().publish(&envelope) {
            Ok(published) => Ok(published == PublishOutcome::Stored),
            Err(Error::Conflict { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn check_id(id: &str) -> Result<Name> {
    if id.len() > REQUEST_ID_BYTES_MAX {
        return Err(Error::too_large("the request_id", id.len(), REQUEST_ID_BYTES_MAX));
    }
    Ok(Name::new(id)?)
}

/// Eight hexadecimal digits, as in the seed. Two requests cannot have the same: the directory of
/// the second one is not created.
fn new_id() -> Name {
    let digits = format!("{:08x}", sys::random_bits() >> 32);
    Name::new(digits).unwrap_or_else(|_| unreachable!("eight digits are a name"))
}
