//! What the members of the team are doing: evidence is gathered here, `roster::presence` judges.
//!
//! The watcher looks at each member at every poll interval and soon after its mailbox has changed,
//! records `agent.state` when the answer is another one, and keeps the last answers, with since when,
//! in `watch.json`. `ensemble team` gathers the same evidence by itself and takes from there only
//! since when it has been so.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use ensemble_core::Result;
use ensemble_core::env::{Clock as _, Monotonic, SystemClock};
use ensemble_core::event_log::Recorder;
use ensemble_core::message::{Name, Timestamp};
use ensemble_core::requests::{Asked, Requests};
use ensemble_core::roster::{Evidence, Member, Presence, Sight, State, presence};
use ensemble_core::spool::Spool;
use ensemble_core::tmux::{Server, TmuxPane};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::couriers::Couriers;
use crate::panes::PaneEntry;
use crate::project::Project;
use crate::run::ACTOR;

/// The providers whose screens say nothing about work.
const SCRIPTS: [&str; 2] = ["shell", "generic"];
/// How many of the held messages are named.
const NAMED_MAX: usize = 8;
/// The least time between two looks that events have asked for.
const LOOK_INTERVAL_MIN: Duration = Duration::from_secs(1);
/// The largest `watch.json` that is read, in bytes.
const STATUS_BYTES_MAX: u64 = 1024 * 1024;

/// What was last seen of a member, as it stands in `watch.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Observed {
    /// The member.
    pub agent: Name,
    /// What it is doing.
    pub state: State,
    /// Since when, as far as was looked.
    pub since: Timestamp,
    /// How that is known.
    pub why: String,
}

/// Who waits for whose decision: agents with pending requests of their own, and the oldest of those
/// in a few words. One look for the whole team.
///
/// # Errors
/// The requests cannot be listed.
pub fn waiting(spool: &Spool) -> Result<BTreeMap<Name, String>> {
    let requests = Requests::new(spool);
    let mut pending = Vec::new();
    for id in requests.ids()? {
        // Most are closed, which costs no reading to see.
        if !requests.is_closed(&id)?
            && let Ok(Some(entry)) = requests.find(id.as_str())
            && entry.decision.is_none()
        {
            pending.push(entry.request);
        }
    }
    // The oldest is put in last.
    pending.sort_by_key(|asked| std::cmp::Reverse(asked.created_at));
    let words = |asked: Asked| {
        let text = format!("{} {} by {}", asked.kind, asked.request_id, asked.to);
        (asked.from, text)
    };
    Ok(pending.into_iter().map(words).collect())
}

/// What a member is doing, given what was seen of its pane and who waits for a decision.
///
/// # Errors
/// The queue cannot be read.
pub fn judge(
    spool: &Spool,
    member: &Member,
    sight: Sight,
    waiting: &BTreeMap<Name, String>,
) -> Result<Presence> {
    let mut evidence = Evidence::new(member.state, sight);
    evidence.ended = member.ended.as_ref().map(|ended| ended.how);
    evidence.is_script = SCRIPTS.contains(&member.provider.as_str());
    if member.is_present() {
        evidence.waits_for = waiting.get(&member.name).cloned();
        evidence.holds = held_by(spool, member)?;
    }
    Ok(presence(&evidence))
}

/// Looks at a member's pane, if it has one.
///
/// # Errors
/// Its provider or its binding makes no sense.
pub fn look(project: &Project, member: &Member) -> Result<Sight> {
    let Some(entry) = entry_of(member) else { return Ok(without_pane(member)) };
    let profile = project.profiles()?.get(&member.provider)?;
    let server = Server::brief(entry.binding.socket.clone());
    let (sources, locks) = (project.sources(), project.locks());
    let mut pane = entry.open(server.clone(), profile, &sources, &locks)?;
    Ok(look_at(&server, &mut pane))
}

/// What stands in a pane, or why there is nothing.
pub(crate) fn look_at(server: &Server, pane: &mut TmuxPane) -> Sight {
    match pane.diagnose() {
        Ok(diagnosis) => Sight::Seen(diagnosis),
        Err(_) => match server.check(pane.binding()) {
            Ok(Some(deferral)) => Sight::Missing(deferral),
            Ok(None) | Err(_) => Sight::Unseen,
        },
    }
}

/// Where a member runs, as those who look take it.
fn entry_of(member: &Member) -> Option<PaneEntry> {
    let binding = member.binding.clone()?;
    let (agent, mailbox) = (member.name.clone(), member.mailbox.clone());
    Some(PaneEntry { agent, mailbox, provider: member.provider.clone(), binding })
}

fn without_pane(member: &Member) -> Sight {
    match member.command {
        Some(_) => Sight::NotStarted,
        None => Sight::NoPane,
    }
}

/// The tasks a member holds, or the ids of messages that are about none.
///
/// # Errors
/// The queue cannot be read.
pub fn held_by(spool: &Spool, member: &Member) -> Result<Vec<String>> {
    let mut held = Vec::new();
    for mailbox in spool.mailboxes()? {
        for observed in spool.observe(&mailbox)? {
            if observed.lease.holder != member.name || held.len() == NAMED_MAX {
                continue;
            }
            let task = spool.peek(&mailbox, &observed.lease.id).ok().and_then(|e| e.task_id);
            held.push(task.unwrap_or_else(|| observed.lease.id.to_string()));
        }
    }
    held.sort_unstable();
    Ok(held)
}

