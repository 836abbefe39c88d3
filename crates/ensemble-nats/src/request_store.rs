//! The request store on servers. A page is a key of the team's bucket, created by compare-and-set, so the first one
//! counts, from any host. A plan gate is a key that is replaced by compare-and-set.
//!
//! A plan gate carries its request until that is written (see [`ensemble_core::requests::GateState`]), so
//! the request survives a client that dies in between. A removed key stays as an empty version for
//! followers, and is swept with the closed requests.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::{join, join4};

use super::NatsTransport;
use super::server_time::{millis, timestamp};
use super::subject::{BucketKey, TeamSubjects};
use super::versions::{ListedVersion, PutOutcome};
use ensemble_core::Result;
use ensemble_core::broker::Broker;
use ensemble_core::document::SharedFiles;
use ensemble_core::env::Lease;
use ensemble_core::event_log::Recorder;
use ensemble_core::message::{Name, Timestamp, yaml};
use ensemble_core::requests::{
    AskedRequest, CLOSED_KEPT, DEMAND_KEPT, Demand, GateFile, PlanGate, RequestFile, RequestFiles,
    RequestLock, RequestStore, StoredFile, StoredRequest, WriteOutcome,
};

/// Age at which a plan gate without its request belongs to a client that has died in between.
const ORPHAN_AGE_MAX: Duration = Duration::from_secs(60 * 60);

type FoundPage = async_nats::jetstream::message::StreamMessage;

impl RequestStore for NatsTransport {
    fn broker(&self) -> &dyn Broker {
        self
    }

    fn now(&self) -> Timestamp {
        Self::now(self)
    }

    fn recorder(&self) -> &dyn Recorder {
        &*self.recorder
    }

    fn place(&self, id: &Name, page: RequestFile) -> PathBuf {
        PathBuf::from(format!("{} requests.{id}.{}", self.wire.server, page.name()))
    }

    fn lock(&self) -> Result<RequestLock> {
        Ok(RequestLock::shared())
    }

    fn shared_files(&self) -> Option<&dyn SharedFiles> {
        Some(self)
    }

    fn ids(&self) -> Result<Vec<Name>> {
        let (wire, pattern) = (self.bucket.wire(), self.subjects.every(RequestFile::Request));
        let found = self.call("list the requests", async move { wire.subjects(&pattern).await })?;
        Ok(found.iter().filter_map(|subject| request_in(subject)).collect())
    }

    fn files(&self, id: &Name) -> Result<Option<RequestFiles>> {
        let wire = self.bucket.wire();
        let [request, decision, told, closed] =
            RequestFile::ALL.map(|page| self.subjects.page(id, page));
        let (request, decision, told, closed) = self.call("read a request", async move {
            // Read all pages at once: one round trip.
            let read = join4(
                wire.last(&request),
                wire.last(&decision),
                wire.last(&told),
                wire.last(&closed),
            );
            let (request, decision, told, closed) = read.await;
            Ok((request?, decision?, told?, closed?))
        })?;
        let files =
            together([written(request), written(decision)], [told.is_some(), closed.is_some()]);
        if files.is_some() {
            self.bucket.note_there();
        }
        Ok(files)
    }

    /// One listing: a read of each would be a round trip for each request that was made in a week.
    fn all_files(&self) -> Result<Vec<(Name, Result<Option<RequestFiles>>)>> {
        let mut pages: BTreeMap<Name, [Option<ListedVersion>; 4]> = BTreeMap::new();
        for found in self.list_keys(self.subjects.all_pages())? {
            let page = RequestFile::ALL.into_iter().position(|page| {
                found.subject.rsplit('.').next().is_some_and(|last| last == page.name())
            });
            if let (Some(id), Some(page)) = (request_in(&found.subject), page) {
                pages.entry(id).or_default()[page] = Some(found);
            }
        }
        let files = pages.into_iter().map(|(id, [request, decision, told, closed])| {
            let kept = [request, decision].map(|page| page.and_then(kept));
            (id, Ok(together(kept, [told.is_some(), closed.is_some()])))
        });
        Ok(files.collect())
    }

    fn is_closed(&self, id: &Name) -> Result<bool> {
        let wire = self.bucket.wire();
        let [request, closed] =
            [RequestFile::Request, RequestFile::Closed].map(|page| self.subjects.page(id, page));
        self.call("read a request", async move {
            Ok(wire.last(&closed).await?.is_some() || wire.last(&request).await?.is_none())
        })
    }

    fn write_once(&self, id: &Name, page: RequestFile, text: &str) -> Result<WriteOutcome> {
        let put = self.write_key(self.subjects.page(id, page), 0, text.to_owned())?;
        Ok(match put {
            PutOutcome::Done(_) => WriteOutcome::Done,
            PutOutcome::Stale => WriteOutcome::Exists,
        })
    }

