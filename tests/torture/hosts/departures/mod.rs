//! Agents that are asked to leave by the other host, and that come back.
//!
//! | agent | host | in its host's roster | silence until the deadline |
//! |---|---|---|---|
//! | `joe`, `jim` | one each | yes: the watcher shuts it down | shuts it down |
//! | `sam`, `sue` | one each | no: what it holds is returned when its leases expire | is reported |
//!
//! All four receive from the mailbox `pool`. Each has a caller on the other host, which sends it a message with a
//! task before each question. Depending on the number of the question, an agent agrees, declines, or does not answer.
//! Before it agrees or keeps silent, it receives a message and keeps it. An agent that has left comes back in its
//! next generation.

use std::sync::atomic::Ordering;

use ensemble_team::roster::MemberState;
use serde_json::Value;

use crate::hosts::host::{Host, Ran};
use crate::hosts::journal::Fact;
use crate::hosts::players::{NOTHING, Stage, settle, take, wrong};

mod checked;

pub use checked::{Departures, gather, violations};

pub struct Leaver {
    pub name: &'static str,
    pub at: usize,
    /// Whether it is in the roster of its host.
    pub is_listed: bool,
    pub caller: &'static str,
}

const fn leaver(name: &'static str, at: usize, is_listed: bool, caller: &'static str) -> Leaver {
    Leaver { name, at, is_listed, caller }
}

pub const LEAVERS: [Leaver; 4] = [
    leaver("joe", 0, true, "calls-joe"),
    leaver("jim", 1, true, "calls-jim"),
    leaver("sam", 0, false, "calls-sam"),
    leaver("sue", 1, false, "calls-sue"),
];
/// The mailbox whose work all of them do.
pub const POOL: &str = "pool";
/// A role to which Dispatch gives no task.
const ROLE: &str = "guest";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Agrees,
    Declines,
    SaysNothing,
}

const MANNERS: [Manner; 3] = [Manner::Agrees, Manner::SaysNothing, Manner::Declines];

impl Manner {
    /// By the number at the end of a question's id.
    fn of(request: &str) -> Option<Self> {
        let number: usize = request.rsplit_once('-')?.1.parse().ok()?;
        Some(MANNERS[number % MANNERS.len()])
    }

    const fn deadline(self) -> &'static str {
        match self {
            Self::Agrees | Self::Declines => "10m",
            Self::SaysNothing => "3s",
        }
    }
}

/// Asks an agent to leave, again and again, and waits each time until that is decided, and the agent has gone.
pub fn call(stage: &Stage<'_>, host: &Host, leaver: &Leaver) -> Vec<Fact> {
    let Leaver { name, caller, is_listed, .. } = leaver;
    let mut facts = Vec::new();
    for number in 0.. {
        if number >= MANNERS.len() && stage.is_over() || stage.given_up.load(Ordering::Relaxed) {
            break;
        }
        let (work, request) = (format!("pool-{name}-{number}"), format!("leave-{name}-{number}"));
        let line =
            ["send", "--as", caller, "--to", POOL, "--id", &work, "--task", &work, "-m", &work];
        let Some(ran) = stage.insist(host, &line) else { break };
        match ran.code {
            0 => facts.push(Fact::Sent { id: work, to: POOL.to_owned() }),
            _ => facts.push(wrong(&line, &ran)),
        }
        stage.sent.fetch_add(1, Ordering::Relaxed);
        stage.calls.fetch_add(1, Ordering::Relaxed);
        let deadline = MANNERS[number % MANNERS.len()].deadline();
        let on_silence = if *is_listed { "force" } else { "tell" };
        let line = ["request", "shutdown", name, "--as", caller, "--id", &request];
        let wait = if *is_listed { "10s" } else { "3s" };
        let more = ["--deadline", deadline, "--on-silence", on_silence, "--wait", wait, "--json"];
        let line: Vec<&str> = line.into_iter().chain(more).collect();
        facts.extend(ask(stage, host, &line, &request, *is_listed));
        stage.called.fetch_add(1, Ordering::Relaxed);
    }
    stage.callers.fetch_sub(1, Ordering::Relaxed);
    facts
}

/// One question, until it is decided and nothing more is to come.
fn ask(
    stage: &Stage<'_>,
    host: &Host,
    line: &[&str],
    request: &str,
    is_listed: bool,
) -> Option<Fact> {
    loop {
        let ran = stage.insist(host, line)?;
        let is_decided = state(&ran).is_some_and(|state| state != "pending");
        let (request, is_gone) = (request.to_owned(), ran.code == 0);
        match ran.code {
            0 | 1 if is_decided => return Some(Fact::Called { request, is_listed, is_gone }),
            // No watcher sees off an agent that is in no roster.
            NOTHING if is_decided && !is_listed => {
                return Some(Fact::Called { request, is_listed, is_gone });
            }
            NOTHING => {}
            _ => return Some(wrong(line, &ran)),
        }
    }
}

/// The state of a request, as a verb has printed it.
fn state(ran: &Ran) -> Option<String> {
    let entry: Value = serde_json::from_str(ran.stdout.lines().next()?).ok()?;
    entry["state"].as_str().map(str::to_owned)
}

