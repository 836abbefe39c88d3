//! Three questions to an agent in a roster, and one to an agent in none.

use super::{received, settled};

use crate::hosts::*;

const STATES: [(&str, &str); 4] = [
    ("leave-joe-0", "approved"),
    ("leave-joe-1", "expired"),
    ("leave-joe-2", "rejected"),
    ("leave-sam-0", "approved"),
];

pub(super) fn found() -> Departures {
    let state = |(request, state): (&str, &str)| (request.to_owned(), state.to_owned());
    let told = |(request, state): (&str, &str)| (request.to_owned(), vec![state.to_owned()]);
    Departures { states: BTreeMap::from(STATES.map(state)), told: BTreeMap::from(STATES.map(told)) }
}

fn called(request: &str, is_listed: bool, is_gone: bool) -> Fact {
    Fact::Called { request: request.to_owned(), is_listed, is_gone }
}

fn answered(request: &str, agrees: bool) -> Fact {
    Fact::Answered { request: request.to_owned(), agrees }
}

fn seen_off(request: &str) -> Fact {
    Fact::SeenOff { request: request.to_owned() }
}

pub(super) fn notes() -> Vec<Fact> {
    let (pool, request) = ("pool-joe-0".to_owned(), "leave-joe-0".to_owned());
    vec![
        Fact::Sent { id: pool.clone(), to: "pool".to_owned() },
        received(&pool, 1, 10),
        Fact::Kept { request, id: pool.clone(), epoch: 1 },
        answered("leave-joe-0", true),
        called("leave-joe-0", true, true),
        seen_off("leave-joe-0"),
        received(&pool, 2, 20),
        settled(&pool, 2, 30),
        called("leave-joe-1", true, true),
        answered("leave-joe-2", false),
        called("leave-joe-2", true, false),
        answered("leave-sam-0", true),
        called("leave-sam-0", false, false),
    ]
}

#[test]
fn a_story_of_departures_that_was_tampered_with_is_refuted() {
    is_found("two answers to leave-joe-0", |facts| {
        facts.notes.push(answered("leave-joe-0", false));
    });
    is_found("leave-joe-0 is not decided", |facts| facts.departures.states.clear());
    is_found("leave-joe-0 is not decided", |facts| {
        *facts.departures.states.get_mut("leave-joe-0").unwrap() = "pending".to_owned();
    });
    is_found("leave-joe-2 is approved, not rejected", |facts| {
        *facts.departures.states.get_mut("leave-joe-2").unwrap() = "approved".to_owned();
    });
    is_found("its caller was told []", |facts| facts.departures.told.clear());
    is_found(r#"its caller was told ["approved", "approved"]"#, |facts| {
        let told = facts.departures.told.get_mut("leave-sam-0").unwrap();
        told.push("approved".to_owned());
    });
    is_found(r#"its caller was told ["expired"]"#, |facts| {
        facts.departures.told.get_mut("leave-sam-0").unwrap()[0] = "expired".to_owned();
    });
    is_found("its agent has stayed", |facts| {
        facts.notes.push(called("leave-joe-1", true, false));
    });
    is_found("its agent has gone", |facts| facts.notes.push(called("leave-joe-2", true, true)));
    is_found("the agent of leave-joe-0 was seen off 0 times", |facts| {
        facts.notes.retain(|note| !matches!(note, Fact::SeenOff { .. }));
    });
    is_found("the agent of leave-joe-0 was seen off 2 times", |facts| {
        facts.notes.push(seen_off("leave-joe-0"));
    });
    is_found("the agent of leave-joe-2 was seen off 1 times", |facts| {
        facts.notes.push(seen_off("leave-joe-2"));
    });
    is_found("pool-joe-0, kept at leave-joe-0, was settled in Some({1})", |facts| {
        facts.notes.retain(|note| !matches!(note, Fact::Settled { id, .. } if id == "pool-joe-0"));
        facts.notes.push(settled("pool-joe-0", 1, 30));
    });
    is_found("ann-3 was given to an agent that had agreed to leave-joe-0", |facts| {
        let (request, id) = ("leave-joe-0".to_owned(), "ann-3".to_owned());
        facts.notes.push(Fact::TookUp { request, id });
    });
}

/// The question of a request that ended without an answer becomes a dead letter.
#[test]
fn only_questions_without_an_answer_are_left() {
    let found = found();
    assert!(found.explains("leave-joe-1.request") && found.explains("leave-joe-1.remind-1"));
    assert!(!found.explains("leave-joe-0.request") && !found.explains("ann-1"));
}
