//! Step queues and processes that die. A worker is killed at every statement of taking and
//! submitting. Many workers are killed while they empty a queue together.

use crate::postgres_support;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::children::{Child, Dice, cast, say, wait_until};
use crate::postgres_support::{Cluster, team_of};
use ensemble_core::durable::Durability;
use ensemble_team::steps::{
    ClaimOutcome, ClaimRequest, ClaimedStep, Completion, CompletionStatus, FilePath, PlannedStep,
    PostgresOptions, SCHEMA_VERSION, StepKey, StepOptions, StepPlan, StepStore,
};
use rustix::process::{Signal, getpid, kill_process};

use crate::queue::name;
use crate::support::traced::share;

const TASK: &str = "0-4-1";
const WORKERS: u64 = 4;
const STEPS: u32 = 2_000;
/// As many over a server, where each statement costs a round trip.
const STEPS_ON_SERVER: u32 = 200;
const FILES: u32 = 7;

/// More statements than any operation has.
const STATEMENTS_MAX: u64 = 1_000;

/// How many statements a child runs before it is killed.
static STATEMENTS_LEFT: AtomicU64 = AtomicU64::new(u64::MAX);

/// The file that names the server, in a directory whose queues are on one.
const SERVER: &str = "server";

thread_local! {
    /// Whether the queues of this test are on a server.
    static IS_ON_SERVER: Cell<bool> = const { Cell::new(false) };
}

