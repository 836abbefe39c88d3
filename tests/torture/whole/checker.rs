//! Proves or refutes the whole, from what the agents have noted and what is on disk.
//!
//! | rule | from |
//! |---|---|
//! | every piece of work is done, merged, or reported to a person with a reason | mailboxes, reports, summaries, board, steps |
//! | no two processes are at one piece of work, but for one that paused | `beside` lines, which a lock of the kernel decides |
//! | no work is finished twice | `hand` and `end` lines |
//! | nothing begins during a pause, before what it waits for, without its plan, or after an agreed shutdown | `begin`, `approving`, `agreed`, `hasty` lines |
//! | nothing is left | processes, worktrees, branches, locks, requests, the log |

use std::collections::BTreeSet;

use super::*;

/// How long a supervisor that was just claiming may take to begin, in seconds.
const CLAIM_SECONDS: f64 = 8.0;

/// The state of a message, and the reason of a dead letter.
#[derive(Clone, Debug, Default)]
pub struct Message {
    pub place: String,
    pub reason: String,
}

#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub lines: Vec<Line>,
    pub troubles: Vec<Trouble>,
    pub works: Vec<Work>,
    /// Messages that are tasks, by their ids.
    pub messages: BTreeMap<String, Vec<Message>>,
    /// Status and reason of each report, by its task.
    pub reports: BTreeMap<String, (String, String)>,
    /// The reports to people: type, task and text.
    pub told: Vec<String>,
    pub summaries: BTreeMap<String, Vec<String>>,
    /// Status, reason, and what comes before, of each task of the board.
    pub board: BTreeMap<String, (String, String, Vec<String>)>,
    pub steps: BTreeMap<String, Vec<(u32, String)>>,
    pub requests: BTreeMap<String, String>,
    pub worktrees: Vec<String>,
    pub branches: Vec<String>,
    pub ends: BTreeMap<String, usize>,
    pub records: u64,
    pub left: Vec<String>,
}

impl Facts {
    fn of<'a>(&'a self, verb: &'a str, task: &'a str) -> impl Iterator<Item = &'a Line> {
        self.lines.iter().filter(move |line| line.verb == verb && line.task == task)
    }

    fn is_told(&self, task: &str) -> bool {
        self.told.iter().any(|text| mentions(text, task))
    }

    fn troubles<'a>(&'a self, what: &'a str) -> impl Iterator<Item = &'a Trouble> {
        self.troubles.iter().filter(move |trouble| trouble.what == what)
    }
}

fn mentions(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    text.split(|c| !is_part(c)).any(|part| part == word)
}

pub fn violations(facts: &Facts) -> Vec<String> {
    let mut wrong = facts.left.clone();
    for work in &facts.works {
        wrong.extend(fate(facts, work).err());
        order(facts, work, &mut wrong);
        plan(facts, work, &mut wrong);
    }
    two_at_once(facts, &mut wrong);
    finished_twice(facts, &mut wrong);
    begun_in_a_pause(facts, &mut wrong);
    begun_after_agreeing(facts, &mut wrong);
    for (id, state) in facts.requests.iter().filter(|(_, state)| *state != "closed") {
        wrong.push(format!("request {id} is {state}"));
    }
    let is_blocked = |name: &str| {
        let task = name.rsplit('/').next().unwrap_or_default();
        facts.board.get(task).is_some_and(|(status, ..)| status == "BLOCKED")
    };
    for left in facts.worktrees.iter().chain(&facts.branches).filter(|name| !is_blocked(name)) {
        wrong.push(format!("{left} is left, and its task is not blocked"));
    }
    wrong
}

/// The fate of a task behind one that a person was notified of.
const WAITS: &str = "waits for what was told";

/// What happened to a piece of work; an error if it is open, or ended in silence.
fn fate(facts: &Facts, work: &Work) -> Result<&'static str, String> {
    match work.kind {
        Kind::Mail => fate_of_mail(facts, &work.id),
        Kind::Batch => fate_of_batch(facts, work),
        Kind::Board => fate_of_task(facts, &work.id),
        Kind::Steps => fate_of_steps(facts, &work.id),
    }
}

fn fate_of_mail(facts: &Facts, id: &str) -> Result<&'static str, String> {
    let Some([message]) = facts.messages.get(id).map(Vec::as_slice) else {
        return Err(format!("{id} was sent and is {:?}", facts.messages.get(id)));
    };
    let report = facts.reports.get(id);
    match (message.place.as_str(), report) {
        ("done", Some((status, _))) if status == "success" => Ok("settled"),
        ("done", None) => Ok("settled"),
        ("done", Some((_, reason))) if facts.is_told(id) && !reason.is_empty() => Ok("told"),
        ("dead", _) if facts.is_told(id) && !message.reason.is_empty() => Ok("told"),
        ("done" | "dead", _) => Err(format!("{id} ended in silence: {message:?}, {report:?}")),
        _ => Err(format!("{id} is open: {message:?}")),
    }
}

