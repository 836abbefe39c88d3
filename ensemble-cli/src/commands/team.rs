//! `ensemble team`: who belongs to the team, and what each is doing.

use std::collections::BTreeMap;
use std::time::Duration;

use clap_complete::engine::ArgValueCandidates;
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::event_log::{self, Record};
use ensemble_core::message::{Name, Timestamp};
use ensemble_core::watch::Waiter;
use ensemble_team::holdings::{Holding, tasks};
use ensemble_team::roster::{Presence, State};
use ensemble_tmux::tmux::Server;
use ensemble_watch::members::{self, Observed};
use ensemble_watch::project::Project;
use ensemble_watch::rows::{Row, WayIn, rows};
use ensemble_watch::workload::{Books, Workload};
use serde_json::{Value, json};

use super::attention::{self, Overdue};
use super::status::{COUNT_MAX, Watcher, counted};
use crate::completion;
use crate::context::Context;
use crate::exit::{Failure, Outcome, say};
use crate::queue::Queue;
use crate::text::{age, one_line};

/// How much of the end of the log is searched for signs of life, in bytes.
const LOG_BYTES_MAX: u64 = 512 * 1024;
/// How often `--watch` looks again although nothing has changed.
const WATCH_INTERVAL: Duration = Duration::from_secs(2);

/// Show the team: the state of each agent, with its evidence
///
/// States: idle, working, starting, waiting (for a decision), blocked (by a dialog), limited.
/// Further: unknown (its screen is none that its profile knows), shutdown, gone (it should be up
/// and is not). They come from what can be seen now: the roster, the pane, the leases, pending
/// requests; never from what an agent has said of itself. Since when is what the running watcher
/// has seen. The task column shows all that the agent holds: messages, tasks and reviews of the
/// blackboard, and steps.
///
/// Every agent is a row, however it came: by `up`, `spawn`, `join`, `supervise`, `agent register`, or
/// on another host of the team.
///
/// The first line warns of mail that has waited for an idle agent for over 30 s, and of a watcher that
/// does not run.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble team --watch
  ensemble team worker-1 --json | jq -r .state")]
pub(crate) struct Arguments {
    /// Only this agent
    #[arg(value_name = "NAME", add = ArgValueCandidates::new(completion::agents))]
    name: Option<Name>,
    /// Show it again whenever something has changed, until Ctrl-C
    #[arg(long)]
    watch: bool,
}

/// One line of the table.
struct Line {
    row: Row,
    presence: Presence,
    way_in: WayIn,
    since: Option<Timestamp>,
    holds: Vec<Holding>,
    unread: u64,
    /// How long the oldest of them has waited.
    waited: Option<Duration>,
    sign_of_life: Option<Timestamp>,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let project = context.project()?;
        let lines = self.look(context)?;
        if !self.watch {
            return print(context, &Watcher::look(project), &lines);
        }
        let waiter =
            Waiter::new(&[project.roster().dir().to_owned(), project.panes(), project.logs()]);
        let mut shown = Vec::new();
        loop {
            let lines = self.look(context)?;
            let watcher = Watcher::look(project);
            let mut now: Vec<Value> = lines.iter().map(Line::lasting).collect();
            now.push(watcher.runs().into());
            if now != shown {
                shown = now;
                print(context, &watcher, &lines)?;
                if !context.out.is_json() {
                    context.out.line("")?;
                }
                context.out.flush()?;
            }
            waiter.wait(WATCH_INTERVAL);
        }
    }

    fn look(&self, context: &Context) -> Outcome<Vec<Line>> {
        let project = context.project()?;
        let (members, errors) = project.roster().entries()?;
        for error in errors {
            say(&format!("warning: {error}"));
        }
        let (queue, books) = (overlooked(context)?, Books::open(project));
        let elsewhere = if queue.directory().is_none() { queue.mailboxes()? } else { Vec::new() };
        let mut rows = rows(members, &books, &elsewhere);
        if let Some(name) = &self.name {
            rows.retain(|row| row.member.name == *name);
        }
        if rows.is_empty() {
            return Err(Failure::nothing("the team has no agents").with_hint(
                "`ensemble up` brings it up; `ensemble spawn` and `ensemble join` add one",
            ));
        }
        let observed = members::last_observed(&project.watch_status());
        let is_one = |name: &Name| rows.iter().any(|row| row.member.name == *name);
        let duties = Workload::of(&*queue, queue.request_store(), &books, is_one)?;
        let records = event_log::recent(&project.logs(), LOG_BYTES_MAX)?;
        let spoken = last_by_actor(&records);
        rows.into_iter()
            .map(|row| {
                let seen = Seen { observed: &observed, duties: &duties, spoken: &spoken };
                line(project, &queue, row, &seen)
            })
            .collect()
    }
}

