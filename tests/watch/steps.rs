//! Step queues with a real watcher: it ends leases and notifies orchestrators while no worker uses
//! the queue.

use ensemble_team::steps::{ClaimOutcome, ClaimedStep, Completion, CompletionStatus};

use crate::support::pause;

use crate::*;

/// Whose leases outlast any test, however slow the machine is.
const PLAN: &str = "
task_id: 0-4-1
orchestrator: orion
lease_seconds: 3600
steps: [{agent: Tara, goal: one}, {agent: Tara, goal: two}]
";
/// Whose leases end within a test.
const SHORT_PLAN: &str = "
task_id: 0-4-1
orchestrator: orion
lease_seconds: 1
attempts_max: 99
steps: [{agent: Tara, goal: one}]
";
const SHORT_LEASE: Duration = Duration::from_secs(1);
/// Less than a look without an event takes.
const SOON: Duration = Duration::from_secs(15);

fn bed() -> Bed {
    let bed = Bed::with(&Settings::default(), "");
    bed.spool().add_mailbox(&name("orion"), &Settings::default()).unwrap();
    bed
}

/// A store that its process keeps open, as an MCP server does: it closes no connection.
fn open(bed: &Bed) -> StepStore {
    open_at(bed, Durability::Process)
}

fn open_at(bed: &Bed, durability: Durability) -> StepStore {
    let home = bed.queue().parent().unwrap().to_owned();
    let options =
        StepOptions::new(&home).with_durability(durability).with_recorder(Arc::new(NullRecorder));
    let state = home.join(".ensemble");
    std::fs::create_dir_all(&state).unwrap();
    StepStore::open(&state.join(STEPS_FILE), options).unwrap()
}

fn filled(bed: &Bed) -> StepStore {
    filled_with(bed, PLAN)
}

fn filled_with(bed: &Bed, plan: &str) -> StepStore {
    let store = open(bed);
    store.add(&StepPlan::parse(plan, "plan.yaml".as_ref()).unwrap()).unwrap();
    store
}

/// Steps of which a watcher knows.
fn watched(bed: &Bed, plan: &str) -> (StepStore, Watcher) {
    let store = filled_with(bed, plan);
    let watcher = Watcher::start(bed);
    watcher.wait_for_status("it has found the steps", |status| status["steps"]["held"] == 0);
    (store, watcher)
}

fn take(store: &StepStore) -> ClaimedStep {
    match store.claim_step(&ClaimRequest::of(name("Tara"))).unwrap() {
        ClaimOutcome::Handed(step) => *step,
        ClaimOutcome::Nothing(nothing) => panic!("{nothing}"),
    }
}

fn blocked(step: &ClaimedStep) -> Completion {
    let mut report =
        Completion::new(step.key.clone(), step.agent.clone(), CompletionStatus::Blocked);
    report.blockers = vec!["no file".to_owned()];
    report
}

fn told(bed: &Bed) -> Option<String> {
    let orion = name("orion");
    let mail = bed.spool().receive(&orion, &orion).unwrap()?;
    Some(mail.envelope.kind.to_string())
}

#[test]
fn an_expired_step_is_released_without_a_worker_asking_for_one() {
    let bed = bed();
    let (store, _watcher) = watched(&bed, SHORT_PLAN);
    // No watcher can have seen the lease before.
    let began = Instant::now();
    let step = take(&store);
    eventually_true(PATIENCE, "the step is taken back", || {
        store.step(&step.key).unwrap().status == "PENDING"
    });
    assert!(began.elapsed() >= SHORT_LEASE, "its lease runs for a second");
    assert!(began.elapsed() < SOON, "{:?}: the log has not rung", began.elapsed());
    let run = &store.runs(&step.key).unwrap()[0];
    assert_eq!(run.outcome.as_deref(), Some("lease_ended"));
    assert_eq!(take(&store).epoch, step.epoch + 1);
    let late = store.submit(&blocked(&step), &step.agent, Some(step.epoch));
    assert!(late.is_err(), "the step was handed out again");
}