fn fate_of_batch(facts: &Facts, work: &Work) -> Result<&'static str, String> {
    for part in &work.parts {
        match facts.summaries.get(part).map(Vec::as_slice) {
            Some([_]) => {}
            told => return Err(format!("{part} of {} was told as {told:?}", work.id)),
        }
    }
    Ok("summed up")
}

fn fate_of_task(facts: &Facts, id: &str) -> Result<&'static str, String> {
    let Some((status, reason, before)) = facts.board.get(id) else {
        return Err(format!("{id} is not on the board"));
    };
    match status.as_str() {
        "MERGED" => match before.iter().find(|before| facts.board[*before].0 != "MERGED") {
            Some(before) => Err(format!("{id} is merged, and {before} is not")),
            None => Ok("merged"),
        },
        "BLOCKED" if facts.is_told(id) && !reason.is_empty() => Ok("told"),
        "BLOCKED" => Err(format!("{id} is blocked in silence: {reason:?}")),
        // A task before it is blocked and reported, or waits itself for such a task.
        "UNCLAIMED" if before.iter().any(|before| is_stopped(facts, before)) => Ok(WAITS),
        _ => Err(format!("{id} is {status}")),
    }
}

fn is_stopped(facts: &Facts, task: &str) -> bool {
    matches!(fate_of_task(facts, task), Ok("told" | WAITS))
}

fn fate_of_steps(facts: &Facts, queue: &str) -> Result<&'static str, String> {
    let Some(steps) = facts.steps.get(queue).filter(|steps| !steps.is_empty()) else {
        return Err(format!("{queue} is lost"));
    };
    match steps.iter().find(|(_, status)| status != "COMPLETED") {
        None => Ok("completed"),
        Some((_, status)) if matches!(status.as_str(), "BLOCKED" | "FAILED") => {
            if facts.is_told(queue) {
                Ok("told")
            } else {
                Err(format!("{queue} stands in silence: {steps:?}"))
            }
        }
        Some((index, status)) => Err(format!("step {index} of {queue} is {status}")),
    }
}

/// What waits for another task begins after its success.
fn order(facts: &Facts, work: &Work, wrong: &mut Vec<String>) {
    for (first, then) in &work.order {
        let done = match work.kind {
            // A supervised agent may be killed between its last command and its line.
            Kind::Board => facts.of("begin", first).map(|line| line.at).next(),
            _ => {
                let is_success = |line: &&Line| line.rest.first().is_some_and(|s| s == "success");
                facts.of("hand", first).filter(is_success).map(|line| line.at).next()
            }
        };
        let begun = facts.of("begin", then).find(|line| done.is_none_or(|done| line.at < done));
        if let Some(line) = begun {
            wrong.push(format!("{then} was begun before {first} was done: {line:?}"));
        }
    }
}

/// Work that needs a plan is finished after its approval.
fn plan(facts: &Facts, work: &Work, wrong: &mut Vec<String>) {
    if !work.needs_plan {
        return;
    }
    let approved = facts.of("approving", &work.id).map(|line| line.at).next();
    let is_early = |at: f64| approved.is_none_or(|approved| at < approved);
    let finished = facts.lines.iter().filter(|line| {
        line.task == work.id
            && match line.verb.as_str() {
                "done" => true,
                "end" => {
                    line.rest.first().is_some_and(|word| word == "ok") && is_success(facts, line)
                }
                "hasty" => line.rest.first().is_some_and(|code| code == "0"),
                _ => false,
            }
    });
    for line in finished.filter(|line| is_early(line.at)) {
        wrong.push(format!("{} was finished without its plan: {line:?}", work.id));
    }
}

/// Whether the result that this `end` is about was a success.
fn is_success(facts: &Facts, end: &Line) -> bool {
    let is_its = |line: &&Line| line.pid == end.pid && line.epoch == end.epoch && line.at <= end.at;
    let hand = facts.of("hand", &end.task).filter(is_its).last();
    hand.is_some_and(|line| line.rest.first().is_some_and(|status| status == "success"))
}

