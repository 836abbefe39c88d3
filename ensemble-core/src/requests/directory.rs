//! Requests in a queue's directory: a page is a file, written once by a rename that replaces nothing.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::demand::Demand;
use super::file::{AskedRequest, PAGE_BYTES_MAX};
use super::gate::{GATES, GateFile, PlanGate, asked_request, demand_file, file_name};
use super::gates::QueueGates;
use super::store::{
    RequestFile, RequestFiles, RequestLock, RequestStore, StoredFile, WriteOutcome,
};
use super::{CLOSED_KEPT, DEMAND_KEPT, REQUESTS};
use crate::aside::{AsideFile, put_aside};
use crate::broker::Broker;
use crate::durable::{self, Dir, Durability, FileLock, MoveOutcome};
use crate::env::Lease;
use crate::error::allow_missing;
use crate::event_log::Recorder;
use crate::message::{MessageId, Name, Timestamp, yaml};
use crate::proto::calendar::Calendar;
use crate::spool::{Spool, TMP_AGE_MAX, calendar};
use crate::{Error, Result};

/// Only ever locked. No request has its name, which begins with a dot.
const LOCK_FILE: &str = ".lock";
/// How the directory of a request begins in `tmp/`, before it is renamed.
const TMP_STEM: &str = "request";

pub(super) fn file_of(page: RequestFile) -> String {
    format!("{}.yaml", page.name())
}

/// The request without an answer to which this message belongs. Most messages cost no look at a file.
pub(super) fn undecided(queue: &Dir, message: &MessageId) -> Result<Option<Name>> {
    let Some(request) = asked_request(message) else { return Ok(None) };
    let Some(requests) = allow_missing(queue.open_child(REQUESTS))? else { return Ok(None) };
    let home = allow_missing(requests.open_child(request.as_str()))?;
    let Some(home) = home else { return Ok(None) };
    let is_asked = home.stat(&file_of(RequestFile::Request))?.is_some();
    let is_open = is_asked && home.stat(&file_of(RequestFile::Decision))?.is_none();
    Ok(is_open.then_some(request))
}

/// The files in the directory of a request; `None` if there is none, or nothing in it yet.
pub(super) fn files(requests: &Dir, id: &Name) -> Result<Option<RequestFiles>> {
    let Some(dir) = allow_missing(requests.open_child(id.as_str()))? else { return Ok(None) };
    let unknown = Timestamp::from_unix_millis(0);
    let Some(request) = dir.read(&file_of(RequestFile::Request), PAGE_BYTES_MAX)? else {
        return Ok(None);
    };
    let mut files = RequestFiles::new(StoredFile::new(request, unknown, 0));
    let file = file_of(RequestFile::Decision);
    files.decision = match dir.read(&file, PAGE_BYTES_MAX) {
        Ok(None) => None,
        Ok(Some(content)) => {
            let at = dir.stat(&file)?.map_or(unknown, |stat| stat.modified_at());
            Some(Ok(StoredFile::new(content, at, 0)))
        }
        Err(error @ (Error::Malformed { .. } | Error::TooLarge { .. })) => {
            Some(Err(error.to_string()))
        }
        Err(error) => return Err(error),
    };
    files.is_told = dir.stat(&file_of(RequestFile::Told))?.is_some();
    files.is_closed = dir.stat(&file_of(RequestFile::Closed))?.is_some();
    Ok(Some(files))
}

impl RequestStore for Spool {
    fn broker(&self) -> &dyn Broker {
        self
    }

    fn now(&self) -> Timestamp {
        Self::now(self)
    }

    fn age(&self, stamp: Timestamp) -> Duration {
        Self::age(self, stamp)
    }

    fn recorder(&self) -> &dyn Recorder {
        &*self.options().recorder
    }

    fn place(&self, id: &Name, page: RequestFile) -> PathBuf {
        self.root().join(REQUESTS).join(id.as_str()).join(file_of(page))
    }

    fn lock(&self) -> Result<RequestLock> {
        let path = self.requests_dir()?.path().join(LOCK_FILE);
        FileLock::acquire(&path, self.options().lock_patience).map(RequestLock::alone)
    }

    fn ids(&self) -> Result<Vec<Name>> {
        let requests = self.requests_dir()?;
        let names = requests.names()?.into_iter().filter_map(|name| Name::new(name).ok());
        // A stray file is not a request.
        let is_request = |name: &Name| {
            requests.stat(name.as_str()).is_ok_and(|stat| stat.is_some_and(|it| it.is_directory))
        };
        Ok(names.filter(is_request).collect())
    }

    fn files(&self, id: &Name) -> Result<Option<RequestFiles>> {
        files(&self.requests_dir()?, id)
    }

    fn is_closed(&self, id: &Name) -> Result<bool> {
        match allow_missing(self.requests_dir()?.open_child(id.as_str()))? {
            Some(dir) => Ok(dir.stat(&file_of(RequestFile::Closed))?.is_some()),
            None => Ok(true),
        }
    }

