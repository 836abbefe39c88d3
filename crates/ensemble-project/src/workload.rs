//! The workload of agents: what they hold in mailboxes, on the blackboard and of step queues, and the
//! decisions they wait for.
//!
//! | mailboxes in | looked up by |
//! |---|---|
//! | the queue's directory | the caller, at once |
//! | servers, by a command | the command, over its own connection |
//! | servers, by the watcher | the thread that follows them, which notifies the loop of changes |
//!
//! So a server that does not answer blocks no caller: the loop continues with the last report.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ensemble_core::broker::Broker;
use ensemble_core::durable::{Dir, FileId};
use ensemble_core::env::{Clock as _, Monotonic, SystemClock};
use ensemble_core::event_log::NullRecorder;
use ensemble_core::message::Name;
use ensemble_core::requests::{AskedRequest, RequestStore, Requests};
use ensemble_core::{Error, Result};
use ensemble_team::board::{self, Board, State};
use ensemble_team::holdings::{self, Holding, HoldingPlaces, KnownHoldings};
use ensemble_team::steps::{StepOptions, StepStore, StuckStep};

use crate::project::Project;
use crate::status::ACTOR;

/// How long a look waits for the server of the step queues.
const PATIENCE: Duration = Duration::from_secs(1);
/// The largest step database of which each page is checked, in bytes.
const CHECKED_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// How long a server that did not answer is left alone.
const SILENCE: Duration = Duration::from_secs(10);

/// The blackboard and the step queues of a project, as last read. One that does not exist or cannot be read counts as
/// empty; the alarms and `fsck` report damage.
#[derive(Default)]
pub struct TaskBooks {
    place: Option<Board>,
    board: Option<State>,
    unreadable: Option<String>,
    /// Path of the board that was read, with its identity, size and time.
    seen: Option<(PathBuf, FileId, u64, i128)>,
    steps: Option<StepStore>,
    pub(crate) steps_fault: Option<Error>,
    /// Until then a server that did not answer is left alone.
    silent_until: Option<Monotonic>,
}

impl TaskBooks {
    pub fn open(project: &Project) -> Self {
        let mut books = Self::default();
        books.refresh_books(project);
        books
    }

    pub fn refresh_books(&mut self, project: &Project) {
        let options = project.board_options(ACTOR, Arc::new(NullRecorder));
        let board = project.find_board(options, None).ok();
        let seen = board.as_ref().and_then(|board| {
            let dir = Dir::open(board.path().parent()?).ok()?;
            let stat = dir.stat(board::FILE_NAME).ok()??;
            Some((board.path().to_owned(), stat.id, stat.bytes, stat.modified_ns))
        });
        if seen.is_none() || seen != self.seen {
            let read = board.as_ref().map(Board::read);
            self.unreadable =
                read.as_ref().and_then(|it| it.as_ref().err().map(ToString::to_string));
            self.board = read.and_then(Result::ok);
            self.seen = seen;
        }
        self.place = board;
        self.look_at_steps(project);
    }

    fn look_at_steps(&mut self, project: &Project) {
        let now = SystemClock.monotonic();
        if self.silent_until.is_some_and(|until| now < until) {
            self.steps = None;
            return;
        }
        if !project.has_steps() {
            (self.steps, self.steps_fault) = (None, None);
            return;
        }
        let is_known = self.steps.is_some();
        let known = match self.steps.take() {
            Some(steps) => Ok(steps),
            None => project.open_steps(Self::step_options(project)),
        };
        let answering = known.and_then(|steps| steps.all_held().map(|_| steps));
        // A server that is away is not asked again and again.
        let is_away = project.has_shared_steps() && answering.is_err();
        self.silent_until = is_away.then(|| now + SILENCE);
        (self.steps, self.steps_fault) = match answering {
            Ok(steps) => (Some(steps), None),
            Err(error) => (None, Some(error)),
        };
        if let Some(steps) = self.steps.as_ref().filter(|_| !is_known) {
            self.steps_fault = fault_of_database(steps);
        }
    }

    /// The caller waits for others, and for a server, only shortly.
    fn step_options(project: &Project) -> StepOptions {
        let mut options = StepOptions::new(project.root());
        if project.has_shared_steps() {
            options.patience = PATIENCE;
        }
        options
    }

    pub const fn board(&self) -> Option<&State> {
        self.board.as_ref()
    }

    pub(crate) const fn place(&self) -> Option<&Board> {
        self.place.as_ref()
    }

    pub(crate) fn unreadable(&self) -> Option<&str> {
        self.unreadable.as_deref()
    }

    pub fn standing(&self, project: &Project) -> Result<Vec<StuckStep>> {
        match &self.steps {
            Some(steps) => steps.standing(),
            None if !project.has_steps() => Ok(Vec::new()),
            None => project.open_steps(Self::step_options(project))?.standing(),
        }
    }