macro_rules! over_databases {
    ($($test:ident),* $(,)?) => {
        mod over_sqlite {
            $(#[test] fn $test() { super::over(false, super::$test); })*
        }
        mod over_postgres {
            $(#[test] #[ignore = "long"] fn $test() { super::over(true, super::$test); })*
        }
    };
}

over_databases![
    a_worker_killed_at_any_statement_of_taking_leaves_a_step_that_is_taken_once,
    a_worker_killed_at_any_statement_of_submitting_completes_its_step_once,
    a_worker_killed_at_any_statement_of_failing_orders_one_fix,
    a_worker_killed_at_any_statement_of_its_fix_hands_the_failed_step_out_again_once,
    many_that_open_a_fresh_database_at_once_make_it_once,
    workers_that_are_killed_lose_double_and_repeat_nothing,
];

fn over(is_on_server: bool, test: fn()) {
    IS_ON_SERVER.set(is_on_server);
    test();
}

/// The directory of a test; a file in it names the server.
fn home() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    if IS_ON_SERVER.get() {
        std::fs::write(home.path().join(SERVER), Cluster::shared().address()).unwrap();
    }
    home
}

fn open(home: &Path, on_statement: Option<fn(&str)>) -> StepStore {
    let mut options = StepOptions::new(home).with_durability(Durability::Process);
    options.on_statement = on_statement;
    match std::fs::read_to_string(home.join(SERVER)) {
        Ok(address) => {
            let team = name(&team_of(home));
            StepStore::on_server(PostgresOptions::new(&address, &team).unwrap(), options)
        }
        Err(_) => StepStore::open(&home.join("steps.db"), options).unwrap(),
    }
}

fn die_in_time(_: &str) {
    if STATEMENTS_LEFT.fetch_sub(1, Ordering::Relaxed) == 1 {
        kill_process(getpid(), Signal::KILL).unwrap();
    }
}

#[test]
fn play_role() {
    let Some(role) = cast() else { return };
    let home = Path::new(&role[1]);
    if role[0] == "work" {
        work(&open(home, None), &role[2]);
        return say("done");
    }
    let store = open(home, Some(die_in_time));
    STATEMENTS_LEFT.store(role[2].parse().unwrap(), Ordering::Relaxed);
    let submit = |report: Completion, by| {
        store.submit(&report, &name(by), None).unwrap();
    };
    match role[0].as_str() {
        "take" => drop(take(&store, "Tara")),
        "submit" => submit(done(1, "Tara"), "Tara"),
        "fail" => submit(failed(1), "Tara"),
        "fix" => submit(done(3, "Devon"), "Devon"),
        other => panic!("there is no role `{other}`"),
    }
    drop(store);
    STATEMENTS_LEFT.store(u64::MAX, Ordering::Relaxed);
    say("done");
}

fn done(index: u32, agent: &str) -> Completion {
    let mut report =
        Completion::new(StepKey::new(TASK, index), name(agent), CompletionStatus::Success);
    report.context_for_next_step = Some("go on".to_owned());
    report
}

fn failed(index: u32) -> Completion {
    let mut report =
        Completion::new(StepKey::new(TASK, index), name("Tara"), CompletionStatus::Failure);
    report.summary = Some("src/a.rs:1 is wrong".to_owned());
    report
}

/// A step with a fixer, which Tara holds, and one after it.
fn fixed_step() -> (tempfile::TempDir, StepStore) {
    let home = home();
    let store = open(home.path(), None);
    let mut first = PlannedStep::new(name("Tara"), "do it");
    first.fix_by = Some(name("Devon"));
    store.add(&StepPlan::new(TASK, vec![first, PlannedStep::new(name("Tara"), "go on")])).unwrap();
    take(&store, "Tara");
    (home, store)
}

fn take(store: &StepStore, agent: &str) -> ClaimedStep {
    match store.claim_step(&ClaimRequest::of(name(agent))).unwrap() {
        ClaimOutcome::Handed(handed) => *handed,
        ClaimOutcome::Nothing(nothing) => panic!("{nothing}"),
    }
}

fn one_step() -> (tempfile::TempDir, StepStore) {
    let home = home();
    let store = open(home.path(), None);
    let file = FilePath::new("src/a.rs").unwrap();
    let mut plan =
        StepPlan::new(TASK, vec![PlannedStep::new(name("Tara"), "do it").with_files([file])]);
    plan.orchestrator = Some(name("orion"));
    store.add(&plan).unwrap();
    (home, store)
}

/// A number out of the database, as its own client would show it.
fn count(home: &Path, query: &str) -> i64 {
    if let Ok(address) = std::fs::read_to_string(home.join(SERVER)) {
        return postgres_support::asked(&address, &team_of(home), query).parse().unwrap();
    }
    let db = rusqlite::Connection::open(home.join("steps.db")).unwrap();
    let whole: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(whole, "ok");
    db.query_row(query, [], |row| row.get(0)).unwrap()
}

/// Kills a child at its first, second … statement until one survives; which was the last. On a server, where each child
/// connects, an ordinary run takes a third of them.
fn kill_at_every_statement(
    role: &str,
    prepare: impl Fn() -> (tempfile::TempDir, StepStore),
    check: impl Fn(&Path, &StepStore),
) -> u64 {
    let all = (1..STATEMENTS_MAX).collect();
    for statement in if IS_ON_SERVER.get() { share(all) } else { all } {
        let (home, store) = prepare();
        let path = home.path().to_str().unwrap();
        let role = format!("steps::{role}");
        let mut child = Child::spawn(&[&role, path, &statement.to_string()]);
        let survived = child.hear().as_deref() == Some("done");
        drop(child);
        check(home.path(), &store);
        if survived {
            return statement - 1;
        }
    }
    unreachable!("a transaction has an end")
}

fn a_worker_killed_at_any_statement_of_taking_leaves_a_step_that_is_taken_once() {
    let killed = kill_at_every_statement("take", one_step, |home, store| {
        let runs = count(home, "SELECT count(*) FROM step_runs");
        let held = count(home, "SELECT count(*) FROM task_steps WHERE holder IS NOT NULL");
        let files = count(home, "SELECT count(*) FROM file_locks");
        assert!([(0, 0, 0), (1, 1, 1)].contains(&(runs, held, files)), "{runs} {held} {files}");
        let ClaimOutcome::Handed(handed) =
            store.claim_step(&ClaimRequest::of(name("Tara"))).unwrap()
        else {
            panic!("the step is lost");
        };
        assert_eq!(handed.epoch, 1, "it was handed out twice");
        assert!(!store.submit(&done(1, "Tara"), &name("Tara"), Some(1)).unwrap().already_submitted);
    });
    assert!(killed >= 8, "only {killed} statements: this test kills in the wrong place");
}

fn a_worker_killed_at_any_statement_of_submitting_completes_its_step_once() {
    let prepare = || {
        let (home, store) = one_step();
        let next = store.claim_step(&ClaimRequest::of(name("Tara"))).unwrap();
        assert!(matches!(next, ClaimOutcome::Handed(_)));
        (home, store)
    };
    let killed = kill_at_every_statement("submit", prepare, |home, store| {
        let completed = count(home, "SELECT count(*) FROM task_steps WHERE status = 'COMPLETED'");
        let ended = count(home, "SELECT count(*) FROM step_runs WHERE outcome = 'success'");
        let files = count(home, "SELECT count(*) FROM file_locks");
        let told = count(home, "SELECT count(*) FROM step_notices");
        let whole = [(0, 0, 1, 0), (1, 1, 0, 1)];
        assert!(whole.contains(&(completed, ended, files, told)), "{completed} {ended} {files}");
        let again = store.submit(&done(1, "Tara"), &name("Tara"), None).unwrap();
        assert_eq!(again.already_submitted, completed == 1);
        assert_eq!(count(home, "SELECT count(*) FROM step_runs"), 1);
        assert_eq!(count(home, "SELECT count(*) FROM step_notices"), 1, "told twice, or not");
    });
    assert!(killed >= 8, "only {killed} statements: this test kills in the wrong place");
}

fn a_worker_killed_at_any_statement_of_failing_orders_one_fix() {
    let killed = kill_at_every_statement("fail", fixed_step, |home, store| {
        let waits = count(home, "SELECT sum(waits_for_fix) FROM task_steps");
        let fixes = count(home, "SELECT count(*) FROM task_steps WHERE fixes = 1");
        assert!([(0, 0), (1, 1)].contains(&(waits, fixes)), "{waits} {fixes}");
        store.submit(&failed(1), &name("Tara"), None).unwrap();
        assert_eq!(count(home, "SELECT count(*) FROM task_steps WHERE fixes = 1"), 1);
        assert_eq!(take(store, "Devon").key.step_index, 3);
    });
    assert!(killed >= 12, "only {killed} statements: this test kills in the wrong place");
}

fn a_worker_killed_at_any_statement_of_its_fix_hands_the_failed_step_out_again_once() {
    let prepare = || {
        let (home, store) = fixed_step();
        store.submit(&failed(1), &name("Tara"), None).unwrap();
        take(&store, "Devon");
        (home, store)
    };
    let killed = kill_at_every_statement("fix", prepare, |home, store| {
        let waits = count(home, "SELECT sum(waits_for_fix) FROM task_steps");
        let done = count(home, "SELECT count(*) FROM task_steps WHERE status = 'COMPLETED'");
        assert!([(1, 0), (0, 1)].contains(&(waits, done)), "{waits} {done}");
        store.submit(&self::done(3, "Devon"), &name("Devon"), None).unwrap();
        let again = take(store, "Tara");
        assert_eq!((again.key.step_index, again.attempt), (1, 2));
    });
    assert!(killed >= 10, "only {killed} statements: this test kills in the wrong place");
}

#[test]
fn the_tables_match_the_protocol_and_any_client_can_read_them() {
    use std::os::unix::fs::PermissionsExt as _;
    let (home, _store) = one_step();
    let file = home.path().join("steps.db");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let db = rusqlite::Connection::open(file).unwrap();
    let text = |query: &str| db.query_row(query, [], |row| row.get::<_, String>(0)).unwrap();
    assert_eq!(text("PRAGMA journal_mode"), "wal");
    let tables = "SELECT group_concat(name, ' ') FROM (SELECT name FROM sqlite_schema \
                  WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name)";
    let section = include_str!("../../docs/protocol/steps.md");
    let first = section.split("\n\n").find(|part| part.starts_with("| table |")).unwrap();
    let cells = first.lines().skip(2).filter_map(|line| line.split('`').nth(1));
    let mut named: Vec<&str> = cells.collect();
    named.sort_unstable();
    assert_eq!(text(tables), named.join(" "));
    let select = section.split('\'').nth(1).unwrap();
    assert!(select.starts_with("select step_index"), "{select}");
    let status: String = db.query_row(select, [], |row| row.get(1)).unwrap();
    assert_eq!(status, "PENDING");
}

fn many_that_open_a_fresh_database_at_once_make_it_once() {
    let home = home();
    let start = std::sync::Barrier::new(8);
    std::thread::scope(|scope| {
        for number in 0..8 {
            let (home, start) = (home.path(), &start);
            scope.spawn(move || {
                start.wait();
                let plan =
                    StepPlan::new(format!("t{number}"), vec![PlannedStep::new(name("A"), "g")]);
                open(home, None).add(&plan).unwrap();
            });
        }
    });
    assert_eq!(count(home.path(), "SELECT count(*) FROM task_queues"), 8);
    let version = match IS_ON_SERVER.get() {
        true => "SELECT version FROM step_schema",
        false => "PRAGMA user_version",
    };
    assert_eq!(count(home.path(), version), i64::from(SCHEMA_VERSION));
}

/// SQLite copies its log into the database once the log has a thousand pages, and restarts it if no
/// connection wrote in the meantime.
#[test]
fn the_log_of_the_database_stays_small_while_many_write() {
    const PAGES_MAX: u64 = 4_000;
    const PAGE_BYTES: u64 = 4_096;
    let home = tempfile::tempdir().unwrap();
    let path = home.path();
    // The last connection to close removes the log.
    let _last = open(path, None);
    let start = std::sync::Barrier::new(8);
    std::thread::scope(|scope| {
        for number in 0..8 {
            let start = &start;
            scope.spawn(move || {
                let (store, task) = (open(path, None), format!("t{number}"));
                let me = name(&format!("w{number}"));
                store
                    .add(&StepPlan::new(&task, vec![PlannedStep::new(me.clone(), "g"); 400]))
                    .unwrap();
                start.wait();
                while let ClaimOutcome::Handed(step) =
                    store.claim_step(&ClaimRequest::of(me.clone())).unwrap()
                {
                    let report = Completion::new(step.key, me.clone(), CompletionStatus::Success);
                    store.submit(&report, &me, Some(step.epoch)).unwrap();
                }
            });
        }
    });
    let log = std::fs::metadata(path.join("steps.db-wal")).unwrap().len();
    assert!((1..=PAGES_MAX * PAGE_BYTES).contains(&log), "the log has {log} bytes");
}

/// Takes and submits until everything is done, and says what it does before and after.
fn work(store: &StepStore, worker: &str) {
    let me = name(worker);
    loop {
        let version = store.data_version().unwrap();
        let next = match store.claim_step(&ClaimRequest::of(me.clone())) {
            Err(error) if error.is_transient() => continue,
            next => next.unwrap(),
        };
        match next {
            ClaimOutcome::Handed(handed) => {
                let ClaimedStep { key, epoch, .. } = *handed;
                say(format!("has {} {epoch}", key.step_index));
                let report = done(key.step_index, worker);
                let submitted = loop {
                    match store.submit(&report, &me, Some(epoch)) {
                        Err(error) if error.is_transient() => {}
                        submitted => break submitted.unwrap(),
                    }
                };
                // One that was killed before it could say so gets the same answer again.
                let how = if submitted.already_submitted { "again" } else { "did" };
                say(format!("{how} {} {epoch}", key.step_index));
            }
            ClaimOutcome::Nothing(_) if store.queue(TASK).unwrap().is_done() => return,
            // A file is held, or another one works on the last steps.
            ClaimOutcome::Nothing(_) => {
                wait_until("something has changed", || store.data_version().unwrap() != version);
            }
        }
    }
}

fn workers_that_are_killed_lose_double_and_repeat_nothing() {
    let home = home();
    let store = open(home.path(), None);
    let step = |number: u32| {
        let agent = name(&format!("w{}", u64::from(number) % WORKERS));
        let file = FilePath::new(&format!("f{}", number % FILES)).unwrap();
        PlannedStep::new(agent, "do it").with_files([file])
    };
    let steps = if IS_ON_SERVER.get() { STEPS_ON_SERVER } else { STEPS };
    let mut plan = StepPlan::new(TASK, (0..steps).map(step).collect());
    plan.parallel = u32::try_from(WORKERS).unwrap();
    plan.attempts_max = 99;
    store.add(&plan).unwrap();

    let mut dice = Dice(0x5eed);
    let path = home.path().to_str().unwrap();
    let spawn = |worker: u64| Child::spawn(&["steps::work", path, &format!("w{worker}")]);
    let mut workers: Vec<Child> = (0..WORKERS).map(spawn).collect();
    let mut said: BTreeMap<(String, u32), u32> = BTreeMap::new();
    let hear = |line: &str, said: &mut BTreeMap<_, _>| {
        if let Some(rest) = line.strip_prefix("did ") {
            let index = rest.split(' ').next().unwrap().parse().unwrap();
            *said.entry(("did".to_owned(), index)).or_insert(0) += 1;
        }
    };
    let mut kills = 0;
    while !store.queue(TASK).unwrap().is_done() {
        let victim = usize::try_from(dice.below(WORKERS)).unwrap();
        for _ in 0..dice.below(6) {
            match workers[victim].hear() {
                Some(line) => hear(&line, &mut said),
                None => break,
            }
        }
        for line in workers[victim].kill() {
            hear(&line, &mut said);
        }
        kills += 1;
        workers[victim] = spawn(victim as u64);
    }
    for mut worker in workers {
        while let Some(line) = worker.hear() {
            hear(&line, &mut said);
        }
    }
    assert!(kills > 5, "no worker was killed");
    for ((_, index), times) in said {
        assert_eq!(times, 1, "step {index} was completed {times} times");
    }
    for step in store.steps(TASK).unwrap() {
        let runs = store.runs(&step.key).unwrap();
        let successes = runs.iter().filter(|run| run.outcome.as_deref() == Some("success")).count();
        assert_eq!((step.status.as_str(), successes), ("COMPLETED", 1), "{step:?}");
    }
    assert_eq!(count(home.path(), "SELECT count(*) FROM file_locks"), 0);
}
