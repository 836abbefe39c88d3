//! Fix steps: the work that removes the cause of another step's failure.
//!
//! ```text
//! event                                         what follows, in the same transaction
//! a step with `fix_by` fails, attempts left     a fix step after it; the failed step waits (`waits_for_fix`)
//! the last fix step of a step is done, skipped  the failed step is handed out again, to its own agent
//! the failed step is retried, skipped or split  its fix steps are skipped; a worker that holds one loses it
//! a fix step fails for good, or is blocked      it stands, and the failed step waits behind it
//! ```
//!
//! A fix step is a step like any other: it has an agent (`fix_by`), a goal, files, a phase, attempts and a lease.
//! `fixes` names the failed step. Its parts, if a person splits it, inherit that. The failed step keeps its count of
//! attempts, so a review that fails `attempts_max` times is stuck.
//!
//! **Files.** A fix step works on the `fix_files` of the plan and changes only these. Without any
//! it locks the files of its agent's steps in the same cycle and the files that the error names. If
//! there are none of these, it locks the failed step's own. Its prompt then does not forbid other
//! files.
//!
//! A crash leaves the whole change or nothing of it.

use std::path::Path;

use super::add::{POSITION_STEP, StepPlace, insert_step};
use super::db::{DbResult, DbTransaction, values};
use super::orders::end_run;
use super::plan::{LIST_MAX, PlannedStep};
use super::rows::StepKey;
use super::working::{self, WorkingStep};
use super::{DbFailure, FilePath, StepStore, WriteTransaction, files};
use crate::proto::step::{Event, TddPhase};
use ensemble_core::message::{Name, fenced};

const PLACES_MAX: usize = 8;
const LOOKUPS_MAX: usize = 64;
/// Offset that moves positions out of the way while others take their place.
const OUT_OF_THE_WAY: i64 = 1 << 61;

/// A place that an error names, like `src/login.rs:12`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ErrorPlace {
    file: FilePath,
    /// The place in the error's own form.
    text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FixStep {
    pub(super) index: u32,
    pub(super) agent: Name,
}

pub(super) struct StepFailure<'a> {
    pub(super) error: &'a str,
    pub(super) attempt: u32,
    pub(super) attempts_max: u32,
    pub(super) places: &'a [ErrorPlace],
}

/// The existing files of the project that an error names.
pub(super) fn places(root: &Path, error: &str) -> Vec<ErrorPlace> {
    let is_edge = |c: char| c.is_whitespace() || "\"'`()[]{}<>,;|=".contains(c);
    let words = error.split(is_edge).map(|word| word.trim_end_matches(['.', ':', '!', '?']));
    let mut found: Vec<ErrorPlace> = Vec::new();
    for word in words.filter(|word| word.contains(['.', '/'])).take(LOOKUPS_MAX) {
        let Some(file) = file_of(root, word) else { continue };
        if found.len() < PLACES_MAX && found.iter().all(|place| place.text != word) {
            found.push(ErrorPlace { file, text: word.to_owned() });
        }
    }
    found
}

fn file_of(root: &Path, word: &str) -> Option<FilePath> {
    let path = word.split(':').next()?;
    let below = Path::new(path).strip_prefix(root).unwrap_or_else(|_| Path::new(path));
    let file = FilePath::new(below.to_str()?).ok()?;
    // Follow a link as long as it stays in the project.
    let real = root.join(file.as_str()).canonicalize().ok()?;
    (real.is_file() && real.starts_with(root.canonicalize().ok()?)).then_some(file)
}

/// Inserts a fix step after the failed step. The failed step's machine already waits for it.
pub(super) fn order(
    tx: &WriteTransaction<'_, '_>,
    failed: &WorkingStep,
    failure: &StepFailure<'_>,
) -> Result<Option<FixStep>, DbFailure> {
    let Some(agent) = failed.fix_by.clone() else { return Ok(None) };
    let key = &failed.key;
    let explicit = fix_files(tx, key)?;
    let mut step = PlannedStep::new(agent.clone(), goal(failed));
    step.instructions = instructions(failed, failure);
    step.files = match explicit.is_empty() {
        true => derived_files(tx, failed, &agent, failure.places)?,
        false => explicit.clone(),
    };
    step.fix_files = explicit;
    step.context = shown_files(tx, key)?;
    step.context.retain(|path| !step.files.contains(path));
    // Never later than the phase of the failed step: it would wait for that step.
    step.phase = failed.phase.map(|phase| phase.min(TddPhase::Green));
    step.cycle.clone_from(&failed.cycle);
    let last = "SELECT max(step_index) + 1 FROM task_steps WHERE task_id = ?1";
    let index = tx.only(last, values![key.task_id])?;
    let position = position_after(tx, key)?;
    let place = StepPlace {
        task_id: &key.task_id,
        index,
        position,
        parent: None,
        fixes: Some((key.step_index, failed.epoch)),
    };
    insert_step(tx, &place, &step)?;
    Ok(Some(FixStep { index, agent }))
}

fn goal(failed: &WorkingStep) -> String {
    format!("Fix what made step {} fail: {}", failed.key.step_index, failed.goal.trim())
}

