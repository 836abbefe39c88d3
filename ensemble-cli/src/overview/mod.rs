//! The team at a glance: what each agent does, what waits, and what needs a person. Gathered here, once, for `team`,
//! `status` and the live view; [`ensemble_watch::attention`] says what it means.
//!
//! | evidence of agents | used by | costs |
//! |---|---|---|
//! | a look at each pane now | `team` | an exchange with tmux for each agent |
//! | what a running watcher has seen last | `status`, the live view | one file |
//!
//! Without a watcher, both look at the panes.

mod show;

use std::collections::BTreeMap;
use std::time::Duration;

use ensemble_core::Error;
use ensemble_core::driver::{LadderFile, LadderState, LadderStore};
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::event_log::{self, Record};
use ensemble_core::message::{Name, Timestamp};
use ensemble_core::requests::{Asked, Requests};
use ensemble_core::spool::{Glance, Overflow};
use ensemble_team::budget::BudgetFile;
use ensemble_team::holdings::{Holding, tasks};
use ensemble_team::roster::{Presence, State};
use ensemble_team::steps::Standing;
use ensemble_tmux::tmux::Server;
use ensemble_watch::attention::{AgentView, DeadTask, Facts, Need, needs};
use ensemble_watch::members::{self, Observed};
use ensemble_watch::project::Project;
use ensemble_watch::rows::{Row, WayIn, rows};
use ensemble_watch::troubles::Trouble;
use ensemble_watch::workload::{Books, Workload};

use crate::commands::{Watcher, board_troubles, standing_steps};
use crate::context::Context;
use crate::exit::{Outcome, say};
use crate::queue::Queue;

pub(crate) use show::{counted, cut, held, mark};

/// Messages are counted up to here; an exact count of more takes long.
pub(crate) const COUNT_MAX: u64 = 1000;
/// How much of the end of the log is searched for signs of life, in bytes.
const LOG_BYTES_MAX: u64 = 512 * 1024;
/// Most dead letters that are read of one mailbox.
const DEAD_READ_MAX: usize = 50;

/// Where the state of agents comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// A look at each pane now.
    Panes,
    /// What a running watcher has seen; without one, the panes.
    Watcher,
}

/// An agent and what is known of it.
pub(crate) struct Agent {
    pub(crate) row: Row,
    pub(crate) presence: Presence,
    pub(crate) way_in: WayIn,
    pub(crate) since: Option<Timestamp>,
    pub(crate) holds: Vec<Holding>,
    pub(crate) unread: u64,
    /// How long the oldest of them has waited.
    pub(crate) waited: Option<Duration>,
    pub(crate) sign_of_life: Option<Timestamp>,
}

/// A mailbox and what lies in it.
pub(crate) struct MailboxView {
    pub(crate) name: Name,
    pub(crate) glance: Glance,
    pub(crate) overflow: Option<Overflow>,
}

/// All that is shown.
pub(crate) struct Overview {
    pub(crate) at: Timestamp,
    pub(crate) watcher: Watcher,
    pub(crate) agents: Vec<Agent>,
    pub(crate) mailboxes: Vec<MailboxView>,
    /// Held messages, tasks, reviews and steps, by agent.
    pub(crate) holds: BTreeMap<Name, Vec<Holding>>,
    pub(crate) pending: Vec<Asked>,
    pub(crate) ladders: Vec<LadderFile>,
    pub(crate) troubles: Vec<Trouble>,
    pub(crate) steps: Vec<Standing>,
    pub(crate) needs: Vec<Need>,
}

impl Overview {
    /// The agents, the worst first.
    pub(crate) fn worst_first(&self) -> Vec<&Agent> {
        let mut agents: Vec<&Agent> = self.agents.iter().collect();
        agents.sort_by_key(|agent| show::rank(agent));
        agents
    }

    /// Looks at everything.
    pub(crate) fn gather(context: &Context, evidence: Evidence) -> Outcome<Self> {
        Self::look(context, &open(context)?, evidence)
    }

    /// The same, with a queue that is open already: it knows its mailboxes.
    pub(crate) fn look(context: &Context, queue: &Queue, evidence: Evidence) -> Outcome<Self> {
        let project = context.project()?;
        let books = Books::open(project);
        let watcher = Watcher::look(project);
        let mailboxes = mailboxes(queue)?;
        let workload = Workload::of(&**queue, queue.request_store(), &books, |_| true)?;
        let agents = Look { project, queue, watcher: &watcher, workload: &workload }
            .agents(&books, &mailboxes, evidence)?;
        let mut overview = Self {
            at: SystemClock.wall(),
            agents,
            holds: workload.holds,
            pending: pending(queue)?,
            ladders: ladders(project)?,
            troubles: board_troubles(project)?,
            steps: standing_steps(context)?,
            needs: Vec::new(),
            watcher,
            mailboxes,
        };
        overview.needs = overview.needs_of(project, queue)?;
        Ok(overview)
    }

