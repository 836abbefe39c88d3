//! Compares the answers that the players got with the final state.
//!
//! | promise | refuted by |
//! |---|---|
//! | nothing that `send` took is lost | a message that no receiver has settled, or that is a dead letter, or waits |
//! | nothing is done twice | a message that was settled twice, or handed out after it was settled |
//! | a delivery has one holder | an epoch of a message that was handed out twice |
//! | content arrives as it was sent | another text |
//! | the first decision counts | two that were accepted, or another one on the servers; none, or two, in the mailbox of who asked |
//! | a task has one holder, and is merged once | the log of the blackboard; the branches of both repositories |
//! | a step is done once | see `steps/checked.rs` |
//! | a batch is done in order, and reported once | see `dispatch/checked.rs` |
//! | an agent that agreed leaves, and what it held is returned | see `departures/checked.rs` |

use ensemble_core::event_log::read_all;

use crate::claims::one_holder_at_a_time;
use crate::hosts::crew::tasks;
use crate::hosts::dispatch::{DISPATCH, WORKERS};

use super::*;

const ALL: u64 = 1_000_000;

/// A task at the end: its status, and in how many commits of all hosts it was merged.
#[derive(Clone, Debug, Default)]
pub struct Task {
    pub status: String,
    pub merges: usize,
}

#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub notes: Vec<Fact>,
    /// Ids that still wait or are held, and dead letters of the servers and the outboxes.
    pub waiting: Vec<String>,
    pub dead: Vec<String>,
    /// Messages that never left their host.
    pub outbox: u64,
    /// By request, whether it was approved.
    pub decisions: BTreeMap<String, bool>,
    /// By request, the answers in the mailbox of who asked.
    pub answers: BTreeMap<String, usize>,
    pub tasks: BTreeMap<String, Task>,
    /// The steps in the log of the blackboard, each revision once.
    pub steps: Vec<Value>,
    pub queues: Steps,
    pub batches: Batches,
    pub departures: Departures,
    pub findings: Vec<String>,
}