/// Two processes may meet only if the first paused in the meantime, itself or with its supervisor.
/// The other exception is a first process that could not say on a full disk that it lives.
fn two_at_once(facts: &Facts, wrong: &mut Vec<String>) {
    for line in facts.lines.iter().filter(|line| line.verb == "beside") {
        let holders: Vec<u32> = line.rest.iter().filter_map(|word| word.parse().ok()).collect();
        let is_near = |trouble: &&Trouble| trouble.from <= line.at;
        let stood = facts
            .troubles("stop")
            .filter(is_near)
            .any(|stop| holders.iter().any(|pid| stop.pids.contains(pid)));
        let begun = facts.of("begin", &line.task).filter(|begin| holders.contains(&begin.pid));
        let since = begun.map(|begin| begin.at).fold(line.at, f64::min);
        let was_full = facts.troubles("full").filter(is_near).any(|full| full.to >= since);
        if !stood && !was_full {
            wrong.push(format!("two at once: {line:?}"));
        }
    }
}

/// A success that was taken is not taken again. (The board has its own fencing.)
fn finished_twice(facts: &Facts, wrong: &mut Vec<String>) {
    let mut taken: BTreeMap<&str, BTreeSet<(u64, u32)>> = BTreeMap::new();
    for line in facts.lines.iter().filter(|line| line.verb == "end" && is_success(facts, line)) {
        if line.rest.first().is_some_and(|word| word == "ok") {
            taken.entry(&line.task).or_default().insert((line.epoch, line.pid));
        }
    }
    for (task, taken) in taken.iter().filter(|(_, taken)| taken.len() > 1) {
        wrong.push(format!("{task} was finished {} times: {taken:?}", taken.len()));
    }
}

fn begun_in_a_pause(facts: &Facts, wrong: &mut Vec<String>) {
    let planned: BTreeSet<&str> =
        facts.works.iter().filter(|work| work.needs_plan).map(|work| work.id.as_str()).collect();
    for pause in facts.troubles("pause") {
        for line in facts.lines.iter().filter(|line| line.verb == "begin" && line.at < pause.to) {
            let is_begun = if line.agent == "supervised" {
                // It was started before, and then waited for its plan.
                !planned.contains(line.task.as_str()) && line.at > pause.from + CLAIM_SECONDS
            } else {
                let asked = line.rest.first().and_then(|at| at.parse::<f64>().ok());
                asked.is_some_and(|asked| asked > pause.from) && !was_begun(facts, line)
            };
            if is_begun {
                wrong.push(format!("begun in the pause from {:.2}: {line:?}", pause.from));
            }
        }
    }
}

/// Whether the same hand-out was begun before, by an earlier process of the agent: a step is its agent's until its
/// lease has ended.
fn was_begun(facts: &Facts, line: &Line) -> bool {
    let is_same = |other: &Line| other.agent == line.agent && other.epoch == line.epoch;
    facts.of("begin", &line.task).any(|other| is_same(other) && other.at < line.at)
}

fn begun_after_agreeing(facts: &Facts, wrong: &mut Vec<String>) {
    for line in facts.lines.iter().filter(|line| line.verb == "after-agreed") {
        wrong.push(format!("begun after it has agreed to leave: {line:?}"));
    }
    for agreed in facts.lines.iter().filter(|line| line.verb == "agreed") {
        let is_its = |line: &&Line| line.agent == agreed.agent && line.pid == agreed.pid;
        // In an hour, pids come again: another process of the agent says that it is up.
        let mut ups = facts.lines.iter().filter(is_its).filter(|line| line.verb == "up");
        let next = ups.find(|line| line.at > agreed.at).map_or(f64::INFINITY, |up| up.at);
        let later = |line: &&Line| line.verb == "begin" && line.at > agreed.at && line.at < next;
        for line in facts.lines.iter().filter(is_its).filter(later) {
            wrong.push(format!("begun after it has agreed to leave: {line:?}"));
        }
    }
}

pub fn counts(facts: &Facts) -> String {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for work in &facts.works {
        let fate = fate(facts, work).unwrap_or("open or silent");
        *counts.entry(format!("{:?} {fate}", work.kind)).or_default() += 1;
    }
    for line in &facts.lines {
        let word = match line.verb.as_str() {
            "begin" | "beside" | "agreed" | "planned" | "approving" => line.verb.clone(),
            "end" => format!("end {}", line.rest.first().map_or("", String::as_str)),
            "hasty" => format!("hasty {}", line.rest.first().map_or("", String::as_str)),
            _ => continue,
        };
        *counts.entry(word).or_default() += 1;
    }
    *counts.entry("records".to_owned()).or_default() += facts.records;
    let requests = facts.requests.len() as u64;
    *counts.entry("requests".to_owned()).or_default() += requests;
    let counts: Vec<String> = counts.iter().map(|(what, n)| format!("{n} {what}")).collect();
    counts.join(", ")
}
