//! Step queues on a PostgreSQL server, for the processes of two hosts: each with its own directory. The server
//! is killed while they work, and demands a password over TLS.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use crate::children::{Child, cast, say, wait_until};
use crate::postgres_support::{Cluster, asked, team_of};
use ensemble_team::steps::{
    ClaimOutcome, ClaimRequest, ClaimedStep, Completion, CompletionStatus, FilePath, PlannedStep,
    PostgresOptions, StepKey, StepOptions, StepPlan, StepStore,
};

use crate::queue::name;

const TASKS: [&str; 2] = ["t-1", "t-2"];
const STEPS: u32 = 60;
const WORKERS: u32 = 4;
/// Different files among all steps, by the same names on each host.
const FILES: u32 = 5;

/// A host: its own directory, and the team's queues on the server.
fn host(home: &Path, (address, team): (&str, &str)) -> StepStore {
    let mut server = PostgresOptions::new(address, &name(team)).unwrap();
    server.patience = Duration::from_secs(60);
    let mut options = StepOptions::new(home);
    options.patience = Duration::from_secs(60);
    StepStore::on_server(server, options)
}

/// Repeats what a server that is away did not do.
fn patiently<T>(mut call: impl FnMut() -> ensemble_core::Result<T>) -> T {
    loop {
        match call() {
            Err(error) if error.is_transient() => std::thread::yield_now(),
            result => return result.unwrap(),
        }
    }
}

fn take(store: &StepStore, agent: &str) -> Option<ClaimedStep> {
    match patiently(|| store.claim_step(&ClaimRequest::of(name(agent)))) {
        ClaimOutcome::Handed(handed) => Some(*handed),
        ClaimOutcome::Nothing(_) => None,
    }
}

fn done(handed: &ClaimedStep) -> Completion {
    Completion::new(handed.key.clone(), handed.agent.clone(), CompletionStatus::Success)
}

#[test]
fn play_role() {
    let Some(role) = cast() else { return };
    let [_, home, address, team, agent] = &role[..] else { panic!("{role:?}") };
    let store = host(Path::new(home), (address, team));
    let is_done = || TASKS.iter().all(|task| patiently(|| store.queue(task)).is_done());
    loop {
        let version = patiently(|| store.data_version());
        if let Some(handed) = take(&store, agent) {
            let report = done(&handed);
            let by = name(agent);
            let submitted = patiently(|| store.submit(&report, &by, Some(handed.epoch)));
            let how = if submitted.already_submitted { "again" } else { "did" };
            say(format!("{how} {} {}", handed.key.task_id, handed.key.step_index));
        } else if is_done() {
            return say("done");
        } else {
            wait_until("another process has changed something", || {
                let _ = store.wait_for_news(Duration::from_millis(100));
                patiently(|| store.data_version()) != version || is_done()
            });
        }
    }
}

fn plan(task: &str) -> StepPlan {
    let step = |number: u32| {
        let file = FilePath::new(&format!("src/f{}", number % FILES)).unwrap();
        PlannedStep::new(name(&format!("w{}", number % WORKERS)), "g").with_files([file])
    };
    let mut plan = StepPlan::new(task, (0..STEPS).map(step).collect());
    plan.parallel = WORKERS;
    plan
}

#[test]
fn steps_of_two_hosts_are_done_once_while_the_server_is_killed() {
    let cluster = Cluster::start();
    let homes = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let (address, team) = (cluster.address(), team_of(homes[0].path()));
    let store = host(homes[0].path(), (&address, &team));
    for task in TASKS {
        store.add(&plan(task)).unwrap();
    }
    let mut workers: Vec<Child> = (0..WORKERS)
        .map(|number| {
            let home = homes[number as usize % 2].path().to_str().unwrap();
            Child::spawn(&["steps_on_server::work", home, &address, &team, &format!("w{number}")])
        })
        .collect();
    let mut said = Vec::new();
    for kills in 0.. {
        // Some continue while another one pauses.
        let worker = &mut workers[kills % WORKERS as usize];
        said.extend((0..5).filter_map(|_| worker.hear()));
        if kills == 3 {
            break;
        }
        cluster.kill();
        let away = store.queue(TASKS[0]).unwrap_err();
        assert!(away.is_transient(), "{away}");
        cluster.run();
    }
    for worker in &mut workers {
        said.extend(std::iter::from_fn(|| worker.hear()));
    }
    assert_eq!(said.iter().filter(|line| *line == "done").count(), WORKERS as usize);
    let total = STEPS as usize * TASKS.len();
    let told: std::collections::BTreeSet<_> = said.iter().filter(|line| *line != "done").collect();
    assert!(told.len() >= total, "{told:?}");
    for task in TASKS {
        for step in patiently(|| store.steps(task)) {
            let runs = patiently(|| store.runs(&step.key));
            let successes = runs.iter().filter(|it| it.outcome.as_deref() == Some("success"));
            assert_eq!((step.status.as_str(), successes.count()), ("COMPLETED", 1), "{step:?}");
            assert_eq!(runs.len(), 1, "it was handed out once: {runs:?}");
        }
    }
    assert_eq!(asked(&address, &team, "SELECT count(*) FROM file_locks"), "0");
}

