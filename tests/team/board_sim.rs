//! Many actors take allowed and forbidden actions at random. They fall silent and crash at any
//! point: before a write or its record, between the phases of a claim or files of
//! a write. The wall clock jumps by days; leases expire on the observer's clock only.
//! After each step the test checks the 25 invariants on the file (`board_sim/invariants.rs`).
//!
//! A failing seed is printed; `ENSEMBLE_SIM_SEED=<seed>` runs it alone, `ENSEMBLE_SIM_COUNT=<n>` runs
//! more of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ensemble_core::Error;
use ensemble_core::durable::Durability;
use ensemble_core::env::{Clock, Monotonic};
use ensemble_core::event_log::Recorder;
use ensemble_core::message::{Digest, Name, Timestamp};
use ensemble_team::board::{
    Board, BoardError, BoardLease, BoardOptions, ClaimPlan, LockedBoard, State, leases,
};
use ensemble_team::proto::task::TaskHolder;
use serde_json::Value;

use crate::children::Dice;
use crate::queue::name;
use invariants::{ALLOWED, Seen, broken};
use observer::Observer;

mod acts;
mod invariants;
mod observer;

const SEEDS: u64 = 25;
/// From how many seeds on every step of the table must have been taken.
const EVERYWHERE: u64 = 200;
const STEPS: u64 = 120;
/// Where files cost no disk.
const MEMORY: &str = "/dev/shm";

/// A calendar that jumps.
#[derive(Default)]
struct Calendar(Mutex<i64>);

impl Clock for Calendar {
    fn monotonic(&self) -> Monotonic {
        Monotonic::ZERO
    }
    fn wall(&self) -> Timestamp {
        Timestamp::from_unix_millis(*self.0.lock().unwrap())
    }
}

/// A write as the log has it.
struct Written {
    revision: u64,
    digest: String,
    /// Where its steps have put tasks.
    tasks: Vec<(String, String)>,
    is_whole: bool,
}

#[derive(Default)]
struct Log(Mutex<Vec<Written>>);

impl Recorder for Log {
    fn record(&self, kind: &str, _actor: &str, data: Value) {
        assert_eq!(kind, "board.written");
        let digest = data["sha256"].as_str().unwrap().to_owned();
        let steps = data["steps"].as_array().unwrap();
        let put = |step: &Value| {
            Some((step["task"].as_str()?.to_owned(), step["status"].as_str()?.to_owned()))
        };
        self.0.lock().unwrap().push(Written {
            revision: data["revision"].as_u64().unwrap(),
            digest,
            tasks: steps.iter().filter_map(put).collect(),
            is_whole: data["count"].as_u64() == Some(steps.len() as u64),
        });
    }
}

const BEGINNING: &str = "\
# The team's board.
version: 1
x_team: {lead: ann}  # ours
tasks:
  # the first one
  - id: task-0
    description: first
    status: UNCLAIMED  # so far
    spec_ref: specs/x.md
    done_when: tests pass
    x_estimate: 3
agents: {}  # no agents yet
";
const KEPT: [&str; 6] = [
    "# The team's board.",
    "x_team: {lead: ann}  # ours",
    "  # the first one",
    "# so far",
    "x_estimate: 3",
    "# no agents yet",
];

/// An actor remembers what it was given, also after it was presumed dead.
#[derive(Default)]
struct Actor {
    registration: Option<TaskHolder>,
    plan: Option<ClaimPlan>,
    /// It does not beat before then: stopped, starved, or busy for too long.
    silent_until: Monotonic,
    /// All that it ever held, the newest last.
    held: Vec<(Name, TaskHolder, bool)>,
}

struct Sim {
    dice: Dice,
    now: Monotonic,
    observer: Observer,
    board: Board,
    calendar: Arc<Calendar>,
    log: Arc<Log>,
    actors: Vec<(Name, Actor)>,
    before: State,
    seen: Seen,
    text: String,
    commits: BTreeMap<Name, String>,
    /// Transitions of tasks, from and to, with their counts.
    taken: BTreeMap<(String, String), u64>,
    /// Leases that ran out by the clock.
    expired: u64,
    /// The actions so far, printed for a failing seed.
    told: Vec<String>,
    _home: tempfile::TempDir,
}