    fn make_safe(&self, _id: Option<&Name>) -> Result<()> {
        Ok(())
    }

    fn put_aside(&self, id: &Name, revision: u64, why: &str) -> Result<String> {
        self.keep_aside(id, RequestFile::Decision, revision, why)
    }

    fn reject(&self, id: &Name, why: &str) -> Result<String> {
        let mut kept_as = String::new();
        // Remove the request itself last: until then it can still be found.
        for page in RequestFile::ALL.into_iter().rev() {
            if let Some(found) = self.last_key("read a request", self.subjects.page(id, page))? {
                kept_as = self.keep_aside(id, page, found.sequence, why)?;
            }
        }
        Ok(kept_as)
    }

    fn gate(&self, task: &str, agent: &Name) -> Result<Option<PlanGate>> {
        let subject = self.subjects.plan_gate(task, agent);
        let (wire, demand) = (self.bucket.wire(), self.subjects.plan_demand(task));
        // Read both at once: one round trip.
        let (found, demand) = self.call("read a gate", async move {
            let (found, demand) = join(wire.last(&subject), wire.last(&demand)).await;
            Ok((found?, demand?))
        })?;
        let Some(found) = found.filter(|found| !found.payload.is_empty()) else {
            let demand = demand_in(demand, task)?;
            return Ok(demand.map(|demand| PlanGate::needed(&demand, agent)));
        };
        self.bucket.note_there();
        self.gate_in(&found.payload, found.sequence, Some((task, agent)))
    }

    fn gates(&self) -> Result<Vec<PlanGate>> {
        let mut all = Vec::new();
        for found in self.list_keys(self.subjects.all_plan_gates())? {
            if !found.payload.is_empty() {
                all.extend(self.gate_in(&found.payload, found.seq, None)?);
            }
        }
        Ok(all)
    }

    /// If the requests are followed, an agent without plan gates costs no read.
    fn gate_of(&self, lease: &Lease) -> Result<Option<PlanGate>> {
        if !self.may_have_gates(&lease.holder) {
            return Ok(None);
        }
        let Some(stored) = self.read(&lease.mailbox, &lease.id)? else { return Ok(None) };
        self.closed_gate(&lease.id, &stored.payload, &lease.holder)
    }

    fn gated(&self, mailbox: &Name, holder: &Name) -> Result<Vec<PlanGate>> {
        self.gates_before(mailbox, holder)
    }

    fn close_gate(&self, asked: &AskedRequest, last: Option<&PlanGate>) -> Result<bool> {
        let Some(file) = GateFile::of(asked) else { return Ok(true) };
        let subject = self.subjects.plan_gate(&file.task_id, &file.agent);
        let expected = match last {
            Some(gate) => gate.revision,
            None => {
                let found = self.last_key("read a gate", subject.clone())?;
                if found.as_ref().is_some_and(|found| !found.payload.is_empty()) {
                    return Ok(false);
                }
                found.map_or(0, |found| found.sequence)
            }
        };
        let is_demanded = self.demand(&file.task_id)?.is_some();
        let text = yaml::render(&file.with_demand(is_demanded).with_question(asked));
        Ok(matches!(self.write_key(subject, expected, text)?, PutOutcome::Done(_)))
    }

    fn demand_plan(&self, demand: &Demand) -> Result<bool> {
        let subject = self.subjects.plan_demand(&demand.task_id);
        Ok(matches!(self.write_key(subject, 0, yaml::render(demand))?, PutOutcome::Done(_)))
    }

    fn open_gate(&self, asked: &AskedRequest) -> Result<()> {
        let Some(task) = &asked.task_id else { return Ok(()) };
        let gate = self.gate(task, &asked.from)?;
        let Some(gate) = gate.filter(|gate| gate.request_id == asked.request_id && !gate.demanded)
        else {
            return Ok(());
        };
        // A later plan has another sequence, and stays.
        let subject = self.subjects.plan_gate(task, &asked.from);
        self.write_key(subject, gate.revision, "").map(drop)
    }

