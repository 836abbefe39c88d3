//! Compares the final answers that the conductor and the workers got.
//!
//! | promise | refuted by |
//! |---|---|
//! | each batch is reported once | none or two summaries in the conductor's mailbox, or another one than `instruct` printed |
//! | each task has one outcome | none, two, or another one than its attempts have had |
//! | a task is done once | two successes; an attempt that began after a success, that was settled twice, or of which there are too many |
//! | a delivery has one holder | one that was handed out twice |
//! | a task begins in its turn | one that began before a task that it waits for was done, or its attempt before had failed |

use super::{before, expected, order_of};

use crate::hosts::*;

/// By batch, its summaries in the conductor's mailbox: the outcome of each task.
pub type Batches = BTreeMap<String, Vec<Vec<(String, String)>>>;

pub fn summary(summary: &Value) -> Option<(String, Vec<(String, String)>)> {
    let results = summary["task_results"].as_array()?;
    let outcome = |result: &Value| (text(&result["task_id"]), text(&result["status"]));
    Some((summary["batch_id"].as_str()?.to_owned(), results.iter().map(outcome).collect()))
}

pub fn gather(mail: &[Value]) -> Batches {
    let mut found = Batches::new();
    for envelope in mail.iter().filter(|envelope| envelope["type"] == "report.summary") {
        if let Some((batch, outcomes)) = summary(&envelope["body"]) {
            found.entry(batch).or_default().push(outcomes);
        }
    }
    found
}

pub fn violations(found: &Batches, notes: &[Fact], wrong: &mut Vec<String>) {
    for note in notes {
        if let Fact::Told { batch, outcomes } = note {
            let mailed = found.get(batch).map_or(&[][..], Vec::as_slice);
            if mailed.len() != 1 {
                wrong.push(format!("{batch} was told {} times", mailed.len()));
            }
            if mailed.iter().any(|mailed| mailed != outcomes) {
                wrong.push(format!("{batch} was told in two ways"));
            }
            tasks(batch, outcomes, wrong);
        }
    }
    let mut settled = BTreeSet::new();
    for note in notes {
        if let Fact::AttemptSettled { task, attempt } = note
            && !settled.insert((task, attempt))
        {
            wrong.push(format!("attempt {attempt} at {task} was settled twice"));
        }
    }
    let worked = worked(notes);
    successes(notes, &worked, wrong);
    begun(notes, &worked, wrong);
}

/// Each task of a batch has the outcome that it must have.
fn tasks(batch: &str, outcomes: &[(String, String)], wrong: &mut Vec<String>) {
    for (task, outcome) in outcomes {
        let count = outcomes.iter().filter(|other| other.0 == *task).count();
        if count != 1 || outcome != expected(task) {
            let expected = expected(task);
            wrong.push(format!("{task} is {outcome}, not {expected}, {count} times in {batch}"));
        }
    }
    if outcomes.len() != super::ORDERS.len() {
        wrong.push(format!("{batch} has {} outcomes", outcomes.len()));
    }
}

/// What was reported of an attempt, and when: from the begin of the report until all was accepted.
struct Work {
    attempt: u64,
    is_success: bool,
    begun_at: u64,
    answered_at: u64,
}

fn worked(notes: &[Fact]) -> BTreeMap<&str, Vec<Work>> {
    let mut worked: BTreeMap<&str, Vec<Work>> = BTreeMap::new();
    for note in notes {
        if let Fact::Worked { task, attempt, is_success, begun_at, answered_at } = note {
            worked.entry(task).or_default().push(Work {
                attempt: *attempt,
                is_success: *is_success,
                begun_at: *begun_at,
                answered_at: *answered_at,
            });
        }
    }
    worked
}

/// Each task that was reported as a success was done once, and no other task was.
fn successes(notes: &[Fact], worked: &BTreeMap<&str, Vec<Work>>, wrong: &mut Vec<String>) {
    for note in notes {
        let Fact::Told { outcomes, .. } = note else { continue };
        for (task, outcome) in outcomes {
            let all = worked.get(task.as_str()).map_or(&[][..], Vec::as_slice);
            let count = all.iter().filter(|work| work.is_success).count();
            if count != usize::from(outcome == "success") {
                wrong.push(format!("{task} is {outcome}, and was done {count} times"));
            }
        }
    }
}

/// Each attempt began in its turn.
fn begun(notes: &[Fact], worked: &BTreeMap<&str, Vec<Work>>, wrong: &mut Vec<String>) {
    let of = |task: &str| worked.get(task).map_or(&[][..], Vec::as_slice);
    let mut deliveries = BTreeSet::new();
    for note in notes {
        let Fact::Begun { task, attempt, epoch, asked_at, answered_at } = note else { continue };
        if !deliveries.insert((task, attempt, epoch)) {
            wrong.push(format!("delivery {epoch} of attempt {attempt} at {task} was given twice"));
        }
        if of(task).iter().any(|work| work.is_success && work.answered_at < *asked_at) {
            wrong.push(format!("attempt {attempt} at {task} began after its success"));
        }
        let is_before = |work: &Work| work.begun_at <= *answered_at;
        let has_failed =
            |work: &Work| work.attempt + 1 == *attempt && !work.is_success && is_before(work);
        if *attempt > 1 && !of(task).iter().any(has_failed) {
            wrong.push(format!("attempt {attempt} at {task} began before the one before failed"));
        }
        for first in before(task) {
            if !of(&first).iter().any(|work| work.is_success && is_before(work)) {
                wrong.push(format!("{task} began before {first} was done"));
            }
        }
        if order_of(task).is_none_or(|(_, order)| *attempt > order.attempts) {
            wrong.push(format!("{task} began {attempt} times"));
        }
    }
}
