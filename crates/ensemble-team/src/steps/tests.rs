use super::StepError;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;

use super::*;
use ensemble_core::message::{Timestamp, yaml};
use ensemble_core::proto::testing::name;
use ensemble_core::sim::{SimClock, SimRng};
use ensemble_core::spool::{Settings, Spool, SpoolOptions};

#[macro_use]
mod databases;
mod ended;
mod fixes;
mod model;
mod reports;

over_databases![
    a_queue_runs_through_success_failure_and_a_block,
    repeated_report_changes_nothing_and_a_different_one_is_rejected,
    failed_step_stops_the_queue_until_it_is_retried,
    parts_of_a_split_step_go_to_the_head_of_the_queue,
    two_agents_never_hold_the_same_file,
    tdd_order_is_enforced_in_each_cycle,
    step_of_a_silent_worker_returns_and_its_late_report_is_rejected,
    steps_of_many_workers_that_fall_silent_at_once_return_together,
    steps_of_a_machine_that_was_stopped_may_be_renewed,
    step_taken_while_an_observer_is_suspended_gets_a_full_lease,
    orchestrator_is_notified_once,
    second_plan_of_a_task_is_rejected_and_the_same_plan_changes_nothing,
    queue_in_a_new_database_sends_notices_although_an_earlier_one_had_its_name,
    no_step_is_lost_or_done_twice_in_any_order_of_calls,
];

use databases::{fewer, open_with};

pub(super) struct Bed {
    pub(super) home: tempfile::TempDir,
    clock: Arc<SimClock>,
    pub(super) store: StepStore,
}

impl Bed {
    pub(super) fn new(plans: &[&str]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let clock = Arc::new(SimClock::new(Timestamp::from_unix_millis(0)));
        let store = open(home.path(), &clock);
        for plan in plans {
            store.add(&parse(plan)).unwrap();
        }
        Self { home, clock, store }
    }

    /// A queue with these mailboxes.
    fn queue(&self, mailboxes: &[&str]) -> Spool {
        let spool =
            Spool::create(&self.home.path().join("queue"), SpoolOptions::default()).unwrap();
        let add = |agent| spool.add_mailbox(&name(agent), &Settings::default()).unwrap();
        mailboxes.iter().copied().for_each(add);
        spool
    }

    fn take(&self, agent: &str) -> Option<ClaimedStep> {
        match self.store.claim_step(&ClaimRequest::of(name(agent))).unwrap() {
            ClaimOutcome::Handed(handed) => Some(*handed),
            ClaimOutcome::Nothing(_) => None,
        }
    }

    fn why(&self, agent: &str) -> NoStep {
        match self.store.claim_step(&ClaimRequest::of(name(agent))).unwrap() {
            ClaimOutcome::Handed(handed) => panic!("handed {handed:?}"),
            ClaimOutcome::Nothing(nothing) => nothing,
        }
    }

    fn submit(&self, handed: &ClaimedStep, status: &str) -> Result<SubmittedStep> {
        let report = report(handed, status);
        self.store.submit(&report, &handed.agent, Some(handed.epoch))
    }

    /// Splits a step into parts of this agent.
    fn split(&self, step: &StepKey, agent: &str, goals: &[&str]) -> Result<Vec<u32>> {
        let parts: Vec<_> = goals.iter().map(|goal| SplitPart::new(name(agent), *goal)).collect();
        self.store.split(step, &name("orion"), &parts)
    }

    /// What another process sees after this many seconds: observations are in the database.
    fn observe_after(&self, seconds: u64) -> ObservedSteps {
        self.clock.advance(Duration::from_secs(seconds));
        open(self.home.path(), &self.clock).observe().unwrap()
    }

    fn status(&self, handed: &ClaimedStep) -> String {
        self.store.step(&handed.key).unwrap().status
    }
}

fn open(home: &Path, clock: &Arc<SimClock>) -> StepStore {
    open_with(home, StepOptions::new(home).with_clock(Arc::<SimClock>::clone(clock)))
}

