//! The plan gate: an agent that has submitted a plan for a task cannot take the task on before the
//! plan is approved.
//!
//! ```text
//! gates/<task>@<agent>.yaml    names the request of the last plan
//!
//! that request        the gate is
//! pending             closed      wait for whom it is addressed to
//! rejected, expired   closed      submit the next plan
//! approved, cancelled open        and its file goes away
//! not there           open        a crash before the request was made
//! not to be read      closed      submit it again
//! ```
//!
//! The file is written before the request, and removed after everybody was told. Reading a gate takes
//! no lock and needs no [`Requests`]: the spool asks for each message that names a task, if there are
//! gates at all.

use serde::{Deserialize, Serialize};

use super::file::{Home, Standing};
use super::{Asked, Held, REQUESTS, Requests};
use crate::durable::Dir;
use crate::message::{Digest, Name, Timestamp, yaml};
use crate::proto::request::{Decision, Outcome};
use crate::{Error, Result};

/// The directory below the queue; there is none while there is no gate.
pub(crate) const GATES: &str = "gates";
/// The largest gate file, in bytes.
const FILE_BYTES_MAX: usize = 4 * 1024;
const EXTENSION: &str = ".yaml";

/// How a gate stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GateState {
    /// Closed: the plan waits for its review.
    Pending,
    /// Closed: the plan was rejected.
    Rejected,
    /// Closed: nobody has reviewed it in time.
    Expired,
    /// Closed: what stands on disk cannot be read.
    Unreadable,
    /// Open: the plan was approved, or taken back.
    Open,
}

/// What an agent's work on a task waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Gate {
    /// The task.
    pub task_id: String,
    /// Whose work.
    pub agent: Name,
    /// The request of the last plan.
    pub request_id: Name,
    /// The how manieth plan it is, from 1.
    pub round: u32,
    /// The plan before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous: Option<Name>,
    /// How it stands.
    pub state: GateState,
    /// Who reviews the plan.
    pub waits_for: Option<Name>,
    /// Since when it stands so.
    pub since: Option<Timestamp>,
}

impl Gate {
    fn unreadable(task: &str, agent: &Name) -> Self {
        Self {
            task_id: task.to_owned(),
            agent: agent.clone(),
            request_id: agent.clone(),
            round: 0,
            previous: None,
            state: GateState::Unreadable,
            waits_for: None,
            since: None,
        }
    }

    /// Whether the agent may not take the task on.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state != GateState::Open
    }

    /// What it waits for and what to do, as a phrase.
    #[must_use]
    pub fn advice(&self) -> String {
        let Self { request_id, round, state, .. } = self;
        let reviewer = self.waits_for.as_ref().map_or("its reviewer", Name::as_str);
        let since = self.since.map_or_else(String::new, |at| format!(" since {at}"));
        match state {
            GateState::Pending => format!(
                "plan {request_id} (round {round}) waits for {reviewer}{since}. Wait for the \
                 plan_approval_response"
            ),
            GateState::Rejected => format!(
                "plan {request_id} (round {round}) was rejected by {reviewer}{since}. Submit \
                 another with `ensemble plan submit FILE --task {}`",
                self.task_id
            ),
            GateState::Expired => format!(
                "nobody has reviewed plan {request_id} (round {round}) in time. Submit it again \
                 with `ensemble plan submit FILE --task {}`",
                self.task_id
            ),
            GateState::Unreadable => format!(
                "its plan cannot be read. Submit it again with `ensemble plan submit FILE --task {}`",
                self.task_id
            ),
            GateState::Open => format!("plan {request_id} does not stand in the way"),
        }
    }
}

/// What stands in a gate's file.
#[derive(Debug, Serialize, Deserialize)]
struct GateFile {
    version: u32,
    task_id: String,
    agent: Name,
    request_id: Name,
    round: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    previous: Option<Name>,
}

