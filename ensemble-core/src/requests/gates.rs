//! The gates of a queue's directory, and the admission of the queue that asks for them.

use super::demand::Demand;
use super::file::StoredRequest;
use super::gate::{
    DEMAND_END, EXTENSION, FILE_BYTES_MAX, GATES, GateFile, GateState, GatedTask, PlanGate,
    UndecidedRequest, demand_file, file_name, gated_task,
};
use super::store::RequestFile;
use super::{REQUESTS, directory};
use crate::durable::Dir;
use crate::error::{allow_missing, allow_unreadable};
use crate::message::{Envelope, MessageId, Name, yaml};
use crate::spool::Admission;
use crate::{Error, Result};

#[derive(Debug)]
pub(crate) struct QueueGates<'q> {
    queue: &'q Dir,
    pub(super) dir: Dir,
}

impl<'q> QueueGates<'q> {
    /// `None`, after one failed open, if there are none.
    pub(crate) fn open(queue: &'q Dir) -> Result<Option<Self>> {
        Ok(allow_missing(queue.open_child(GATES))?.map(|dir| Self { queue, dir }))
    }

    /// The content of a file, nothing if it is damaged; `None` if there is no file.
    fn read(&self, file: &str) -> Result<Option<Vec<u8>>> {
        let read = allow_unreadable(self.dir.read(file, FILE_BYTES_MAX))?;
        Ok(read.unwrap_or_else(|| Some(Vec::new())))
    }

    /// The names of all files. The directory vanishes with its last gate, while it is open here, too.
    fn names(&self) -> Result<Vec<String>> {
        Ok(allow_missing(self.dir.names())?.unwrap_or_default())
    }

    /// Whether this agent has a gate, open or closed, or a task demands a plan of each agent.
    pub(crate) fn has_any(&self, agent: &Name) -> Result<bool> {
        let end = format!("@{agent}{EXTENSION}");
        let concerns = |file: &String| file.ends_with(&end) || file.ends_with(DEMAND_END);
        Ok(self.names()?.iter().any(concerns))
    }

    pub(super) fn demands(&self) -> Result<Vec<String>> {
        let mut files = self.names()?;
        files.retain(|file| file.ends_with(DEMAND_END));
        Ok(files)
    }

    /// The demand for a task. A damaged file demands a plan, too.
    pub(super) fn demand(&self, task: &str) -> Result<Option<Demand>> {
        let content = self.read(&demand_file(task))?;
        content.map(|content| Demand::parse(&content, task)).transpose()
    }

    /// The gate of an agent's work on a task; `None` if there is none.
    pub(crate) fn find(&self, task: &str, agent: &Name) -> Result<Option<PlanGate>> {
        let file = file_name(task, agent);
        let Some(content) = self.read(&file)? else {
            return Ok(self.demand(task)?.map(|demand| PlanGate::needed(&demand, agent)));
        };
        let path = self.dir.path().join(file);
        let file = yaml::parse::<GateFile>(&String::from_utf8_lossy(&content), &path).ok();
        let gate = PlanGate::of(file, task, agent);
        if gate.state == GateState::Unreadable {
            return Ok(Some(gate));
        }
        let home = self.home(&gate.request_id);
        gate.judge(home).map(Some)
    }

    /// The closed gate between an agent and a message; `None` if there is none.
    pub(super) fn closed(&self, envelope: &Envelope, agent: &Name) -> Result<Option<PlanGate>> {
        let Some(task) = gated_task(envelope) else { return Ok(None) };
        Ok(self.find(task, agent)?.filter(PlanGate::is_closed))
    }

    fn home(&self, id: &Name) -> Result<Option<StoredRequest>> {
        let Some(requests) = allow_missing(self.queue.open_child(REQUESTS))? else {
            return Ok(None);
        };
        let Some(files) = directory::files(&requests, id)? else { return Ok(None) };
        let place =
            |page: RequestFile| requests.path().join(id.as_str()).join(directory::file_of(page));
        StoredRequest::of(id, files, place).map(Some)
    }

    /// All request ids that gates name, with the files that name them.
    pub(super) fn named(&self) -> Result<Vec<(String, GateFile)>> {
        let mut named = Vec::new();
        for file in self.names()?.into_iter().filter(|file| file.ends_with(EXTENSION)) {
            let Some(content) = self.read(&file)? else { continue };
            let text = String::from_utf8_lossy(&content).into_owned();
            if let Ok(gate) = yaml::parse(&text, &self.dir.path().join(&file)) {
                named.push((file, gate));
            }
        }
        Ok(named)
    }
}

/// The [`Admission`] of a queue with plan gates: a task whose plan is not approved is refused to the agent that has
/// submitted the plan. A message that belongs to a request passes, the answer to the plan above all.
///
/// A queue without gates pays one failed look for this.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlanGates;

impl Admission for PlanGates {
    fn concerns(&self, queue: &Dir, holder: &Name) -> Result<bool> {
        // Most often there are none: look only, in the queue that is open anyway.
        if queue.stat(GATES)?.is_none() {
            return Ok(false);
        }
        QueueGates::open(queue)?.map_or(Ok(false), |gates| gates.has_any(holder))
    }

    fn refusal(&self, queue: &Dir, holder: &Name, envelope: &Envelope) -> Result<Option<Error>> {
        let Some(gates) = QueueGates::open(queue)? else { return Ok(None) };
        let gate = gates.closed(envelope, holder)?.filter(PlanGate::keeps_back);
        Ok(gate.map(|gate| GatedTask(Box::new(gate)).into()))
    }

    fn refusal_to_settle(
        &self,
        queue: &Dir,
        holder: &Name,
        envelope: &Envelope,
    ) -> Result<Option<Error>> {
        let Some(gates) = QueueGates::open(queue)? else { return Ok(None) };
        Ok(gates.closed(envelope, holder)?.map(|gate| GatedTask(Box::new(gate)).into()))
    }

    fn unfinished(&self, queue: &Dir, message: &MessageId) -> Result<Option<Error>> {
        Ok(directory::undecided(queue, message)?.map(|request| UndecidedRequest { request }.into()))
    }
}