fn parse(plan: &str) -> StepPlan {
    StepPlan::parse(plan, Path::new("plan.yaml")).unwrap()
}

fn report(handed: &ClaimedStep, status: &str) -> Completion {
    Completion::from_json(&json!({
        "task_id": handed.key.task_id, "step_index": f64::from(handed.key.step_index),
        "agent": handed.agent, "status": status, "summary": format!("epoch {}", handed.epoch),
        "blockers": if status == "blocked" { vec!["no file"] } else { vec![] },
    }))
    .unwrap()
}

const THREE: &str = "
task_id: 0-4-1
orchestrator: orion
steps:
  - {agent: Tara, goal: one, files: [tests/a.rs]}
  - {agent: Devon, goal: two, files: [src/a.rs], context: [tests/a.rs]}
  - {agent: Tara, goal: three}
";

fn a_queue_runs_through_success_failure_and_a_block() {
    let bed = Bed::new(&[THREE]);
    assert_eq!(bed.why("Devon"), NoStep::Others { task_id: "0-4-1".into(), agent: name("Tara") });
    let one = bed.take("Tara").unwrap();
    assert_eq!(bed.take("Tara").map(|again| (again.epoch, again.again)), Some((1, true)));
    assert!(matches!(bed.why("Devon"), NoStep::Others { .. }));
    assert_eq!(bed.submit(&one, "success").unwrap().status, "COMPLETED");

    let two = bed.take("Devon").unwrap();
    let failed = bed.submit(&two, "failure").unwrap();
    assert_eq!((failed.status, failed.next_attempt, failed.paused), ("FAILED", Some(2), false));
    let again = bed.take("Devon").unwrap();
    assert_eq!((again.attempt, again.epoch), (2, 2));
    assert!(bed.submit(&two, "success").is_err(), "late: the first attempt is over");
    bed.submit(&again, "success").unwrap();

    let three = bed.take("Tara").unwrap();
    assert!(bed.submit(&three, "blocked").unwrap().paused);
    assert!(matches!(bed.why("Tara"), NoStep::Paused { step_index: 3, .. }));
    bed.store.unblock(&three.key, &name("orion"), "it is there now").unwrap();
    let three = bed.take("Tara").unwrap();
    assert!(bed.store.prompt(&three).unwrap().text.contains("it is there now (was: no file)"));
    assert!(bed.submit(&three, "success").unwrap().queue_done);
    assert_eq!(bed.why("Tara"), NoStep::Done);
}

fn repeated_report_changes_nothing_and_a_different_one_is_rejected() {
    let bed = Bed::new(&[THREE]);
    let one = bed.take("Tara").unwrap();
    assert!(!bed.submit(&one, "success").unwrap().already_submitted);
    assert!(bed.submit(&one, "success").unwrap().already_submitted);
    let without_epoch = bed.store.submit(&report(&one, "success"), &one.agent, None);
    assert!(without_epoch.unwrap().already_submitted);
    let error = bed.submit(&one, "failure").unwrap_err().to_string();
    assert!(error.contains("COMPLETED already"), "{error}");
    let error = bed.store.submit(&report(&one, "success"), &name("Devon"), None).unwrap_err();
    assert!(error.to_string().contains("you are Devon"), "{error}");
    assert_eq!(bed.store.runs(&one.key).unwrap().len(), 1);
}

fn failed_step_stops_the_queue_until_it_is_retried() {
    let bed = Bed::new(&["{task_id: t, attempts_max: 2, steps: [{agent: A, goal: g}]}"]);
    for attempt in 1..=2 {
        let step = bed.take("A").unwrap();
        assert_eq!(step.attempt, attempt);
        bed.submit(&step, "failure").unwrap();
    }
    assert!(matches!(bed.why("A"), NoStep::Paused { .. }));
    let own = bed.store.retry(&StepKey::new("t", 1), &name("A"), "").unwrap_err().to_string();
    assert!(own.contains("A works on this task"), "{own}");
    bed.store.retry(&StepKey::new("t", 1), &name("orion"), "").unwrap();
    let step = bed.take("A").unwrap();
    assert_eq!((step.attempt, step.epoch), (1, 3));
    // Take the step away from its holder.
    bed.store.retry(&step.key, &name("orion"), "").unwrap();
    assert!(bed.submit(&step, "success").is_err());
    bed.store.skip(&step.key, &name("orion"), "not needed").unwrap();
    assert!(bed.store.queue("t").unwrap().is_done());
}

