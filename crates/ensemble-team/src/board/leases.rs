//! The leases of a board, which [`ensemble_core::proto::lease`] watches, and the beats that renew them.
//!
//! A registered agent has a lease, and so has each task that it works on or reviews. One file renews all of them:
//! `leases/<agent>@<epoch>.beat` beside the board, where the epoch is that of the registration. A beat replaces that
//! file without a lock, so beats do not touch the board. A lease has ended when its observer has itself seen the same
//! sequence number for the whole duration. An agent may also beat as the seed says, by changing `heartbeat` or
//! `lease_expires` in the board's file. Each change of such a stamp counts as a beat ([`super::stamps`]); the times
//! themselves decide nothing.
//!
//! The agent's own signs of life ([`super::AgentSign`]) count in addition to the beats of its supervisor.
//!
//! Re-registration starts a new epoch and does not renew leases of older epochs.

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::locked::LockedBoard;
use super::shared_lock::put_shared;
use super::signs::{self, AgentSign, SignContent};
use super::state::{State, TaskHold};
use super::{Board, BoardError, BoardObstacle, LostLease};
use crate::proto::task::TaskHolder;
use ensemble_core::durable::{Dir, Durability, FileModes};
use ensemble_core::message::{Name, Timestamp, yaml};
use ensemble_core::proto::lease::Event;
use ensemble_core::{Result, allow_missing};

/// Directory of the beats, beside the board.
pub const BEATS: &str = "leases";
/// Reason in a task's history when [`LockedBoard::expire`] released the task.
pub const LEASE_RAN_OUT: &str = "the lease ran out";
const ENDING: &str = ".beat";
const BYTES_MAX: usize = 4_096;

/// A lease: its subject, holder and fencing epoch. A different epoch is a different lease.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BoardLease {
    Agent { by: Name, epoch: u64 },
    Claim { task: Name, by: Name, epoch: u64 },
    Review { task: Name, by: Name, epoch: u64 },
}

impl BoardLease {
    pub const fn by(&self) -> &Name {
        match self {
            Self::Agent { by, .. } | Self::Claim { by, .. } | Self::Review { by, .. } => by,
        }
    }

    pub const fn task(&self) -> Option<&Name> {
        match self {
            Self::Agent { .. } => None,
            Self::Claim { task, .. } | Self::Review { task, .. } => Some(task),
        }
    }

    pub const fn epoch(&self) -> u64 {
        match self {
            Self::Agent { epoch, .. } | Self::Claim { epoch, .. } | Self::Review { epoch, .. } => {
                *epoch
            }
        }
    }
}

pub fn leases(state: &State) -> Vec<BoardLease> {
    let agents = state.agents.iter().map(|(by, agent)| BoardLease::Agent {
        by: by.clone(),
        epoch: agent.epoch.unwrap_or_default(),
    });
    let tasks = state.tasks.iter().filter_map(|task| {
        let TaskHold { by, epoch, is_review, .. } = task.hold()?;
        let (task, by) = (task.id.clone(), by.clone());
        Some(match is_review {
            true => BoardLease::Review { task, by, epoch },
            false => BoardLease::Claim { task, by, epoch },
        })
    });
    agents.chain(tasks).collect()
}

/// Epoch of the registration whose beats renew a lease, if there is one. It is the registration
/// that was current when the claim was made.
fn kept_by(state: &State, lease: &BoardLease) -> Option<u64> {
    let registered = state.agents.get(lease.by())?.epoch.unwrap_or_default();
    let is_its = match lease {
        BoardLease::Agent { .. } => true,
        BoardLease::Claim { epoch, .. } | BoardLease::Review { epoch, .. } => registered <= *epoch,
    };
    is_its.then_some(registered)
}

#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
struct BeatFile {
    sequence: u64,
    lease_seconds: u64,
}

/// Writes a beat; carries out [`crate::proto::beat::Effect::Beat`]. `directory` is the board's.
pub fn write_beat(
    directory: &Path,
    agent: &TaskHolder,
    sequence: u64,
    duration: Duration,
) -> Result<()> {
    let dir = Dir::open(directory)?.ensure_child(BEATS, FileModes::default())?;
    let text = yaml::render(&BeatFile { sequence, lease_seconds: duration.as_secs() });
    let name = file_name(agent);
    let tmp = format!(".{name}.tmp");
    dir.remove(&tmp)?;
    dir.replace_by(&name, text.as_bytes(), &dir, &tmp, FileModes::default(), Durability::Process)
}