/// Works, answers, leaves and comes back, until no caller is left and all work is done.
pub fn stay(stage: &Stage<'_>, host: &Host, leaver: &Leaver) -> Vec<Fact> {
    let name = leaver.name;
    let mut facts = Vec::new();
    let questions = ["recv", "--as", name, "--json"];
    while !stage.is_all_settled() && !stage.given_up.load(Ordering::Relaxed) {
        if leaver.is_listed && has_gone(host, name, &mut facts) {
            host.enlist(name, ROLE);
        }
        let Some(ran) = stage.insist(host, &questions) else { break };
        if ran.code != NOTHING {
            match Question::read(&ran) {
                Some(question) => answer(stage, host, leaver, &question, &mut facts),
                None => facts.push(wrong(&questions, &ran)),
            }
            continue;
        }
        if let Some((id, epoch)) = take_work(stage, host, name, &mut facts) {
            finish(stage, host, name, (&id, epoch), &mut facts);
        }
    }
    has_gone(host, name, &mut facts);
    facts
}

/// Whether the roster of its host has the agent no more.
fn has_gone(host: &Host, name: &str, facts: &mut Vec<Fact>) -> bool {
    let Some(member) = host.member(name) else { return true };
    let request = member.ended.and_then(|ended| ended.request_id);
    facts.extend(request.map(|request| Fact::SeenOff { request: request.to_string() }));
    member.state == MemberState::Shutdown
}

fn take_work(
    stage: &Stage<'_>,
    host: &Host,
    name: &str,
    facts: &mut Vec<Fact>,
) -> Option<(String, u64)> {
    let line = ["recv", "--as", name, "--mailbox", POOL, "--json", "--wait", "500ms"];
    take(stage, host, &line, facts)
}

fn finish(
    stage: &Stage<'_>,
    host: &Host,
    name: &str,
    (id, epoch): (&str, u64),
    facts: &mut Vec<Fact>,
) {
    let number = epoch.to_string();
    let line = ["settle", "--as", name, "--mailbox", POOL, id, "--epoch", &number];
    settle(stage, host, &line, (id, epoch), facts);
}

struct Question {
    id: String,
    epoch: u64,
    request: String,
}

impl Question {
    fn read(ran: &Ran) -> Option<Self> {
        let got: Value = serde_json::from_str(ran.stdout.lines().next()?).ok()?;
        let envelope = &got;
        (envelope["type"] == "shutdown_request").then_some(())?;
        Some(Self {
            id: got["id"].as_str()?.to_owned(),
            epoch: got["epoch"].as_u64()?,
            request: envelope["correlation_id"].as_str()?.to_owned(),
        })
    }
}

/// Answers a question in its manner, if it is open.
fn answer(
    stage: &Stage<'_>,
    host: &Host,
    leaver: &Leaver,
    question: &Question,
    facts: &mut Vec<Fact>,
) {
    let request = &question.request;
    let shown = ["request", "list", request, "--json"];
    let Some(ran) = stage.insist(host, &shown) else { return };
    let (Some(state), Some(manner)) = (state(&ran), Manner::of(request)) else {
        facts.push(wrong(&shown, &ran));
        return;
    };
    // A reminder, or a question that was handed out again.
    if state != "pending" {
        put_away(stage, host, leaver.name, question);
        return;
    }
    if manner != Manner::Declines
        && let Some((id, epoch)) = take_work(stage, host, leaver.name, facts)
    {
        facts.push(Fact::Kept { request: request.clone(), id, epoch });
    }
    let agrees = match manner {
        Manner::Agrees => Some("--approve"),
        Manner::Declines => Some("--reject"),
        Manner::SaysNothing => None,
    };
    if let Some(verdict) = agrees {
        let line = ["request", "answer", request, verdict, "--as", leaver.name];
        let Some(ran) = stage.insist(host, &line) else { return };
        let agrees = manner == Manner::Agrees;
        match ran.code {
            0 => facts.push(Fact::Answered { request: request.clone(), agrees }),
            // By its own earlier try.
            1 if ran.stderr.contains("the first decision counts") => {}
            _ => facts.push(wrong(&line, &ran)),
        }
    }
    if manner == Manner::Agrees {
        begins_nothing(stage, host, leaver.name, request, facts);
    }
    // Before its deadline, a question without an answer cannot be settled.
    if manner != Manner::SaysNothing {
        put_away(stage, host, leaver.name, question);
    }
}

/// Settles a question that is decided. It may be gone by then.
fn put_away(stage: &Stage<'_>, host: &Host, name: &str, question: &Question) {
    let epoch = question.epoch.to_string();
    let _ = stage.insist(host, &["settle", "--as", name, &question.id, "--epoch", &epoch]);
}

/// Until the watcher of this host has seen it off, an agent that has agreed is given no work.
fn begins_nothing(
    stage: &Stage<'_>,
    host: &Host,
    name: &str,
    request: &str,
    facts: &mut Vec<Fact>,
) {
    let is_leaving = || host.member(name).is_some_and(|it| it.state == MemberState::Leaving);
    if !is_leaving() {
        return;
    }
    let Some((id, epoch)) = take_work(stage, host, name, facts) else { return };
    if is_leaving() {
        facts.push(Fact::TookUp { request: request.to_owned(), id: id.clone() });
    }
    finish(stage, host, name, (&id, epoch), facts);
}
