//! Proves or refutes a history. Operations overlap, so only rules that hold in every possible order
//! count: an operation that ended before another began came first.

use std::collections::{BTreeMap, BTreeSet};

use super::journal::Operation;

#[derive(Debug, Default)]
pub struct Disk {
    /// Each message with the states in which it was found.
    pub messages: BTreeMap<String, Vec<&'static str>>,
    pub decisions: BTreeMap<String, String>,
    /// The tasks of the board, in their order, and its revision.
    pub tasks: Vec<String>,
    pub revision: u64,
    /// For each step, its status and the number of its successful runs.
    pub steps: BTreeMap<String, (String, usize)>,
    /// The event log: the type of each record and its subject.
    pub log: BTreeSet<(String, String)>,
    pub revisions: BTreeSet<u64>,
}

pub fn violations(history: &[Operation], disk: &Disk) -> Vec<String> {
    let mut wrong = Vec::new();
    nothing_is_lost(history, disk, &mut wrong);
    let mut about: BTreeMap<&str, Vec<&Operation>> = BTreeMap::new();
    for operation in history {
        about.entry(&operation.key).or_default().push(operation);
    }
    for (key, about) in about {
        one_holder_at_a_time(&about, key, &mut wrong);
    }
    decided_once(history, disk, &mut wrong);
    the_board_keeps_all(history, disk, &mut wrong);
    steps_are_done_once(history, disk, &mut wrong);
    the_log_tells_all(history, disk, &mut wrong);
    wrong
}

fn keys(history: &[Operation], verbs: &[&str]) -> BTreeSet<String> {
    let of = |operation: &&Operation| verbs.contains(&operation.verb.as_str());
    history.iter().filter(of).map(|operation| operation.key.clone()).collect()
}

fn with<'a>(
    history: &'a [Operation],
    verb: &'a str,
    word: &'a str,
) -> impl Iterator<Item = &'a Operation> {
    history.iter().filter(move |operation| operation.is(verb, word))
}

fn nothing_is_lost(history: &[Operation], disk: &Disk, wrong: &mut Vec<String>) {
    for published in with(history, "publish", "ok") {
        match disk.messages.get(&published.key).map(Vec::as_slice) {
            None | Some([]) => wrong.push(format!("{} was published and is lost", published.key)),
            Some([_]) => {}
            Some(states) => wrong.push(format!("{} is in {states:?}", published.key)),
        }
    }
    let offered = keys(history, &["publish", "ask", "respond", "land"]);
    for id in disk.messages.keys().filter(|id| id.starts_with("p-")) {
        if !offered.contains(id) {
            wrong.push(format!("{id} came from nowhere"));
        }
    }
    for settled in with(history, "settle", "ok") {
        if disk.messages.get(&settled.key).is_some_and(|states| states != &["done"]) {
            wrong.push(format!("{} was settled and is not done", settled.key));
        }
    }
}

/// Checks deliveries and hand-outs of steps: epochs only grow, a holder that lost its lease is
/// refused, and settled stays settled.
fn one_holder_at_a_time(about: &[&Operation], key: &str, wrong: &mut Vec<String>) {
    let got: Vec<&Operation> =
        about.iter().copied().filter(|o| o.is("receive", "ok") || o.is("take", "ok")).collect();
    for (at, first) in got.iter().enumerate() {
        for second in &got[at + 1..] {
            if first.epoch() == second.epoch() {
                wrong.push(format!("{key} was handed out twice under {}", first.epoch()));
            } else if first.end < second.start && first.epoch() > second.epoch() {
                wrong.push(format!("the number of {key} fell to {}", second.epoch()));
            }
        }
    }
    let ends = ["settle", "release", "bury", "submit"];
    let ended: Vec<&Operation> = about
        .iter()
        .copied()
        .filter(|operation| ends.iter().any(|verb| operation.is(verb, "ok")))
        .collect();
    for end in &ended {
        let is_final = end.is("settle", "ok") || end.is("submit", "ok");
        for other in &got {
            if other.epoch() > end.epoch() && other.end < end.start {
                let (verb, epoch) = (&end.verb, end.epoch());
                wrong.push(format!("{key}: {verb} under {epoch}, after {} began", other.epoch()));
            }
            if is_final && other.start > end.end {
                wrong.push(format!("{key} was handed out to {} after it was done", other.who));
            }
        }
    }
    for late in about.iter().filter(|o| ends.iter().any(|verb| o.is(verb, "late"))) {
        wrong.push(format!("{key}: {} under a lease that was over", late.verb));
    }
    let finals = ended.iter().filter(|o| o.is("settle", "ok") || o.is("submit", "ok")).count();
    if finals > 1 {
        wrong.push(format!("{key} was done {finals} times"));
    }
    let epochs: BTreeSet<u64> = ended.iter().map(|operation| operation.epoch()).collect();
    if epochs.len() < ended.len() {
        wrong.push(format!("two ends of {key} under one number: {ended:?}"));
    }
}

