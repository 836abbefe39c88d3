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

use ensemble_team::roster::MemberState;

use super::*;

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
pub fn call(player: &mut Player<'_>, leaver: &Leaver) {
    let Leaver { name, caller, is_listed, .. } = leaver;
    let stage = player.stage;
    for number in 0.. {
        if number >= MANNERS.len() && stage.is_over() || player.has_given_up() {
            break;
        }
        let (work, request) = (format!("pool-{name}-{number}"), format!("leave-{name}-{number}"));
        let line =
            ["send", "--as", caller, "--to", POOL, "--id", &work, "--task", &work, "-m", &work];
        let Some(ran) = player.insist(&line) else { break };
        player.note(&line, &ran, Fact::Sent { id: work.clone(), to: POOL.to_owned() });
        stage.sent.fetch_add(1, Ordering::Relaxed);
        stage.calls.fetch_add(1, Ordering::Relaxed);
        let deadline = MANNERS[number % MANNERS.len()].deadline();
        let on_silence = if *is_listed { "force" } else { "tell" };
        let line = ["request", "shutdown", name, "--as", caller, "--id", &request];
        let wait = if *is_listed { "10s" } else { "3s" };
        let more = ["--deadline", deadline, "--on-silence", on_silence, "--wait", wait, "--json"];
        let line: Vec<&str> = line.into_iter().chain(more).collect();
        ask(player, &line, &request, *is_listed);
        stage.called.fetch_add(1, Ordering::Relaxed);
    }
    stage.callers.fetch_sub(1, Ordering::Relaxed);
}

/// One question, until it is decided and nothing more is to come.
fn ask(player: &mut Player<'_>, line: &[&str], request: &str, is_listed: bool) {
    while let Some(ran) = player.insist(line) {
        let is_decided = state(&ran).is_some_and(|state| state != "pending");
        let (request, is_gone) = (request.to_owned(), ran.code == 0);
        let called = Fact::Called { request, is_listed, is_gone };
        match ran.code {
            0 | 1 if is_decided => return player.facts.push(called),
            // No watcher sees off an agent that is in no roster.
            NOTHING if is_decided && !is_listed => return player.facts.push(called),
            NOTHING => {}
            _ => return player.note_wrong(line, &ran),
        }
    }
}

/// The state of a request, as a verb has printed it.
fn state(ran: &Ran) -> Option<String> {
    ran.row::<Value>()?["state"].as_str().map(str::to_owned)
}

/// Works, answers, leaves and comes back, until no caller is left and all work is done.
pub fn stay(player: &mut Player<'_>, leaver: &Leaver) {
    let questions = ["recv", "--as", leaver.name, "--json"];
    while !player.stage.is_all_settled() && !player.has_given_up() {
        if leaver.is_listed && has_gone(player) {
            player.host.enlist(leaver.name, ROLE);
        }
        let Some(ran) = player.insist(&questions) else { break };
        if ran.code != NOTHING {
            match ran.row::<Question>() {
                Some(question) if question.kind == "shutdown_request" => answer(player, &question),
                _ => player.note_wrong(&questions, &ran),
            }
            continue;
        }
        if let Some((id, epoch)) = take_work(player) {
            player.settle((&id, epoch), &["--mailbox", POOL]);
        }
    }
    has_gone(player);
}

/// Whether the roster of its host has the agent no more.
fn has_gone(player: &mut Player<'_>) -> bool {
    let Some(member) = player.host.member(player.name) else { return true };
    let request = member.ended.and_then(|ended| ended.request_id);
    player.facts.extend(request.map(|request| Fact::SeenOff { request: request.to_string() }));
    member.state == MemberState::Shutdown
}

fn take_work(player: &mut Player<'_>) -> Option<(String, u64)> {
    player.take(&["recv", "--as", player.name, "--mailbox", POOL, "--json", "--wait", "500ms"])
}

#[derive(Deserialize)]
struct Question {
    #[serde(rename = "type")]
    kind: String,
    id: String,
    epoch: u64,
    #[serde(rename = "correlation_id")]
    request: String,
}

/// Answers a question in its manner, if it is open.
fn answer(player: &mut Player<'_>, question: &Question) {
    let request = &question.request;
    let shown = ["request", "list", request, "--json"];
    let Some(ran) = player.insist(&shown) else { return };
    let (Some(state), Some(manner)) = (state(&ran), Manner::of(request)) else {
        return player.note_wrong(&shown, &ran);
    };
    // A reminder, or a question that was handed out again.
    if state != "pending" {
        return put_away(player, question);
    }
    if manner != Manner::Declines
        && let Some((id, epoch)) = take_work(player)
    {
        player.facts.push(Fact::Kept { request: request.clone(), id, epoch });
    }
    let verdict = match manner {
        Manner::Agrees => Some("--approve"),
        Manner::Declines => Some("--reject"),
        Manner::SaysNothing => None,
    };
    if let Some(verdict) = verdict {
        let line = ["request", "answer", request, verdict, "--as", player.name];
        let Some(ran) = player.insist(&line) else { return };
        let agrees = manner == Manner::Agrees;
        match ran.code {
            0 => player.facts.push(Fact::Answered { request: request.clone(), agrees }),
            // By its own earlier try.
            1 if ran.stderr.contains("the first decision counts") => {}
            _ => player.note_wrong(&line, &ran),
        }
    }
    if manner == Manner::Agrees {
        begins_nothing(player, request);
    }
    // Before its deadline, a question without an answer cannot be settled.
    if manner != Manner::SaysNothing {
        put_away(player, question);
    }
}

/// Settles a question that is decided. It may be gone by then.
fn put_away(player: &Player<'_>, question: &Question) {
    let epoch = question.epoch.to_string();
    let _ = player.insist(&["settle", "--as", player.name, &question.id, "--epoch", &epoch]);
}

/// Until the watcher of this host has seen it off, an agent that has agreed is given no work.
fn begins_nothing(player: &mut Player<'_>, request: &str) {
    let (host, name) = (player.host, player.name);
    let is_leaving = || host.member(name).is_some_and(|it| it.state == MemberState::Leaving);
    if !is_leaving() {
        return;
    }
    let Some((id, epoch)) = take_work(player) else { return };
    if is_leaving() {
        player.facts.push(Fact::TookUp { request: request.to_owned(), id: id.clone() });
    }
    player.settle((&id, epoch), &["--mailbox", POOL]);
}
