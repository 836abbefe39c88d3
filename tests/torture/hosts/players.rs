//! The players that send, receive, ask and decide, each in its own thread, with one command after the other. Those of
//! steps/, dispatch/ and departures/ are started here, too.
//!
//! | answer of the command | the player |
//! |---|---|
//! | 0 | notes what was accepted, and continues |
//! | 75, or it was killed | repeats the same |
//! | 3 | there is nothing yet: tries again |
//! | 1 | it came too late: continues, and notes at most that it found the work done |
//! | another | notes it as wrong |

use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread::{Scope, ScopedJoinHandle};

use crate::hosts::steps::WORKERS;

use super::*;

/// The exit code for "nothing found".
pub const NOTHING: i32 = 3;
/// Senders wait while this many messages have not been settled yet.
const OPEN_MAX: u64 = 40;
const SENDERS: [(usize, &str); 4] = [(0, "ann"), (0, "amy"), (1, "bob"), (1, "ben")];
const BOXES: [&str; 3] = [MAILBOXES[0], MAILBOXES[1], POOL];
const PLANS_OPEN_MAX: usize = 3;

/// The hosts, and the counts by which the players know that all is done.
pub struct Stage<'a> {
    hosts: &'a [Host; 2],
    start: Instant,
    messages_min: u64,
    /// No new work is begun.
    pub over: AtomicBool,
    /// The test has failed: each player ends at once.
    pub given_up: AtomicBool,
    pub sent: AtomicU64,
    settled: Mutex<BTreeSet<String>>,
    pub senders: AtomicU64,
    asked: AtomicU64,
    decided: AtomicU64,
    askers: AtomicU64,
    /// Those who store queues of steps.
    pub drivers: AtomicU64,
    /// The players that hand instructions to Dispatch, and the batches whose summaries they got.
    pub conductors: AtomicU64,
    pub batches: AtomicU64,
    /// Those who ask agents to leave, and their questions, all of them and those that are decided.
    pub callers: AtomicU64,
    pub calls: AtomicU64,
    pub called: AtomicU64,
}

/// A guard; see [`Stage::gives_up_with_this_thread`].
pub struct GivesUp<'a>(&'a AtomicBool);

impl Drop for GivesUp<'_> {
    fn drop(&mut self) {
        self.0.fetch_or(std::thread::panicking(), Ordering::Relaxed);
    }
}

impl<'a> Stage<'a> {
    pub fn new(hosts: &'a [Host; 2], messages_min: u64) -> Self {
        let zero = AtomicU64::default;
        Self {
            hosts,
            start: Instant::now(),
            messages_min,
            over: AtomicBool::default(),
            given_up: AtomicBool::default(),
            sent: zero(),
            settled: Mutex::default(),
            senders: AtomicU64::new(SENDERS.len() as u64),
            asked: zero(),
            decided: zero(),
            askers: AtomicU64::new(1),
            drivers: AtomicU64::new(hosts.len() as u64),
            conductors: AtomicU64::new(1),
            batches: zero(),
            callers: AtomicU64::new(LEAVERS.len() as u64),
            calls: zero(),
            called: zero(),
        }
    }

    /// A directory for the files that steps change, of both hosts.
    pub fn files(&self) -> &Path {
        self.hosts[0].own()
    }

    pub fn told(&self) -> String {
        let of = |number: &AtomicU64| number.load(Ordering::Relaxed);
        format!(
            "{} sent, {} settled; {} plans, {} decided; {} drivers of steps; {} batches told, {} \
             conductors; {} asked to leave, {} decided, {} callers",
            of(&self.sent),
            self.settled().len(),
            of(&self.asked),
            of(&self.decided),
            of(&self.drivers),
            of(&self.batches),
            of(&self.conductors),
            of(&self.calls),
            of(&self.called),
            of(&self.callers)
        )
    }

    /// Whether all that was sent is settled, and nothing more will be.
    pub fn is_all_settled(&self) -> bool {
        let left = [&self.senders, &self.callers].map(|number| number.load(Ordering::Relaxed));
        left == [0, 0] && self.settled().len() as u64 >= self.sent.load(Ordering::Relaxed)
    }

    fn settled(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.settled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the players if this thread panics before the guard is dropped: the test waits for all of them.
    pub fn gives_up_with_this_thread(&self) -> GivesUp<'_> {
        GivesUp(&self.given_up)
    }

    /// Milliseconds since the begin.
    pub fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed) || self.given_up.load(Ordering::Relaxed)
    }

    /// Repeats a verb until it has ended by itself with another word than "busy"; `None` if the test has failed.
    pub fn insist(&self, host: &Host, arguments: &[&str]) -> Option<Ran> {
        while !self.given_up.load(Ordering::Relaxed) {
            match host.verb(arguments) {
                Some(ran) if ran.code != BUSY => return Some(ran),
                _ => pause(),
            }
        }
        None
    }
}