/// The gates of a queue that has any.
#[derive(Debug)]
pub(crate) struct Gates {
    queue: Dir,
    dir: Dir,
}

impl Gates {
    /// `None`, after one failed open, if there are none.
    pub(crate) fn open(queue: Dir) -> Result<Option<Self>> {
        match queue.open_child(GATES) {
            Ok(dir) => Ok(Some(Self { queue, dir })),
            Err(error) if error.io_kind() == Some(std::io::ErrorKind::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether this agent has a gate, open or closed.
    pub(crate) fn has_any(&self, agent: &Name) -> Result<bool> {
        let end = format!("@{agent}{EXTENSION}");
        Ok(self.dir.names()?.iter().any(|file| file.ends_with(&end)))
    }

    /// The gate of an agent's work on a task; `None` if there is none.
    pub(crate) fn find(&self, task: &str, agent: &Name) -> Result<Option<Gate>> {
        let file = file_name(task, agent);
        let Some(content) = self.dir.read(&file, FILE_BYTES_MAX)? else { return Ok(None) };
        let path = self.dir.path().join(file);
        let file = yaml::parse::<GateFile>(&String::from_utf8_lossy(&content), &path).ok();
        let Some(file) = file.filter(|file| file.task_id == task && file.agent == *agent) else {
            // Nobody takes on a task because a file was damaged.
            return Ok(Some(Gate::unreadable(task, agent)));
        };
        let mut gate = Gate {
            request_id: file.request_id,
            round: file.round,
            previous: file.previous,
            state: GateState::Open,
            ..Gate::unreadable(task, agent)
        };
        match self.judge(&mut gate) {
            Err(Error::Malformed { .. } | Error::TooLarge { .. }) => {
                gate.state = GateState::Unreadable;
                Ok(Some(gate))
            }
            judged => judged.map(|()| Some(gate)),
        }
    }

    /// How the request of a gate stands.
    fn judge(&self, gate: &mut Gate) -> Result<()> {
        let requests = match self.queue.open_child(REQUESTS) {
            Err(error) if error.io_kind() == Some(std::io::ErrorKind::NotFound) => return Ok(()),
            other => other?,
        };
        let Some(home) = Home::open(&requests, &gate.request_id)? else { return Ok(()) };
        gate.waits_for = Some(home.asked.to.clone());
        (gate.state, gate.since) = match home.standing()? {
            // A file that decides nothing leaves the question open.
            Standing::Nothing | Standing::Invalid(_) => {
                (GateState::Pending, Some(home.asked.created_at))
            }
            Standing::Valid(Decision { outcome, at, .. }) => {
                let state = match outcome {
                    Outcome::Approved | Outcome::Cancelled => GateState::Open,
                    Outcome::Rejected => GateState::Rejected,
                    Outcome::Expired => GateState::Expired,
                };
                (state, Some(at))
            }
        };
        Ok(())
    }

    /// All request ids that gates name, with the files that name them.
    fn named(&self) -> Result<Vec<(String, GateFile)>> {
        let mut named = Vec::new();
        for file in self.dir.names()?.into_iter().filter(|file| file.ends_with(EXTENSION)) {
            let Some(content) = self.dir.read(&file, FILE_BYTES_MAX)? else { continue };
            let text = String::from_utf8_lossy(&content).into_owned();
            if let Ok(gate) = yaml::parse(&text, &self.dir.path().join(&file)) {
                named.push((file, gate));
            }
        }
        Ok(named)
    }
}

/// An agent's gate of a task: tasks that are no names get a digest instead.
fn file_name(task: &str, agent: &Name) -> String {
    let stem = Name::new(task)
        .map_or_else(|_| format!("t-{}", Digest::of(task.as_bytes()).short(40)), String::from);
    format!("{stem}@{agent}{EXTENSION}")
}

impl Requests<'_> {
    /// What this agent's work on this task waits for; `None` if nothing. A gate that is there may
    /// be open: see [`Gate::is_closed`].
    ///
    /// # Errors
    /// A file of the gate or of its request cannot be read.
    pub fn gate(&self, task: &str, agent: &Name) -> Result<Option<Gate>> {
        match Gates::open(self.spool.queue_dir()?)? {
            None => Ok(None),
            Some(gates) => gates.find(task, agent),
        }
    }

    /// All gates.
    ///
    /// # Errors
    /// As for [`Requests::gate`].
    pub fn gates(&self) -> Result<Vec<Gate>> {
        let Some(gates) = Gates::open(self.spool.queue_dir()?)? else { return Ok(Vec::new()) };
        let mut all = Vec::new();
        for (_, named) in gates.named()? {
            all.extend(gates.find(&named.task_id, &named.agent)?);
        }
        all.sort_by(|a, b| (&a.task_id, &a.agent).cmp(&(&b.task_id, &b.agent)));
        Ok(all)
    }

    /// Closes the gate of the task that a request is about, before the request is made.
    pub(super) fn gate_for(&self, _held: &Held, asked: &Asked) -> Result<()> {
        let Some(task) = &asked.task_id else { return Ok(()) };
        let options = self.spool.options();
        let queue = self.spool.queue_dir()?;
        let (dir, tmp) =
            (queue.ensure_child(GATES, options.modes)?, queue.ensure_child("tmp", options.modes)?);
        let file = GateFile {
            version: crate::message::FORMAT_VERSION,
            task_id: task.clone(),
            agent: asked.from.clone(),
            request_id: asked.request_id.clone(),
            round: asked.round.unwrap_or(1),
            previous: asked.previous.clone(),
        };
        let name = file_name(task, &asked.from);
        let text = yaml::render(&file);
        dir.replace(&name, text.as_bytes(), &tmp, options.modes, options.durability)?;
        self.sync(&queue)
    }

    /// Takes the gate away that a decision has opened, if no later plan has closed it again.
    pub(super) fn open_gate(&self, _held: &Held, asked: &Asked, decision: &Decision) -> Result<()> {
        let opens = match decision.outcome {
            Outcome::Approved | Outcome::Cancelled => true,
            Outcome::Rejected | Outcome::Expired => false,
        };
        let Some(task) = asked.task_id.as_ref().filter(|_| opens) else { return Ok(()) };
        let Some(gates) = Gates::open(self.spool.queue_dir()?)? else { return Ok(()) };
        let gate = gates.find(task, &asked.from)?;
        if gate.is_some_and(|gate| gate.request_id == asked.request_id) {
            gates.dir.remove(&file_name(task, &asked.from))?;
        }
        self.remove_gates_if_empty()
    }

    fn remove_gates_if_empty(&self) -> Result<()> {
        self.spool.queue_dir()?.remove_empty(GATES).map(drop)
    }

    /// The requests that gates name, which must not be forgotten.
    pub(super) fn gated_requests(&self) -> Result<Vec<Name>> {
        let Some(gates) = Gates::open(self.spool.queue_dir()?)? else { return Ok(Vec::new()) };
        Ok(gates.named()?.into_iter().map(|(_, gate)| gate.request_id).collect())
    }

    /// Removes gates whose request was never made, of processes that were killed in between.
    pub(super) fn sweep_gates(
        &self,
        _held: &Held,
        is_old: impl Fn(&Dir, &str) -> bool,
    ) -> Result<usize> {
        let Some(gates) = Gates::open(self.spool.queue_dir()?)? else { return Ok(0) };
        let (requests, mut removed) = (self.dir()?, 0);
        for (file, gate) in gates.named()? {
            if requests.stat(gate.request_id.as_str())?.is_none() && is_old(&gates.dir, &file) {
                gates.dir.remove(&file)?;
                removed += 1;
            }
        }
        self.remove_gates_if_empty()?;
        Ok(removed)
    }
}