fn decided_once(history: &[Operation], disk: &Disk, wrong: &mut Vec<String>) {
    for asked in with(history, "ask", "ok").filter(|o| !disk.decisions.contains_key(&o.key)) {
        wrong.push(format!("{} was asked, and is lost", asked.key));
    }
    let mut said: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for answer in history.iter().filter(|operation| operation.verb == "respond") {
        let word = answer.outcome.as_ref().map(|outcome| outcome.word.as_str());
        said.entry(&answer.key).or_default().extend(word.filter(|word| *word != "refused"));
    }
    for (id, said) in said {
        if said.len() > 1 {
            wrong.push(format!("{id} was decided {} times: {said:?}", said.len()));
        }
        let stands = disk.decisions.get(id).map(String::as_str);
        if said.first().is_some_and(|said| stands != Some(*said)) {
            wrong.push(format!("{id} was decided {said:?}, and {stands:?} stands"));
        }
    }
}

fn the_board_keeps_all(history: &[Operation], disk: &Disk, wrong: &mut Vec<String>) {
    let tasks: BTreeSet<&String> = disk.tasks.iter().collect();
    if tasks.len() != disk.tasks.len() {
        wrong.push("a task is on the board twice".to_owned());
    }
    for added in with(history, "add", "ok").filter(|added| !tasks.contains(&added.key)) {
        wrong.push(format!("{} was added to the board and is lost", added.key));
    }
    if disk.revision < disk.tasks.len() as u64 {
        wrong.push(format!("{} revisions, {} tasks", disk.revision, disk.tasks.len()));
    }
    for revision in (1..=disk.revision).filter(|revision| !disk.revisions.contains(revision)) {
        wrong.push(format!("the log does not tell of revision {revision}"));
    }
}

fn steps_are_done_once(history: &[Operation], disk: &Disk, wrong: &mut Vec<String>) {
    for submitted in with(history, "submit", "ok") {
        let step = disk.steps.get(&submitted.key);
        if step != Some(&("COMPLETED".to_owned(), 1)) {
            wrong.push(format!("{} was submitted and is {step:?}", submitted.key));
        }
    }
}

/// Checks that every acknowledged operation is in the log. A state on disk without a record must
/// come from a process killed before it could record.
fn the_log_tells_all(history: &[Operation], disk: &Disk, wrong: &mut Vec<String>) {
    let told = |kind: &str, key: &str| disk.log.contains(&(kind.to_owned(), key.to_owned()));
    let verbs = [
        ("publish", "message.stored"),
        ("settle", "message.settled"),
        ("release", "message.released"),
        ("bury", "message.dead"),
        ("ask", "request.opened"),
    ];
    for (verb, kind) in verbs {
        for done in with(history, verb, "ok").filter(|done| !told(kind, &done.key)) {
            // Stored by an earlier life, which was killed before it could note that.
            let was_killed = history.iter().any(|o| o.is_open(verb) && o.key == done.key);
            if !was_killed {
                wrong.push(format!("the log does not tell: {kind} of {}", done.key));
            }
        }
    }
    for (id, states) in &disk.messages {
        let (kind, verb) = match states.first() {
            Some(&"done") => ("message.settled", "settle"),
            Some(&"dead") => ("message.dead", "bury"),
            _ => continue,
        };
        // An answer settles its question.
        let asked = id.strip_suffix(".request");
        let ends_it = |o: &Operation| o.is_open(verb) && o.key == *id;
        let answers_it = |o: &Operation| o.is_open("respond") && asked == Some(&o.key);
        let was_killed = || history.iter().any(|o| ends_it(o) || answers_it(o));
        if !told(kind, id) && !was_killed() {
            wrong.push(format!("{id} is in {states:?}, and nothing tells why"));
        }
    }
    let decided = disk.decisions.iter().filter(|(_, state)| *state != "pending");
    for (id, _) in decided.filter(|(id, _)| !told("request.decided", id)) {
        wrong.push(format!("the log does not tell of the decision of {id}"));
    }
}