    fn write_once(&self, id: &Name, page: RequestFile, text: &str) -> Result<WriteOutcome> {
        match page {
            RequestFile::Request => self.write_request(id, text),
            RequestFile::Decision | RequestFile::Told | RequestFile::Closed => {
                self.write_page(id, page, text)
            }
        }
    }

    fn make_safe(&self, id: Option<&Name>) -> Result<()> {
        let requests = self.requests_dir()?;
        match id {
            None => self.sync_dir(&requests),
            Some(id) => allow_missing(requests.open_child(id.as_str()))?
                .map_or(Ok(()), |home| self.sync_dir(&home)),
        }
    }

    fn put_aside(&self, id: &Name, _revision: u64, why: &str) -> Result<String> {
        let (requests, file) = (self.requests_dir()?, file_of(RequestFile::Decision));
        let home = requests.open_child(id.as_str())?;
        let path = format!("{REQUESTS}/{id}/{file}");
        let aside = AsideFile::at(path);
        put_aside(&self.queue_dir()?, &home, &file, &aside, why)
    }

    fn reject(&self, id: &Name, why: &str) -> Result<String> {
        let aside = AsideFile::at(format!("{REQUESTS}/{id}"));
        put_aside(&self.queue_dir()?, &self.requests_dir()?, id.as_str(), &aside, why)
    }

    fn gate(&self, task: &str, agent: &Name) -> Result<Option<PlanGate>> {
        match QueueGates::open(&self.queue_dir()?)? {
            None => Ok(None),
            Some(gates) => gates.find(task, agent),
        }
    }

    fn gates(&self) -> Result<Vec<PlanGate>> {
        let queue = self.queue_dir()?;
        let Some(gates) = QueueGates::open(&queue)? else { return Ok(Vec::new()) };
        let mut all = Vec::new();
        for (_, named) in gates.named()? {
            all.extend(gates.find(&named.task_id, &named.agent)?);
        }
        Ok(all)
    }

    fn gate_of(&self, lease: &Lease) -> Result<Option<PlanGate>> {
        let queue = self.queue_dir()?;
        let Some(gates) = QueueGates::open(&queue)? else { return Ok(None) };
        match self.held_envelope(lease)? {
            Some(envelope) => gates.closed(&envelope, &lease.holder),
            None => Ok(None),
        }
    }

    fn gated(&self, mailbox: &Name, holder: &Name) -> Result<Vec<PlanGate>> {
        let queue = self.queue_dir()?;
        let mut found: Vec<PlanGate> = Vec::new();
        let Some(gates) = QueueGates::open(&queue)? else {
            // An unknown mailbox is an error without gates, too.
            return self.settings(mailbox).map(|_| found);
        };
        for envelope in self.due_envelopes(mailbox)? {
            if let Some(gate) = gates.closed(&envelope, holder)?.filter(PlanGate::keeps_back)
                && !found.contains(&gate)
            {
                found.push(gate);
            }
        }
        Ok(found)
    }

    fn close_gate(&self, asked: &AskedRequest, _last: Option<&PlanGate>) -> Result<bool> {
        let Some(file) = GateFile::of(asked) else { return Ok(true) };
        let (queue, options) = (self.queue_dir()?, self.options());
        let gates = QueueGates::open(&queue)?;
        let demand = gates.map(|gates| gates.demand(&file.task_id)).transpose()?.flatten();
        let file = file.with_demand(demand.is_some());
        let dir = queue.ensure_child(GATES, options.modes)?;
        let tmp = queue.ensure_child("tmp", options.modes)?;
        let (name, text) = (file_name(&file.task_id, &asked.from), yaml::render(&file));
        dir.replace(&name, text.as_bytes(), &tmp, options.modes, options.durability)?;
        self.sync_dir(&queue)?;
        Ok(true)
    }

    fn demand_plan(&self, demand: &Demand) -> Result<bool> {
        let (queue, options) = (self.queue_dir()?, self.options());
        let dir = queue.ensure_child(GATES, options.modes)?;
        let name = demand_file(&demand.task_id);
        if dir.stat(&name)?.is_some() {
            return Ok(false);
        }
        let tmp = queue.ensure_child("tmp", options.modes)?;
        let text = yaml::render(demand);
        dir.replace(&name, text.as_bytes(), &tmp, options.modes, options.durability)?;
        self.sync_dir(&queue)?;
        Ok(true)
    }

    fn open_gate(&self, asked: &AskedRequest) -> Result<()> {
        let Some(task) = &asked.task_id else { return Ok(()) };
        let queue = self.queue_dir()?;
        let Some(gates) = QueueGates::open(&queue)? else { return Ok(()) };
        let gate = gates.find(task, &asked.from)?;
        if gate.is_some_and(|gate| gate.request_id == asked.request_id && !gate.demanded) {
            gates.dir.remove(&file_name(task, &asked.from))?;
        }
        queue.remove_empty(GATES).map(drop)
    }

    fn sweep_requests(&self) -> Result<usize> {
        let mut calendar = self.calendar();
        let removed = self.sweep_requests_by(&mut calendar);
        self.keep_calendar(calendar);
        removed
    }
}