/// The same holds for a host behind a link that swallows everything.
#[test]
fn a_server_that_stops_answering_ends_the_call_and_serves_the_next_one() {
    let cluster = Cluster::start();
    let home = tempfile::tempdir().unwrap();
    let mut server = PostgresOptions::new(&cluster.address(), &name("frozen")).unwrap();
    server.patience = Duration::from_secs(1);
    let store = StepStore::on_server(server, StepOptions::new(home.path()));
    store.add(&plan("t-1")).unwrap();
    let frozen = cluster.freeze();
    for call in ["the open connection", "a new one"] {
        let error = store.queue("t-1").unwrap_err();
        assert!(error.is_transient(), "{call}: {error}");
    }
    drop(frozen);
    assert_eq!(patiently(|| store.queue("t-1")).task_id, "t-1");
}

#[test]
fn one_agent_that_asks_on_two_hosts_at_once_gets_one_step() {
    let cluster = Cluster::shared();
    let homes = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let (address, team) = (cluster.address(), team_of(homes[0].path()));
    let stores = homes.each_ref().map(|home| host(home.path(), (&address, &team)));
    for round in 0..20 {
        let task = |queue: &str| format!("{queue}-{round}");
        for queue in ["one", "two"] {
            stores[0]
                .add(&StepPlan::new(task(queue), vec![PlannedStep::new(name("Tara"), "g")]))
                .unwrap();
        }
        let start = std::sync::Barrier::new(2);
        let handed = std::thread::scope(|scope| {
            let ask = |store| {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    take(store, "Tara").expect("a step waits")
                })
            };
            let asked = [ask(&stores[0]), ask(&stores[1])];
            asked.map(|it| it.join().unwrap())
        });
        assert_eq!(handed[0].key, handed[1].key, "round {round}");
        assert_ne!(handed[0].again, handed[1].again, "one of them came later");
        stores[1].submit(&done(&handed[0]), &name("Tara"), Some(1)).unwrap();
        stores[0].skip(&StepKey::new(task("two"), 1), &name("o"), "").unwrap();
    }
}

#[test]
fn a_file_has_one_holder_although_the_hosts_have_other_directories() {
    let homes = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let (address, team) = (Cluster::shared().address(), team_of(homes[0].path()));
    let stores = homes.each_ref().map(|home| host(home.path(), (&address, &team)));
    for (task, agent, file) in [("t-1", "A", "src/a.rs"), ("t-2", "B", "src")] {
        let file = FilePath::new(file).unwrap();
        let step = PlannedStep::new(name(agent), "g").with_files([file]);
        stores[0].add(&StepPlan::new(task, vec![step])).unwrap();
    }
    let held = take(&stores[0], "A").unwrap();
    assert!(take(&stores[1], "B").is_none());
    stores[0].submit(&done(&held), &name("A"), None).unwrap();
    assert!(take(&stores[1], "B").is_some());
}

#[test]
fn a_change_on_one_host_wakes_a_process_of_another() {
    let homes = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let (address, team) = (Cluster::shared().address(), team_of(homes[0].path()));
    let [near, far] = homes.each_ref().map(|home| host(home.path(), (&address, &team)));
    let version = far.data_version().unwrap();
    assert_eq!(far.data_version().unwrap(), version, "looking is no change");
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| far.wait_for_news(Duration::from_secs(120)).unwrap());
        near.add(&plan("t-1")).unwrap();
        assert_eq!(waits.join().unwrap(), Some(true));
    });
    let changed = far.data_version().unwrap();
    assert_ne!(changed, version);
    take(&far, "w0").unwrap();
    assert_eq!(far.data_version().unwrap(), changed, "its own changes are no news");
}

#[test]
fn a_server_that_demands_a_password_over_tls_gets_a_proof() {
    let cluster = Cluster::start();
    let home = tempfile::tempdir().unwrap();
    let address = format!("postgres://ensemble@localhost:{}/postgres", cluster.port);
    let open = |query: &str, password: Option<&str>, trusts: bool| {
        let address = format!("{address}{query}");
        let mut server = PostgresOptions::new(&address, &name("guarded")).unwrap();
        server.root_certificates = trusts.then(|| home.path().join("ca.pem"));
        server.password_file = password.map(|password| {
            let file = home.path().join("password");
            std::fs::write(&file, password).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
            file
        });
        StepStore::on_server(server, StepOptions::new(home.path())).queues()
    };
    let plain = open("?sslmode=require", None, false).unwrap_err().to_string();
    assert!(plain.contains("`?sslmode=disable`"), "{plain}");
    cluster.guard("pass:w\\ord", home.path());
    let right = "pass:w\\ord\n";
    assert_eq!(open("?sslmode=verify-full", Some(right), true).unwrap(), []);
    for (query, password, trusts, why) in [
        ("?sslmode=verify-full", Some("wrong"), true, "password authentication failed"),
        ("?sslmode=verify-full", None, true, "asks for a password"),
        ("?sslmode=verify-full", Some(right), false, "certificate"),
        ("?sslmode=disable", Some(right), true, "no pg_hba.conf entry"),
    ] {
        let error = open(query, password, trusts).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(why) && !text.contains("w\\ord"), "{query} {password:?}: {text}");
        assert!(!error.is_transient(), "{text}");
    }
}