/// What the last watcher has seen, from its status file.
#[must_use]
pub fn last_observed(status: &Path) -> Vec<Observed> {
    use std::io::Read as _;
    let mut text = String::new();
    let read = std::fs::File::open(status)
        .and_then(|file| file.take(STATUS_BYTES_MAX).read_to_string(&mut text));
    let value: serde_json::Value = match read {
        Ok(_) => serde_json::from_str(&text).unwrap_or_default(),
        Err(_) => return Vec::new(),
    };
    let members = value["members"].as_array().cloned().unwrap_or_default();
    members.into_iter().filter_map(|member| serde_json::from_value(member).ok()).collect()
}

/// The watcher's eye on the team.
pub(crate) struct Members {
    members: BTreeMap<Name, Member>,
    seen: BTreeMap<Name, Observed>,
    next_look: Monotonic,
    last_look: Option<Monotonic>,
    interval: Duration,
    /// Whose mailboxes have changed since.
    stirred: BTreeSet<Name>,
    /// Who waited for a decision at the last look.
    waiting: BTreeMap<Name, String>,
}

impl Members {
    pub(crate) fn new(now: Monotonic, project: &Project) -> Self {
        let seen = last_observed(&project.watch_status());
        Self {
            members: BTreeMap::new(),
            seen: seen.into_iter().map(|observed| (observed.agent.clone(), observed)).collect(),
            next_look: now,
            last_look: None,
            interval: project.config.poll_interval(),
            stirred: BTreeSet::new(),
            waiting: BTreeMap::new(),
        }
    }

    pub(crate) const fn next_timeout(&self) -> Monotonic {
        self.next_look
    }

    /// Something has changed in a mailbox: look at those who read it, but not at once again.
    pub(crate) fn stir(&mut self, now: Monotonic, mailbox: &Name) {
        let readers = self.members.values().filter(|member| member.mailbox == *mailbox);
        let before = self.stirred.len();
        self.stirred.extend(readers.map(|member| member.name.clone()));
        if self.stirred.len() > before {
            let earliest = self.last_look.map_or(now, |at| at + LOOK_INTERVAL_MIN);
            self.next_look = self.next_look.min(earliest.max(now));
        }
    }

    /// The roster, or where somebody runs, has changed: look at all.
    pub(crate) fn look_soon(&mut self, now: Monotonic) {
        self.last_look = None;
        self.next_look = now;
    }

    /// Looks at those whose time has come. Panes are looked at by others, who come back with
    /// [`Self::seen`].
    pub(crate) fn drive(
        &mut self,
        now: Monotonic,
        project: &Project,
        spool: &Spool,
        couriers: &mut Couriers,
        recorder: &dyn Recorder,
    ) -> bool {
        if now < self.next_look {
            return false;
        }
        let is_regular = self.last_look.is_none_or(|at| now >= at + self.interval);
        let stirred = std::mem::take(&mut self.stirred);
        if is_regular {
            self.last_look = Some(now);
            self.read_roster(project);
        }
        let regular = self.last_look.map_or(now, |at| at + self.interval);
        self.next_look = regular.max(now + LOOK_INTERVAL_MIN);
        match waiting(spool) {
            Ok(waiting) => self.waiting = waiting,
            Err(error) => tracing::warn!(%error, "cannot tell who waits for a decision"),
        }
        let mut changed = false;
        for member in self.members.clone().values() {
            if !is_regular && !stirred.contains(&member.name) {
                continue;
            }
            let sight = match entry_of(member).filter(|_| member.is_present()) {
                Some(entry) if couriers.send_to(entry.clone()) => continue,
                Some(_) => Sight::Unseen,
                None => without_pane(member),
            };
            changed |= self.seen(&member.name, sight, spool, recorder);
        }
        changed
    }

    /// A pane was looked at.
    pub(crate) fn seen(
        &mut self,
        agent: &Name,
        sight: Sight,
        spool: &Spool,
        recorder: &dyn Recorder,
    ) -> bool {
        let Some(member) = self.members.get(agent) else { return false };
        let last = self.seen.get(agent);
        // Nobody could look: as it was.
        if sight == Sight::Unseen && last.is_some() {
            return false;
        }
        let Presence { state, why, .. } = match judge(spool, member, sight, &self.waiting) {
            Ok(presence) => presence,
            Err(error) => {
                tracing::warn!(%agent, %error, "cannot tell what an agent is doing");
                return false;
            }
        };
        let from = last.map(|observed| observed.state);
        if from != Some(state) {
            let data = json!({ "agent": agent, "from": from, "to": state, "why": why });
            recorder.record("agent.state", ACTOR, data);
        }
        let since = match last {
            Some(observed) if observed.state == state => observed.since,
            Some(_) | None => SystemClock.wall(),
        };
        let observed = Observed { agent: agent.clone(), state, since, why };
        let is_new = last != Some(&observed);
        self.seen.insert(agent.clone(), observed);
        is_new
    }

    fn read_roster(&mut self, project: &Project) {
        match project.roster().entries() {
            Ok((members, errors)) => {
                for error in errors {
                    tracing::warn!(%error, "cannot read a file of the roster");
                }
                self.members = members.into_iter().map(|m| (m.name.clone(), m)).collect();
                self.seen.retain(|agent, _| self.members.contains_key(agent));
            }
            Err(error) => tracing::warn!(%error, "cannot read the roster"),
        }
    }

    /// For `watch.json`.
    /// Who should be there and is seen to be gone, and how that is known.
    pub(crate) fn gone(&self) -> impl Iterator<Item = (&Name, &str)> {
        let gone = |observed: &&Observed| observed.state == State::Gone;
        let is_present = |name: &Name| self.members.get(name).is_some_and(Member::is_present);
        self.seen
            .values()
            .filter(gone)
            .filter(move |observed| is_present(&observed.agent))
            .map(|observed| (&observed.agent, observed.why.as_str()))
    }

    pub(crate) fn summary(&self) -> Vec<&Observed> {
        self.seen.values().collect()
    }
}
