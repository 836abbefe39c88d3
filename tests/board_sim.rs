//! Many actors do at random what they may and what they may not, and crash at any point; after each
//! step the board on disk is read as a stranger would read it.
//!
//! A failing seed is printed; `ENSEMBLE_SIM_SEED=<seed>` runs it alone, `ENSEMBLE_SIM_COUNT=<n>` runs
//! more of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ensemble_core::Error;
use ensemble_core::board::{
    Board, BoardOptions, ClaimPlan, Leased, LockedBoard, NewAgent, NewHandoff, NewTask, State,
    Status, claimable, leases, reviewable,
};
use ensemble_core::durable::Durability;
use ensemble_core::env::{Clock, Monotonic};
use ensemble_core::event_log::Recorder;
use ensemble_core::message::{Digest, Name, Timestamp};
use ensemble_core::proto::agent;
use ensemble_core::proto::task::Holder;
use serde_json::Value;

mod children;
use children::Dice;

const SEEDS: u64 = 25;
const STEPS: u64 = 120;
/// Steps of the siblings' table, and those that its limits and leases add.
const ALLOWED: [(Status, Status); 19] = [
    (Status::Draft, Status::Unclaimed),
    (Status::Unclaimed, Status::Claimed),
    (Status::Unclaimed, Status::Blocked),
    (Status::Claimed, Status::ReadyForReview),
    (Status::Claimed, Status::Blocked),
    (Status::Claimed, Status::Unclaimed),
    (Status::Claimed, Status::Rejected),
    (Status::Claimed, Status::IntegrationFailed),
    (Status::ReadyForReview, Status::Approved),
    (Status::ReadyForReview, Status::Rejected),
    (Status::Approved, Status::Merged),
    (Status::Approved, Status::IntegrationFailed),
    (Status::Rejected, Status::Claimed),
    (Status::Rejected, Status::Blocked),
    (Status::IntegrationFailed, Status::Claimed),
    (Status::IntegrationFailed, Status::Blocked),
    (Status::Blocked, Status::Unclaimed),
    (Status::Blocked, Status::Superseded),
    (Status::Blocked, Status::Abandoned),
];

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

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

/// Keeps the digests of what was written.
#[derive(Default)]
struct Log(Mutex<Vec<(u64, String)>>);

