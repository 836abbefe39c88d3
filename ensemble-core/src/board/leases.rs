//! The leases of a board, for [`crate::proto::lease`] to watch, and the beats that keep them.
//!
//! A registered agent has a lease, and so has each task that it works on or reviews. One file keeps
//! them all: `leases/<agent>@<epoch>.beat` beside the board, with its registration's number. A beat
//! replaces that file and needs no lock, so that beats cost the board nothing. What is on the board
//! (`heartbeat`, `lease_expires`) is for people and decides nothing: a lease is over when its observer
//! has itself seen the same sequence number for the whole duration.
//!
//! An agent that is registered anew beats under a new number, and keeps nothing alive that was
//! claimed before.

use std::path::Path;
use std::time::Duration;

use super::locked::LockedBoard;
use super::state::{State, Status};
use crate::durable::{Dir, Durability, Modes};
use crate::message::{Name, yaml};
use crate::proto::beat::LEASE_DURATION;
use crate::proto::lease::Event;
use crate::proto::task::Holder;
use crate::{Error, Result};

/// Where beats lie, beside the board.
pub const BEATS: &str = "leases";
/// How such a file's name ends.
const ENDING: &str = ".beat";
/// The largest such file, in bytes.
const BYTES_MAX: usize = 4_096;

/// A lease: whose, of what, and under which fencing number. Another number is another lease.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Leased {
    /// A registration.
    Agent {
        /// Who.
        by: Name,
        /// Its number.
        epoch: u64,
    },
    /// A claimed task.
    Claim {
        /// Which.
        task: Name,
        /// Who works on it.
        by: Name,
        /// The claim's number.
        epoch: u64,
    },
    /// A review.
    Review {
        /// Of which task.
        task: Name,
        /// Who reviews it.
        by: Name,
        /// The review's number.
        epoch: u64,
    },
}

impl Leased {
    /// Who holds it.
    #[must_use]
    pub const fn by(&self) -> &Name {
        match self {
            Self::Agent { by, .. } | Self::Claim { by, .. } | Self::Review { by, .. } => by,
        }
    }

    /// Its fencing number.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        match self {
            Self::Agent { epoch, .. } | Self::Claim { epoch, .. } | Self::Review { epoch, .. } => {
                *epoch
            }
        }
    }
}

/// All leases that run.
#[must_use]
pub fn leases(state: &State) -> Vec<Leased> {
    let agents = state.agents.iter().map(|(by, agent)| Leased::Agent {
        by: by.clone(),
        epoch: agent.epoch.unwrap_or_default(),
    });
    let tasks = state.tasks.iter().filter_map(|task| match task.status {
        Status::Claimed => task.assigned_to.clone().map(|by| Leased::Claim {
            task: task.id.clone(),
            by,
            epoch: task.lease_epoch.unwrap_or_default(),
        }),
        Status::ReadyForReview => task.reviewing_by.clone().map(|by| Leased::Review {
            task: task.id.clone(),
            by,
            epoch: task.review_epoch.unwrap_or_default(),
        }),
        _ => None,
    });
    agents.chain(tasks).collect()
}

/// The registration whose beats keep a lease, if there is one: a claim was made under the
/// registration that ran then.
fn kept_by(state: &State, lease: &Leased) -> Option<u64> {
    let registered = state.agents.get(lease.by())?.epoch.unwrap_or_default();
    let is_its = match lease {
        Leased::Agent { .. } => true,
        Leased::Claim { epoch, .. } | Leased::Review { epoch, .. } => registered <= *epoch,
    };
    is_its.then_some(registered)
}

#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
struct Beat {
    sequence: u64,
    lease_seconds: u64,
}

/// Writes a beat: [`crate::proto::beat::Effect::Beat`] carried out. `directory` is the board's.
///
/// # Errors
/// The disk failed.
pub fn write_beat(
    directory: &Path,
    agent: &Holder,
    sequence: u64,
    duration: Duration,
) -> Result<()> {
    let dir = Dir::open(directory)?.ensure_child(BEATS, Modes::default())?;
    let text = yaml::render(&Beat { sequence, lease_seconds: duration.as_secs() });
    let name = file_name(agent);
    let tmp = format!(".{name}.tmp");
    dir.remove(&tmp)?;
    dir.replace_by(&name, text.as_bytes(), &dir, &tmp, Modes::default(), Durability::Process)
}

/// What an observer sees of all leases, to be handed to a [`crate::proto::lease::LeaseWatch`]; the
/// last event is [`Event::ScanDone`]. A beat that is missing or cannot be read is number 0.
///
/// # Errors
/// The directory cannot be read.
pub fn scan(state: &State, directory: &Path) -> Result<Vec<Event<Leased>>> {
    let dir = match Dir::open(directory)?.open_child(BEATS) {
        Ok(dir) => Some(dir),
        Err(error) if error.io_kind() == Some(std::io::ErrorKind::NotFound) => None,
        Err(error) => return Err(error),
    };
    let mut events = Vec::new();
    for key in leases(state) {
        let registration = kept_by(state, &key);
        let beat = registration.and_then(|epoch| {
            let name = file_name(&Holder { by: key.by().clone(), epoch });
            let bytes = dir.as_ref()?.read(&name, BYTES_MAX).ok()??;
            yaml::parse::<Beat>(std::str::from_utf8(&bytes).ok()?, Path::new(&name)).ok()
        });
        let usual = state.config.lease_duration.map_or(LEASE_DURATION, Duration::from_secs);
        let duration = beat.map_or(usual, |beat| Duration::from_secs(beat.lease_seconds.max(1)));
        let sequence = beat.map_or(0, |beat| beat.sequence);
        events.push(Event::Seen { key, sequence, duration });
    }
    events.push(Event::ScanDone);
    Ok(events)
}

fn file_name(agent: &Holder) -> String {
    format!("{}@{}{ENDING}", agent.by, agent.epoch)
}

impl LockedBoard<'_> {
    /// Takes away a lease that its observer saw run out, if it still has this number and its beat
    /// still has this sequence. What the agent held goes with it.
    ///
    /// # Errors
    /// [`Error::Fenced`] if it is another lease now, [`Error::NotAllowed`] if its holder has beaten.
    pub fn expire(&mut self, lease: &Leased, sequence: u64) -> Result<()> {
        let directory = self.directory();
        let now = scan(self.state(), &directory)?;
        let is_it =
            |event: &Event<Leased>| matches!(event, Event::Seen { key, .. } if key == lease);
        match now.iter().find(|event| is_it(event)) {
            Some(Event::Seen { sequence: beaten, .. }) if *beaten != sequence => {
                let what = format!("expire the lease of `{}`", lease.by());
                return Err(Error::NotAllowed { what, why: "it has beaten meanwhile".to_owned() });
            }
            Some(_) => {}
            None => {
                let what = format!("expire the lease of `{}`", lease.by());
                let why = format!("number {} is over already", lease.epoch());
                return Err(Error::Fenced { what, why });
            }
        }
        let reason = "the lease ran out";
        match lease {
            Leased::Agent { by, epoch } => {
                self.unregister(&Holder { by: by.clone(), epoch: *epoch }, reason)
            }
            Leased::Claim { task, epoch, .. } | Leased::Review { task, epoch, .. } => {
                self.release(task, *epoch, reason)
            }
        }
    }
}
