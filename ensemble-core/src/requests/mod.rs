//! Requests: a question with an id, one addressee and one answer (seed 004).
//!
//! The first decision counts, in every process and after a crash. Only the addressee may decide,
//! and no agent decides its own request. Shutdown and plan approval are requests.
//!
//! ```text
//! requests/<id>/request.yaml    what was asked; the directory is renamed into place, whole
//! requests/<id>/decision.yaml   the answer; created with no-replace, so the first one stands
//! requests/<id>/closed.yaml     everything that follows from the answer is done
//! gates/<task>@<agent>.yaml     the plan that this agent's work on the task waits for
//! ```
//!
//! These are the files in a directory. A [`RequestStore`] keeps requests, in a directory or on servers.
//!
//! | operation | in this order | a crash in between leaves |
//! |---|---|---|
//! | ask | gate, request, record, message to the addressee | an open gate, or a request that [`Requests::resume`] announces |
//! | decide | decision, record, response, gate away, closed | a decision that [`Requests::resume`] carries on |
//! | give up at the deadline | the same, with the outcome `expired` | the same |
//!
//! The state machine is [`proto::request`](crate::proto::request); this module has its files and
//! messages. The request file names its addressee. A decision file that cannot be read, or whose author
//! may not decide, does not count. Once its writer has had the time to complete it, the next reader
//! sets it aside, and the request is open again. The ids of a request's messages follow from its own
//! id, so a repeated step stores no second message. `.lock` keeps two processes from doing the same
//! step at the same time.
//!
//! # Limits
//!
//! An id has at most [`REQUEST_ID_BYTES_MAX`] bytes, a question [`CONTENT_BYTES_MAX`]. Closed requests
//! are kept for [`CLOSED_KEPT`]. A deadline needs a process that waits for it, or a watcher.

mod ask;
mod correlate;
mod decide;
mod demand;
mod directory;
mod file;
mod follow;
mod gate;
mod gates;
mod kinds;
mod messages;
mod sender;
mod store;
mod sweep;
mod unplanned;

use std::sync::Arc;

use serde_json::{Value, json};

use crate::dropbox::INCOMPLETE_PATIENCE;
use crate::error::AreaError;
use crate::message::Name;
use crate::proto::request::{Decision, DecisionRefusal};
use crate::{Error, Result};

pub use ask::{CONTENT_BYTES_MAX, NewRequest, REQUEST_ID_BYTES_MAX};
pub use correlate::{CorrelationOutcome, SenderEvidence};
pub use demand::Demand;
pub use file::{AskedRequest, COMMENT_BYTES_MAX};
pub use gate::{GateState, GatedTask, PlanGate, UndecidedRequest};
pub use gates::PlanGates;
pub use kinds::{KIND_BYTES_MAX, Kinds, kind_fault};
pub use sender::{SenderStanding, describe_sender, is_answered, standing};
pub use store::{RequestFile, RequestFiles, RequestLock, RequestStore, StoredFile, WriteOutcome};
pub use sweep::{CLOSED_KEPT, DEMAND_KEPT};
pub use unplanned::{UnplannedTask, is_unplanned_notice};

use file::DecisionState;
pub use file::StoredRequest;
pub use gate::{GateFile, asked_request, gated_task, stem};

/// The directory below the queue.
pub const REQUESTS: &str = "requests";
/// The recipient of escalations: requests without a decision, where their kind says so.
pub const ESCALATED_TO: &str = "conductor";
/// The actor of decisions that a deadline makes.
const ACTOR: &str = "ensemble";

/// Called with a decision before both sides are notified of it.
pub type DecisionNote<'a> = Arc<dyn Fn(&RequestEntry) -> Result<()> + Send + Sync + 'a>;

/// The requests of a queue. Cheap to make; starts nothing and keeps nothing.
#[derive(Clone)]
pub struct Requests<'a> {
    store: &'a dyn RequestStore,
    kinds: Kinds,
    note: Option<DecisionNote<'a>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestEntry {
    pub request: AskedRequest,
    /// The answer; `None` while it is pending.
    pub decision: Option<Decision>,
    /// Everything that follows from the answer is done.
    pub is_closed: bool,
    /// Why some recipients were not notified of the answer yet. The answer counts anyway, and the
    /// watcher tries again.
    pub untold: Option<String>,
}

impl RequestEntry {
    fn new(request: AskedRequest, decision: Option<Decision>) -> Self {
        Self { request, decision, is_closed: false, untold: None }
    }

