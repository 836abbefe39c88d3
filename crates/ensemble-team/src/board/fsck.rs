//! Checks a board and its files, and repairs what can be repaired without loss.
//!
//! | finding | repair |
//! |---|---|
//! | the board does not parse, or breaks rules | by a person: `ensemble board edit` |
//! | an agent and its task state different things | by the agent's supervisor, or by unregistering the agent |
//! | a beat of a registration that has ended | fsck removes the beat |
//! | a write that is not in the log (its writer died) | fsck records the write |
//! | values that do not fit, and on which nothing depends | none: these are notes |
//! | a board that another program wrote, edited copies, claims with past timestamps | none: these are notes |
//!
//! Timestamps decide nothing. A past timestamp on a claim means that the holder has not renewed its
//! lease lately, or that no watcher records the leases.

use std::collections::BTreeSet;

use serde::Serialize;

use super::BoardError;
use super::duties::disagrees;
use super::journal::JournalEntry;
use super::leases::BEATS;
use super::state::{BoardAgent, State, TaskHold};
use super::steps::word;
use super::{Board, Violation};
use crate::proto::agent;
use ensemble_core::durable::Dir;
use ensemble_core::{Error, Result, allow_missing};

/// Endings of registrations' file names in [`BEATS`].
const ENDINGS: [&str; 2] = [".beat", ".sign"];
const EDITED: &str = "state.edit.";

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BoardFinding {
    pub path: String,
    pub problem: String,
    pub is_note: bool,
    pub is_repairable: bool,
    pub repaired: bool,
}

impl BoardFinding {
    fn new(path: impl Into<String>, problem: impl Into<String>) -> Self {
        let (path, problem) = (path.into(), problem.into());
        Self { path, problem, is_note: false, is_repairable: false, repaired: false }
    }

    const fn mark_as_note(mut self) -> Self {
        self.is_note = true;
        self
    }

    const fn repairable(mut self, repaired: bool) -> Self {
        self.is_repairable = true;
        self.repaired = repaired;
        self
    }
}

impl Board {
    /// Finds what crashes, people and other programs left. With `repair` it removes the beats of ended registrations
    /// and records what is missing in the log.
    pub fn fsck(&self, repair: bool) -> Result<Vec<BoardFinding>> {
        let place = self.place().display().to_string();
        let state = match self.read().map_err(Error::into_area) {
            Ok(state) => state,
            Err(Ok(BoardError::Invalid { violations, .. })) => {
                let told = |Violation { path, problem }: &Violation| {
                    BoardFinding::new(format!("{place}: {path}"), problem)
                };
                return Ok(violations.iter().map(told).collect());
            }
            Err(Err(Error::Malformed { field, detail, .. })) => {
                return Ok(vec![BoardFinding::new(format!("{place}: {field}"), detail)]);
            }
            Err(Ok(other)) => return Err(other.into()),
            Err(Err(other)) => return Err(other),
        };
        let mut found = Vec::new();
        disagreements(&state, &place, &mut found);
        let noted = state.warnings.iter().map(|Violation { path, problem }| {
            BoardFinding::new(format!("{place}: {path}"), problem).mark_as_note()
        });
        found.extend(noted);
        // The files beside a board on servers are this host's copy, which is rewritten anyway.
        if !self.is_shared() {
            self.unlogged(&place, repair, &mut found)?;
            self.beats(repair, &mut found)?;
            self.beside_it(&mut found)?;
        }
        self.outdated(&state, &place, &mut found);
        Ok(found)
    }

    fn unlogged(&self, place: &str, repair: bool, found: &mut Vec<BoardFinding>) -> Result<()> {
        let source = self.read_text()?;
        match JournalEntry::unknown_to_log(&self.path, &source)? {
            Some(true) => {
                // Locking the board records the missing write.
                let repaired = repair && self.lock().is_ok();
                let problem = "the last write is not in the event log: its writer died";
                found.push(BoardFinding::new(place, problem).repairable(repaired));
            }
            Some(false) => {
                let problem = "was changed by another program or by hand since the last record";
                found.push(BoardFinding::new(place, problem).mark_as_note());
            }
            None => {}
        }
        Ok(())
    }

    fn outdated(&self, state: &State, place: &str, found: &mut Vec<BoardFinding>) {
        let now = self.options.clock.wall();
        for task in &state.tasks {
            let Some(TaskHold { by, until, .. }) = task.hold() else { continue };
            if let Some(end) = until.filter(|end| *end < now) {
                let problem = format!("`{by}` held it until {end} and has not renewed it since");
                let path = format!("{place}: task {}", task.id);
                found.push(BoardFinding::new(path, problem).mark_as_note());
            }
        }
    }

    fn beats(&self, repair: bool, found: &mut Vec<BoardFinding>) -> Result<()> {
        let parent = Dir::open(self.beside())?;
        let Some(dir) = allow_missing(parent.open_child(BEATS))? else { return Ok(()) };
        if orphaned_files(&dir, &self.read()?)?.is_empty() {
            return Ok(());
        }
        // Hold the lock, so that no agent registers in between.
        let locked = repair.then(|| self.lock()).transpose()?;
        let state = match &locked {
            Some(locked) => locked.state().clone(),
            None => self.read()?,
        };
        for name in orphaned_files(&dir, &state)? {
            if locked.is_some() {
                dir.remove(&name)?;
            }
            let path = dir.path().join(&name).display().to_string();
            let problem = "is the beat of a registration that has ended";
            found.push(BoardFinding::new(path, problem).repairable(locked.is_some()));
        }
        Ok(())
    }

    /// Edited copies that were not applied to the board.
    fn beside_it(&self, found: &mut Vec<BoardFinding>) -> Result<()> {
        let dir = Dir::open(self.beside())?;
        for name in dir.names()?.into_iter().filter(|name| name.starts_with(EDITED)) {
            let path = dir.path().join(&name).display().to_string();
            let problem = "is an edited copy that was not applied to the board";
            found.push(BoardFinding::new(path, problem).mark_as_note());
        }
        Ok(())
    }
}

fn orphaned_files(dir: &Dir, state: &State) -> Result<Vec<String>> {
    let known: BTreeSet<String> = state
        .agents
        .iter()
        .map(|(name, agent)| format!("{name}@{}", agent.epoch.unwrap_or_default()))
        .collect();
    let is_orphaned = |name: &String| {
        let stem = ENDINGS.iter().find_map(|ending| name.strip_suffix(ending));
        !name.starts_with('.') && stem.is_some_and(|stem| !known.contains(stem))
    };
    Ok(dir.names()?.into_iter().filter(is_orphaned).collect())
}

fn disagreements(state: &State, place: &str, found: &mut Vec<BoardFinding>) {
    // Other programs leave their agents IDLE while they work.
    let is_busy = |agent: &BoardAgent| {
        matches!(
            agent.status,
            agent::State::Working | agent::State::Reviewing | agent::State::Waiting
        )
    };
    let busy = state.agents.iter().filter(|(_, agent)| is_busy(agent));
    for (name, agent) in busy.filter(|(name, _)| disagrees(state, name)) {
        let id = agent.current_task.as_ref().map_or("no task", |id| id.as_str());
        let status = word(agent.status);
        let problem = format!("it is {status} on {id}, but the tasks say something else");
        found.push(BoardFinding::new(format!("{place}: agents.{name}"), problem));
    }
}
