//! The team at a glance: what each agent does, what waits, and what needs a person. Gathered here, once, for `team`,
//! `status`, the live view and the alerts; [`attention`](crate::attention) says what it means.
//!
//! | evidence of agents | used by | costs |
//! |---|---|---|
//! | an inspection of each pane now | `team` | an exchange with tmux for each agent |
//! | what a running watcher has seen last | `status`, the live view, alerts | one file |
//!
//! Without a watcher, both look at the panes. A part that cannot be read is a warning: it must not hide the rest.

mod agents;
mod away;
mod changes;
mod kept;
mod misplaced;
mod parts;
mod reader;
mod undecided;
mod unreadable;
mod watcher_view;

use std::collections::BTreeMap;
use std::time::Duration;

use ensemble_core::driver::LadderFile;
use ensemble_core::message::{MessageId, Name, Timestamp};
use ensemble_core::requests::{AskedRequest, RequestStore, UnplannedTask};
use ensemble_core::spool::{Glance, MailboxOverflow, Spool};
use ensemble_team::budget::BudgetFile;
use ensemble_team::holdings::{Holding, describe_tasks};
use ensemble_team::roster::{Presence, State};
use ensemble_team::steps::StuckStep;
use ensemble_tmux::tmux::Binding;

use crate::attention::{
    AgentView, AwayServers, MAIL_WAITS_MAX, Need, NeedFacts, PersonMail, StrandedFile,
    UnreadablePart, WatcherState, join_by_cause, needs,
};
use crate::need_kind::NeedKind;
use crate::project::Project;
use crate::rows::RosterRow;
use crate::troubles::BoardTrouble;
use crate::wrapped_terminal::own_terminal;
pub use away::server_remedy;
pub use changes::ProjectChanges;
pub use misplaced::{MisplacedPart, find_misplaced};
use parts::SeenLetters;
pub use parts::{COUNT_MAX, glance, since_millis};
pub use reader::OverviewReader;
pub use watcher_view::{WatcherView, has_old_config, watcher_remedy};