    /// `pending`, `approved`, `rejected`, `expired` or `cancelled`.
    pub fn state(&self) -> &'static str {
        self.decision.as_ref().map_or("pending", |decision| decision.outcome.word())
    }

    /// Whether the kind's decision handler still has to carry out the decision.
    pub fn is_to_be_carried_out(&self) -> bool {
        let decided = self.decision.as_ref();
        !self.is_closed && decided.is_some_and(|d| self.request.kind().carries_out(d))
    }

    /// For programs: ids first, as every `--json` answer has it.
    pub fn to_json(&self) -> Value {
        let asked = &self.request;
        let mut object = json!({
            "request_id": asked.request_id, "kind": asked.kind, "state": self.state(),
            "from": asked.from, "to": asked.to, "created_at": asked.created_at,
            "deadline_at": asked.deadline_at(),
        });
        let optional = [
            ("task_id", json!(asked.task_id)),
            ("round", json!(asked.round)),
            ("previous", json!(asked.previous)),
            ("decided_by", json!(self.decision.as_ref().map(|d| &d.by))),
            ("decided_at", json!(self.decision.as_ref().map(|d| d.at))),
            ("comment", json!(self.decision.as_ref().map(|d| &d.comment))),
        ];
        for (key, value) in optional {
            if !value.is_null() {
                object[key] = value;
            }
        }
        object
    }
}

impl<'a> Requests<'a> {
    /// The requests of this queue, of seed 004's kinds.
    pub fn new(store: &'a dyn RequestStore) -> Self {
        Self { store, kinds: Kinds::default(), note: None }
    }

    /// Calls `note` for each decision before both sides are notified: in the process that decides,
    /// and in every process that continues after a crash, so it may be called again. If it fails,
    /// the decision counts anyway, and the next process does the rest.
    pub fn with_note(self, note: DecisionNote<'a>) -> Self {
        Self { note: Some(note), ..self }
    }

    pub fn with_kinds(self, kinds: Kinds) -> Self {
        Self { kinds, ..self }
    }

    /// Finds a request and its state; `None` if there is none. An invalid decision is set aside on the
    /// way.
    pub fn find(&self, id: &str) -> Result<Option<RequestEntry>> {
        let Ok(id) = Name::new(id) else { return Ok(None) };
        self.entry(&id, self.store.files(&id)?)
    }

    fn entry(&self, id: &Name, files: Option<RequestFiles>) -> Result<Option<RequestEntry>> {
        let Some(files) = files else { return Ok(None) };
        let home = StoredRequest::of(id, files, |page| self.store.place(id, page))?;
        let (home, standing) = self.judged(id, home)?;
        let is_closed = home.is_closed;
        Ok(Some(RequestEntry { is_closed, ..RequestEntry::new(home.asked, standing) }))
    }

    /// As [`Requests::find`], but fails if there is no such request.
    pub fn get(&self, id: &str) -> Result<RequestEntry> {
        self.find(id)?.ok_or_else(|| DecisionRefusal::Unknown { id: printable(id) }.into())
    }

    /// All requests, the oldest first; those that cannot be read are reported beside them.
    pub fn list(&self) -> Result<(Vec<RequestEntry>, Vec<Error>)> {
        let (mut entries, mut errors) = (Vec::new(), Vec::new());
        for (id, files) in self.store.all_files()? {
            match files.and_then(|files| self.entry(&id, files)) {
                Ok(entry) => entries.extend(entry),
                Err(error) => errors.push(error),
            }
        }
        entries.sort_by(|a, b| {
            let key = |e: &RequestEntry| (e.request.created_at, e.request.request_id.clone());
            key(a).cmp(&key(b))
        });
        Ok((entries, errors))
    }

    /// The ids of all requests, in no order.
    pub fn ids(&self) -> Result<Vec<Name>> {
        self.store.ids()
    }

    /// Whether everything about a request is done: a look that opens no file.
    pub fn is_closed(&self, id: &Name) -> Result<bool> {
        self.store.is_closed(id)
    }

    /// As [`Requests::find_request`], but touches nothing. The caller holds the lock.
    fn peek(&self, id: &str) -> Result<Option<(StoredRequest, Option<Decision>)>> {
        let Ok(id) = Name::new(id) else { return Ok(None) };
        let Some(home) = StoredRequest::read(self.store, &id)? else { return Ok(None) };
        let decision = home.decision();
        Ok(Some((home, decision)))
    }

    /// A request and its decision, once an invalid decision file is set aside.
    fn find_request(&self, id: &str) -> Result<Option<(StoredRequest, Option<Decision>)>> {
        let Ok(id) = Name::new(id) else { return Ok(None) };
        let Some(home) = StoredRequest::read(self.store, &id)? else { return Ok(None) };
        self.judged(&id, home).map(Some)
    }

    /// Adds the decision, after setting an invalid decision file aside.
    fn judged(&self, id: &Name, home: StoredRequest) -> Result<(StoredRequest, Option<Decision>)> {
        let decision = match &home.standing {
            DecisionState::Nothing | DecisionState::Valid(_) => home.decision(),
            DecisionState::Invalid(..) => self.put_aside(id, INCOMPLETE_PATIENCE)?,
        };
        Ok((home, decision))
    }

    fn record(&self, kind: &str, actor: &str, asked: &AskedRequest, more: Value) {
        let mut data = json!({
            "request_id": asked.request_id, "kind": asked.kind, "from": asked.from, "to": asked.to,
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            data[key] = value.clone();
        }
        self.store.recorder().record(kind, actor, data);
    }
}

/// A request was not made or not decided, and why.
impl AreaError for DecisionRefusal {}

/// An id as typed by a user, for an error text.
fn printable(id: &str) -> String {
    id.chars().take(80).flat_map(char::escape_debug).collect()
}
