//! Eight workers empty eight step queues, in turns with bare SQLite transactions that read and
//! write the same rows in the same tables.

use std::path::Path;
use std::sync::Barrier;

use ensemble_core::durable::Durability;
use ensemble_core::message::{Digest, Name};
use ensemble_team::steps::{
    ClaimOutcome, ClaimRequest, Completion, CompletionStatus, PlannedStep, StepOptions, StepPlan,
    StepStore,
};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, TransactionBehavior, params};

use crate::support::table::{self, Goal};
use crate::support::{Outcome, Pairs, go_on, micros, now_ns, place, size};

const GOAL: Goal = Goal::AtLeast(0.7);
const WORKERS: usize = 8;
const STEPS: usize = 10_000;
const ROUNDS: usize = 3;

/// Measurements of one subject in one round.
struct Measured {
    /// Steps a second of all workers together.
    rate: f64,
    /// Microseconds from requesting a step to having reported it.
    latencies: Vec<f64>,
}

/// A worker's loop. Returns the latency of each step.
type Worker = fn(&Path, Durability, usize) -> Result<Vec<f64>, String>;

pub fn run() -> Outcome<()> {
    let steps = size("ENSEMBLE_BENCH_STEPS", STEPS);
    let rounds = size("ENSEMBLE_BENCH_ROUNDS", ROUNDS);
    for (workers, durability, rounds) in [
        (WORKERS, Durability::Process, rounds),
        (1, Durability::Process, rounds),
        // Each step has two commits that wait for the disk, whose latency varies, so run more
        // rounds.
        (WORKERS, Durability::Power, 3 * rounds),
    ] {
        let steps = if durability == Durability::Power { steps / 10 } else { steps };
        table::heading(&format!(
            "step queues, {workers} workers, {steps} steps a round, durability {durability:?}"
        ));
        let (mut rates, mut latencies) = (Pairs::default(), Pairs::default());
        for round in 0..rounds {
            go_on()?;
            let ours = || measure(steps, workers, durability, ours);
            let bare = || measure(steps, workers, durability, bare);
            let (ours, bare) = match round % 2 {
                0 => (ours()?, bare()?),
                _ => {
                    let bare = bare()?;
                    (ours()?, bare)
                }
            };
            rates.push(vec![ours.rate], vec![bare.rate]);
            latencies.push(ours.latencies, bare.latencies);
        }
        table::pairs("take + submit", "/s", &rates, GOAL);
        table::pairs("latency of both", "us", &latencies, Goal::None);
    }
    table::note(
        "the bare transactions check nothing, lock no files and decide nothing, and wait as SQLite does",
    );
    Ok(())
}

fn task(worker: usize) -> String {
    format!("0-4-{worker}")
}

fn agent(worker: usize) -> Outcome<Name> {
    Ok(Name::new(format!("w{worker}"))?)
}

fn open(path: &Path, durability: Durability) -> ensemble_core::Result<StepStore> {
    let home = path.parent().unwrap_or(path);
    StepStore::open(path, StepOptions::new(home).with_durability(durability))
}

/// Fills the queues, then starts the workers together.
fn measure(
    steps: usize,
    workers: usize,
    durability: Durability,
    worker: Worker,
) -> Outcome<Measured> {
    let home = place::on_disk()?;
    let path = home.path().join("steps.db");
    let store = open(&path, Durability::Process)?;
    for number in 0..workers {
        let step = PlannedStep::new(agent(number)?, "Write a failing test for login");
        store.add(&StepPlan::new(task(number), vec![step; steps / workers]))?;
    }
    drop(store);
    let start = Barrier::new(workers + 1);
    let (took, latencies) = std::thread::scope(|scope| {
        let spawn = |number| {
            let (start, path) = (&start, &path);
            scope.spawn(move || {
                start.wait();
                worker(path, durability, number)
            })
        };
        let threads: Vec<_> = (0..workers).map(spawn).collect();
        start.wait();
        let began = now_ns();
        let mut all = Vec::with_capacity(steps);
        for worker in threads {
            all.extend(worker.join().map_err(|_| "a worker panicked")??);
        }
        Ok::<_, Box<dyn std::error::Error>>((micros(began, now_ns()), all))
    })?;
    if latencies.len() != steps / workers * workers {
        return Err(format!("{} of {steps} steps were done", latencies.len()).into());
    }
    Ok(Measured { rate: latencies.len() as f64 * 1e6 / took, latencies })
}