    fn needs_of(&self, project: &Project, queue: &Queue) -> Outcome<Vec<Need>> {
        let mut views: Vec<AgentView> =
            self.agents.iter().map(|agent| agent.view(&self.watcher)).collect();
        views.extend(self.bound_alone(project));
        let parked = BudgetFile::open(&project.state).stands_in_the_way()?;
        Ok(needs(&Facts {
            now: self.at,
            watcher_runs: self.watcher.runs(),
            agents: &views,
            pending: &self.pending,
            dead: &dead_tasks(queue, &self.mailboxes)?,
            ladders: &self.ladders,
            troubles: &self.troubles,
            steps: &self.steps,
            parked: &parked,
        }))
    }
}

impl Overview {
    /// Agents in panes that are bound to mailboxes, and that are no members.
    fn bound_alone(&self, project: &Project) -> Vec<AgentView> {
        let seen = members::last_observed(&project.watch_status());
        let view = |(agent, mailbox): (Name, Name)| {
            if self.agents.iter().any(|known| known.row.member.name == agent) {
                return None;
            }
            let seen = seen.iter().find(|seen| seen.agent == agent)?;
            let mailbox = self.mailboxes.iter().find(|known| known.name == mailbox)?;
            Some(AgentView {
                state: seen.state,
                why: seen.why.clone(),
                since: Some(seen.since),
                holds: Vec::new(),
                unread: mailbox.glance.waiting,
                waited: waited(&mailbox.glance),
                nudges: self.watcher.why_not_told(&agent),
                has_pane: true,
                name: agent,
            })
        };
        self.watcher.notified().into_iter().filter_map(view).collect()
    }
}

impl Agent {
    fn view(&self, watcher: &Watcher) -> AgentView {
        let name = self.row.member.name.clone();
        AgentView {
            state: self.presence.state,
            why: self.presence.why.clone(),
            since: self.since,
            holds: tasks(&self.holds),
            unread: self.unread,
            waited: self.waited,
            nudges: watcher.why_not_told(&name),
            has_pane: self.row.member.binding.as_ref().is_some_and(|it| !it.is_terminal()),
            name,
        }
    }
}

/// The queue as far as it can be seen: the panes are here also while the servers are away.
pub(crate) fn open(context: &Context) -> Outcome<Queue> {
    let opened = Queue::open(context).and_then(|queue| {
        queue.overlook()?;
        Ok(queue)
    });
    match opened {
        Err(failure) if context.project()?.servers()?.is_some() => {
            say(&format!("warning: what the agents hold is not known: {}", failure.text()));
            Ok(Queue::Directory(context.spool()?))
        }
        other => other,
    }
}

/// What the agents are looked up in.
struct Look<'a> {
    project: &'a Project,
    queue: &'a Queue,
    watcher: &'a Watcher,
    workload: &'a Workload,
}

impl Look<'_> {
    fn agents(
        &self,
        books: &Books,
        mailboxes: &[MailboxView],
        evidence: Evidence,
    ) -> Outcome<Vec<Agent>> {
        let (members, errors) = self.project.roster().entries()?;
        for error in errors {
            say(&format!("warning: {error}"));
        }
        let elsewhere: Vec<Name> = match self.queue.directory() {
            None => mailboxes.iter().map(|mailbox| mailbox.name.clone()).collect(),
            Some(_) => Vec::new(),
        };
        let observed = members::last_observed(&self.project.watch_status());
        let records = match evidence {
            Evidence::Panes => event_log::recent(&self.project.logs(), LOG_BYTES_MAX)?,
            Evidence::Watcher => Vec::new(),
        };
        let spoken = last_by_actor(&records);
        let is_watched = evidence == Evidence::Watcher && self.watcher.runs();
        rows(members, books, &elsewhere)
            .into_iter()
            .map(|row| self.agent(row, mailboxes, &observed, is_watched, &spoken))
            .collect()
    }

    fn agent(
        &self,
        row: Row,
        mailboxes: &[MailboxView],
        observed: &[Observed],
        is_watched: bool,
        spoken: &BTreeMap<&str, Timestamp>,
    ) -> Outcome<Agent> {
        let name = &row.member.name;
        let (waits_for, holds) = (self.workload.waits_for.get(name), self.workload.held_by(name));
        let seen = observed.iter().find(|observed| observed.agent == *name);
        let presence = match seen.filter(|_| is_watched && row.member.is_present()) {
            Some(seen) => Presence::new(seen.state, seen.why.clone()),
            None => row.presence(self.project, waits_for, &holds)?,
        };
        let since = match presence.state {
            State::Shutdown => row.member.ended.as_ref().map(|ended| ended.at),
            state => seen.filter(|seen| seen.state == state).map(|seen| seen.since),
        };
        let shown = if is_watched { None } else { active_at(&row)? };
        let sign_of_life = spoken.get(name.as_str()).copied().max(shown);
        let glance = mailboxes.iter().find(|mailbox| mailbox.name == row.member.mailbox);
        let glance = glance.map(|mailbox| mailbox.glance.clone()).unwrap_or_default();
        let (unread, waited) = (glance.waiting, waited(&glance));
        let way_in = row.way_in(self.project);
        Ok(Agent { row, presence, way_in, since, holds, unread, waited, sign_of_life })
    }
}