/// Until when an agent's last beat or sign renews its leases, by the clock of the file system; `None`
/// without either. For people and for the agent itself: observers compare sequence numbers.
pub fn beaten_until(directory: &Path, agent: &TaskHolder) -> Option<Timestamp> {
    let dir = Dir::open(directory).ok()?.open_child(BEATS).ok()?;
    LastBeat::read(&dir, agent).map(|last| last.until)
}

/// The last beat or sign of a registration, by the clock of the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LastBeat {
    /// Both sequences together.
    pub(super) sequence: u64,
    pub(super) at: Timestamp,
    pub(super) until: Timestamp,
    pub(super) context_percent: Option<u64>,
}

impl LastBeat {
    pub(super) fn read(dir: &Dir, agent: &TaskHolder) -> Option<Self> {
        let written = |name: &str| -> Option<Timestamp> {
            let stat = dir.stat(name).ok()??;
            let millis = i64::try_from(stat.modified_ns / 1_000_000).ok()?;
            Some(Timestamp::from_unix_millis(millis))
        };
        let beat = read_beat(dir, agent).zip(written(&file_name(agent)));
        let sign = AgentSign::read_in(dir, agent).zip(written(&signs::file_name(agent)));
        let at = beat.map(|(_, at)| at).max(sign.as_ref().map(|(_, at)| *at))?;
        let duration = match (&beat, &sign) {
            (Some((beat, _)), _) => Duration::from_secs(beat.lease_seconds.max(1)),
            (None, Some((sign, _))) => sign.lease(),
            (None, None) => return None,
        };
        let signs = sign.as_ref().map_or(0, |(sign, _)| sign.sequence);
        let sequence = beat.map_or(0, |(beat, _)| beat.sequence).saturating_add(signs);
        let context_percent = sign.and_then(|(sign, _)| sign.context_percent);
        Some(Self { sequence, at, until: at.plus(duration), context_percent })
    }
}

/// An observer's scan of all leases, as events for a [`ensemble_core::proto::lease::LeaseWatch`]. The last
/// event is [`Event::ScanDone`]. A missing or unreadable beat has sequence 0.
pub fn scan(state: &State, directory: &Path) -> Result<Vec<Event<BoardLease>>> {
    let dir = allow_missing(Dir::open(directory)?.open_child(BEATS))?;
    let mut events = Vec::new();
    for key in leases(state) {
        let registration = kept_by(state, &key);
        let holder = registration.map(|epoch| TaskHolder { by: key.by().clone(), epoch });
        let beat = holder.as_ref().and_then(|holder| read_beat(dir.as_ref()?, holder));
        let sign = holder.as_ref().and_then(|holder| AgentSign::read_in(dir.as_ref()?, holder));
        let usual = state.config.lease_duration();
        let entry = state.agents.get(key.by()).filter(|_| holder.is_some());
        let stamped = entry.and_then(super::state::BoardAgent::stamped);
        // The supervisor reads its agent's signs and sets how long they count.
        let duration = match (beat, &sign) {
            (Some(beat), _) => Duration::from_secs(beat.lease_seconds.max(1)),
            (None, Some(sign)) => sign.lease(),
            (None, None) => match (entry, stamped) {
                (Some(entry), Some(_)) => entry.asked(usual),
                _ => usual,
            },
        };
        // Both sequences only grow, and so does their sum. Stamps of the agent's own are a number.
        let signs = sign.map_or(0, |sign| sign.sequence);
        let beats = beat.map_or(0, |beat| beat.sequence).saturating_add(signs);
        let sequence = beats.wrapping_add(stamped.unwrap_or(0));
        events.push(Event::Seen { key, sequence, duration });
    }
    events.push(Event::ScanDone);
    Ok(events)
}

fn read_beat(dir: &Dir, agent: &TaskHolder) -> Option<BeatFile> {
    let name = file_name(agent);
    let bytes = dir.read(&name, BYTES_MAX).ok()??;
    yaml::parse(std::str::from_utf8(&bytes).ok()?, Path::new(&name)).ok()
}

/// Removes the beats and signs of registrations that have ended; returns the number of removed files.
/// Epochs are never reused, so one that is neither registered in `state` nor newer has ended for
/// good.
pub fn sweep_beats(state: &State, directory: &Path) -> Result<usize> {
    let (dir, over) = over(state, directory)?;
    let Some(dir) = dir else { return Ok(0) };
    over.iter().try_for_each(|file| dir.remove(file).map(drop))?;
    Ok(over.len())
}