/// Someone who does its part on a host, and notes what the command answers.
pub struct Player<'a> {
    pub stage: &'a Stage<'a>,
    pub host: &'a Host,
    pub name: &'a str,
    pub facts: Vec<Fact>,
}

impl Player<'_> {
    pub fn has_given_up(&self) -> bool {
        self.stage.given_up.load(Ordering::Relaxed)
    }

    /// See [`Stage::insist`].
    pub fn insist(&self, line: &[&str]) -> Option<Ran> {
        self.stage.insist(self.host, line)
    }

    /// Notes what the command has accepted, or that it has not.
    pub fn note(&mut self, line: &[&str], ran: &Ran, accepted: Fact) {
        self.facts.push(if ran.code == 0 { accepted } else { wrong(line, ran) });
    }

    pub fn note_wrong(&mut self, line: &[&str], ran: &Ran) {
        self.facts.push(wrong(line, ran));
    }

    /// Receives a message, if there is one; its id and the number of the delivery.
    pub fn take(&mut self, line: &[&str]) -> Option<(String, u64)> {
        let asked_at = self.stage.now();
        let ran = self.insist(line).filter(|ran| ran.code != NOTHING)?;
        let Some((id, epoch, body)) = received(&ran) else {
            self.note_wrong(line, &ran);
            return None;
        };
        self.facts.push(Fact::Received { id: id.clone(), epoch, body, asked_at });
        Some((id, epoch))
    }

    /// Settles this delivery; `more` says whose mailbox it is in, if not its own.
    pub fn settle(&mut self, (id, epoch): (&str, u64), more: &[&str]) {
        let number = epoch.to_string();
        let line = [&["settle", "--as", self.name][..], more, &[id, "--epoch", &number]].concat();
        let Some(ran) = self.insist(&line) else { return };
        let (id, answered_at) = (id.to_owned(), self.stage.now());
        match ran.code {
            0 => {
                self.stage.settled().insert(id.clone());
                self.facts.push(Fact::Settled { id, epoch, answered_at });
            }
            1 if ran.stderr.contains("is settled") => {
                self.stage.settled().insert(id.clone());
                self.facts.push(Fact::FoundSettled { id, answered_at });
            }
            // Its lease had ended, and it was delivered again.
            1 => {}
            _ => self.note_wrong(&line, &ran),
        }
    }
}

type Part<'scope> = Box<dyn FnOnce(&mut Player<'_>) + Send + 'scope>;

pub fn begin<'scope, 'a: 'scope>(
    scope: &'scope Scope<'scope, '_>,
    stage: &'scope Stage<'a>,
) -> Vec<ScopedJoinHandle<'scope, Vec<Fact>>> {
    let mut players = Vec::new();
    let mut play = |host: usize, name: &'static str, part: Part<'scope>| {
        players.push(scope.spawn(move || {
            let mut player = Player { stage, host: &stage.hosts[host], name, facts: Vec::new() };
            part(&mut player);
            player.facts
        }));
    };
    play(1, "planner", Box::new(ask));
    play(0, "lead", Box::new(|player| decide(player, true)));
    play(1, "lead", Box::new(|player| decide(player, false)));
    SENDERS.into_iter().for_each(|(host, name)| play(host, name, Box::new(send)));
    [0, 1].into_iter().for_each(|host| play(host, ORCHESTRATOR, Box::new(steps::drive)));
    WORKERS.into_iter().for_each(|(host, name)| play(host, name, Box::new(steps::work)));
    play(1, ORCHESTRATOR, Box::new(dispatch::conduct));
    for (host, name) in dispatch::WORKERS {
        play(host, name, Box::new(dispatch::work));
    }
    for leaver in &LEAVERS {
        let call = move |player: &mut Player<'_>| departures::call(player, leaver);
        play(1 - leaver.at, leaver.caller, Box::new(call));
        let stay = move |player: &mut Player<'_>| departures::stay(player, leaver);
        play(leaver.at, leaver.name, Box::new(stay));
    }
    for (host, mailbox) in [0, 1].into_iter().flat_map(|host| MAILBOXES.map(|it| (host, it))) {
        play(host, mailbox, Box::new(receive));
    }
    players
}

/// Every such message of a sender has large content, of this many lines.
const LARGE_EVERY: u64 = 5;
const LARGE_LINES: usize = 30_000;

fn wrong(line: &[&str], ran: &Ran) -> Fact {
    let told = format!("{}: {}", ran.code, ran.stderr.trim());
    Fact::Wrong { command: line.join(" "), told }
}

