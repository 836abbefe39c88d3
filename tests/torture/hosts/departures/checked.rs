//! Compares the answers that callers and agents got with the final requests.
//!
//! | promise | refuted by |
//! |---|---|
//! | the first decision counts | two answers that were accepted, or another state on the servers; a question without a decision |
//! | the caller gets one answer | none or two in its mailbox, or one that differs from the decision |
//! | an agent of a roster that agreed, or was silent, is shut down | a caller that got another answer; one that agreed and was not shut down, or another that was |
//! | what it held is returned | a message that it kept and that was not settled by a later delivery |
//! | it begins nothing more | work that it received after it had agreed |

use super::Manner;

use crate::hosts::*;

#[derive(Clone, Debug, Default)]
pub struct Departures {
    pub states: BTreeMap<String, String>,
    /// By request, the outcomes in the mailbox of its caller.
    pub told: BTreeMap<String, Vec<String>>,
}

/// Reads the callers' mail on the first host; `requests` are all of the team's.
pub fn gather(host: &Host, requests: &[Value]) -> Departures {
    let mut found = Departures::default();
    for request in requests.iter().filter(|request| request["kind"] == "shutdown") {
        found.states.insert(text(&request["request_id"]), text(&request["state"]));
    }
    for leaver in &LEAVERS {
        for envelope in host.drained(leaver.caller) {
            if envelope["type"] == "shutdown_response" {
                let (request, outcome) =
                    (&envelope["body"]["request_id"], &envelope["body"]["outcome"]);
                found.told.entry(text(request)).or_default().push(text(outcome));
            }
        }
    }
    found
}

impl Departures {
    /// Whether a message is the question of a request that ended without an answer: that remains as a dead letter.
    pub fn explains(&self, message: &str) -> bool {
        let request = message.split_once('.').map_or(message, |(request, _)| request);
        self.states.get(request).is_some_and(|state| state == "expired")
    }
}

pub fn violations(found: &Departures, notes: &[Fact], wrong: &mut Vec<String>) {
    let mut accepted = BTreeMap::new();
    for note in notes {
        if let Fact::Answered { request, agrees } = note
            && accepted.insert(request, *agrees).is_some_and(|other| other != *agrees)
        {
            wrong.push(format!("two answers to {request} were accepted"));
        }
    }
    for note in notes {
        let Fact::Called { request, is_listed, is_gone } = note else { continue };
        let Some(state) = found.states.get(request).filter(|state| *state != "pending") else {
            wrong.push(format!("{request} is not decided"));
            continue;
        };
        let manner = Manner::of(request);
        let expected = match manner {
            Some(Manner::Agrees) => "approved",
            Some(Manner::Declines) => "rejected",
            Some(Manner::SaysNothing) | None => "expired",
        };
        if state != expected {
            wrong.push(format!("{request} is {state}, not {expected}"));
        }
        let told = found.told.get(request).map_or(&[][..], Vec::as_slice);
        if told.len() != 1 || told.iter().any(|told| told != state) {
            wrong.push(format!("{request} is {state}, and its caller was told {told:?}"));
        }
        if *is_gone != (*is_listed && manner != Some(Manner::Declines)) {
            let word = if *is_gone { "has gone" } else { "has stayed" };
            wrong.push(format!("{request} is {state}, and its agent {word}"));
        }
    }
    seen_off(found, notes, wrong);
    kept(notes, wrong);
}

/// An agent of a roster that agreed was seen off once. One that was silent may have come up after the deadline.
fn seen_off(found: &Departures, notes: &[Fact], wrong: &mut Vec<String>) {
    for note in notes {
        let Fact::Called { request, is_listed, .. } = note else { continue };
        let is_it = |note: &&Fact| matches!(note, Fact::SeenOff { request: at } if at == request);
        let count = notes.iter().filter(is_it).count();
        let is_right = match found.states.get(request).map(String::as_str) {
            Some("approved") if *is_listed => count == 1,
            Some("expired") if *is_listed => count <= 1,
            _ => count == 0,
        };
        if !is_right {
            wrong.push(format!("the agent of {request} was seen off {count} times"));
        }
    }
}

/// What was kept by an agent that went was done by a later holder.
fn kept(notes: &[Fact], wrong: &mut Vec<String>) {
    let mut settled: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
    for note in notes {
        match note {
            Fact::Settled { id, epoch, .. } => drop(settled.entry(id).or_default().insert(*epoch)),
            // By a later delivery, of which it is not known.
            Fact::FoundSettled { id, .. } => {
                settled.entry(id).or_default().insert(u64::MAX);
            }
            _ => {}
        }
    }
    for note in notes {
        match note {
            Fact::Kept { request, id, epoch } => {
                let epochs = settled.get(id.as_str());
                if !epochs.is_some_and(|epochs| epochs.iter().all(|later| later > epoch)) {
                    wrong.push(format!("{id}, kept at {request}, was settled in {epochs:?}"));
                }
            }
            Fact::TookUp { request, id } => {
                wrong.push(format!("{id} was given to an agent that had agreed to {request}"));
            }
            _ => {}
        }
    }
}
