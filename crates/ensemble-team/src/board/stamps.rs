//! The stamps of leases in the board's file: `heartbeat` and `lease_expires`, as seed 001 has them.
//!
//! ```text
//! who writes                       where                          it is
//! an agent, as the seed says       agents.<id>.heartbeat,         a beat: an observer sees that the
//! (flock, edit, rename)            agents.<id>.lease_expires      stamps changed, and by another writer
//! a supervisor, `agent heartbeat`  leases/<id>@<epoch>.beat,      a beat: its sequence changed
//!                                  leases/<id>@<epoch>.sign
//! Ensemble, with every write       the stamps, and `beat`         no beat: beats that were counted
//! of the board (folding)           beside them                    already are shown to readers
//! ```
//!
//! `beat` is `<sequence>-<digits>`: the sequence that was folded, and a digest of the stamps that were written with
//! it. Stamps that the digest does not describe were written by another program. So a reader can distinguish the two
//! without memory and without comparing clocks. Only the change counts: the times themselves decide nothing, except
//! how long an agent asked for.
//!
//! A crash leaves the stamps and `beat` of one write, since both are in one file. Without a write,
//! an observer of leases folds before a written `lease_expires` passes ([`fold_due`]).

use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::Board;
use super::leases::{BEATS, LastBeat};
use super::locked::LockedBoard;
use super::schema::{self, AGENT, TASK};
use super::state::{BoardAgent, BoardTask, State};
use crate::proto::beat::LONG_OPERATION;
use crate::proto::task::TaskHolder;
use ensemble_core::Result;
use ensemble_core::durable::Dir;
use ensemble_core::message::{Digest, Name, Timestamp};

const DIGITS: usize = 8;
/// An observer folds when this part of the usual lease is left, as a divisor.
const FOLD_AT: u32 = 4;

pub(super) fn mark(sequence: u64, heartbeat: Timestamp, lease_expires: Timestamp) -> String {
    format!("{sequence}-{}", digits(Some(heartbeat), Some(lease_expires)))
}

fn digits(heartbeat: Option<Timestamp>, lease_expires: Option<Timestamp>) -> String {
    let millis = |at: Option<Timestamp>| at.map_or(0, Timestamp::unix_millis);
    let text = format!("{} {}", millis(heartbeat), millis(lease_expires));
    Digest::of(text.as_bytes()).to_string()[..DIGITS].to_owned()
}

impl BoardAgent {
    /// The sequence of the beats that the entry shows.
    pub(super) fn folded(&self) -> u64 {
        let beat = self.beat.as_deref().and_then(|beat| beat.split_once('-'));
        beat.and_then(|(sequence, _)| sequence.parse().ok()).unwrap_or_default()
    }

    /// A number that identifies the stamps of the entry; `None` if Ensemble wrote them, or if there
    /// are none. Another number is a beat of the agent.
    pub fn stamped(&self) -> Option<u64> {
        if self.heartbeat.is_none() && self.lease_expires.is_none() {
            return None;
        }
        let digits = digits(self.heartbeat, self.lease_expires);
        let ours = self.beat.as_deref().and_then(|beat| beat.split_once('-'));
        match ours {
            Some((_, known)) if known == digits => None,
            _ => u64::from_str_radix(&digits, 16).ok().map(|number| number | 1),
        }
    }

    /// How long the agent's own stamps ask for: at least `usual`, at most as long as a long operation.
    pub fn asked(&self, usual: Duration) -> Duration {
        let span = |(end, start): (Timestamp, Timestamp)| end.since(start);
        let asked = self.lease_expires.zip(self.heartbeat).map_or(usual, span);
        usual.max(asked.min(LONG_OPERATION))
    }
}

struct StampUpdate {
    by: Name,
    /// The new stamps, unless the entry has later ones of the agent's own.
    stamps: Option<LastBeat>,
    until: Timestamp,
}