    fn sweep_requests(&self) -> Result<usize> {
        let mut named = Vec::new();
        let mut removed = 0;
        for found in self.list_keys(self.subjects.all_plan_gates())? {
            if found.payload.is_empty() {
                if self.is_older(found.at, CLOSED_KEPT) {
                    self.purge_key(found.subject, found.seq)?;
                }
                continue;
            }
            let Some(gate) = self.gate_in(&found.payload, found.seq, None)? else { continue };
            // Write the request of a client that has died since.
            if let Some(asked) = &gate.unasked
                && self.is_older(found.at, ORPHAN_AGE_MAX)
            {
                self.write_once(&asked.request_id, RequestFile::Request, &yaml::render(asked))?;
            }
            named.push(gate.request_id);
        }
        for demand in self.list_keys(self.subjects.all_plan_demands())? {
            if self.is_older(demand.at, DEMAND_KEPT) {
                self.purge_key(demand.subject, demand.seq)?;
                removed += 1;
            }
        }
        for closed in self.list_keys(self.subjects.every(RequestFile::Closed))? {
            let Some(id) = request_in(&closed.subject) else { continue };
            if named.contains(&id) || !self.is_older(closed.at, CLOSED_KEPT) {
                continue;
            }
            // Remove the request itself first: without it the rest means nothing.
            for page in RequestFile::ALL {
                self.purge_key(self.subjects.page(&id, page), u64::MAX - 1)?;
            }
            removed += 1;
        }
        Ok(removed)
    }
}

fn demand_in(found: Option<FoundPage>, task: &str) -> Result<Option<Demand>> {
    let found = found.filter(|found| !found.payload.is_empty());
    found.map(|found| Demand::parse(&found.payload, task)).transpose()
}

impl NatsTransport {
    fn demand(&self, task: &str) -> Result<Option<Demand>> {
        demand_in(
            self.last_key("read the demand of a plan", self.subjects.plan_demand(task))?,
            task,
        )
    }

    pub(super) fn list_keys(&self, pattern: String) -> Result<Vec<ListedVersion>> {
        let wire = self.bucket.wire();
        self.call("list the requests", async move { wire.list(&pattern).await })
    }

    pub(super) fn purge_key(&self, subject: String, seq: u64) -> Result<()> {
        let wire = self.bucket.wire();
        self.call("remove a request", async move { wire.purge(&subject, seq).await.map(drop) })
    }

    pub(super) fn is_older(&self, at: u64, age: Duration) -> bool {
        let age = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        at < self.now_millis().saturating_sub(age)
    }

    /// Content of a plan gate's key, and the state of its request.
    fn gate_in(
        &self,
        content: &[u8],
        revision: u64,
        of: Option<(&str, &Name)>,
    ) -> Result<Option<PlanGate>> {
        let text = String::from_utf8_lossy(content);
        let file = yaml::parse::<GateFile>(&text, "a gate".as_ref()).ok();
        let (task, agent) = match (of, &file) {
            (Some((task, agent)), _) => (task.to_owned(), agent.clone()),
            (None, Some(file)) => (file.task_id.clone(), file.agent.clone()),
            (None, None) => return Ok(None),
        };
        let mut gate = PlanGate::of(file, &task, &agent);
        gate.revision = revision;
        if gate.state == ensemble_core::requests::GateState::Unreadable {
            return Ok(Some(gate));
        }
        let home = self.home(&gate.request_id);
        gate.judge(home).map(Some)
    }

    fn home(&self, id: &Name) -> Result<Option<StoredRequest>> {
        let Some(files) = self.files(id)? else { return Ok(None) };
        StoredRequest::of(id, files, |page| self.place(id, page)).map(Some)
    }

    /// Keeps a version of a page elsewhere, with the reason, and removes it.
    fn keep_aside(&self, id: &Name, page: RequestFile, seq: u64, why: &str) -> Result<String> {
        let subject = self.subjects.page(id, page);
        let found = self.last_key("read a request", subject.clone())?;
        let kept_as = self.subjects.rejected(id, page, seq);
        if let Some(found) = found.filter(|found| found.sequence == seq) {
            let content = String::from_utf8_lossy(&found.payload);
            self.write_key(kept_as.clone(), 0, format!("# {}\n{content}", one_line(why)))?;
            self.purge_key(subject, seq)?;
        }
        Ok(kept_as)
    }
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn together(
    [request, decision]: [Option<StoredFile>; 2],
    [is_told, is_closed]: [bool; 2],
) -> Option<RequestFiles> {
    let mut files = RequestFiles::new(request?);
    (files.decision, files.is_told, files.is_closed) = (decision.map(Ok), is_told, is_closed);
    Some(files)
}

fn written(found: Option<FoundPage>) -> Option<StoredFile> {
    let found = found?;
    page(&found.payload, millis(found.time), found.sequence)
}

fn kept(found: ListedVersion) -> Option<StoredFile> {
    page(&found.payload, found.at, found.seq)
}

/// A page, unless it was removed, which leaves an empty version.
fn page(content: &[u8], at_millis: u64, seq: u64) -> Option<StoredFile> {
    (!content.is_empty()).then(|| StoredFile::new(content.to_vec(), timestamp(at_millis), seq))
}

fn request_in(subject: &str) -> Option<Name> {
    match TeamSubjects::key_of(subject)? {
        BucketKey::Request(id) => Some(id),
        _ => None,
    }
}