fn parts_of_a_split_step_go_to_the_head_of_the_queue() {
    let bed = Bed::new(&[THREE]);
    let one = bed.take("Tara").unwrap();
    bed.submit(&one, "blocked").unwrap();
    assert!(bed.split(&one.key, "Tara", &["only one"]).is_err());
    assert_eq!(bed.split(&one.key, "Tara", &["a", "b"]).unwrap(), [4, 5]);
    for (index, goal) in [(4, "a"), (5, "b")] {
        let step = bed.take("Tara").unwrap();
        assert_eq!((step.key.step_index, step.goal.as_str()), (index, goal));
        bed.submit(&step, "success").unwrap();
    }
    assert_eq!(bed.take("Devon").unwrap().key.step_index, 2);
    let parent = bed.store.step(&one.key).unwrap();
    assert_eq!(parent.status, "COMPLETED");
    assert_eq!(parent.resolution.as_deref(), Some("split"));
}

fn two_agents_never_hold_the_same_file() {
    let plan = |task: &str, agent: &str, file: &str| {
        format!("{{task_id: {task}, steps: [{{agent: {agent}, goal: g, files: [{file}]}}]}}")
    };
    for (one, other) in [("src/a.rs", "./src//a.rs"), ("src", "src/a.rs"), ("src/a.rs", "src")] {
        let bed = Bed::new(&[&plan("t1", "A", one), &plan("t2", "B", other)]);
        let first = bed.take("A").unwrap();
        assert!(matches!(bed.why("B"), NoStep::FileHeld { .. }), "{one} {other}");
        bed.submit(&first, "success").unwrap();
        assert!(bed.take("B").is_some());
    }
    let bed = Bed::new(&[&plan("t1", "A", "src/a.rs"), &plan("t2", "B", "src/a.rs.bak")]);
    assert!(bed.take("A").is_some() && bed.take("B").is_some());
}