/// When an agent's pane has last shown something.
fn active_at(row: &Row) -> Outcome<Option<Timestamp>> {
    let Some(binding) =
        row.member.binding.as_ref().filter(|it| row.member.is_present() && !it.is_terminal())
    else {
        return Ok(None);
    };
    let signs = Server::brief(binding.socket.clone()).pane_signs(&binding.id)?;
    Ok(signs.filter(|pane| pane.token == binding.token).and_then(|pane| pane.active_at))
}

fn last_by_actor(records: &[Record]) -> BTreeMap<&str, Timestamp> {
    records.iter().map(|record| (record.actor.as_str(), record.timestamp)).collect()
}

/// How long the oldest message of a mailbox has waited.
pub(crate) fn waited(glance: &Glance) -> Option<Duration> {
    let is_due = glance.waiting > glance.delayed;
    glance.oldest_millis.filter(|_| is_due).map(since_millis)
}

/// The age of a message that was made at that time.
pub(crate) fn since_millis(made_at: u64) -> Duration {
    let now = u64::try_from(SystemClock.wall().unix_millis()).unwrap_or(0);
    Duration::from_millis(now.saturating_sub(made_at))
}

fn mailboxes(queue: &Queue) -> Outcome<Vec<MailboxView>> {
    let mut all = Vec::new();
    for name in queue.mailboxes()? {
        let glance = match queue.glance(&name, COUNT_MAX) {
            // Removed since it was listed.
            Err(Error::NoMailbox { .. }) => continue,
            other => other?,
        };
        // Damage that `fsck` repairs must not hide the rest.
        let overflow = queue.overflow(&name).unwrap_or_else(|error| {
            say(&format!("warning: {error}"));
            None
        });
        all.push(MailboxView { name, glance, overflow });
    }
    Ok(all)
}

/// The requests without a decision, the oldest first.
fn pending(queue: &Queue) -> Outcome<Vec<Asked>> {
    let requests = Requests::new(queue.request_store());
    let mut pending = Vec::new();
    for id in requests.ids()? {
        // Most requests are closed, which needs no reading to see.
        if !requests.is_closed(&id)?
            && let Ok(Some(entry)) = requests.find(id.as_str())
            && entry.decision.is_none()
        {
            pending.push(entry.request);
        }
    }
    pending.sort_by_key(|asked| asked.created_at);
    Ok(pending)
}

/// The tasks whose ack is waited for, the highest phase first.
fn ladders(project: &Project) -> Outcome<Vec<LadderFile>> {
    let all = LadderStore::new(&project.state).all()?.into_iter().map(|(_, file)| file);
    let mut open: Vec<LadderFile> = all.filter(|file| file.state != LadderState::Acked).collect();
    open.sort_by_key(|file| (std::cmp::Reverse((file.state, file.phase)), file.began_ms));
    for file in &mut open {
        // For the conductor, who has it in a file.
        file.escalation = None;
    }
    Ok(open)
}

/// Tasks that became dead letters, and that no later attempt replaces. Requests and notices need no person.
fn dead_tasks(queue: &Queue, mailboxes: &[MailboxView]) -> Outcome<Vec<DeadTask>> {
    let mut found = Vec::new();
    for mailbox in mailboxes.iter().filter(|mailbox| mailbox.glance.dead > 0) {
        let letters = queue.dead_letters(&mailbox.name)?;
        for letter in letters.into_iter().filter(|l| !l.has_successor()).take(DEAD_READ_MAX) {
            // One that cannot be read may be anything: a person should look.
            let envelope = queue.peek(&mailbox.name, &letter.id).ok();
            let is_work = envelope
                .as_ref()
                .is_none_or(|envelope| envelope.purpose() == ensemble_core::message::Purpose::Work);
            if is_work {
                found.push(DeadTask {
                    mailbox: letter.mailbox,
                    id: letter.id,
                    task: envelope.and_then(|envelope| envelope.task_id),
                    reason: letter.reason,
                    at: letter.at,
                });
            }
        }
    }
    Ok(found)
}
