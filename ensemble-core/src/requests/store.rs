//! Where requests are kept, so that the protocol needs not know: files that are written once, and gates.
//!
//! | | directory ([`Spool`](crate::spool::Spool)) | servers (`nats::NatsTransport`) |
//! |---|---|---|
//! | a file of a request | `requests/<id>/<file>.yaml` | `requests.<id>.<file>` in the team's key-value bucket |
//! | written once | rename with no-replace | compare-and-set upon nothing |
//! | a gate | `gates/<task>@<agent>.yaml`, replaced under the lock | `gates.<task>.<agent>`, compare-and-set |
//! | one at a time | flock on `requests/.lock` | no lock; what only one process may do is a compare-and-set |
//!
//! Seed 004's verbs are writes: *ask* writes the first file, *decide* the second, *settle* the last
//! one. Each write succeeds for exactly one of all processes that try, on any host. The others read
//! what the first one wrote. Messages of a request are stored once by their ids, so the lock only
//! spares work. Where there is none, the process that has stored a message also records it.

use std::path::PathBuf;
use std::time::Duration;

use super::demand::Demand;
use super::file::AskedRequest;
use super::gate::PlanGate;
use crate::Result;
use crate::broker::Broker;
use crate::document::SharedFiles;
use crate::durable::FileLock;
use crate::env::Lease;
use crate::event_log::Recorder;
use crate::message::{Name, Timestamp};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestFile {
    /// What was asked. Without it there is no request.
    Request,
    Decision,
    /// All recipients know the decision, and it still has to be carried out.
    Told,
    /// Everything that follows from the decision is done.
    Closed,
}

impl RequestFile {
    /// All of them, in the order in which they are written.
    pub const ALL: [Self; 4] = [Self::Request, Self::Decision, Self::Told, Self::Closed];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Decision => "decision",
            Self::Told => "told",
            Self::Closed => "closed",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFile {
    pub content: Vec<u8>,
    /// When it was written, by the clock of the store.
    pub at: Timestamp,
    /// Version of the file, where the store counts versions.
    pub revision: u64,
}

impl StoredFile {
    pub const fn new(content: Vec<u8>, at: Timestamp, revision: u64) -> Self {
        Self { content, at, revision }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestFiles {
    pub request: StoredFile,
    /// The decision; or why what is in its place cannot be read.
    pub decision: Option<std::result::Result<StoredFile, String>>,
    pub is_told: bool,
    pub is_closed: bool,
}

impl RequestFiles {
    pub const fn new(request: StoredFile) -> Self {
        Self { request, decision: None, is_told: false, is_closed: false }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The file is written.
    Done,
    /// Another process was first.
    Exists,
    /// There is no such request any more.
    Gone,
}

/// The lock of the requests, released when dropped. A store on servers has none.
#[derive(Debug)]
pub struct RequestLock {
    lock: Option<FileLock>,
}

impl RequestLock {
    pub(crate) const fn alone(lock: FileLock) -> Self {
        Self { lock: Some(lock) }
    }

    /// Without a lock: other processes may do the same at the same time.
    pub const fn shared() -> Self {
        Self { lock: None }
    }

    /// Whether no other process does the same in the meantime.
    pub const fn is_alone(&self) -> bool {
        self.lock.is_some()
    }
}

/// Keeps the requests of a queue, beside its mailboxes. Calls block as those of [`Transport`](crate::env::Transport) do, and
/// fail with the errors of the disk or of the server.
pub trait RequestStore: Send + Sync {
    fn broker(&self) -> &dyn Broker;

    /// Now, by the queue's clock.
    fn now(&self) -> Timestamp;

    fn recorder(&self) -> &dyn Recorder;

    fn place(&self, id: &Name, page: RequestFile) -> PathBuf;

    /// Waits for the lock, where the store has one.
    fn lock(&self) -> Result<RequestLock>;

    /// The ids of all requests, in no order.
    fn ids(&self) -> Result<Vec<Name>>;

    /// The files of a request; `None` if there is none.
    fn files(&self, id: &Name) -> Result<Option<RequestFiles>>;

    /// The files of all requests, in no order; for each what [`RequestStore::files`] says.
    fn all_files(&self) -> Result<Vec<(Name, Result<Option<RequestFiles>>)>> {
        let ids = self.ids()?.into_iter();
        Ok(ids.map(|id| (id.clone(), self.files(&id))).collect())
    }

    /// Whether everything about a request is done; also true of a missing request.
    fn is_closed(&self, id: &Name) -> Result<bool>;

    /// Writes a file, unless it was written before.
    ///
    /// # Errors
    /// The medium failed. Writing it again is safe.
    fn write_once(&self, id: &Name, page: RequestFile, text: &str) -> Result<WriteOutcome>;

    /// Makes safe what others have written and may not have synced: which requests there are, or the files of one. On
    /// servers there is nothing to do, because acknowledged writes are safe.
    fn make_safe(&self, id: Option<&Name>) -> Result<()>;

    /// Puts a decision aside that counts for nothing, and says where it is kept.
    fn put_aside(&self, id: &Name, revision: u64, why: &str) -> Result<String>;

    /// Puts a whole request aside that cannot be read, and says where it is kept.
    fn reject(&self, id: &Name, why: &str) -> Result<String>;

    /// The gate that an agent's work on a task waits for; `None` if nothing.
    fn gate(&self, task: &str, agent: &Name) -> Result<Option<PlanGate>>;

    fn gates(&self) -> Result<Vec<PlanGate>>;

    /// The gate that keeps this lease's holder from its message; `None` if nothing does.
    fn gate_of(&self, lease: &Lease) -> Result<Option<PlanGate>>;

    /// The gates that keep waiting messages of this mailbox from this holder, each once.
    fn gated(&self, mailbox: &Name, holder: &Name) -> Result<Vec<PlanGate>>;

    /// Closes the gate of the task that a request is about, before the request is written; `last` is
    /// the gate that was met there. `false` if another one has taken its place since.
    fn close_gate(&self, asked: &AskedRequest, last: Option<&PlanGate>) -> Result<bool>;

    /// Demands a plan of each agent that takes a task. `false` if one was demanded before.
    fn demand_plan(&self, demand: &Demand) -> Result<bool>;

    /// Takes the gate of this request away. One of a later request stays, and one of a task that demands a plan.
    fn open_gate(&self, asked: &AskedRequest) -> Result<()>;

    /// Where the hosts of a team share files, such as those that stop the team. `None` for a queue of one host.
    fn shared_files(&self) -> Option<&dyn SharedFiles> {
        None
    }

    /// How long ago a stamp of this medium was made, in this host's judgement.
    fn age(&self, stamp: Timestamp) -> Duration {
        self.now().since(stamp)
    }

    /// Forgets requests that were closed [`CLOSED_KEPT`](super::CLOSED_KEPT) ago and that no gate names. Returns how
    /// many.
    fn sweep_requests(&self) -> Result<usize>;
}
