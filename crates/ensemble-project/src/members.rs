//! What the members of the team are doing: evidence is gathered here, `roster::presence` judges.
//!
//! The watcher does this for each member again and again (`member_watch`), and keeps its last answers in `watch.json`,
//! with the time since when each applies. `ensemble team` gathers the same evidence itself and takes only that time from
//! there.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ensemble_core::Result;
use ensemble_core::durable::read_file;
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::message::{Name, Timestamp};
use ensemble_team::driver::supervise::seated;
use ensemble_team::holdings::{self, Holding};
use ensemble_team::roster::{
    Member, PaneObservation, Presence, PresenceEvidence, ReportedActivity, State, presence,
};
use ensemble_tmux::provider::{Profile, process};
use ensemble_tmux::terminal::BoundPane;
use ensemble_tmux::tmux::TmuxServer;
use serde::{Deserialize, Serialize};

use crate::panes::{self, PaneEntry};
use crate::project::Project;
use crate::status::STATUS_BYTES_MAX;

/// The providers whose screens say nothing about work.
const SCRIPTS: [&str; 3] = ["shell", "generic", "acp"];

/// How long the pane of an agent may take to open, before the agent counts as never started.
pub const START_PATIENCE: Duration = Duration::from_secs(30);

/// The last observation of a member, as it is in `watch.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedMember {
    pub agent: Name,
    pub state: State,
    /// When it was first seen in that state.
    pub since: Timestamp,
    pub why: String,
}

pub fn is_script(provider: &str) -> bool {
    SCRIPTS.contains(&provider)
}

/// What a member is doing. Known are what was seen of its pane, and what its hooks have reported. Known are also whose
/// decision it waits for, and what it holds.
pub fn judge(
    member: &Member,
    observation: PaneObservation,
    reported: Option<ReportedActivity>,
    waits_for: Option<&String>,
    holds: &[Holding],
) -> Presence {
    let mut evidence = PresenceEvidence::new(member.state, observation);
    evidence.reported = reported;
    evidence.ended = member.ended.as_ref().map(|ended| ended.how);
    evidence.is_script = is_script(&member.provider);
    if member.is_present() {
        evidence.waits_for = waits_for.cloned();
        evidence.holds = holdings::tasks(holds);
    }
    presence(&evidence)
}

impl Project {
    /// The pane of an agent, over its own brief connection to the tmux server.
    pub fn open_pane(&self, entry: &PaneEntry, profile: Arc<Profile>) -> Result<BoundPane> {
        let server = TmuxServer::brief(entry.binding.socket.clone());
        entry.open(server, profile, &self.sources(), &self.locks())
    }
}

pub fn observe_member(project: &Project, member: &Member) -> Result<PaneObservation> {
    if let Some(observation) = by_supervisor(project, member) {
        return Ok(observation);
    }
    let Some(entry) = PaneEntry::of(member) else {
        return Ok(match without_pane(member) {
            PaneObservation::NotStarted if may_open(member, SystemClock.wall()) => {
                PaneObservation::Opening
            }
            other => other,
        });
    };
    let profile = project.profiles()?.get(&member.provider)?;
    Ok(panes::observe(&mut project.open_pane(&entry, profile)?))
}

/// The observation of a member through its supervisor, if it has one. A member with a pane whose supervisor has
/// exited is observed in its pane.
pub fn by_supervisor(project: &Project, member: &Member) -> Option<PaneObservation> {
    let supervisor = member.supervisor.filter(|_| member.is_present())?;
    if !supervisor.lives() {
        let what = format!("its supervisor (process {})", supervisor.pid);
        return member.binding.is_none().then_some(PaneObservation::Ended { what });
    }
    let record = project
        .board_places()
        .iter()
        .find_map(|place| seated(place, &member.name).ok().flatten())
        .map(|(record, _)| record);
    let agent = record.and_then(|record| record.agent);
    let agent = agent.filter(|(pid, started)| process::is_running(*pid, *started));
    Some(PaneObservation::Supervised { agent: agent.map(|(pid, _)| pid) })
}

fn may_open(member: &Member, now: Timestamp) -> bool {
    now.since(member.since) < START_PATIENCE
}

pub fn without_pane(member: &Member) -> PaneObservation {
    match member.command {
        Some(_) => PaneObservation::NotStarted,
        None => PaneObservation::NoPane,
    }
}

pub fn last_observed(status: &Path) -> Vec<ObservedMember> {
    let content = read_file(status, STATUS_BYTES_MAX).ok().flatten().unwrap_or_default();
    observed_in(&serde_json::from_slice(&content).unwrap_or_default())
}

pub(crate) fn observed_in(status: &serde_json::Value) -> Vec<ObservedMember> {
    let members = status["members"].as_array().into_iter().flatten();
    members.filter_map(|member| ObservedMember::deserialize(member).ok()).collect()
}

pub fn last_gone(status: &Path) -> Vec<Name> {
    let seen = last_observed(status).into_iter();
    seen.filter(|observed| observed.state == State::Gone).map(|observed| observed.agent).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_gone_only_once_its_pane_could_have_been_opened() {
        let name = Name::new("worker-1").unwrap();
        let since = SystemClock.wall();
        let member = Member::new(name, Name::new("worker").unwrap(), "claude", since);
        assert!(may_open(&member, since));
        assert!(!may_open(&member, since.plus(START_PATIENCE)));
    }
}