impl Spool {
    fn sweep_requests_by(&self, calendar: &mut Calendar) -> Result<usize> {
        let queue = self.queue_dir()?;
        let tmp = queue.ensure_child("tmp", self.options().modes)?;
        let mut removed = 0;
        for name in tmp.names()?.iter().filter(|name| name.starts_with(TMP_STEM)) {
            let is_directory = tmp.stat(name)?.is_some_and(|stat| stat.is_directory);
            if is_directory && is_older(calendar, &tmp, name, TMP_AGE_MAX) {
                tmp.remove_tree(name)?;
                removed += 1;
            }
        }
        let requests = self.requests_dir()?;
        let mut named = Vec::new();
        if let Some(gates) = QueueGates::open(&queue)? {
            for file in gates.demands()? {
                if is_older(calendar, &gates.dir, &file, DEMAND_KEPT) {
                    gates.dir.remove(&file)?;
                    removed += 1;
                }
            }
            for (file, gate) in gates.named()? {
                // Its maker was killed in between.
                let is_orphan = requests.stat(gate.request_id.as_str())?.is_none();
                let age = if is_orphan { TMP_AGE_MAX } else { DEMAND_KEPT };
                if (is_orphan || gate.demanded) && is_older(calendar, &gates.dir, &file, age) {
                    gates.dir.remove(&file)?;
                    removed += 1;
                }
                named.push(gate.request_id);
            }
            queue.remove_empty(GATES)?;
        }
        for id in self.ids()?.into_iter().filter(|id| !named.contains(id)) {
            let Ok(home) = requests.open_child(id.as_str()) else { continue };
            if !is_older(calendar, &home, &file_of(RequestFile::Closed), CLOSED_KEPT) {
                continue;
            }
            // All readers see it at once; what a crash leaves in `tmp/` is swept later.
            let name = durable::temporary_name(TMP_STEM);
            if requests.move_tree_new(id.as_str(), &tmp, &name)? == MoveOutcome::Done {
                tmp.remove_tree(&name)?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    fn requests_dir(&self) -> Result<Dir> {
        self.queue_dir()?.ensure_child(REQUESTS, self.options().modes)
    }

    fn sync_dir(&self, dir: &Dir) -> Result<()> {
        match self.durability() {
            Durability::Power => dir.sync(),
            Durability::Process => Ok(()),
        }
    }

    /// A directory with the question in it, renamed into place.
    fn write_request(&self, id: &Name, text: &str) -> Result<WriteOutcome> {
        let (queue, requests, options) = (self.queue_dir()?, self.requests_dir()?, self.options());
        let tmp = queue.ensure_child("tmp", options.modes)?;
        let name = durable::temporary_name(TMP_STEM);
        let home = tmp.make_child(&name, options.modes)?;
        let file = file_of(RequestFile::Request);
        let stored = home
            .write_new(&file, text.as_bytes(), options.modes, options.durability)
            .and_then(|_| self.sync_dir(&home))
            .and_then(|()| tmp.move_tree_new(&name, &requests, id.as_str()));
        if !matches!(stored, Ok(MoveOutcome::Done)) {
            let _ = tmp.remove_tree(&name);
        }
        match stored? {
            MoveOutcome::Done => self.sync_dir(&requests).map(|()| WriteOutcome::Done),
            MoveOutcome::Exists => Ok(WriteOutcome::Exists),
            MoveOutcome::Gone => {
                let place = requests.path().join(id.as_str());
                Err(Error::io("move to", place, io::ErrorKind::NotFound))
            }
        }
    }

    fn write_page(&self, id: &Name, page: RequestFile, text: &str) -> Result<WriteOutcome> {
        let options = self.options();
        let Some(home) = allow_missing(self.requests_dir()?.open_child(id.as_str()))? else {
            return Ok(WriteOutcome::Gone);
        };
        let file = file_of(page);
        if page != RequestFile::Decision && home.stat(&file)?.is_some() {
            return Ok(WriteOutcome::Exists);
        }
        let tmp = self.queue_dir()?.ensure_child("tmp", options.modes)?;
        let name = durable::temporary_name(page.name());
        tmp.write_new(&name, text.as_bytes(), options.modes, options.durability)?;
        let moved = tmp.move_new(&name, &home, &file);
        if !matches!(moved, Ok(MoveOutcome::Done)) {
            let _ = tmp.remove(&name);
        }
        match moved? {
            MoveOutcome::Done => self.sync_dir(&home).map(|()| WriteOutcome::Done),
            MoveOutcome::Exists => Ok(WriteOutcome::Exists),
            MoveOutcome::Gone => Ok(WriteOutcome::Gone),
        }
    }
}

/// Whether an entry exists and has not changed for `age`.
fn is_older(calendar: &mut Calendar, dir: &Dir, name: &str, age: Duration) -> bool {
    let Ok(Some(stat)) = dir.stat(name) else { return false };
    calendar::is_older(calendar, &stat, age)
}
