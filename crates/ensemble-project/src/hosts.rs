//! The reports that the hosts of a team exchange about their agents, and where this host stores them.
//!
//! ```text
//! this host's roster and watch.json   --report-->  the team's servers
//! .ensemble/servers/hosts/HOST.json   <--pull---   what the other hosts have told
//! ```
//!
//! *Owner.* Only the watcher writes these files; all others read them, and they are replaced as a whole. *A crash*
//! leaves the last reports. *Silence:* the watcher that pulls marks a host that has not reported for two minutes by
//! the servers' time; what its agents do is then unknown, as it is if no report was pulled for that long.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ensemble_core::document::read_json;
use ensemble_core::message::{Name, Timestamp};
use ensemble_core::proto::ready::{self, ErrorType, ReadinessFailure};
use ensemble_core::spool::AgentAddresses;
use ensemble_team::roster::{Member, MemberState, State};
use serde::{Deserialize, Serialize};

use crate::members::ObservedMember;
use crate::panes;
use crate::project::{Project, machine_name};

/// The largest report of a host that is read, in bytes.
const REPORT_BYTES_MAX: usize = 1024 * 1024;
/// How long a call may take on its way to another host and back.
const WAY_PATIENCE: Duration = Duration::from_secs(15);
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostReport {
    pub machine: String,
    pub watched: bool,
    /// The agents that are up or leaving there.
    pub agents: Vec<HostAgent>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostAgent {
    pub name: Name,
    pub role: Name,
    pub provider: String,
    pub mailbox: Name,
    /// How often it was started.
    pub generation: u64,
    pub member: MemberState,
    pub state: State,
    pub why: String,
    pub since: Option<Timestamp>,
}

/// How long a pulled report counts. A watcher that runs and reaches the servers pulls more often.
const REPORT_AGE_MAX: Duration = Duration::from_secs(120);

/// A request of one host to another: to find out whether a worker is ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PingCall {
    pub worker: Name,
    pub by: Name,
    /// The times of the handshake, in milliseconds.
    pub pong_wait_ms: u64,
    /// The pause before the next ping, in milliseconds.
    pub retry_delay_ms: u64,
    pub attempts: u8,
    /// Whether only a pong counts.
    #[serde(default)]
    pub needs_pong: bool,
}

impl PingCall {
    pub fn new(worker: Name, by: Name, times: &ready::PingTimes) -> Self {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let (wait, delay) = (millis(times.pong_wait), millis(times.retry_delay));
        let (attempts, needs_pong) = (times.attempts_max, times.needs_pong);
        Self { worker, by, pong_wait_ms: wait, retry_delay_ms: delay, attempts, needs_pong }
    }

    pub fn times(&self) -> ready::PingTimes {
        ready::PingTimes {
            pong_wait: Duration::from_millis(self.pong_wait_ms),
            retry_delay: Duration::from_millis(self.retry_delay_ms),
            attempts_max: self.attempts.clamp(1, ready::ATTEMPTS_LIMIT),
            needs_pong: self.needs_pong,
        }
    }

    /// How long the whole handshake may take, with the looks and the way there and back.
    pub fn patience(&self) -> Duration {
        let times = self.times();
        let attempt = times.pong_wait + times.retry_delay + ready::ACTION_PATIENCE;
        attempt * u32::from(times.attempts_max) + WAY_PATIENCE
    }

    /// That nothing is known of the worker, for this reason.
    pub fn unknown(&self, why: impl Into<String>) -> ReadinessFailure {
        let failure = ReadinessFailure::new(
            self.worker.clone(),
            self.attempts,
            ErrorType::UnknownWorkerState,
        );
        failure.observed(&why.into())
    }
}

/// Another host, as this one knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherHost {
    pub host: Name,
    /// Time of its last report, by the servers.
    pub at: Timestamp,
    pub is_silent: bool,
    pub report: HostReport,
}

impl HostReport {
    pub fn of(members: &[Member], observed: &[ObservedMember]) -> Self {
        let agent = |member: &Member| {
            let seen = observed.iter().find(|seen| seen.agent == member.name);
            HostAgent {
                name: member.name.clone(),
                role: member.role.clone(),
                provider: member.provider.clone(),
                mailbox: member.mailbox.clone(),
                generation: member.generation,
                member: member.state,
                state: seen.map_or(State::Unknown, |seen| seen.state),
                why: seen.map_or_else(String::new, |seen| seen.why.clone()),
                since: seen.map(|seen| seen.since),
            }
        };
        let agents = members.iter().filter(|member| member.is_present()).map(agent).collect();
        let machine = machine_name().trim().to_owned();
        Self { machine, watched: true, agents }
    }
}

impl OtherHost {
    pub fn place(&self) -> String {
        format!("host {}", self.report.machine)
    }

    /// Why nothing is known of its agents now; `None` if it reports them.
    pub fn silence(&self) -> Option<String> {
        if self.is_silent {
            return Some(format!("no report from {} since {}", self.place(), self.at));
        }
        (!self.report.watched).then(|| format!("no watcher runs on {}", self.place()))
    }
}

pub fn directory(state: &Path) -> PathBuf {
    state.join("servers/hosts")
}

/// The last reports of the other hosts, by name. A file that cannot be read is skipped.
pub fn others(state: &Path) -> Vec<OtherHost> {
    let files = fs::read_dir(directory(state)).into_iter().flatten().flatten();
    let read = |file: fs::DirEntry| {
        let mut other: OtherHost = read_json(&file.path(), REPORT_BYTES_MAX).ok()??;
        let pulled_at = file.metadata().ok()?.modified().ok()?;
        other.is_silent |= pulled_at.elapsed().unwrap_or_default() >= REPORT_AGE_MAX;
        Some(other)
    };
    let mut others: Vec<OtherHost> = files.filter_map(read).collect();
    others.sort_unstable_by(|one, other| one.host.cmp(&other.host));
    others
}

impl Project {
    /// The mailbox that a name means: `operator` is the first of the people, and an agent reads the mailbox of its row
    /// of the roster, of its pane, of the configuration, or of its host's report. Any other name is that of a mailbox.
    pub fn mailbox_of(&self, name: &Name) -> Name {
        if name.is_operator() {
            return self.config.people.first().unwrap_or(name).clone();
        }
        let known = || Some(self.roster().get(name).ok()??.mailbox);
        let bound = || Some(panes::find(&self.panes(), name).ok()??.mailbox);
        let configured = || self.config.agents.get(name)?.mailbox.clone();
        let elsewhere = || {
            let mut agents = others(&self.state).into_iter().flat_map(|host| host.report.agents);
            agents.find(|agent| agent.name == *name).map(|agent| agent.mailbox)
        };
        let mailbox = known().or_else(bound).or_else(configured).or_else(elsewhere);
        mailbox.unwrap_or_else(|| name.clone())
    }

    pub(crate) fn addresses(&self) -> AgentAddresses {
        let project = self.clone();
        Arc::new(move |name: &Name| project.mailbox_of(name))
    }
}