impl Sim {
    fn new(seed: u64) -> Self {
        let home = match Path::new(MEMORY).is_dir() {
            true => tempfile::tempdir_in(MEMORY).unwrap(),
            false => tempfile::tempdir().unwrap(),
        };
        std::fs::create_dir(home.path().join(".ensemble")).unwrap();
        std::fs::write(home.path().join(".ensemble/state.yaml"), BEGINNING).unwrap();
        let (calendar, log) = (Arc::new(Calendar::default()), Arc::new(Log::default()));
        let options = BoardOptions::new("sim")
            .with_durability(Durability::Process)
            .with_clock(Arc::<Calendar>::clone(&calendar))
            .with_recorder(Arc::<Log>::clone(&log));
        let board = Board::find(home.path(), options).unwrap();
        let ids = ["ann", "bob", "eve", "rev-1", "rev-2"];
        let actors = ids.map(|id| (name(id), Actor::default())).into_iter().collect();
        let before = board.read().unwrap();
        let text = board.read_text().unwrap();
        let seen = Seen::new(&text);
        let (now, observer) = (Monotonic::ZERO, Observer::default());
        let (commits, told, taken) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        let dice = Dice(seed * 2 + 1);
        Self {
            dice,
            now,
            observer,
            board,
            calendar,
            log,
            actors,
            before,
            seen,
            text,
            commits,
            taken,
            expired: 0,
            told,
            _home: home,
        }
    }

    /// Makes a change that may crash at any point, and checks its result. Returns `None` if the
    /// board refused it, or if the actor died.
    fn change<T>(
        &mut self,
        what: String,
        change: impl FnOnce(&mut LockedBoard<'_>) -> Result<T, Error>,
    ) -> Option<T> {
        let crash = self.dice.below(40);
        let board = self.board.clone();
        let mut locked = board.lock().unwrap();
        let result = match change(&mut locked) {
            Err(error) => Err(error),
            Ok(_) if crash < 3 => {
                drop(locked);
                self.told.push(format!("{what}: crash before it is written"));
                self.check(0);
                return None;
            }
            Ok(value) => locked.commit().map(|state| (value, state.revision)),
        };
        if let Ok((_, revision)) = &result
            && *revision > self.before.revision
            && (3..5).contains(&crash)
        {
            let is_renamed = crash == 3;
            self.told.push(format!("{what}: crash in the write, renamed: {is_renamed}"));
            self.die_in_write(is_renamed);
            return None;
        }
        self.told.push(match &result {
            Ok(_) => what,
            Err(error) => format!("{what}: {error}"),
        });
        self.check(u64::from(result.is_ok()));
        match result {
            Ok((value, _)) => Some(value),
            Err(other)
                if matches!(
                    other.area(),
                    Some(
                        BoardError::NotAllowed { .. }
                            | BoardError::Fenced { .. }
                            | BoardError::Unknown { .. }
                            | BoardError::WouldBreak { .. }
                    )
                ) =>
            {
                None
            }
            Err(other) => panic!("{other}"),
        }
    }

    /// Leaves the files of a writer that dies after announcing its write, before or after the
    /// rename. Checks that the next lock holder completes the write.
    fn die_in_write(&mut self, is_renamed: bool) {
        let last = self.board.path().with_file_name("state.yaml.last");
        let mut announced: Value = serde_json::from_slice(&std::fs::read(&last).unwrap()).unwrap();
        announced["is_logged"] = false.into();
        std::fs::write(&last, announced.to_string()).unwrap();
        self.log.0.lock().unwrap().pop();
        if !is_renamed {
            std::fs::write(self.board.path(), &self.text).unwrap();
        }
        drop(self.board.lock().unwrap());
        self.check(u64::from(is_renamed));
    }

    /// Reads the board, all rules included, and compares it with the one before.
    fn check(&mut self, writes: u64) {
        let text = self.board.read_text().unwrap();
        if text == self.text {
            // A refused change leaves the board valid; and the log has no record of it.
            let logged = self.log.0.lock().unwrap();
            assert!(logged.last().is_none_or(|last| last.revision == self.before.revision));
            return;
        }
        let state = ensemble_team::board::check(&text, self.board.path()).unwrap();
        for kept in KEPT {
            assert!(text.contains(kept), "{kept} is lost in\n{text}");
        }
        let seen = Seen::new(&text);
        let found = broken(&seen, &self.seen);
        assert!(found.is_empty(), "{found:#?}\n{text}");
        let grown = state.revision - self.before.revision;
        assert!(grown <= writes, "{grown} revisions in {writes} writes");
        for old in self.seen.tasks() {
            let new = seen.task(old.id()).expect("no task vanishes");
            let step = (old.status().to_owned(), new.status().to_owned());
            *self.taken.entry(step).or_default() += 1;
        }
        let logged = self.log.0.lock().unwrap();
        let digest = Digest::of(text.as_bytes()).to_string();
        let is_last = |last: &Written| last.revision == state.revision && last.digest == digest;
        assert!(logged.last().is_none_or(is_last), "the log knows it");
        let is_next = |pair: &[Written]| pair[0].revision + 1 == pair[1].revision;
        assert!(logged.windows(2).all(is_next), "each write is told once");
        drop(logged);
        (self.before, self.seen, self.text) = (state, seen, text);
    }

    fn step(&mut self) {
        *self.calendar.0.lock().unwrap() += match self.dice.below(10) {
            0 => -86_400_000,
            1 => 86_400_000,
            _ => 1_000,
        };
        self.now = self.now + std::time::Duration::from_secs(5 + self.dice.below(25));
        self.beat();
        self.observe();
        match self.dice.below(40) {
            0..=3 => self.plan_work(),
            4 => self.expire_wrongly(),
            5..=8 => self.merge(),
            _ => self.act(),
        }
    }

    /// Every actor has left: at the end no lease is held.
    fn end(&mut self) {
        for (_, actor) in &mut self.actors {
            actor.registration = None;
        }
        for _ in 0..60 {
            self.now = self.now + std::time::Duration::from_secs(30);
            self.observe();
        }
        assert_eq!(leases(&self.before), [], "no dead actor holds a task");
        // Where every task is can be read from the log alone.
        let mut tasks = BTreeMap::from([("task-0".to_owned(), "UNCLAIMED".to_owned())]);
        for written in self.log.0.lock().unwrap().iter() {
            assert!(written.is_whole, "no step is left out");
            tasks.extend(written.tasks.iter().cloned());
        }
        let seen = self.seen.tasks().map(|task| (task.id().to_owned(), task.status().to_owned()));
        assert_eq!(tasks, seen.collect(), "the log tells where each task is");
    }
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap())
}