fn folds(state: &State, directory: &Path) -> Vec<StampUpdate> {
    let Some(dir) = Dir::open(directory).and_then(|dir| dir.open_child(BEATS)).ok() else {
        return state.agents.iter().filter_map(|(by, entry)| fold(by, entry, None)).collect();
    };
    let last = |by: &Name, entry: &BoardAgent| {
        let holder = TaskHolder { by: by.clone(), epoch: entry.epoch.unwrap_or_default() };
        LastBeat::read(&dir, &holder)
    };
    state.agents.iter().filter_map(|(by, entry)| fold(by, entry, last(by, entry))).collect()
}

fn fold(by: &Name, entry: &BoardAgent, last: Option<LastBeat>) -> Option<StampUpdate> {
    let is_own = entry.stamped().is_some();
    let stamps = last.filter(|last| {
        last.sequence != entry.folded()
            && !(is_own && entry.lease_expires.is_some_and(|end| end >= last.until))
    });
    let until = stamps.as_ref().map(|last| last.until).or(entry.lease_expires)?;
    Some(StampUpdate { by: by.clone(), stamps, until })
}

/// Shows the beats of all agents in the board's value. Returns whether it changed.
pub(super) fn fold_into(value: &mut Value, state: &State, directory: &Path) -> bool {
    let before = value.clone();
    for StampUpdate { by, stamps, until } in folds(state, directory) {
        if let Some(last) = stamps
            && let Some(Value::Object(entry)) = value["agents"].get_mut(by.as_str())
        {
            stamp(entry, &last);
        }
        for (at, task) in state.tasks.iter().enumerate() {
            let Some(hold) = task.hold().filter(|hold| *hold.by == by) else { continue };
            let registered =
                state.agents.get(&by).and_then(|entry| entry.epoch).unwrap_or_default();
            // A new registration renews no claim of an older one.
            if registered > hold.epoch || hold.until.is_some_and(|end| end >= until) {
                continue;
            }
            let field = if hold.is_review { "review_lease_expires" } else { "lease_expires" };
            if let Some(Value::Object(fields)) = value["tasks"].get_mut(at) {
                schema::set(fields, TASK, field, json!(until));
            }
        }
    }
    *value != before
}

fn stamp(entry: &mut Map<String, Value>, last: &LastBeat) {
    let mut set = |name: &str, value: Value| schema::set(entry, AGENT, name, value);
    set("lease_expires", json!(last.until));
    set("heartbeat", json!(last.at));
    set("beat", json!(mark(last.sequence, last.at, last.until)));
    if let Some(percent) = last.context_percent {
        set("context_percent", json!(percent));
    }
}

/// How long an observer may wait before it folds: until a part of a written lease is left that has
/// been renewed since. Zero if it is time; `None` if the file says nothing that will become untrue.
pub fn fold_due(state: &State, directory: &Path, now: Timestamp) -> Option<Duration> {
    let margin = state.config.lease_duration() / FOLD_AT;
    let ends = folds(state, directory).into_iter().filter_map(|fold| {
        let entry = state.agents.get(&fold.by)?;
        let holds = state.tasks.iter().filter_map(BoardTask::hold);
        let held = holds.filter(|hold| *hold.by == fold.by).filter_map(|hold| hold.until);
        let written = fold.stamps.as_ref().and(entry.lease_expires).into_iter().chain(held);
        written.filter(|end| *end < fold.until).min()
    });
    ends.map(|end| end.since(now).saturating_sub(margin)).min()
}

impl LockedBoard<'_> {
    /// Shows the beats of all agents since the last write, in `heartbeat` and `lease_expires` of
    /// agents and `lease_expires` of their tasks. [`LockedBoard::commit`] does this with every change.
    pub fn fold_beats(&mut self) -> Result<()> {
        match self.fold() {
            true => self.refresh(),
            false => Ok(()),
        }
    }
}

impl Board {
    /// Shows the beats of all agents in the file, if there is one that it does not show.
    pub fn fold_beats(&self) -> Result<()> {
        self.change(|board| board.fold_beats())
    }
}