    /// Whether steps of a task wait to be handed out, and no agent works on one.
    pub(crate) fn has_waiting_steps(&self, task: &str) -> bool {
        let queue = self.steps.as_ref().and_then(|steps| steps.queue(task).ok());
        queue.is_some_and(|queue| queue.open > 0 && queue.held == 0 && !queue.is_paused())
    }

    /// Everything these agents hold in mailboxes, on the blackboard and in step queues, except what cannot be read.
    pub fn holds(&self, queue: &dyn Broker, who: impl Fn(&Name) -> bool) -> Result<KnownHoldings> {
        self.holds_with(HoldingPlaces::new(queue), who)
    }

    /// As [`Self::holds`], with received messages that were read before.
    pub(crate) fn holds_with(
        &self,
        mail: HoldingPlaces<'_>,
        who: impl Fn(&Name) -> bool,
    ) -> Result<KnownHoldings> {
        let places = mail.with_board(self.board.as_ref()).with_steps(self.steps.as_ref());
        holdings::holds(&places, who)
    }
}

/// The first fault of a step database that is checked quickly. A damaged page stops only who reads it.
fn fault_of_database(steps: &StepStore) -> Option<Error> {
    let bytes = std::fs::metadata(steps.path()).map_or(0, |it| it.len());
    let faults = (bytes <= CHECKED_BYTES_MAX).then(|| steps.check_database());
    match faults? {
        Ok(faults) => {
            let first = faults.into_iter().next()?;
            Some(Error::malformed(steps.path(), "file", format!("is damaged: {first}")))
        }
        Err(error) => Some(error),
    }
}

/// The work that agents hold, and the decisions they wait for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    pub waits_for: BTreeMap<Name, String>,
    /// Held messages, tasks, reviews and steps, by agent.
    pub holds: BTreeMap<Name, Vec<Holding>>,
}

impl Workload {
    pub fn of(
        queue: &dyn Broker,
        store: &dyn RequestStore,
        books: &TaskBooks,
        who: impl Fn(&Name) -> bool,
    ) -> Result<Self> {
        Ok(Self { waits_for: waits_for(store)?, holds: books.holds(queue, who)?.by_agent })
    }

    pub fn held_by(&self, agent: &Name) -> Vec<Holding> {
        self.holds.get(agent).cloned().unwrap_or_default()
    }

    /// The agents whose entry differs between the two.
    pub fn changed<'d>(&'d self, there: &'d Self) -> impl Iterator<Item = &'d Name> {
        let agents = |workload: &'d Self| workload.waits_for.keys().chain(workload.holds.keys());
        agents(self).chain(agents(there)).filter(|agent| {
            self.waits_for.get(*agent) != there.waits_for.get(*agent)
                || self.holds.get(*agent) != there.holds.get(*agent)
        })
    }
}

#[derive(Debug, Default)]
pub(crate) struct PendingRequests {
    pub(crate) asked: Vec<AskedRequest>,
    pub(crate) unread: Vec<(Name, Error)>,
}

/// The requests without a decision. `closed` are requests that were seen closed before, which they stay.
pub(crate) fn pending_but(
    store: &dyn RequestStore,
    closed: &mut HashSet<Name>,
) -> Result<PendingRequests> {
    let requests = Requests::new(store);
    let mut pending = PendingRequests::default();
    for id in requests.ids()? {
        if closed.contains(&id) {
            continue;
        }
        // Most requests are closed, which needs no reading to see.
        let found = requests.is_closed(&id).and_then(|is_closed| match is_closed {
            true => Ok((true, None)),
            false => Ok((false, requests.find(id.as_str())?)),
        });
        match found {
            Ok((true, _)) => drop(closed.insert(id)),
            Ok((false, Some(entry))) if entry.decision.is_none() => {
                pending.asked.push(entry.request);
            }
            Ok((false, _)) => {}
            Err(error) if error.is_server_away() => return Err(error),
            Err(error) => pending.unread.push((id, error)),
        }
    }
    pending.asked.sort_by_key(|asked| asked.created_at);
    Ok(pending)
}

/// What each agent waits for, in a few words: one look at the requests for the whole team.
pub fn waits_for(store: &dyn RequestStore) -> Result<BTreeMap<Name, String>> {
    Ok(waits_in(&pending_but(store, &mut HashSet::new())?.asked))
}

/// The oldest of these requests of each agent, in a few words.
pub(crate) fn waits_in(pending: &[AskedRequest]) -> BTreeMap<Name, String> {
    let words =
        |asked: &AskedRequest| (asked.from.clone(), describe_wait(asked.kind.as_str(), &asked.to));
    // The oldest request is inserted last.
    pending.iter().rev().map(words).collect()
}

pub fn describe_wait(kind: &str, to: &Name) -> String {
    format!("{to} to decide on its {}", kind.replace('_', " "))
}