#[test]
fn the_board_keeps_its_invariants_for_any_actions() {
    let alone = setting("ENSEMBLE_SIM_SEED");
    let count =
        setting("ENSEMBLE_SIM_COUNT").unwrap_or_else(|| if alone.is_some() { 1 } else { SEEDS });
    let first = alone.unwrap_or(1);
    let mut taken: BTreeMap<(String, String), u64> = BTreeMap::new();
    let (mut expired, mut writes) = (0, 0);
    for seed in first..first + count {
        let mut sim = Sim::new(seed);
        let run = std::panic::AssertUnwindSafe(|| {
            (0..STEPS).for_each(|_| sim.step());
            sim.end();
        });
        if let Err(panic) = std::panic::catch_unwind(run) {
            eprintln!("ENSEMBLE_SIM_SEED={seed}:\n{}", sim.told.join("\n"));
            std::panic::resume_unwind(panic);
        }
        for (step, times) in sim.taken {
            *taken.entry(step).or_default() += times;
        }
        expired += sim.expired;
        writes += sim.before.revision;
    }
    println!("{count} seeds, {writes} writes, {expired} leases ran out");
    // It got everywhere.
    if count >= SEEDS {
        let is_taken =
            |(from, to): &(&str, &str)| taken.contains_key(&((*from).to_owned(), (*to).to_owned()));
        let seldom: Vec<_> = ALLOWED.iter().filter(|step| !is_taken(step)).collect();
        let allowed = if count >= EVERYWHERE { 0 } else { 4 };
        assert!(seldom.len() <= allowed, "never taken: {seldom:?}");
        assert!(expired > count, "leases run out");
    }
}