fn ours(path: &Path, durability: Durability, number: usize) -> Result<Vec<f64>, String> {
    let fail = |error: ensemble_core::Error| error.to_string();
    let store = open(path, durability).map_err(fail)?;
    let me = Name::new(format!("w{number}")).map_err(|error| error.to_string())?;
    let ask = ClaimRequest::of(me.clone()).in_task(task(number));
    let mut latencies = Vec::new();
    loop {
        let began = now_ns();
        let step = match store.claim_step(&ask) {
            Ok(ClaimOutcome::Handed(step)) => step,
            Ok(ClaimOutcome::Nothing(_)) => return Ok(latencies),
            Err(error) if error.is_transient() => continue,
            Err(error) => return Err(fail(error)),
        };
        let mut report = Completion::new(step.key.clone(), me.clone(), CompletionStatus::Success);
        report.summary = Some("one test, and it fails".to_owned());
        while let Err(error) = store.submit(&report, &me, Some(step.epoch)) {
            if !error.is_transient() {
                return Err(fail(error));
            }
        }
        latencies.push(micros(began, now_ns()));
    }
}

/// The same rows, written with bare SQLite.
fn bare(path: &Path, durability: Durability, number: usize) -> Result<Vec<f64>, String> {
    let fail = |error: rusqlite::Error| error.to_string();
    let mut db = Connection::open(path).map_err(fail)?;
    db.busy_timeout(std::time::Duration::from_secs(30)).map_err(fail)?;
    // Without this, the partial indexes make SQLite prepare each statement again. Ours sets it too.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(fail)?;
    let synchronous = if durability == Durability::Power { "FULL" } else { "NORMAL" };
    db.pragma_update(None, "synchronous", synchronous).map_err(fail)?;
    let (task, me) = (task(number), format!("w{number}"));
    let mut latencies = Vec::new();
    loop {
        let began = now_ns();
        let Some((index, epoch)) = bare_take(&mut db, &task, &me).map_err(fail)? else {
            return Ok(latencies);
        };
        bare_submit(&mut db, &task, index, epoch).map_err(fail)?;
        latencies.push(micros(began, now_ns()));
    }
}

fn bare_take(db: &mut Connection, task: &str, me: &str) -> rusqlite::Result<Option<(i64, i64)>> {
    use rusqlite::OptionalExtension as _;
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found: Option<(i64, i64, String)> = tx
        .prepare_cached(
            "SELECT step_index, epoch, goal FROM task_steps WHERE task_id = ?1 AND life = 'open' \
             ORDER BY position LIMIT 1",
        )?
        .query_row([task], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let Some((index, epoch, _)) = found else { return Ok(None) };
    tx.prepare_cached(
        "UPDATE task_steps SET status = 'IN_PROGRESS', holder = ?3, attempt = attempt + 1, \
           epoch = epoch + 1, updated_at = ?4 WHERE task_id = ?1 AND step_index = ?2",
    )?
    .execute(params![task, index, me, stamp()])?;
    tx.prepare_cached(
        "INSERT INTO step_runs (task_id, step_index, epoch, attempt, agent, taken_at) \
         VALUES (?1, ?2, ?3, 1, ?4, ?5)",
    )?
    .execute(params![task, index, epoch + 1, me, stamp()])?;
    tx.commit()?;
    Ok(Some((index, epoch + 1)))
}

fn bare_submit(db: &mut Connection, task: &str, index: i64, epoch: i64) -> rusqlite::Result<()> {
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let held: String = tx
        .prepare_cached("SELECT holder FROM task_steps WHERE task_id = ?1 AND step_index = ?2")?
        .query_row(params![task, index], |row| row.get(0))?;
    tx.prepare_cached(
        "UPDATE task_steps SET status = 'COMPLETED', resolution = 'success', holder = NULL, \
           summary = ?3, updated_at = ?4 WHERE task_id = ?1 AND step_index = ?2",
    )?
    .execute(params![task, index, "one test, and it fails", stamp()])?;
    let digest = Digest::of(held.as_bytes()).to_string();
    tx.prepare_cached(
        "UPDATE step_runs SET ended_at = ?4, outcome = 'success', summary = ?5, report_sha256 = ?6 \
         WHERE task_id = ?1 AND step_index = ?2 AND epoch = ?3",
    )?
    .execute(params![task, index, epoch, stamp(), "one test, and it fails", digest])?;
    tx.commit()
}

fn stamp() -> &'static str {
    "2026-01-15T09:30:00.000Z"
}
