//! The checker must be able to refute: it finds each tampered story.

mod batches;
mod departures;

use crate::hosts::checker::{Task, violations};
use crate::hosts::steps::Step;

use super::*;

fn received(id: &str, epoch: u64, asked_at: u64) -> Fact {
    Fact::Received { id: id.to_owned(), epoch, body: id.to_owned(), asked_at }
}

fn settled(id: &str, epoch: u64, answered_at: u64) -> Fact {
    Fact::Settled { id: id.to_owned(), epoch, answered_at }
}

fn taken(epoch: u64, asked_at: u64) -> Fact {
    Fact::Taken { step: "a-0/1".to_owned(), epoch, is_again: false, asked_at }
}

fn reported(epoch: u64, is_success: bool) -> Fact {
    let step = "a-0/1".to_owned();
    Fact::Reported { step, epoch, is_success, is_again: false, answered_at: 20 * epoch }
}

/// A step whose first attempt failed.
fn queues() -> Steps {
    let outcomes = [(1, "failure".to_owned()), (2, "success".to_owned())];
    let step = Step { status: "COMPLETED".to_owned(), outcomes: BTreeMap::from(outcomes) };
    Steps {
        steps: BTreeMap::from([("a-0/1".to_owned(), step)]),
        notices: BTreeMap::from([("a-0".to_owned(), 1)]),
    }
}

/// A message that was delivered twice and settled by the second holder, a plan and a task; all is well.
///
/// Beside it the stories of a batch and of departures.
fn sound() -> Facts {
    let claimed = json!({ "task": "t1", "what": "task.claimed", "epoch": 1 });
    let ready = json!({ "task": "t1", "what": "task.ready_for_review", "epoch": 1 });
    Facts {
        notes: [
            Fact::Sent { id: "ann-1".to_owned(), to: "m0".to_owned() },
            received("ann-1", 1, 10),
            received("ann-1", 2, 20),
            settled("ann-1", 2, 30),
            Fact::Asked { id: "plan-1".to_owned() },
            Fact::Decided { id: "plan-1".to_owned(), approves: true },
            Fact::Planned { task: "a-0".to_owned(), steps: 1 },
            taken(1, 10),
            reported(1, false),
            taken(2, 30),
            reported(2, true),
        ]
        .into_iter()
        .chain(batches::notes())
        .chain(departures::notes())
        .collect(),
        decisions: BTreeMap::from([("plan-1".to_owned(), true)]),
        answers: BTreeMap::from([("plan-1".to_owned(), 1)]),
        queues: queues(),
        batches: batches::told(),
        departures: departures::found(),
        tasks: BTreeMap::from([("t1".to_owned(), Task { status: "MERGED".to_owned(), merges: 1 })]),
        steps: vec![claimed, ready],
        ..Facts::default()
    }
}

#[track_caller]
pub(super) fn is_found(what: &str, tamper: impl FnOnce(&mut Facts)) {
    let mut facts = sound();
    tamper(&mut facts);
    let wrong = violations(&facts);
    assert!(wrong.iter().any(|wrong| wrong.contains(what)), "{what:?} is not in {wrong:?}");
}

#[test]
fn a_sound_story_is_believed() {
    assert_eq!(violations(&sound()), [""; 0]);
}

/// The answer to the settle that was carried out did not come.
#[test]
fn work_that_is_found_settled_is_not_lost_and_stays_settled() {
    let mut facts = sound();
    facts.notes.retain(|note| !matches!(note, Fact::Settled { id, .. } if id == "ann-1"));
    facts.notes.push(Fact::FoundSettled { id: "ann-1".to_owned(), answered_at: 30 });
    assert_eq!(violations(&facts), [""; 0]);
    facts.notes.push(received("ann-1", 3, 31));
    assert!(violations(&facts)[0].contains("after it was settled"));
}

#[test]
fn a_story_that_was_tampered_with_is_refuted() {
    is_found("is lost", |facts| facts.notes.retain(|note| !matches!(note, Fact::Settled { .. })));
    is_found("settled twice", |facts| facts.notes.push(settled("ann-1", 1, 40)));
    is_found("handed out twice", |facts| facts.notes.push(received("ann-1", 2, 25)));
    is_found("after it was settled", |facts| facts.notes.push(received("ann-1", 3, 31)));
    is_found("says", |facts| {
        let body = "another".to_owned();
        facts.notes.push(Fact::Received { id: "ann-1".into(), epoch: 3, body, asked_at: 25 });
    });
    is_found("still waits", |facts| facts.waiting.push("ann-2".to_owned()));
    is_found("dead letter", |facts| facts.dead.push("ann-2".to_owned()));
    is_found("in outboxes", |facts| facts.outbox = 1);
    is_found("two decisions", |facts| {
        facts.notes.push(Fact::Decided { id: "plan-1".into(), approves: false });
    });
    is_found("another decision", |facts| *facts.decisions.get_mut("plan-1").unwrap() = false);
    is_found("no decision", |facts| facts.decisions.clear());
    is_found("answered 2 times", |facts| *facts.answers.get_mut("plan-1").unwrap() = 2);
    is_found("2 merges", |facts| facts.tasks.get_mut("t1").unwrap().merges = 2);
    is_found("is BLOCKED", |facts| facts.tasks.get_mut("t1").unwrap().status = "BLOCKED".into());
    is_found("two at once", |facts| facts.steps.insert(1, facts.steps[0].clone()));
    is_found("b: bad", |facts| facts.findings.push("b: bad".to_owned()));
    is_found("answered 2: no", |facts| {
        facts.notes.push(Fact::Wrong { command: "send".into(), told: "2: no".into() });
    });
}

#[test]
fn a_story_of_steps_that_was_tampered_with_is_refuted() {
    fn step(facts: &mut Facts) -> &mut Step {
        facts.queues.steps.get_mut("a-0/1").unwrap()
    }
    is_found("a-0/1 is lost", |facts| facts.queues.steps.clear());
    is_found("told 0 times", |facts| facts.queues.notices.clear());
    is_found("is IN_PROGRESS", |facts| step(facts).status = "IN_PROGRESS".to_owned());
    is_found("succeeded 2 times", |facts| {
        step(facts).outcomes.insert(3, "success".to_owned());
    });
    is_found("the end is unknown", |facts| {
        step(facts).outcomes.insert(3, String::new());
    });
    is_found("was the first twice", |facts| facts.notes.push(reported(2, true)));
    is_found("and success was accepted", |facts| {
        step(facts).outcomes.insert(2, "failure".to_owned());
    });
    is_found("was given twice", |facts| facts.notes.push(taken(2, 31)));
    is_found("after its success", |facts| facts.notes.push(taken(3, 41)));
    is_found("which another one held", |facts| {
        facts.notes.push(Fact::Shared { step: "a-0/1".to_owned(), file: "f0".to_owned() });
    });
}
