//! The team at a glance: what each agent does, what waits, and what needs a person. Gathered here, once, for `team`,
//! `status`, the live view and the alerts; [`attention`](crate::attention) says what it means.
//!
//! | evidence of agents | used by | costs |
//! |---|---|---|
//! | a look at each pane now | `team` | an exchange with tmux for each agent |
//! | what a running watcher has seen last | `status`, the live view, alerts | one file |
//!
//! Without a watcher, both look at the panes. A part that cannot be read is a warning: it must not hide the rest.

mod agents;
mod changes;
mod kept;
mod parts;
mod reader;
mod undecided;
mod watcher_view;

use std::collections::BTreeMap;
use std::time::Duration;

use ensemble_core::Result;
use ensemble_core::driver::LadderFile;
use ensemble_core::message::{Name, Timestamp};
use ensemble_core::requests::{Asked, RequestStore};
use ensemble_core::spool::{Glance, Overflow, Spool};
use ensemble_team::budget::BudgetFile;
use ensemble_team::holdings::{Holding, tasks};
use ensemble_team::roster::{Presence, State};
use ensemble_team::steps::Standing;

use crate::attention::{AgentView, DeadTask, Facts, MAIL_WAITS_MAX, Need, needs};
use crate::project::Project;
use crate::rows::Row;
use crate::troubles::Trouble;
pub use changes::Changes;
pub use parts::{COUNT_MAX, glance, since_millis};
pub use reader::OverviewReader;
pub use watcher_view::WatcherView;

/// Where the state of agents comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// A look at each pane now.
    Panes,
    /// What a running watcher has seen; without one, the panes.
    Watcher,
}

/// An agent and what is known of it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Agent {
    /// The agent's row of the roster.
    pub row: Row,
    /// State of the agent, with its evidence.
    pub presence: Presence,
    /// Start of the state, as far as a watcher has seen it.
    pub since: Option<Timestamp>,
    /// Messages, tasks, reviews and steps in its hands.
    pub holds: Vec<Holding>,
    /// Unread messages of its mailbox, counted up to [`COUNT_MAX`].
    pub unread: u64,
    /// How long the oldest of them has waited.
    pub waited: Option<Duration>,
    /// Time of its last own act.
    pub sign_of_life: Option<Timestamp>,
}

/// A mailbox and what lies in it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MailboxView {
    /// Name of the mailbox.
    pub name: Name,
    /// Counts of its messages, up to [`COUNT_MAX`].
    pub glance: Glance,
    /// What it has refused for want of room.
    pub overflow: Option<Overflow>,
}

/// All that is known of a team now.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Overview {
    /// Time of the look.
    pub at: Timestamp,
    /// The watcher, as seen from outside.
    pub watcher: WatcherView,
    /// The agents.
    pub agents: Vec<Agent>,
    /// The mailboxes.
    pub mailboxes: Vec<MailboxView>,
    /// Held messages, tasks, reviews and steps, by agent.
    pub holds: BTreeMap<Name, Vec<Holding>>,
    /// Requests without a decision, the oldest first.
    pub pending: Vec<Asked>,
    /// Requests that passed their deadline without a decision, and that call for a person.
    pub undecided: Vec<Asked>,
    /// Ladders of tasks that are not acked, the highest phase first.
    pub ladders: Vec<LadderFile>,
    /// Troubles of the blackboard, and control files.
    pub troubles: Vec<Trouble>,
    /// Steps that wait for an intervention.
    pub steps: Vec<Standing>,
    /// Tasks of the blackboard that are not finished.
    pub open_tasks: u64,
    /// What needs a person, the worst first.
    pub needs: Vec<Need>,
    /// Parts that could not be read.
    pub warnings: Vec<String>,
}

impl Overview {
    /// Looks once. [`OverviewReader`] looks again and again.
    ///
    /// # Errors
    /// As for [`OverviewReader::look`].
    pub fn look(
        project: &Project,
        store: &dyn RequestStore,
        directory: Option<&Spool>,
        evidence: Evidence,
    ) -> Result<Self> {
        OverviewReader::once(project).look(&Changes::Anywhere, store, directory, evidence)
    }

    /// How many needs a person must see to.
    #[must_use]
    pub fn urgent(&self) -> usize {
        self.needs.iter().filter(|need| need.need.is_urgent()).count()
    }

    /// Whether an agent is busy, or any work is in hand or waits.
    #[must_use]
    pub fn is_at_work(&self) -> bool {
        let is_at_rest = |agent: &Agent| {
            matches!(agent.presence.state, State::Idle | State::Shutdown | State::Gone)
                && agent.holds.is_empty()
                && agent.unread == 0
        };
        self.open_tasks > 0
            || !self.pending.is_empty()
            || !self.steps.is_empty()
            || !self.ladders.is_empty()
            || !self.agents.iter().all(is_at_rest)
    }

    fn needs_of(&self, project: &Project, dead: &[DeadTask]) -> Result<Vec<Need>> {
        let mut views: Vec<AgentView> =
            self.agents.iter().map(|agent| agent.view(&self.watcher)).collect();
        views.extend(self.bound_alone());
        let parked = BudgetFile::open(&project.state).stands_in_the_way()?;
        Ok(needs(&Facts {
            now: self.at,
            watcher_runs: self.watcher.runs(),
            agents: &views,
            pending: &self.pending,
            undecided: &self.undecided,
            dead,
            ladders: &self.ladders,
            troubles: &self.troubles,
            steps: &self.steps,
            parked: &parked,
        }))
    }
}

impl MailboxView {
    /// How long its oldest message has waited.
    #[must_use]
    pub fn waited(&self) -> Option<Duration> {
        let glance = &self.glance;
        let is_due = glance.waiting > glance.delayed;
        glance.oldest_millis.filter(|_| is_due).map(since_millis)
    }
}

impl Agent {
    /// Whether its mail has waited for too long although it has nothing else to do.
    #[must_use]
    pub fn is_overdue(&self) -> bool {
        let waited = self.waited.unwrap_or(Duration::ZERO);
        self.presence.state == State::Idle && waited > MAIL_WAITS_MAX
    }

    fn view(&self, watcher: &WatcherView) -> AgentView {
        let name = self.row.member.name.clone();
        AgentView {
            state: self.presence.state,
            why: self.presence.why.clone(),
            since: self.since,
            holds: tasks(&self.holds),
            unread: self.unread,
            waited: self.waited,
            nudges: watcher.why_not_notified(&name),
            has_pane: self.row.member.binding.as_ref().is_some_and(|it| !it.is_terminal()),
            again: self.row.again(),
            machine: self.row.elsewhere.as_ref().map(|it| it.machine.clone()),
            name,
        }
    }
}