/// The directory of beats, if it exists, and the files in it of registrations that have ended.
fn over(state: &State, directory: &Path) -> Result<(Option<Dir>, Vec<String>)> {
    let Some(dir) = allow_missing(Dir::open(directory)?.open_child(BEATS))? else {
        return Ok((None, Vec::new()));
    };
    let over = dir.names()?.into_iter().filter(|file| is_over(state, file)).collect();
    Ok((Some(dir), over))
}

fn is_over(state: &State, file: &str) -> bool {
    let Some(agent) = file.strip_suffix(ENDING).or_else(|| file.strip_suffix(signs::ENDING)) else {
        return false;
    };
    let Some((by, epoch)) = agent.rsplit_once('@') else { return false };
    let (Ok(by), Ok(epoch)) = (Name::new(by), epoch.parse::<u64>()) else { return false };
    let registered = state.agents.get(&by).map(|agent| agent.epoch.unwrap_or_default());
    epoch <= state.epoch && registered != Some(epoch)
}

fn file_name(agent: &TaskHolder) -> String {
    format!("{}@{}{ENDING}", agent.by, agent.epoch)
}

/// # Beats, wherever the board is
impl Board {
    /// As [`scan`], with the beats of all hosts.
    pub fn scan(&self, state: &State) -> Result<Vec<Event<BoardLease>>> {
        if let Some(copy) = self.copy() {
            copy.pull_beats()?;
        }
        scan(state, self.beside())
    }

    /// As [`write_beat`], for all hosts.
    pub fn beat(&self, agent: &TaskHolder, sequence: u64, duration: Duration) -> Result<()> {
        self.with_beat(&file_name(agent), |at| write_beat(at, agent, sequence, duration))
    }

    /// As [`AgentSign::write_sign`], for all hosts.
    pub fn give_sign(
        &self,
        agent: &TaskHolder,
        say: &SignContent<'_>,
        usual: Duration,
    ) -> Result<AgentSign> {
        self.with_beat(&signs::file_name(agent), |at| AgentSign::write_sign(at, agent, say, usual))
    }

    /// As [`AgentSign::note_context`], for all hosts.
    pub fn note_context(
        &self,
        sign: AgentSign,
        agent: &TaskHolder,
        percent: u64,
    ) -> Result<AgentSign> {
        let name = signs::file_name(agent);
        self.with_beat(&name, |at| sign.note_context(at, agent, percent))
    }

    /// As [`sweep_beats`], for all hosts. On servers, it removes those that the last [`Board::scan`] has found.
    pub fn sweep_beats(&self, state: &State) -> Result<usize> {
        if let Some(files) = self.files() {
            for name in over(state, self.beside())?.1 {
                put_shared(files, &format!("{BEATS}/{name}"), &[])?;
            }
        }
        sweep_beats(state, self.beside())
    }

    /// The directory of the board, or of this host's copy.
    pub(super) fn beside(&self) -> &Path {
        self.path().parent().unwrap_or_else(|| Path::new("."))
    }
}

impl LockedBoard<'_> {
    /// Ends a lease that its observer saw expire, if it still has this epoch and its beat still has this sequence.
    /// The holder's work under the lease is released.
    pub fn expire(&mut self, lease: &BoardLease, sequence: u64) -> Result<()> {
        let now = self.board().scan(self.state())?;
        let is_it =
            |event: &Event<BoardLease>| matches!(event, Event::Seen { key, .. } if key == lease);
        match now.iter().find(|event| is_it(event)) {
            Some(Event::Seen { sequence: beaten, .. }) if *beaten != sequence => {
                let what = format!("expire the lease of `{}`", lease.by());
                return Err(BoardError::not_allowed(what, BoardObstacle::LeaseRenewed));
            }
            Some(_) => {}
            None => {
                let what = format!("expire the lease of `{}`", lease.by());
                let why = LostLease::Over { epoch: lease.epoch() };
                return Err(BoardError::Fenced { what, why }.into());
            }
        }
        let reason = LEASE_RAN_OUT;
        let held: Vec<Name> = leases(self.state())
            .iter()
            .filter(|other| match lease {
                BoardLease::Agent { .. } => other.by() == lease.by(),
                BoardLease::Claim { .. } | BoardLease::Review { .. } => *other == lease,
            })
            .filter_map(|other| other.task().cloned())
            .collect();
        for task in held {
            self.observe("agent_gone", &task, json!({ "agent": lease.by() }))?;
        }
        match lease {
            BoardLease::Agent { by, epoch } => {
                self.unregister(&TaskHolder { by: by.clone(), epoch: *epoch }, reason)
            }
            BoardLease::Claim { task, epoch, .. } | BoardLease::Review { task, epoch, .. } => {
                self.release(task, *epoch, reason)
            }
        }
    }
}