pub fn rows(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub fn gather(hosts: &[Host; 2], notes: Vec<Fact>) -> Facts {
    let near = &hosts[0];
    let mut facts = Facts { notes, ..Facts::default() };
    let workers = WORKERS.iter().map(|worker| worker.1);
    let leavers = LEAVERS.iter().map(|leaver| leaver.name);
    for mailbox in MAILBOXES.into_iter().chain([POOL, DISPATCH]).chain(workers).chain(leavers) {
        let waiting = rows(&near.ok(&format!("inbox {mailbox} --limit {ALL} --json")));
        facts.waiting.extend(waiting.iter().map(|row| text(&row["id"])));
    }
    let requests = rows(&near.ok("request list --json"));
    for request in &requests {
        let state = text(&request["state"]);
        if let Some(is_approved) = [("approved", true), ("rejected", false)]
            .iter()
            .find_map(|(word, is_approved)| (state == *word).then_some(*is_approved))
        {
            facts.decisions.insert(text(&request["request_id"]), is_approved);
        }
    }
    let planner = hosts[1].ok(&format!("inbox planner --limit {ALL} --json"));
    for row in rows(&planner).iter().filter(|row| row["type"] == "plan_approval_response") {
        *facts.answers.entry(answered(&text(&row["id"]))).or_default() += 1;
    }
    for host in hosts {
        let (waiting, dead) = host.outbox();
        facts.outbox += waiting + dead;
        facts.dead.extend(rows(&host.ok("dead list --json")).iter().map(|row| text(&row["id"])));
        let fsck = host.command(&["admin", "fsck"]).output().unwrap();
        if !fsck.status.success() {
            let told = String::from_utf8_lossy(&fsck.stdout);
            facts.findings.push(format!("{}: {told}", host.name));
        }
    }
    facts.tasks = tasks(near).iter().map(|task| (text(&task["id"]), of(hosts, task))).collect();
    facts.steps = board_steps(hosts);
    let mail = near.drained(ORCHESTRATOR);
    facts.queues = steps::gather(near, &mail);
    facts.batches = dispatch::gather(&mail);
    facts.departures = departures::gather(near, &requests);
    let Facts { waiting, dead, departures, .. } = &mut facts;
    [waiting, dead].into_iter().for_each(|ids| ids.retain(|id| !departures.explains(id)));
    facts
}

/// The request that a message answers, by the message's id.
fn answered(id: &str) -> String {
    id.rsplit_once('.').map_or(id, |(request, _)| request).to_owned()
}

fn of(hosts: &[Host; 2], task: &Value) -> Task {
    let trailer = format!("--grep=^Ensemble-Task: {}$", text(&task["id"]));
    let merges = hosts.iter().map(|host| {
        let found = git(&host.project, &["log", "--format=%H", &trailer, "integration"]);
        found.lines().count()
    });
    Task { status: text(&task["status"]), merges: merges.sum() }
}

/// A write whose process was killed may be recorded twice, and on either host.
fn board_steps(hosts: &[Host; 2]) -> Vec<Value> {
    let mut writes: BTreeMap<u64, Vec<Value>> = BTreeMap::new();
    for host in hosts {
        for record in read_all(&host.project.join(".ensemble/logs")).unwrap() {
            if record.kind.matches("board.written") {
                let steps = record.data["steps"].as_array().unwrap().clone();
                writes.insert(record.data["revision"].as_u64().unwrap(), steps);
            }
        }
    }
    writes.into_values().flatten().collect()
}

impl Facts {
    pub fn counts(&self) -> String {
        let count = |is_it: fn(&Fact) -> bool| self.notes.iter().filter(|note| is_it(note)).count();
        let merged = self.tasks.values().filter(|task| task.status == "MERGED").count();
        let claims = one_holder_at_a_time(self.steps.iter());
        format!(
            "{} messages, {} deliveries, {} settled; {} plans, {} decided; {merged} of {} tasks merged, {}; {} steps, {} handed out; \
             {} batches, {} attempts; {} asked to leave, {} kept",
            count(|note| matches!(note, Fact::Sent { .. })),
            count(|note| matches!(note, Fact::Received { .. })),
            count(|note| matches!(note, Fact::Settled { .. })),
            count(|note| matches!(note, Fact::Asked { .. })),
            self.decisions.len(),
            self.tasks.len(),
            claims.map_or_else(
                |_| "with wrong claims".to_owned(),
                |claims| format!("{} claims and reviews, {} lost", claims.count, claims.lost)
            ),
            self.queues.steps.len(),
            count(|note| matches!(note, Fact::Taken { .. })),
            self.batches.len(),
            count(|note| matches!(note, Fact::Begun { .. })),
            self.departures.states.len(),
            count(|note| matches!(note, Fact::Kept { .. })),
        )
    }
}

pub fn violations(facts: &Facts) -> Vec<String> {
    let mut wrong = Vec::new();
    messages(facts, &mut wrong);
    requests(facts, &mut wrong);
    board(facts, &mut wrong);
    steps::violations(&facts.queues, &facts.notes, &mut wrong);
    dispatch::violations(&facts.batches, &facts.notes, &mut wrong);
    departures::violations(&facts.departures, &facts.notes, &mut wrong);
    wrong.extend(facts.findings.iter().cloned());
    for note in &facts.notes {
        if let Fact::Wrong { command, told } = note {
            wrong.push(format!("`{command}` answered {told}"));
        }
    }
    wrong
}

fn messages(facts: &Facts, wrong: &mut Vec<String>) {
    let mut settled: BTreeMap<&str, u64> = BTreeMap::new();
    for note in &facts.notes {
        if let Fact::Settled { id, answered_at, .. } = note
            && settled.insert(id, *answered_at).is_some()
        {
            wrong.push(format!("{id} was settled twice"));
        }
    }
    for note in &facts.notes {
        if let Fact::FoundSettled { id, answered_at } = note {
            settled.entry(id).or_insert(*answered_at);
        }
    }
    let mut deliveries = BTreeSet::new();
    for note in &facts.notes {
        match note {
            Fact::Sent { id, .. } if !settled.contains_key(id.as_str()) => {
                wrong.push(format!("{id} was sent and is lost"));
            }
            Fact::Received { id, epoch, body, asked_at } => {
                if !deliveries.insert((id, epoch)) {
                    wrong.push(format!("delivery {epoch} of {id} was handed out twice"));
                }
                if body != id {
                    wrong.push(format!("{id} says {body:?}"));
                }
                if settled.get(id.as_str()).is_some_and(|at| at < asked_at) {
                    wrong.push(format!("{id} was handed out after it was settled"));
                }
            }
            _ => {}
        }
    }
    wrong.extend(facts.waiting.iter().map(|id| format!("{id} still waits")));
    wrong.extend(facts.dead.iter().map(|id| format!("{id} is a dead letter")));
    if facts.outbox > 0 {
        wrong.push(format!("{} messages are still in outboxes", facts.outbox));
    }
}

fn requests(facts: &Facts, wrong: &mut Vec<String>) {
    let mut accepted: BTreeMap<&str, bool> = BTreeMap::new();
    for note in &facts.notes {
        if let Fact::Decided { id, approves } = note
            && accepted.insert(id, *approves).is_some_and(|other| other != *approves)
        {
            wrong.push(format!("two decisions of {id} were accepted"));
        }
    }
    for note in &facts.notes {
        let Fact::Asked { id } = note else { continue };
        let stands = facts.decisions.get(id);
        if stands.is_none() {
            wrong.push(format!("{id} has no decision"));
        }
        if let (Some(told), Some(stands)) = (accepted.get(id.as_str()), stands)
            && told != stands
        {
            wrong.push(format!("{id}: another decision stands than was accepted"));
        }
        let answers = facts.answers.get(id).copied().unwrap_or_default();
        if answers != 1 {
            wrong.push(format!("{id} was answered {answers} times"));
        }
    }
}

fn board(facts: &Facts, wrong: &mut Vec<String>) {
    for (id, task) in &facts.tasks {
        let expected = if is_hopeless(id) { ("BLOCKED", 0) } else { ("MERGED", 1) };
        if (task.status.as_str(), task.merges) != expected {
            wrong.push(format!("{id} is {} with {} merges", task.status, task.merges));
        }
    }
    if let Err(why) = one_holder_at_a_time(facts.steps.iter()) {
        wrong.push(format!("the log of the blackboard: {why}"));
    }
}
