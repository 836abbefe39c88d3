//! The players that hand out batches through Dispatch, and those that work on them, on both hosts.
//!
//! | player | host | does |
//! |---|---|---|
//! | `conductor` | the second | hands an instruction to Dispatch and waits for its summary, then the next one |
//! | Dispatch ([`Program`]) | the first | chooses among the workers of its host, and asks those of the other host by name |
//! | `worker-1` … `worker-4` | two each | answer pings, do their tasks, and report them by the verb or by a file |
//!
//! A worker is in the roster of its host. A report of a failure is a file that names its attempt.

use crate::hosts::steps::ORCHESTRATOR as CONDUCTOR;

use super::*;

mod checked;

pub use checked::{Batches, gather, violations};

pub const DISPATCH: &str = "dispatch";
pub const WORKERS: [(usize, &str); 4] =
    [(0, "worker-1"), (1, "worker-2"), (0, "worker-3"), (1, "worker-4")];
/// By this begins the name of a role whose members have tasks.
const ROLE: &str = "worker";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Succeeds,
    /// The first attempt fails, and the second one succeeds.
    FailsOnce,
    Fails,
}

struct Order {
    name: &'static str,
    outcome: Outcome,
    after: &'static [&'static str],
    worker: Option<&'static str>,
    attempts: u64,
}

const fn order(name: &'static str, outcome: Outcome, after: &'static [&'static str]) -> Order {
    Order { name, outcome, after, worker: None, attempts: 1 }
}

const ORDERS: [Order; 6] = [
    order("parse", Outcome::Succeeds, &[]),
    Order { worker: Some("worker-2"), attempts: 3, ..order("try", Outcome::FailsOnce, &[]) },
    order("join", Outcome::Succeeds, &["parse", "try"]),
    Order { worker: Some("worker-4"), ..order("far", Outcome::Succeeds, &[]) },
    Order { attempts: 2, ..order("break", Outcome::Fails, &[]) },
    Order { worker: Some("worker-4"), ..order("never", Outcome::Succeeds, &["far", "break"]) },
];

/// A task by its id: its batch's number, and what it is.
fn order_of(task: &str) -> Option<(&str, &'static Order)> {
    let (batch, name) = task.split_once('-')?;
    Some((batch, ORDERS.iter().find(|order| order.name == name)?))
}

/// Tasks of the same batch that must be done before.
fn before(task: &str) -> Vec<String> {
    let Some((batch, order)) = order_of(task) else { return Vec::new() };
    order.after.iter().map(|name| format!("{batch}-{name}")).collect()
}

/// The outcome of a task that the conductor must receive.
fn expected(task: &str) -> &'static str {
    let fails = |name: &String| order_of(name).is_some_and(|it| it.1.outcome == Outcome::Fails);
    match order_of(task) {
        Some((_, order)) if order.outcome == Outcome::Fails => "failed",
        Some(_) if before(task).iter().any(fails) => "blocked",
        _ => "success",
    }
}

fn instruction(number: usize) -> String {
    let mut text = format!("type: start_workers\nworker_count: {}\ntasks:\n", WORKERS.len());
    for Order { name, after, worker, attempts, .. } in &ORDERS {
        let after: Vec<String> = after.iter().map(|name| format!("b{number}-{name}")).collect();
        let worker = worker.map_or_else(String::new, |name| format!(", worker: {name}"));
        text += &format!(
            "- {{id: b{number}-{name}, instruction: count, blocked_by: [{}], \
             retry: {{attempts: {attempts}, delay: 0}}{worker}}}\n",
            after.join(", ")
        );
    }
    text + "...\n"
}

pub struct Program<'a> {
    host: &'a Host,
    process: Option<Process>,
}

impl<'a> Program<'a> {
    /// On this host. The workers of both are in their rosters then.
    pub fn start(hosts: &'a [Host; 2]) -> Self {
        for (at, name) in WORKERS {
            hosts[at].enlist(name, ROLE);
        }
        let mut program = Self { host: &hosts[0], process: None };
        program.run();
        program
    }

    fn run(&mut self) {
        let told = File::options().append(true).create(true).open(self.told_in()).unwrap();
        let mut command = self.host.command(&["task", "dispatch"]);
        self.process = Some(Process::start(command.stdout(Stdio::null()).stderr(told)));
    }

    fn told_in(&self) -> PathBuf {
        self.host.own().join("dispatch")
    }

    fn said(&self) -> String {
        fs::read_to_string(self.told_in()).unwrap_or_default()
    }

    /// Starts it again after a kill. By itself it ends only if the servers do not answer at its start.
    pub fn tend(&mut self) {
        if let Some(process) = &mut self.process {
            let Some(status) = process.child().try_wait().unwrap() else { return };
            assert_eq!(status.code(), Some(BUSY), "Dispatch has ended:\n{}", self.said());
        }
        self.run();
    }

    pub fn kill(&mut self) -> bool {
        self.process.take().map(Process::kill).is_some()
    }

    /// Whether Dispatch has read all of its mail.
    pub fn is_over(&self) -> bool {
        self.left().is_empty()
    }

    fn left(&self) -> String {
        self.host.ok(&format!("inbox {DISPATCH} --json"))
    }

    /// What it has said, and its mail that waits or is held.
    pub fn told(&self) -> String {
        self.said() + &self.left()
    }

    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.signal(rustix::process::Signal::TERM);
            process.end(PATIENCE);
        }
    }
}

