//! The context of the tools, opened once and shared by all calls.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use ensemble_app::App;
use ensemble_app::door_hints::HintReader;
use ensemble_app::queue::{OpeningPurpose, ProjectQueue};
use ensemble_app::steps::open_steps;
use ensemble_core::broker::Broker;
use ensemble_core::event_log::Recorder;
use ensemble_core::message::Name;
use ensemble_core::requests::Requests;
use ensemble_core::spool::Spool;
use ensemble_project::Project;
use ensemble_team::driver::StepDriver;
use ensemble_team::roster::IdentityProof;
use ensemble_team::steps::{StepKey, StepStore};

use super::tools::ToolError;
use crate::context::{Outcome, locked};

pub(crate) struct ToolContext {
    pub(super) project: Project,
    /// The agent of this server, no matter what a call claims.
    pub(super) agent: Name,
    pub(super) proof: IdentityProof,
    pub(super) mailbox: Name,
    /// The directory, with the steps' messages.
    pub(super) spool: Spool,
    /// Where mail and requests are, opened when they are first asked for: servers may be away.
    queue: OnceLock<ProjectQueue>,
    /// Opens the queue. A call that works with `app` can ask for the queue, and would wait for itself.
    opener: Mutex<App>,
    pub(super) store: StepStore,
    pub(super) recorder: Arc<dyn Recorder>,
    /// The same as of a verb, for what verbs do: one call at a time.
    app: Mutex<App>,
    claims: Mutex<BTreeMap<Name, u64>>,
    pub(super) read_hint: HintReader,
    offered: AtomicUsize,
    epochs: Mutex<BTreeMap<StepKey, u64>>,
}

impl ToolContext {
    pub(crate) fn open(app: &App, read_hint: HintReader) -> Outcome<Self> {
        let agent = app.agent_itself()?;
        let (proof, project) = (app.identity()?.proof, app.project()?.clone());
        let mailbox = project.mailbox_of(&agent);
        let (spool, recorder) = (app.spool()?, app.recorder()?);
        let store = open_steps(app)?;
        let (opener, app) = (Mutex::new(app.settled()?), Mutex::new(app.settled()?));
        let (claims, epochs) = (Mutex::default(), Mutex::default());
        let desk = Self {
            project,
            agent,
            proof,
            mailbox,
            spool,
            queue: OnceLock::new(),
            opener,
            store,
            recorder,
            app,
            claims,
            epochs,
            offered: AtomicUsize::new(0),
            read_hint,
        };
        // A session that begins while a step is in its agent's hands has taken it over.
        let _ = desk.learn_all();
        Ok(desk)
    }

    pub(super) fn steps(&self) -> Result<StepDriver<'_>, ToolError> {
        let queue = self.project.has_shared_steps().then(|| self.queue()).transpose()?;
        let mail: &dyn Broker = queue.map_or(&self.spool, |queue| &**queue);
        let (store, recorder, actor) = (&self.store, &*self.recorder, self.app().sender()?);
        Ok(StepDriver { store, mail, recorder, actor })
    }

    pub(super) fn queue(&self) -> Result<&ProjectQueue, ToolError> {
        if let Some(queue) = self.queue.get() {
            return Ok(queue);
        }
        let queue = ProjectQueue::open(&locked(&self.opener))?;
        // If two threads open it at once, both use the first one stored.
        Ok(self.queue.get_or_init(|| queue))
    }

    /// The same for mail that can wait on this host: `None` if no server answers.
    pub(super) fn reached_queue(&self) -> Result<Option<&ProjectQueue>, ToolError> {
        match self.queue.get() {
            None => {
                let queue = ProjectQueue::reach(&locked(&self.opener), OpeningPurpose::Act)?;
                Ok(queue.map(|queue| self.queue.get_or_init(|| queue)))
            }
            known => Ok(known),
        }
    }

    pub(super) fn app(&self) -> MutexGuard<'_, App> {
        locked(&self.app)
    }

    pub(super) fn claimed(&self, task: Name, epoch: u64) {
        locked(&self.claims).insert(task, epoch);
    }

    pub(super) fn claim_of(&self, task: &Name) -> Option<u64> {
        locked(&self.claims).get(task).copied()
    }

    /// Notes how many tools the client is offered; whether it was offered another number before.
    pub(super) fn offers_others(&self, count: usize) -> bool {
        ![0, count].contains(&self.offered.swap(count, Ordering::SeqCst))
    }

    pub(super) fn requests(&self) -> Result<Requests<'_>, ToolError> {
        Ok(self.project.requests(self.queue()?.request_store())?)
    }

    pub(super) fn agents(&self) -> Result<Vec<Name>, ToolError> {
        let (members, _) = self.project.roster().entries()?;
        let mut names: Vec<Name> = members.into_iter().map(|member| member.name).collect();
        names.extend(self.store.agents()?);
        names.push(self.agent.clone());
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// The same for a schema, which only says less without them: each call is checked anyway.
    pub(super) fn names(&self) -> Vec<Name> {
        self.agents().unwrap_or_default()
    }

    /// Whether the project has a blackboard. One that cannot be read counts.
    pub(super) fn has_board(&self) -> bool {
        !matches!(self.app().board_if_any(), Ok(None))
    }

    /// The session has been shown what its steps are about now.
    pub(super) fn learn_all(&self) -> Result<(), ToolError> {
        let held = self.store.held_by(&self.agent)?;
        locked(&self.epochs).extend(held.into_iter().map(|step| (step.key, step.epoch)));
        Ok(())
    }

    pub(super) fn known(&self, key: &StepKey) -> Option<u64> {
        locked(&self.epochs).get(key).copied()
    }

    pub(super) fn forget(&self, key: &StepKey) {
        locked(&self.epochs).remove(key);
    }
}