/// What is looked up once for all.
struct Seen<'a> {
    /// What the watcher has seen last.
    observed: &'a [Observed],
    /// What each agent holds and waits for.
    duties: &'a Workload,
    /// When an actor was last in the log.
    spoken: &'a BTreeMap<&'a str, Timestamp>,
}

/// The queue as far as it can be seen: the panes are here also while the servers are away.
fn overlooked(context: &Context) -> Outcome<Queue> {
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

fn line(project: &Project, queue: &Queue, row: Row, seen: &Seen<'_>) -> Outcome<Line> {
    let Seen { observed, duties, spoken } = seen;
    let member = &row.member;
    let (waits_for, holds) = (duties.waits_for.get(&member.name), duties.held_by(&member.name));
    let presence = row.presence(project, waits_for, &holds)?;
    let is_it = |o: &&Observed| o.agent == member.name && o.state == presence.state;
    let since = match presence.state {
        State::Shutdown => member.ended.as_ref().map(|ended| ended.at),
        _ => observed.iter().find(is_it).map(|observed| observed.since),
    };
    let signs = match &member.binding {
        Some(b) if member.is_present() => {
            Server::brief(b.socket.clone()).pane_signs(&b.id)?.filter(|pane| pane.token == b.token)
        }
        _ => None,
    };
    let shown = signs.and_then(|pane| pane.active_at);
    let sign_of_life = spoken.get(member.name.as_str()).copied().max(shown);
    let glance = queue.glance(&member.mailbox, COUNT_MAX).unwrap_or_default();
    let (unread, waited) = (glance.waiting, attention::waited(&glance));
    let way_in = row.way_in(project);
    Ok(Line { row, presence, way_in, since, holds, unread, waited, sign_of_life })
}

fn last_by_actor(records: &[Record]) -> BTreeMap<&str, Timestamp> {
    records.iter().map(|record| (record.actor.as_str(), record.timestamp)).collect()
}

impl Line {
    /// Whether its mail has waited for too long although it has nothing else to do.
    fn is_overdue(&self) -> bool {
        self.presence.state == State::Idle && attention::is_overdue(self.waited)
    }

    fn overdue(&self, watcher: &Watcher) -> Option<Overdue> {
        let member = &self.row.member;
        let agent = member.name.clone();
        self.is_overdue().then(|| Overdue {
            why: watcher.why_not_told(&agent),
            mailbox: member.mailbox.clone(),
            waited_seconds: self.waited.unwrap_or_default().as_secs(),
            agent,
        })
    }

    fn object(&self, watcher: &Watcher) -> Value {
        let mut object = self.lasting();
        object["waited_seconds"] = json!(self.waited.map(|waited| waited.as_secs()));
        object["watcher_running"] = watcher.runs().into();
        object["last_sign_of_life"] = json!(self.sign_of_life);
        object
    }

    /// What does not change by itself.
    fn lasting(&self) -> Value {
        let Self { row, presence, way_in, since, holds, unread, .. } = self;
        let member = &row.member;
        let binding = member.binding.as_ref();
        json!({
            "agent": member.name, "role": member.role, "provider": member.provider,
            "state": presence.state, "since": since, "why": presence.why,
            "tasks": tasks(holds), "holds": holds, "mailbox": member.mailbox, "unread": unread, "overdue": self.is_overdue(),
            "recorded": member.state, "generation": member.generation, "ended": member.ended,
            "pane": binding.map(|b| &b.id), "pid": binding.map(|b| b.pid),
            "came": row.came, "host": row.host(), "way_in": way_in,
            "supervisor": member.supervisor.map(|supervisor| supervisor.pid),
        })
    }
}

fn print(context: &Context, watcher: &Watcher, lines: &[Line]) -> Outcome {
    let out = &context.out;
    if out.is_json() {
        return lines.iter().try_for_each(|line| out.object(&line.object(watcher)));
    }
    let overdue: Vec<Overdue> = lines.iter().filter_map(|line| line.overdue(watcher)).collect();
    attention::print(context, watcher.runs(), &overdue)?;
    let now = SystemClock.wall();
    let ago = |at: &Option<Timestamp>| at.map_or_else(|| "-".to_owned(), |at| age(now.since(at)));
    let row = |line: &Line| {
        let Line { row, presence, since, holds, unread, sign_of_life, .. } = line;
        let (member, tasks) = (&row.member, tasks(holds));
        let task = if tasks.is_empty() { "-".to_owned() } else { tasks.join(", ") };
        vec![
            member.name.to_string(),
            member.role.to_string(),
            member.provider.clone(),
            row.host(),
            presence.state.word().to_owned(),
            ago(since),
            task,
            counted(*unread),
            ago(sign_of_life),
            one_line(&presence.why),
        ]
    };
    out.table(
        &[
            "agent",
            "role",
            "provider",
            "host",
            "state",
            "since",
            "task",
            "unread",
            "last sign",
            "why",
        ],
        lines.iter().map(row).collect(),
    )
}