#[derive(Clone, Copy)]
pub enum OverviewSource<'a> {
    Here(&'a Spool),
    Remote(&'a dyn RequestStore),
    /// On servers that cannot be asked. The directory of this host is not shown instead.
    Away(&'a AwayServers),
}

impl<'a> OverviewSource<'a> {
    fn store(self) -> Option<&'a dyn RequestStore> {
        match self {
            Self::Here(spool) => Some(spool),
            Self::Remote(store) => Some(store),
            Self::Away(_) => None,
        }
    }

    const fn directory(self) -> Option<&'a Spool> {
        match self {
            Self::Here(spool) => Some(spool),
            Self::Remote(_) | Self::Away(_) => None,
        }
    }

    /// Whether an agent may take nothing of this mailbox now: because of PAUSE, its leaving, a plan or a budget.
    fn keeps_back(self, mailbox: &Name, agent: &Name) -> bool {
        let due = |store: &dyn RequestStore| store.broker().due_ids_for(mailbox, agent, 1);
        self.store().is_some_and(|store| due(store).is_ok_and(|due| due.is_empty()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateSource {
    Panes,
    /// What a running watcher has seen; without one, the panes.
    Watcher,
}

#[derive(Clone, Debug)]
pub struct AgentOverview {
    pub row: RosterRow,
    pub presence: Presence,
    /// Start of the state, if a watcher has seen it.
    pub since: Option<Timestamp>,
    pub holds: Vec<Holding>,
    /// Unread messages of its mailbox, counted up to [`COUNT_MAX`].
    pub unread: u64,
    pub waited: Option<Duration>,
    /// Whether it is at rest, and may take none of them now.
    pub is_kept_back: bool,
    /// Time of its last own act.
    pub sign_of_life: Option<Timestamp>,
}

#[derive(Clone, Debug)]
pub struct MailboxOverview {
    pub name: Name,
    pub glance: Glance,
    /// The messages that it has refused for want of room.
    pub overflow: Option<MailboxOverflow>,
}

#[derive(Clone, Debug)]
pub struct Overview {
    pub at: Timestamp,
    pub watcher: WatcherView,
    pub agents: Vec<AgentOverview>,
    pub mailboxes: Vec<MailboxOverview>,
    /// The people who run the team, each with a mailbox of that name.
    pub people: Vec<Name>,
    pub holds: BTreeMap<Name, Vec<Holding>>,
    pub pending: Vec<AskedRequest>,
    /// Requests that passed their deadline without a decision, and that call for a person.
    pub undecided: Vec<AskedRequest>,
    pub ladders: Vec<LadderFile>,
    pub troubles: Vec<BoardTrouble>,
    pub steps: Vec<StuckStep>,
    pub open_tasks: u64,
    pub needs: Vec<Need>,
    /// Why the servers could not be asked. Mailboxes, requests and received messages are then not known.
    pub away: Option<AwayServers>,
    /// Parts that could not be read. Each is a need.
    pub unreadable: Vec<UnreadablePart>,
    pub warnings: Vec<String>,
}

impl Overview {
    /// Looks once. [`OverviewReader`] looks again and again.
    pub fn gather_once(
        project: &Project,
        source: OverviewSource<'_>,
        evidence: StateSource,
    ) -> Self {
        OverviewReader::once(project).refresh_overview(&ProjectChanges::Anywhere, source, evidence)
    }

    /// Leaves out the mail of other people.
    pub fn keep_needs_of(&mut self, person: &Name) {
        self.needs.retain(|need| need.person.as_ref().is_none_or(|whose| whose == person));
    }

    pub fn urgent(&self) -> usize {
        join_by_cause(&self.needs).iter().filter(|need| need.need.is_urgent()).count()
    }

    pub fn is_at_work(&self) -> bool {
        let is_at_rest = |agent: &AgentOverview| {
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

    fn needs_of(
        &mut self,
        (project, source): (&Project, OverviewSource<'_>),
        dead: &SeenLetters,
        unplanned: &[UnplannedTask],
        stranded: &[StrandedFile],
        mail: &[PersonMail],
    ) -> Vec<Need> {
        let mut views: Vec<AgentView> =
            self.agents.iter().map(|agent| agent.view(project, &self.watcher)).collect();
        views.extend(self.bound_alone(source));
        views.extend(self.never_started((project, source), &views));
        let parked = BudgetFile::open(&project.state).stands_in_the_way();
        let parked = parked.unwrap_or_else(|error| {
            self.unreadable.push(UnreadablePart::new("the budgets", &error));
            Vec::new()
        });
        let mut needs = needs(&NeedFacts {
            now: self.at,
            watcher: self.watcher.state(),
            watcher_remedy: match self.watcher.state() {
                WatcherState::Runs => "",
                WatcherState::Hangs(_) | WatcherState::Missing => watcher_remedy(project),
            },
            watcher_pid: self.watcher.pid,
            servers_away: self.away.as_ref(),
            unreadable: &self.unreadable,
            mail,
            agents: &views,
            pending: &self.pending,
            undecided: &self.undecided,
            unplanned,
            stranded,
            dead: &dead.tasks,
            dead_ids: &dead.ids.iter().map(MessageId::as_str).collect(),
            ladders: &self.ladders,
            troubles: &self.troubles,
            steps: &self.steps,
            parked: &parked,
        });
        for need in needs.iter_mut().filter(|need| need.need == NeedKind::Answered) {
            // A bare `recv` reads the mail of one of them.
            if let Some(person) = need.person.as_ref().filter(|_| self.people.len() > 1) {
                need.help = format!("`ensemble recv --as {person}`");
            }
        }
        needs
    }
}

impl MailboxOverview {
    pub fn waited(&self) -> Option<Duration> {
        let glance = &self.glance;
        let is_due = glance.waiting > glance.delayed;
        glance.oldest_millis.filter(|_| is_due).map(since_millis)
    }
}

impl AgentOverview {
    /// Whether its mail has waited for too long although it has nothing else to do.
    pub fn is_overdue(&self) -> bool {
        let waited = self.waited.unwrap_or(Duration::ZERO);
        self.presence.state == State::Idle && waited > MAIL_WAITS_MAX && !self.is_kept_back
    }

    fn view(&self, project: &Project, watcher: &WatcherView) -> AgentView {
        let name = self.row.member.name.clone();
        AgentView {
            state: self.presence.state,
            why: self.presence.why.clone(),
            since: self.since,
            holds: describe_tasks(&self.holds),
            unread: if self.is_kept_back { 0 } else { self.unread },
            waited: self.waited.filter(|_| !self.is_kept_back),
            nudges: watcher.why_not_notified(&name),
            has_pane: self.row.member.binding.as_ref().is_some_and(Binding::is_in_tmux),
            terminal: self.row.member.binding.as_ref().and_then(own_terminal),
            is_new: false,
            again: self.row.again(project),
            machine: self.row.elsewhere.as_ref().map(|it| it.machine.clone()),
            name,
        }
    }
}