/// Hands in one batch after the other, and waits for its summary.
pub fn conduct(player: &mut Player<'_>) {
    let stage = player.stage;
    let file = player.host.own().join("instruction.yaml");
    let line = ["agent", "instruct", "--as", CONDUCTOR, "--wait", "20s", "--json", "-f"];
    let line: Vec<&str> = line.into_iter().chain(file.to_str()).collect();
    for number in 0.. {
        if number > 0 && stage.is_over() || player.has_given_up() {
            break;
        }
        fs::write(&file, instruction(number)).unwrap();
        // The time has passed, and the batch continues.
        let told = loop {
            match player.insist(&line) {
                Some(ran) if ran.code == NOTHING => {}
                ran => break ran,
            }
        };
        let Some(ran) = told else { break };
        match told_of(&ran, number) {
            Some(told) => player.facts.push(told),
            None => player.note_wrong(&line, &ran),
        }
        stage.batches.fetch_add(1, Ordering::Relaxed);
    }
    stage.conductors.fetch_sub(1, Ordering::Relaxed);
}

/// The summary of the batch of this number, as it was printed.
fn told_of(ran: &Ran, number: usize) -> Option<Fact> {
    let summary: Value = serde_json::from_str(ran.stdout.lines().last()?).ok()?;
    let (batch, outcomes) = checked::summary(&summary)?;
    let is_its = outcomes.iter().all(|outcome| outcome.0.starts_with(&format!("b{number}-")));
    (ran.code == 0 && is_its).then_some(Fact::Told { batch, outcomes })
}

#[derive(Deserialize)]
struct Given {
    #[serde(rename = "type")]
    kind: String,
    #[serde(rename = "task_id")]
    task: String,
    attempt: u64,
    id: String,
    epoch: u64,
}

impl Given {
    fn is_success(&self) -> bool {
        match order_of(&self.task).map(|it| it.1.outcome) {
            Some(Outcome::Succeeds) => true,
            Some(Outcome::FailsOnce) => self.attempt > 1,
            Some(Outcome::Fails) | None => false,
        }
    }
}

pub fn work(player: &mut Player<'_>) {
    let stage = player.stage;
    let line = ["recv", "--as", player.name, "--json", "--wait", "500ms"];
    while stage.conductors.load(Ordering::Relaxed) > 0 && !player.has_given_up() {
        pong(player);
        let asked_at = stage.now();
        let Some(ran) = player.host.verb(&line).filter(|ran| ran.code != BUSY) else {
            pause();
            continue;
        };
        if ran.code == NOTHING {
            continue;
        }
        let Some(given) = ran.row::<Given>().filter(|given| given.kind == "task") else {
            player.note_wrong(&line, &ran);
            continue;
        };
        let (task, attempt, epoch) = (given.task.clone(), given.attempt, given.epoch);
        player.facts.push(Fact::Begun { task, attempt, epoch, asked_at, answered_at: stage.now() });
        report(player, &given);
    }
}

/// Whether a worker reports by the verb, and answers pings by it. The others put down files.
fn has_verbs(name: &str) -> bool {
    WORKERS[..2].iter().any(|worker| worker.1 == name)
}

/// Answers the ping that exists, once. One that comes too late counts for nothing.
fn pong(player: &mut Player<'_>) {
    let name = player.name;
    let ready = player.host.project.join(".ensemble/ready");
    let ping = fs::read_to_string(ready.join(format!("{name}.ping"))).unwrap_or_default();
    let [_, _, attempt] = ping.split_whitespace().collect::<Vec<_>>()[..] else { return };
    if !has_verbs(name) {
        let _ = File::create(ready.join(format!("{name}@{attempt}.pong")));
        return;
    }
    let line = ["agent", "pong", name, attempt];
    if let Some(ran) = player.host.verb(&line).filter(|ran| ![0, BUSY].contains(&ran.code)) {
        player.note_wrong(&line, &ran);
    }
}

fn report(player: &mut Player<'_>, given: &Given) {
    let (stage, name) = (player.stage, player.name);
    let (begun_at, is_success) = (stage.now(), given.is_success());
    let said = format!("{name} has done 1 of 1 tasks (100%), see README:1");
    if is_success && has_verbs(name) {
        let line = ["report", &given.task, "--status", "success", "--as", name, "--summary", &said];
        let Some(ran) = player.insist(&line) else { return };
        if ran.code != 0 {
            return player.note_wrong(&line, &ran);
        }
    } else {
        put_down(&player.host.project.join("queue"), name, given, &said);
    }
    let epoch = given.epoch.to_string();
    let line = ["settle", "--as", name, &given.id, "--epoch", &epoch];
    let Some(ran) = player.insist(&line) else { return };
    let (task, attempt) = (given.task.clone(), given.attempt);
    match ran.code {
        0 => player.facts.push(Fact::AttemptSettled { task: task.clone(), attempt }),
        1 if ran.stderr.contains("is settled") => {}
        _ => player.note_wrong(&line, &ran),
    }
    let answered_at = stage.now();
    player.facts.push(Fact::Worked { task, attempt, is_success, begun_at, answered_at });
}

fn put_down(queue: &Path, name: &str, given: &Given, said: &str) {
    let Given { task, attempt, .. } = given;
    let (status, why) = match given.is_success() {
        true => ("success", ""),
        false => ("failed", "failure_reason: it is to fail\n"),
    };
    let text = format!(
        "task_id: {task}\nattempt: {attempt}\nworker_id: {name}\nstatus: {status}\n{why}summary: '{said}'\n...\n"
    );
    let whole = queue.join(format!("tmp/{task}.{name}"));
    fs::write(&whole, text).unwrap();
    fs::rename(whole, queue.join(format!("reports/{task}-completed.yaml"))).unwrap();
}