fn send(player: &mut Player<'_>) {
    let (stage, name) = (player.stage, player.name);
    let mut number = 0;
    while number < stage.messages_min || !stage.is_over() {
        let sent = stage.sent.load(Ordering::Relaxed);
        if sent.saturating_sub(stage.settled().len() as u64) > OPEN_MAX {
            if player.has_given_up() {
                break;
            }
            pause();
            continue;
        }
        let to = BOXES[usize::try_from(number).unwrap() % BOXES.len()];
        let id = format!("{name}-{number}");
        let content = if number % LARGE_EVERY == 0 { large(&id) } else { id.clone() };
        let file = player.host.own().join(name);
        std::fs::write(&file, content).unwrap();
        let file = file.to_str().unwrap();
        let line = ["send", "--as", name, "--to", to, "--id", &id, "-f", file, "--task", &id];
        // Only messages of tasks are work, which an agent that leaves does not begin.
        let line = if to == POOL { &line[..] } else { &line[..line.len() - 2] };
        let Some(ran) = player.insist(line) else { break };
        player.note(line, &ran, Fact::Sent { id: id.clone(), to: to.to_owned() });
        number += 1;
        stage.sent.fetch_add(1, Ordering::Relaxed);
    }
    stage.senders.fetch_sub(1, Ordering::Relaxed);
}

fn receive(player: &mut Player<'_>) {
    let line = ["recv", "--as", player.name, "--json", "--wait", "1s"];
    while !player.stage.is_all_settled() && !player.has_given_up() {
        if let Some((id, epoch)) = player.take(&line) {
            player.settle((&id, epoch), &[]);
        }
    }
}

/// The content of a message that is too large for an envelope: more than one chunk of an object.
fn large(id: &str) -> String {
    format!("{id}\n").repeat(LARGE_LINES)
}

fn received(ran: &Ran) -> Option<(String, u64, String)> {
    let got: Value = ran.row()?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let id = text(&got["id"])?;
    let body = match got["attachment_path"].as_str() {
        None => text(&got["body"])?,
        Some(path) => match std::fs::read_to_string(path) {
            Ok(content) if content == large(&id) => id.clone(),
            other => format!("{:?} bytes", other.map(|content| content.len())),
        },
    };
    Some((id, got["epoch"].as_u64()?, body))
}

/// The ids of the plans without a decision; `None` if the command did not answer.
fn pending(host: &Host) -> Option<Vec<String>> {
    let ran = host.verb(&["request", "list", "--pending", "--json"])?;
    if ran.code != 0 && ran.code != NOTHING {
        return None;
    }
    let id = |line: &str| {
        let request: Value = serde_json::from_str(line).ok()?;
        let is_plan = request["kind"] == "plan_approval";
        request["request_id"].as_str().filter(|_| is_plan).map(str::to_owned)
    };
    Some(ran.stdout.lines().filter_map(id).collect())
}

fn ask(player: &mut Player<'_>) {
    let (stage, host) = (player.stage, player.host);
    let plan = host.own().join("plan.md");
    std::fs::write(&plan, "1. count\n").unwrap();
    let plan = plan.to_str().unwrap();
    for number in 0.. {
        while pending(host).is_none_or(|open| open.len() >= PLANS_OPEN_MAX) && !stage.is_over() {
            pause();
        }
        if stage.is_over() && number > 0 {
            break;
        }
        let id = format!("plan-{number}");
        let line =
            ["request", "plan", "--as", player.name, "--to", "lead", "--id", &id, "-f", plan];
        let Some(ran) = player.insist(&line) else { break };
        player.note(&line, &ran, Fact::Asked { id: id.clone() });
        stage.asked.fetch_add(1, Ordering::Relaxed);
    }
    stage.askers.fetch_sub(1, Ordering::Relaxed);
}

/// Decides all open requests, always in the same way. If two decide at once, one is too late.
fn decide(player: &mut Player<'_>, approves: bool) {
    let (stage, host, name) = (player.stage, player.host, player.name);
    let verdict = if approves { "--approve" } else { "--reject" };
    while !player.has_given_up() {
        let has_ended = stage.askers.load(Ordering::Relaxed) == 0;
        let Some(open) = pending(host) else {
            pause();
            continue;
        };
        if has_ended && open.is_empty() {
            break;
        }
        for id in open {
            let line = ["request", "answer", "--as", name, &id, verdict, "--reason", host.name];
            let Some(ran) = player.insist(&line) else { break };
            match ran.code {
                0 => {
                    stage.decided.fetch_add(1, Ordering::Relaxed);
                    player.facts.push(Fact::Decided { id, approves });
                }
                1 if ran.stderr.contains("the first decision counts") => {}
                _ => player.note_wrong(&line, &ran),
            }
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}