impl Recorder for Log {
    fn record(&self, kind: &str, _actor: &str, data: Value) {
        assert_eq!(kind, "board.written");
        let digest = data["sha256"].as_str().unwrap().to_owned();
        self.0.lock().unwrap().push((data["revision"].as_u64().unwrap(), digest));
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
agents: {}  # nobody yet
";
const KEPT: [&str; 6] = [
    "# The team's board.",
    "x_team: {lead: ann}  # ours",
    "  # the first one",
    "# so far",
    "x_estimate: 3",
    "# nobody yet",
];

/// An actor remembers what it was given, also after it was taken for dead.
#[derive(Default)]
struct Actor {
    registration: Option<Holder>,
    plan: Option<ClaimPlan>,
    /// All that it ever held, the newest last.
    held: Vec<(Name, Holder, bool)>,
}

struct Sim {
    dice: Dice,
    board: Board,
    calendar: Arc<Calendar>,
    log: Arc<Log>,
    actors: Vec<(Name, Actor)>,
    before: State,
    commits: BTreeMap<Name, String>,
    /// Where tasks went.
    taken: Vec<(Status, Status)>,
    /// What was done, for a failing seed.
    told: Vec<String>,
    _home: tempfile::TempDir,
}

const REVIEWERS_FROM: usize = 3;

impl Sim {
    fn new(seed: u64) -> Self {
        let home = tempfile::tempdir().unwrap();
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
        let (commits, told, taken) = (BTreeMap::new(), Vec::new(), Vec::new());
        let dice = Dice(seed * 2 + 1);
        Self { dice, board, calendar, log, actors, before, commits, taken, told, _home: home }
    }

    /// Something that may crash before it is written; checks what came of it.
    fn change<T>(
        &mut self,
        what: String,
        change: impl FnOnce(&mut LockedBoard<'_>) -> Result<T, Error>,
    ) -> Option<T> {
        let crashes = self.dice.below(12) == 0;
        let board = self.board.clone();
        let mut locked = board.lock().unwrap();
        let outcome = change(&mut locked);
        let result = match outcome {
            Err(error) => {
                drop(locked);
                Err(error)
            }
            Ok(_) if crashes => {
                drop(locked);
                self.told.push(format!("{what}: crash"));
                self.check(0);
                return None;
            }
            Ok(value) => locked.commit().map(|_| value),
        };
        self.told.push(match &result {
            Ok(_) => what,
            Err(error) => format!("{what}: {error}"),
        });
        self.check(u64::from(result.is_ok()));
        match result {
            Ok(value) => Some(value),
            Err(
                Error::NotAllowed { .. }
                | Error::Fenced { .. }
                | Error::NotOnBoard { .. }
                | Error::WouldBreak { .. },
            ) => None,
            Err(other) => panic!("{other}"),
        }
    }

    /// Reads the board, all rules included, and compares it with the one before.
    fn check(&mut self, writes: u64) {
        let state = self.board.read().unwrap();
        let text = self.board.read_text().unwrap();
        for kept in KEPT {
            assert!(text.contains(kept), "{kept} is lost in\n{text}");
        }
        let grown = state.revision - self.before.revision;
        assert!(grown <= writes, "{grown} revisions in {writes} writes");
        assert!(state.epoch >= self.before.epoch);
        for old in &self.before.tasks {
            let new = state.task(&old.id).expect("no task vanishes");
            let step = (old.status, new.status);
            assert!(step.0 == step.1 || ALLOWED.contains(&step), "{}: {step:?}", old.id);
            assert!(!old.status.is_terminal() || step.0 == step.1);
            self.taken.push(step);
            assert!(new.lease_epoch >= old.lease_epoch && new.review_epoch >= old.review_epoch);
            assert!(new.history.len() >= old.history.len());
            assert!(new.review_cycles_total >= old.review_cycles_total);
        }
        let logged = self.log.0.lock().unwrap();
        if let Some((revision, digest)) = logged.last() {
            assert_eq!(
                (*revision, digest),
                (state.revision, &Digest::of(text.as_bytes()).to_string())
            );
        }
        assert!(
            logged.windows(2).all(|pair| pair[0].0 + 1 == pair[1].0),
            "each write is told once"
        );
        drop(logged);
        self.before = state;
    }

    fn step(&mut self) {
        *self.calendar.0.lock().unwrap() += match self.dice.below(10) {
            0 => -86_400_000,
            1 => 86_400_000,
            _ => 1_000,
        };
        match self.dice.below(40) {
            0..=3 => self.plan_work(),
            4 => self.expire(),
            5..=8 => self.merge(),
            _ => self.act(),
        }
    }

    fn any_task(&mut self) -> Name {
        let at = self.dice.below(self.before.tasks.len() as u64) as usize;
        self.before.tasks[at].id.clone()
    }

    fn plan_work(&mut self) {
        let (id, other) = (self.any_task(), self.any_task());
        let new = name(&format!("task-{}", self.before.tasks.len()));
        match self.dice.below(10) {
            0..=2 if self.before.tasks.len() < 12 => {
                let task = NewTask::new(new, "more", "specs/x.md", "tests pass").after([other]);
                self.change("add".into(), |board| board.add_task(&task));
            }
            3 => drop(self.change("draft".into(), |board| board.add_task(&NewTask::draft(new)))),
            4 => drop(self.change(format!("finalize {id}"), |board| board.finalize(&id))),
            5 => {
                let questions = ["why?".to_owned()];
                self.change(format!("block {id}"), |b| b.block(&id, None, "stuck", &questions));
            }
            6 => drop(self.change(format!("unblock {id}"), |board| board.unblock(&id))),
            7 | 8 => {
                self.change(format!("supersede {id} by {other}"), |board| {
                    board.supersede(&id, &[other], "cut anew")
                });
            }
            _ => drop(self.change(format!("abandon {id}"), |board| board.abandon(&id, "no need"))),
        }
    }

    /// An observer's judgement, whoever is right.
    fn expire(&mut self) {
        let leases = leases(&self.before);
        if leases.is_empty() {
            return;
        }
        let lease: Leased = leases[self.dice.below(leases.len() as u64) as usize].clone();
        self.change(format!("expire {lease:?}"), |board| board.expire(&lease, 0));
    }

    fn merge(&mut self) {
        let any = self.any_task();
        let mut approved = self.before.tasks.iter().filter(|task| task.status == Status::Approved);
        let id = approved.next().map_or(any, |task| task.id.clone());
        if self.dice.below(3) == 0 {
            self.change(format!("fail {id}"), |board| board.integration_failed(&id, "conflict"));
        } else {
            self.change(format!("merge {id}"), |board| board.merged(&id, "m"));
        }
    }

    fn act(&mut self) {
        let at = self.dice.below(self.actors.len() as u64) as usize;
        let id = self.actors[at].0.clone();
        let Some(registration) = self.actors[at].1.registration.clone() else {
            let new = NewAgent::new(id.clone(), "coder");
            let registered = self.change(format!("register {id}"), |board| {
                let holder = board.register(&new)?;
                board.agent_event(&holder, agent::Event::Ready)?;
                Ok(holder)
            });
            self.actors[at].1.registration = registered;
            return;
        };
        match self.dice.below(50) {
            // It dies, and its supervisor cleans up or not.
            0 => {
                self.actors[at].1.registration = None;
                if self.dice.below(2) == 0 {
                    self.change(format!("unregister {id}"), |b| {
                        b.unregister(&registration, "died")
                    });
                }
            }
            1 => {
                let lease = Duration::from_secs(300);
                self.change(format!("beat of {id}"), |board| board.note_beat(&registration, lease));
            }
            2..=20 if at < REVIEWERS_FROM => self.claim(at, &registration),
            2..=22 => self.review(at, &registration),
            _ => self.write(at),
        }
        if !self.before.agents.contains_key(&id) {
            // It notices that it is not registered any more, sooner or later.
            if self.dice.below(3) == 0 {
                self.actors[at].1.registration = None;
            }
        }
    }

    /// Both phases, with anything in between.
    fn claim(&mut self, at: usize, registration: &Holder) {
        let id = registration.by.clone();
        let Some(plan) = self.actors[at].1.plan.take() else {
            let any = self.any_task();
            let tasks = claimable(&self.before, Some(&id));
            let task = tasks.first().map_or(any, |task| task.id.clone());
            let plan = self.board.lock().unwrap().plan_claim(&task, registration);
            self.told.push(format!("{id} plans {task}: {}", plan.is_ok()));
            self.actors[at].1.plan = plan.ok();
            return;
        };
        let base = (self.dice.below(5) > 0).then_some("base");
        let what = format!("{id} claims {}", plan.task);
        if let Some(granted) = self.change(what, |board| board.commit_claim(&plan, base)) {
            assert!(self.actors.iter().all(|(_, other)| {
                other.held.iter().all(|(_, holder, _)| holder.epoch < granted.holder.epoch)
            }));
            self.actors[at].1.held.push((plan.task, granted.holder, false));
        }
    }

    fn review(&mut self, at: usize, registration: &Holder) {
        let id = registration.by.clone();
        let any = self.any_task();
        let tasks = reviewable(&self.before, Some(&id));
        let task = tasks.first().map_or(any, |task| task.id.clone());
        let what = format!("{id} reviews {task}");
        if let Some(granted) = self.change(what, |board| board.claim_review(&task, registration)) {
            self.actors[at].1.held.push((task, granted.holder, true));
        }
    }

    /// A write in the name of a lease, old or new: only the one that runs may succeed.
    fn write(&mut self, at: usize) {
        let held = &self.actors[at].1.held;
        let back = self.dice.below(8).saturating_sub(5) as usize;
        let Some((task, holder, is_review)) = held.iter().rev().nth(back).cloned() else { return };
        let before = self.before.task(&task).unwrap().clone();
        let commit = format!("c{}", self.told.len());
        let submitted = self.commits.get(&task).cloned().unwrap_or_default();
        let kind = self.dice.below(9);
        let questions = ["why?".to_owned()];
        let done = match (is_review, kind) {
            (true, 0..=5) => self.change(format!("{} approves {task}", holder.by), |board| {
                board.approve(&task, &holder, &submitted)
            }),
            (true, _) => self.change(format!("{} rejects {task}", holder.by), |board| {
                board.reject(&task, &holder, &submitted, "no")
            }),
            (false, 0..=4) => {
                let done = self.change(format!("{} submits {task}", holder.by), |board| {
                    board.submit(&task, &holder, &commit)
                });
                if done.is_some() {
                    self.commits.insert(task.clone(), commit);
                }
                done
            }
            (false, 5) => self.change(format!("{} iterates {task}", holder.by), |board| {
                board.iterate(&task, &holder)
            }),
            (false, 6) => self.change(format!("{} blocks {task}", holder.by), |board| {
                board.block(&task, Some(&holder), "stuck", &questions)
            }),
            (false, 7) => self.change(format!("{} gives up {task}", holder.by), |board| {
                board.give_up_task(&task, &holder, "no idea")
            }),
            (false, _) => {
                let more = serde_json::Map::new();
                let notes = NewHandoff { summary: "s".into(), next_action: "n".into(), more };
                self.change(format!("{} hands over {task}", holder.by), |board| {
                    board.hand_off(&task, &holder, &notes)
                })
            }
        };
        if done.is_some() {
            let (by, epoch, status) = match is_review {
                true => (before.reviewing_by, before.review_epoch, Status::ReadyForReview),
                false => (before.assigned_to, before.lease_epoch, Status::Claimed),
            };
            assert_eq!((by, epoch, before.status), (Some(holder.by), Some(holder.epoch), status));
        }
    }
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap())
}

#[test]
fn whatever_actors_do_the_board_stays_true() {
    let alone = setting("ENSEMBLE_SIM_SEED");
    let count =
        setting("ENSEMBLE_SIM_COUNT").unwrap_or_else(|| if alone.is_some() { 1 } else { SEEDS });
    let first = alone.unwrap_or(1);
    let mut taken: BTreeMap<(Status, Status), u64> = BTreeMap::new();
    for seed in first..first + count {
        let mut sim = Sim::new(seed);
        let run = std::panic::AssertUnwindSafe(|| (0..STEPS).for_each(|_| sim.step()));
        if let Err(panic) = std::panic::catch_unwind(run) {
            eprintln!("seed {seed}:\n{}", sim.told.join("\n"));
            std::panic::resume_unwind(panic);
        }
        for step in sim.taken {
            *taken.entry(step).or_default() += 1;
        }
    }
    // It got everywhere.
    if count >= SEEDS {
        let seldom: Vec<_> = ALLOWED.iter().filter(|step| !taken.contains_key(step)).collect();
        assert!(seldom.len() <= 2, "never taken: {seldom:?}");
    }
}