#[test]
fn a_worker_that_lives_keeps_its_step() {
    let bed = bed();
    let store = filled_with(&bed, SHORT_PLAN);
    let _watcher = Watcher::start(&bed);
    eventually_true(PATIENCE, "a worker shows in time that it lives", || {
        keeps_its_step_unless_it_is_late(&store)
    });
}

/// Whether the worker has kept its step for four leases. It loses the step only if the machine
/// stopped it for a whole lease.
fn keeps_its_step_unless_it_is_late(store: &StepStore) -> bool {
    let began = Instant::now();
    let step = take(store);
    let mut last_sign = began;
    while began.elapsed() < 4 * SHORT_LEASE {
        let sign = Instant::now();
        let shown = store.beat(&step.key, &step.agent, Some(step.epoch));
        if let Err(error) = shown {
            assert!(last_sign.elapsed() >= SHORT_LEASE, "it lived: {error}");
            return false;
        }
        last_sign = sign;
        pause();
    }
    let holder = store.step(&step.key).unwrap().holder;
    let was_late = last_sign.elapsed() >= SHORT_LEASE;
    assert!(was_late || holder == Some(name("Tara")), "it lived: {holder:?}");
    !was_late
}

/// The log rings when a change is written. The change can be seen when it is committed, which at
/// `power` is a sync of the disk later.
#[test]
fn a_change_whose_event_precedes_its_commit_is_seen() {
    let bed = bed();
    let (_store, watcher) = watched(&bed, PLAN);
    let store = open_at(&bed, Durability::Power);
    let began = Instant::now();
    let _step = take(&store);
    watcher.wait_for_status("it has seen the lease", |status| status["steps"]["held"] == 1);
    assert!(began.elapsed() < SOON, "{:?}: it was looked at too early, and once", began.elapsed());
}

#[test]
fn a_killed_workers_blocked_step_still_reaches_its_orchestrator() {
    let bed = bed();
    let (store, _watcher) = watched(&bed, PLAN);
    let step = take(&store);
    let began = Instant::now();
    // Only the transaction: a worker killed now has sent no message.
    store.submit(&blocked(&step), &step.agent, Some(step.epoch)).unwrap();
    let kind = eventually(PATIENCE, "the orchestrator is told", || told(&bed));
    assert_eq!(kind, "step.blocked");
    assert!(began.elapsed() < SOON, "{:?}: the log has not rung", began.elapsed());
    assert_eq!(told(&bed), None, "it is told once");
}

#[test]
fn pending_notices_are_sent_at_the_start_and_a_replaced_database_is_found() {
    let bed = bed();
    {
        let store = filled(&bed);
        let step = take(&store);
        store.submit(&blocked(&step), &step.agent, None).unwrap();
    }
    let watcher = Watcher::start(&bed);
    assert_eq!(eventually(PATIENCE, "it is told", || told(&bed)), "step.blocked");
    let state = bed.queue().parent().unwrap().join(".ensemble");
    for side in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(state.join(format!("{STEPS_FILE}{side}")));
    }
    watcher.wait_for_status("it has let go", |status| status["steps"].is_null());
    let store = filled(&bed);
    watcher.wait_for_status("it has found the other", |status| status["steps"]["held"] == 0);
    let step = take(&store);
    store.submit(&blocked(&step), &step.agent, None).unwrap();
    assert_eq!(eventually(PATIENCE, "it is told again", || told(&bed)), "step.blocked");
}

#[test]
fn watching_a_queue_does_not_keep_it_busy() {
    let bed = bed();
    let (store, watcher) = watched(&bed, PLAN);
    take(&store);
    watcher.wait_for_status("it has seen the lease", |status| status["steps"]["held"] == 1);
    // Two observers: what each of them notes must not wake the other forever.
    store.observe().unwrap();
    let before = store.data_version().unwrap();
    let end = Instant::now() + Duration::from_secs(2);
    while Instant::now() < end {
        store.observe().unwrap();
        pause();
    }
    let after = store.data_version().unwrap();
    assert!(after - before <= 1, "it wrote {} times though nothing happened", after - before);
}
