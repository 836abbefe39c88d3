//! A batch of Dispatch, all of whose tasks end as they must.

use crate::hosts::*;

fn outcomes() -> Vec<(String, String)> {
    let words = [
        ("parse", "success"),
        ("try", "success"),
        ("join", "success"),
        ("far", "success"),
        ("break", "failed"),
        ("never", "blocked"),
    ];
    words.map(|(task, word)| (format!("b0-{task}"), word.to_owned())).into()
}

pub(super) fn told() -> Batches {
    Batches::from([("batch-0".to_owned(), vec![outcomes()])])
}

fn begun(task: &str, attempt: u64, at: u64) -> Fact {
    Fact::Begun { task: task.to_owned(), attempt, epoch: 1, asked_at: at, answered_at: at + 1 }
}

/// An attempt from its begin to the end, in five milliseconds.
fn attempt(task: &str, attempt: u64, is_success: bool, at: u64) -> [Fact; 3] {
    let (begun_at, answered_at) = (at + 2, at + 4);
    [
        begun(task, attempt, at),
        Fact::Worked { task: task.to_owned(), attempt, is_success, begun_at, answered_at },
        Fact::AttemptSettled { task: task.to_owned(), attempt },
    ]
}

pub(super) fn notes() -> Vec<Fact> {
    let attempts = [
        attempt("b0-parse", 1, true, 10),
        attempt("b0-try", 1, false, 10),
        attempt("b0-try", 2, true, 20),
        attempt("b0-join", 1, true, 30),
        attempt("b0-far", 1, true, 10),
        attempt("b0-break", 1, false, 20),
        attempt("b0-break", 2, false, 30),
    ];
    let told = Fact::Told { batch: "batch-0".to_owned(), outcomes: outcomes() };
    attempts.into_iter().flatten().chain([told]).collect()
}

fn works<'a>(facts: &'a mut Facts, wanted: &str) -> impl Iterator<Item = &'a mut Fact> {
    facts
        .notes
        .iter_mut()
        .filter(move |note| matches!(note, Fact::Worked { task, .. } if task == wanted))
}

#[test]
fn a_story_of_batches_that_was_tampered_with_is_refuted() {
    is_found("batch-0 was told 0 times", |facts| facts.batches.clear());
    is_found("batch-0 was told 2 times", |facts| {
        facts.batches.get_mut("batch-0").unwrap().push(outcomes());
    });
    is_found("told in two ways", |facts| {
        facts.batches.get_mut("batch-0").unwrap()[0][0].1 = "failed".to_owned();
    });
    is_found("b0-never is success, not blocked", |facts| {
        told_in(facts).last_mut().unwrap().1 = "success".to_owned();
    });
    is_found("2 times in batch-0", |facts| {
        let first = told_in(facts)[0].clone();
        told_in(facts).push(first);
    });
    is_found("has 5 outcomes", |facts| drop(told_in(facts).pop()));
    is_found("and was done 0 times", |facts| {
        facts.notes.retain(|note| !matches!(note, Fact::Worked { task, .. } if task == "b0-far"));
    });
    is_found("b0-far is success, and was done 2 times", |facts| {
        facts.notes.extend(attempt("b0-far", 1, true, 11));
    });
    is_found("attempt 1 at b0-far was settled twice", |facts| {
        facts.notes.extend(attempt("b0-far", 1, true, 11));
    });
    is_found("delivery 1 of attempt 1 at b0-far was given twice", |facts| {
        facts.notes.push(begun("b0-far", 1, 11));
    });
    is_found("attempt 2 at b0-try began after its success", |facts| {
        facts.notes.push(begun("b0-try", 2, 40));
    });
    is_found("attempt 2 at b0-try began before the one before failed", |facts| {
        if let Some(Fact::Worked { begun_at, .. }) = works(facts, "b0-try").next() {
            *begun_at = 22;
        }
    });
    is_found("b0-join began before b0-parse was done", |facts| {
        if let Some(Fact::Worked { begun_at, .. }) = works(facts, "b0-parse").next() {
            *begun_at = 32;
        }
    });
    is_found("b0-never began before b0-break was done", |facts| {
        facts.notes.push(begun("b0-never", 1, 40));
    });
    is_found("b0-break began 3 times", |facts| facts.notes.push(begun("b0-break", 3, 40)));
}

fn told_in(facts: &mut Facts) -> &mut Vec<(String, String)> {
    let told = facts.notes.iter_mut().find_map(|note| match note {
        Fact::Told { outcomes, .. } => Some(outcomes),
        _ => None,
    });
    told.expect("the story has a summary")
}