fn tdd_order_is_enforced_in_each_cycle() {
    let bed = Bed::new(&["
task_id: t
policy: tdd
parallel: 4
steps:
  - {agent: T, goal: red a, phase: red, cycle: a}
  - {agent: D, goal: green a, phase: green, cycle: a}
  - {agent: T2, goal: red b, phase: red, cycle: b}
"]);
    let red = bed.take("T").unwrap();
    assert!(matches!(bed.why("D"), NoStep::Order { step_index: 2, .. }));
    assert!(bed.take("T2").is_some(), "another cycle does not wait");
    bed.submit(&red, "success").unwrap();
    let green = bed.take("D").unwrap();
    assert!(bed.store.prompt(&green).unwrap().text.contains("- Strict TDD, green: "));
}

fn step_of_a_silent_worker_returns_and_its_late_report_is_rejected() {
    let bed =
        Bed::new(&["{task_id: t, lease_seconds: 120, steps: [{agent: A, goal: g, files: [x]}]}"]);
    let step = bed.take("A").unwrap();
    assert_eq!(bed.observe_after(0).held, 1);
    assert_eq!(bed.observe_after(60).returned, []);
    bed.store.beat(&step.key, &name("A"), Some(1)).unwrap();
    assert_eq!(bed.observe_after(60).returned, [], "the worker has given a sign of life");
    assert_eq!(bed.observe_after(60).returned, []);
    assert_eq!(bed.observe_after(61).returned, std::slice::from_ref(&step.key));
    assert_eq!(bed.status(&step), "PENDING");
    assert!(bed.store.beat(&step.key, &name("A"), Some(1)).is_err());
    let again = bed.take("A").unwrap();
    assert_eq!((again.epoch, again.again), (2, false));
    let error = bed.submit(&step, "success").unwrap_err().to_string();
    assert!(error.contains("handed out again since"), "{error}");
    bed.submit(&again, "success").unwrap();
}

fn steps_of_many_workers_that_fall_silent_at_once_return_together() {
    let bed =
        Bed::new(&["{task_id: t, parallel: 4, lease_seconds: 120, steps: [{agent: A, goal: a}, \
                         {agent: B, goal: b}, {agent: C, goal: c}, {agent: D, goal: d}]}"]);
    for agent in ["A", "B", "C", "D"] {
        bed.take(agent).unwrap();
    }
    assert_eq!(bed.observe_after(0).returned, []);
    for seconds in (20..120).step_by(20) {
        assert_eq!(bed.observe_after(20).returned, [], "after {seconds} s");
    }
    assert_eq!(bed.observe_after(20).returned.len(), 4);
}

fn steps_of_a_machine_that_was_stopped_may_be_renewed() {
    let bed = Bed::new(&["{task_id: t, parallel: 2, lease_seconds: 120, \
                         steps: [{agent: A, goal: a}, {agent: B, goal: b}]}"]);
    let (first, second) = (bed.take("A").unwrap(), bed.take("B").unwrap());
    assert_eq!(bed.observe_after(0).returned, []);
    assert_eq!(bed.observe_after(3_600).returned, [], "no worker may have run either");
    bed.store.beat(&first.key, &name("A"), Some(1)).unwrap();
    assert_eq!(bed.observe_after(55).returned, [second.key]);
}

/// A clock that runs an action during its next reading, as if its reader were suspended.
struct Slow {
    clock: Arc<SimClock>,
    meanwhile: std::sync::Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl ensemble_core::env::Clock for Slow {
    fn monotonic(&self) -> ensemble_core::env::Monotonic {
        let now = self.clock.monotonic();
        let meanwhile = self.meanwhile.lock().unwrap().take();
        meanwhile.into_iter().for_each(|happens| happens());
        now
    }
    fn wall(&self) -> Timestamp {
        self.clock.wall()
    }
}

fn step_taken_while_an_observer_is_suspended_gets_a_full_lease() {
    let bed = Bed::new(&["{task_id: t, parallel: 2, lease_seconds: 40, \
                         steps: [{agent: A, goal: g}, {agent: B, goal: h}]}"]);
    let first = bed.take("A").unwrap();
    let (home, clock) = (bed.home.path().to_owned(), Arc::clone(&bed.clock));
    let meanwhile = move || {
        clock.advance(Duration::from_secs(30));
        let taken = open(&home, &clock).claim_step(&ClaimRequest::of(name("B"))).unwrap();
        assert!(matches!(taken, ClaimOutcome::Handed(_)));
    };
    let meanwhile = std::sync::Mutex::new(Some(Box::new(meanwhile) as Box<dyn FnOnce() + Send>));
    let slow = Slow { clock: Arc::clone(&bed.clock), meanwhile };
    let options = StepOptions::new(bed.home.path()).with_clock(Arc::new(slow));
    open_with(bed.home.path(), options).observe().unwrap();
    bed.store.beat(&first.key, &name("A"), Some(first.epoch)).unwrap();
    bed.clock.advance(Duration::from_secs(15));
    // 15 s of the second lease's 40 s have passed.
    let observed = bed.store.observe().unwrap();
    assert_eq!((observed.held, observed.returned), (2, vec![]));
}

fn orchestrator_is_notified_once() {
    let other = "task_id: other\norchestrator: lead\nsteps: [{agent: Lea, goal: one}]\n";
    let bed = Bed::new(&[THREE, other]);
    let spool = bed.queue(&["lead"]);
    bed.submit(&bed.take("Tara").unwrap(), "blocked").unwrap();
    bed.submit(&bed.take("Lea").unwrap(), "blocked").unwrap();
    assert!(bed.store.post_notices(&spool).is_err(), "without a mailbox the notice stays pending");
    assert_eq!(spool.counts(&name("lead")).unwrap().queued, 1, "the other one gets its notice");
    spool.add_mailbox(&name("orion"), &Settings::default()).unwrap();
    assert_eq!(bed.store.post_notices(&spool).unwrap(), 1);
    // As after a crash between the publish and the mark.
    bed.store
        .write("repeat in", |tx| Ok(tx.execute("UPDATE step_notices SET posted = 0", &[])?))
        .unwrap();
    assert_eq!(bed.store.post_notices(&spool).unwrap(), 0);
    let mail = spool.receive(&name("orion"), &name("orion")).unwrap().unwrap().envelope;
    assert_eq!(mail.kind.as_str(), "step.blocked");
    let notice: Notice = yaml::parse(&mail.body, Path::new("mail")).unwrap();
    assert_eq!(notice.reasons, ["no file"]);
    assert_eq!(notice.remedies[0], "ensemble step unblock 0-4-1 1");
    assert!(spool.receive(&name("orion"), &name("orion")).unwrap().is_none());
}

fn second_plan_of_a_task_is_rejected_and_the_same_plan_changes_nothing() {
    let bed = Bed::new(&[THREE]);
    assert_eq!(bed.store.add(&parse(THREE)).unwrap(), AddOutcome::AlreadyStored);
    let other = StepPlan::new("0-4-1", vec![PlannedStep::new(name("A"), "g")]);
    let refused = bed.store.add(&other).unwrap_err();
    assert_eq!(refused.area(), Some(&StepError::OtherPlan { task_id: other.task_id }));
    assert_eq!(bed.store.steps("0-4-1").unwrap().len(), 3);
}

#[test]
fn files_that_are_not_databases_are_left_unchanged() {
    let home = tempfile::tempdir().unwrap();
    let options = || StepOptions::new(home.path());
    let path = home.path().join("steps.db");
    std::fs::write(&path, "no database at all, but more than a hundred bytes: ".repeat(9)).unwrap();
    assert!(matches!(StepStore::open(&path, options()), Err(Error::Malformed { .. })));
    let link = home.path().join("link.db");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(matches!(StepStore::open(&link, options()), Err(Error::Malformed { .. })));
    let newer = home.path().join("newer.db");
    drop(StepStore::open(&newer, options()).unwrap());
    rusqlite::Connection::open(&newer).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let error = StepStore::open(&newer, options()).err().unwrap().to_string();
    assert!(error.contains("use the one that made it"), "{error}");
}

#[test]
fn statements_are_prepared_once_and_use_indexes() {
    let steps = "{agent: A, goal: g},".repeat(9);
    let bed = Bed::new(&[&format!("{{task_id: t, parallel: 9, steps: [{steps}]}}")]);
    for _ in 0..9 {
        let step = bed.take("A").unwrap();
        bed.submit(&step, "success").unwrap();
    }
    let db = bed.store.lock();
    let DbConnection::Sqlite(db) = &*db else { unreachable!("a file") };
    let db = db.connection();
    let find = db.prepare_cached(&working::find_statement()).unwrap();
    let times = find.get_status(rusqlite::StatementStatus::RePrepare);
    assert!(times <= 1, "prepared {times} times: bound values must not matter");
    let explain = "EXPLAIN QUERY PLAN SELECT 1 FROM task_steps WHERE holder = ?1";
    let plan: String = db.query_row(explain, ["A"], |row| row.get(3)).unwrap();
    assert!(plan.contains("task_steps_by_holder"), "{plan}");
}

fn queue_in_a_new_database_sends_notices_although_an_earlier_one_had_its_name() {
    let bed = Bed::new(&[THREE]);
    let spool = bed.queue(&["orion"]);
    bed.submit(&bed.take("Tara").unwrap(), "blocked").unwrap();
    assert_eq!(bed.store.post_notices(&spool).unwrap(), 1);
    let other = tempfile::tempdir().unwrap();
    bed.clock.advance(Duration::from_secs(1));
    let store = open(other.path(), &bed.clock);
    store.add(&parse(THREE)).unwrap();
    let bed = Bed { home: other, clock: Arc::clone(&bed.clock), store };
    bed.submit(&bed.take("Tara").unwrap(), "blocked").unwrap();
    assert_eq!(bed.store.post_notices(&spool).unwrap(), 1, "it is not the earlier queue's");
}

/// Runs any order of calls by several workers and checks the invariants.
fn no_step_is_lost_or_done_twice_in_any_order_of_calls() {
    const TASKS: u64 = 3;
    const STEPS: u32 = 4;
    for seed in 0..u64::from(fewer(60)) {
        let mut random = SimRng::new(seed);
        let mut plans = Vec::new();
        for task in 0..TASKS {
            let mut plan = format!("task_id: t{task}\nparallel: {}\n", 1 + random.below(3));
            plan += if random.percent(50) { "blocked_pauses: step\nsteps:\n" } else { "steps:\n" };
            for _ in 0..STEPS {
                let (agent, file) = (random.below(3), random.below(4));
                plan += &format!("  - {{agent: w{agent}, goal: g, files: [f{file}]}}\n");
            }
            plans.push(plan);
        }
        let bed = Bed::new(&plans.iter().map(String::as_str).collect::<Vec<_>>());
        play(&bed, &mut random, seed);
        for task in 0..TASKS {
            let steps = bed.store.steps(&format!("t{task}")).unwrap();
            assert_eq!(steps.iter().filter(|s| s.parent_index.is_none()).count(), STEPS as usize);
            for step in steps {
                let runs = bed.store.runs(&step.key).unwrap();
                let done = runs.iter().filter(|r| r.outcome.as_deref() == Some("success")).count();
                let completed = step.resolution.as_deref() == Some("success");
                assert_eq!(done, usize::from(completed), "seed {seed}: {step:?}");
                let epochs: Vec<u64> = runs.iter().map(|run| run.epoch).collect();
                assert_eq!(epochs, (1..=step.epoch).collect::<Vec<_>>(), "seed {seed}");
            }
        }
    }
}

fn play(bed: &Bed, random: &mut SimRng, seed: u64) {
    let mut known: BTreeMap<(String, u64), ClaimedStep> = BTreeMap::new();
    for _ in 0..60 {
        let agent = format!("w{}", random.below(3));
        let any = known.values().nth(usize::try_from(random.below(known.len() as u64)).unwrap());
        match (random.below(8), any.cloned()) {
            (0..=2, _) | (_, None) => {
                if let Some(handed) = bed.take(&agent) {
                    known.insert((handed.key.to_string(), handed.epoch), handed);
                }
            }
            // Often late, repeated, or of a step that another worker holds by now.
            (3 | 4, Some(handed)) => drop(bed.submit(&handed, "success")),
            (5, Some(handed)) => {
                drop(bed.submit(&handed, if random.percent(50) { "failure" } else { "blocked" }));
            }
            (6, Some(handed)) => {
                let _ = bed.store.retry(&handed.key, &name("o"), "");
                let _ = bed.store.unblock(&handed.key, &name("o"), "");
            }
            (_, Some(handed)) => {
                let _ = bed.split(&handed.key, &agent, &["a", "b"]);
            }
        }
        let held = "SELECT r.path FROM task_steps s JOIN task_resources r \
                    USING (task_id, step_index) WHERE s.holder IS NOT NULL";
        let files: Vec<String> = bed.store.read(|tx| tx.all(held, &[])).unwrap();
        let mut once = files.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), files.len(), "seed {seed}: two steps hold one file: {files:?}");
        let locked: u32 =
            bed.store.read(|tx| tx.only("SELECT count(*) FROM file_locks", &[])).unwrap();
        assert_eq!(locked as usize, files.len(), "seed {seed}: a lock without a step");
    }
}