fn instructions(failed: &WorkingStep, failure: &StepFailure<'_>) -> Vec<String> {
    let (index, agent) = (failed.key.step_index, &failed.agent);
    let StepFailure { error, attempt, attempts_max, places } = failure;
    let mut all = vec![format!(
        "{agent} reported that step {index} failed (attempt {attempt} of {attempts_max}), with this \
         error:\n{}",
        fenced(error)
    )];
    if !places.is_empty() {
        let places: Vec<&str> = places.iter().map(|place| place.text.as_str()).collect();
        all.push(format!("The error names: {}.", places.join(", ")));
    }
    all.push(format!(
        "Remove its cause. {agent} does step {index} again afterwards: say in \
         `context_for_next_step` what you changed."
    ));
    all
}

fn fix_files(tx: &DbTransaction<'_>, key: &StepKey) -> DbResult<Vec<FilePath>> {
    tx.only(
        "SELECT fix_files FROM task_steps WHERE task_id = ?1 AND step_index = ?2",
        values![key.task_id, key.step_index],
    )
}

fn derived_files(
    tx: &DbTransaction<'_>,
    failed: &WorkingStep,
    agent: &Name,
    places: &[ErrorPlace],
) -> DbResult<Vec<FilePath>> {
    let key = &failed.key;
    let mut found = paths(tx.all(
        "SELECT r.path FROM task_steps s JOIN task_resources r USING (task_id, step_index) \
             WHERE s.task_id = ?1 AND s.cycle = ?2 AND s.agent = ?3 AND r.access = 'write' \
             GROUP BY r.path ORDER BY min(s.position), min(r.number)",
        values![key.task_id, failed.cycle, agent],
    )?);
    for place in places {
        if !found.contains(&place.file) {
            found.push(place.file.clone());
        }
    }
    if found.is_empty() {
        found = paths(files::of_step(tx, key)?);
    }
    found.truncate(LIST_MAX);
    Ok(found)
}

/// All files of the failed step, which its fixer has to see.
fn shown_files(tx: &DbTransaction<'_>, key: &StepKey) -> DbResult<Vec<FilePath>> {
    let found = tx.all(
        "SELECT path FROM task_resources WHERE task_id = ?1 AND step_index = ?2 ORDER BY number",
        values![key.task_id, key.step_index],
    )?;
    Ok(paths(found))
}

/// Stored paths were checked when they were stored.
fn paths(found: Vec<String>) -> Vec<FilePath> {
    found.iter().filter_map(|path| FilePath::new(path).ok()).collect()
}

/// A free position after a step and after its earlier fix steps, before all other later steps.
fn position_after(tx: &WriteTransaction<'_, '_>, key: &StepKey) -> DbResult<i64> {
    let last: i64 = tx.only(
        "SELECT max(f.position) FROM task_steps f JOIN task_steps s USING (task_id) \
             WHERE s.task_id = ?1 AND s.step_index = ?2 AND f.position >= s.position \
               AND (f.step_index = ?2 OR f.fixes = ?2)",
        values![key.task_id, key.step_index],
    )?;
    let is_taken: bool = tx.only(
        "SELECT EXISTS (SELECT 1 FROM task_steps WHERE task_id = ?1 AND position = ?2)",
        values![key.task_id, last + 1],
    )?;
    if is_taken {
        // No two positions may be equal at any moment, so they move in two leaps.
        let leap =
            "UPDATE task_steps SET position = position + ?3 WHERE task_id = ?1 AND position > ?2";
        tx.execute(leap, values![key.task_id, last, OUT_OF_THE_WAY])?;
        tx.execute(leap, values![key.task_id, OUT_OF_THE_WAY / 2, POSITION_STEP - OUT_OF_THE_WAY])?;
    }
    Ok(last + 1)
}

/// A step is done: if it was the last fix step of another one, that one can be taken again.
pub(super) fn done(tx: &WriteTransaction<'_, '_>, fix: &WorkingStep) -> Result<(), DbFailure> {
    let Some(failed) = fix.fixes else { return Ok(()) };
    let key = StepKey::new(fix.key.task_id.clone(), failed);
    if unfinished(tx, &key)?.is_empty() {
        StepStore::apply(tx, &key, Event::FixDone)?;
    }
    Ok(())
}

fn unfinished(tx: &DbTransaction<'_>, failed: &StepKey) -> DbResult<Vec<u32>> {
    tx.all(
        "SELECT step_index FROM task_steps WHERE task_id = ?1 AND fixes = ?2 \
           AND status <> 'COMPLETED' ORDER BY position",
        values![failed.task_id, failed.step_index],
    )
}

/// Skips the fix steps of a step that an order has changed. Returns what was skipped.
pub(super) fn withdraw(
    tx: &WriteTransaction<'_, '_>,
    failed: &StepKey,
) -> Result<Vec<StepKey>, DbFailure> {
    let mut skipped = Vec::new();
    for index in unfinished(tx, failed)? {
        let key = StepKey::new(failed.task_id.clone(), index);
        let (queue, step, _) = working::find(tx, &key)?;
        let (is_held, epoch) = (step.holder.is_some(), step.epoch);
        if is_held {
            StepStore::apply_to(tx, queue, step, Event::Retried, None)?;
            end_run(tx, &key, epoch, "taken_away")?;
        }
        StepStore::apply(tx, &key, Event::Skipped)?;
        let note = format!("step {} was changed by an order", failed.step_index);
        tx.execute(
            "UPDATE task_steps SET note = ?3 WHERE task_id = ?1 AND step_index = ?2",
            values![key.task_id, key.step_index, note],
        )?;
        let below = withdraw(tx, &key)?;
        skipped.push(key);
        skipped.extend(below);
    }
    Ok(skipped)
}
