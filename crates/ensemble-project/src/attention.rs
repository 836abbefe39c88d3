//! What needs a person: the one answer for `status`, `team` and the live view.
//!
//! | need | present while | remedy |
//! |---|---|---|
//! | `answered` | mail for the person waits | read it |
//! | `servers` | the servers that have the mailboxes cannot be asked | depends on why: start them, correct the credentials |
//! | `watcher` | agents are up, and no watcher runs; or one runs and does nothing | start it; end the one that hangs |
//! | `blocked` | a dialog or permission prompt is in an agent's way | answer it in its pane |
//! | `gone` | an agent has ended and should not have | start it again |
//! | `decision` | a request waits for one that is not a present agent, or for longer than [`UNDECIDED_MAX`] | answer it |
//! | `decision` | a task was settled without its plan, and its reviewer has not read the notice | look at the work |
//! | `escalation` | a worker of a team that is up, not gone or blocked, did not receive its task, and the ladder has ended | look at the worker |
//! | `standstill` | a trouble of the board: see [`crate::troubles`]; not after `down` if it lacks agents alone | the trouble's own command |
//! | `unreadable` | a mailbox, a request, a member or another part cannot be read | correct or remove that file |
//! | `step` | a step has no attempt left, or is blocked | retry or unblock it |
//! | `dead_letter` | a task is a dead letter, and no later attempt replaces it | retry it or drop it |
//! | `budget` | a budget is used up | allow more |
//! | `undelivered` | a file in a drop box has no mailbox or no route | make the mailbox, or rename the file |
//! | `undelivered` | mail waits for an agent that has left or was never started | start it |
//! | `undelivered` | mail has waited for an idle agent for longer than [`MAIL_WAITS_MAX`], and is not escalated or kept back | nudge it |
//! | `paused` | PAUSE, CHECKPOINT or ABORT is in force | resume |
//! | `limited` | an agent is at its usage limit | nothing: it continues by itself |
//!
//! The order of the rows is the order of severity. The last two need a person only if the person wants the team to
//! continue: they are shown, and not counted. An ordinary start, work and end of a team needs nothing.
//!
//! A pure function of what was gathered. It reads no clock and no file.

use std::collections::BTreeSet;
use std::time::Duration;

use ensemble_core::driver::{LadderFile, LadderState};
use ensemble_core::message::{Envelope, Name, Timestamp, shell_word};
use ensemble_core::requests::{AskedRequest, UnplannedTask};
use ensemble_team::budget::ParkedScope;
use ensemble_team::roster::State;
use ensemble_team::steps::StuckStep;
use serde::Serialize;

pub use crate::need_kind::NeedKind as Kind;
use crate::short_ids::ShortIds;
use crate::troubles::{BoardTrouble, budget_help};

mod facts;
#[cfg(test)]
mod tests;

pub use facts::{AgentView, DeadTask, MailAct, NeedFacts, PersonMail, StrandedFile};

/// How long mail may wait for an idle agent. A nudge takes a second, and one that was refused is tried again within 30.
pub const MAIL_WAITS_MAX: Duration = Duration::from_secs(30);
/// How long a request may wait for an agent that is present.
pub const UNDECIDED_MAX: Duration = Duration::from_secs(5 * 60);

const ASKED_CHARS_MAX: usize = 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatcherState {
    Runs,
    /// A process has its lock, and has given no sign of life for this long.
    Hangs(Duration),
    Missing,
}

/// Why the servers cannot be asked, so that their mailboxes and requests are not known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AwayServers {
    /// Their answer, or why they could not be asked.
    pub why: String,
    /// The first look at which they could not, if known.
    pub since: Option<Timestamp>,
    pub help: String,
}

/// A part of the project that cannot be read. It hides no other part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadablePart {
    pub about: String,
    /// The fault, with the path.
    pub why: String,
    pub help: String,
    pub cause: UnreadCause,
}

/// Whether the fault is in the part itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnreadCause {
    #[default]
    Part,
    /// The process has no descriptor left.
    NoDescriptor,
    /// The part, or that no descriptor is left: its reader does not know.
    PartOrNoDescriptor,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Need {
    pub need: Kind,
    pub agent: Option<Name>,
    /// Id of a task, request, message, scope or file.
    pub about: Option<String>,
    pub text: String,
    pub since: Option<Timestamp>,
    pub help: String,
    #[serde(skip)]
    pub person: Option<Name>,
}

impl Need {
    fn new(need: Kind, text: String, help: String) -> Self {
        Self { need, agent: None, about: None, text, since: None, help, person: None }
    }

    fn only_for(mut self, person: &Name) -> Self {
        self.person = Some(person.clone());
        self
    }

    fn of(mut self, agent: &Name) -> Self {
        self.agent = Some(agent.clone());
        self
    }

    fn about(mut self, about: impl Into<String>) -> Self {
        self.about = Some(about.into());
        self
    }

    const fn since(mut self, since: Option<Timestamp>) -> Self {
        self.since = since;
        self
    }
}

/// All needs, the worst first; of one kind the oldest first.
pub fn needs(facts: &NeedFacts<'_>) -> Vec<Need> {
    let mut all: Vec<Need> = of_mail(facts.mail);
    all.extend(of_farewells(facts.mail));
    all.extend(facts.servers_away.map(of_servers));
    all.extend(of_watcher(facts));
    all.extend(facts.agents.iter().filter_map(of_agent));
    all.extend(facts.agents.iter().filter_map(|agent| of_leaver(facts, agent)));
    all.extend(facts.pending.iter().filter_map(|asked| of_request(facts, asked)));
    all.extend(facts.undecided.iter().map(of_undecided));
    all.extend(facts.unplanned.iter().map(of_unplanned));
    let is_buried = |ladder: &&LadderFile| facts.dead.iter().any(|dead| dead.id == ladder.message);
    // After `down`, work waits for the next `up`.
    let is_down = is_team_down(facts);
    let is_left = |ladder: &&LadderFile| {
        is_down && facts.agents.iter().any(|agent| agent.name == ladder.worker)
    };
    let ladders = facts.ladders.iter().filter(|ladder| !is_buried(ladder) && !is_left(ladder));
    all.extend(ladders.filter_map(of_ladder));
    let troubles = facts.troubles.iter().filter(|it| !(is_down && it.lacks_agents()));
    all.extend(troubles.map(of_trouble));
    all.extend(facts.unreadable.iter().map(of_unreadable));
    all.extend(facts.steps.iter().map(of_step));
    all.extend(facts.dead.iter().map(|letter| of_dead(letter, facts.dead_ids)));
    all.extend(facts.parked.iter().map(of_budget));
    all.extend(facts.stranded.iter().map(of_stranded));
    keep_causes(&mut all);
    all.sort_by_key(|need| (need.need, need.since.is_none(), need.since));
    all
}

/// The needs with those of one cause in one: agents that ended for the same reason, all of which `up` starts again.
pub fn join_by_cause(needs: &[Need]) -> Vec<Need> {
    let cause = |need: &Need| {
        let agent =
            need.agent.as_ref().filter(|agent| need.help == format!("`ensemble up {agent}`"))?;
        need.text.strip_prefix(&format!("{agent} is gone: ")).map(str::to_owned)
    };
    let mut joined: Vec<Need> = Vec::new();
    let mut done: BTreeSet<String> = BTreeSet::new();
    for need in needs {
        let Some(why) = cause(need) else {
            joined.push(need.clone());
            continue;
        };
        let same = needs.iter().filter(|other| cause(other).as_ref() == Some(&why));
        let names: Vec<&str> =
            same.filter_map(|need| need.agent.as_ref()).map(Name::as_str).collect();
        match names.as_slice() {
            [first @ .., last] if !first.is_empty() => {
                if done.insert(why.clone()) {
                    let text = format!("{} and {last} are gone: {why}", first.join(", "));
                    let help = format!("`ensemble up {}`", names.join(" "));
                    joined.push(Need { text, help, agent: None, ..need.clone() });
                }
            }
            _ => joined.push(need.clone()),
        }
    }
    joined
}

/// One trouble is one need. That an agent which is gone or blocked does not receive its tasks is not a separate need.
/// An escalation says the same as unread mail, and more; a dead letter says more than its escalation ([`needs`]).
fn keep_causes(all: &mut Vec<Need>) {
    let agents_of = |all: &[Need], kinds: &[Kind]| -> BTreeSet<Name> {
        let such = all.iter().filter(|need| kinds.contains(&need.need));
        such.filter_map(|need| need.agent.clone()).collect()
    };
    let stopped = agents_of(all, &[Kind::Blocked, Kind::Gone]);
    let escalated = agents_of(all, &[Kind::Escalation]);
    let is_named = |need: &Need, agents: &BTreeSet<Name>| {
        need.agent.as_ref().is_some_and(|agent| agents.contains(agent))
    };
    all.retain(|need| match need.need {
        Kind::Escalation => !is_named(need, &stopped),
        Kind::Undelivered => !is_named(need, &escalated),
        _ => true,
    });
}

fn is_there(state: State) -> bool {
    !matches!(state, State::Shutdown | State::Gone)
}

fn is_team_down(facts: &NeedFacts<'_>) -> bool {
    let has_left = |agent: &AgentView| agent.state == State::Shutdown && !agent.is_new;
    facts.agents.iter().any(has_left) && !facts.agents.iter().any(|agent| is_there(agent.state))
}

fn of_watcher(facts: &NeedFacts<'_>) -> Option<Need> {
    let is_here = |agent: &AgentView| is_there(agent.state) && agent.machine.is_none();
    let is_needed = facts.agents.iter().any(is_here);
    let (text, help) = match facts.watcher {
        WatcherState::Runs => return None,
        WatcherState::Missing if !is_needed => return None,
        WatcherState::Missing => (
            "no watcher is running: agents are not notified of mail, and expired leases may go unnoticed"
                .to_owned(),
            facts.watcher_remedy.to_owned(),
        ),
        WatcherState::Hangs(silent) => {
            let text = format!(
                "the watcher hangs: no sign of life for {} s; files are not routed, agents are not notified",
                silent.as_secs()
            );
            let start = facts.watcher_remedy;
            let help = facts.watcher_pid.map_or_else(
                || format!("end its process, then {start}"),
                |pid| {
                    format!(
                        "`kill -CONT {pid}` if it was stopped, or `kill -KILL {pid}`, then {start}"
                    )
                },
            );
            (text, help)
        }
    };
    Some(Need::new(Kind::Watcher, text, help))
}

fn of_servers(away: &AwayServers) -> Need {
    let text = format!("the servers are away, so mail and requests are not known: {}", away.why);
    Need::new(Kind::Away, text, away.help.clone()).since(away.since)
}

fn of_unreadable(part: &UnreadablePart) -> Need {
    let UnreadablePart { about, why, help, .. } = part;
    Need::new(Kind::Unreadable, format!("{about} cannot be read: {why}"), help.clone()).about(about)
}

/// One need for each sender and person, with the first words of its newest message.
fn of_mail(mail: &[PersonMail]) -> Vec<Need> {
    let mail = mail.iter().filter(|unread| unread.act != MailAct::Leaves);
    let pair =
        |unread: &PersonMail| (unread.from.clone(), unread.project.clone(), unread.to.clone());
    let pairs: BTreeSet<_> = mail.clone().map(pair).collect();
    let of_pair = |known: (Name, Option<Name>, Name)| {
        let all: Vec<&PersonMail> = mail.clone().filter(|unread| pair(unread) == known).collect();
        let newest = all.last()?;
        let (from, project, to) = known;
        let verb = match newest.act {
            MailAct::Answers => "answered you",
            MailAct::Returns => "returned your message",
            MailAct::Stays => "does not shut down",
            MailAct::Writes | MailAct::Leaves => "wrote to you",
        };
        let more = match all.len() - 1 {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        let words = behind_colon(&newest.words);
        let place = project.as_ref().map_or_else(String::new, |project| format!("@{project}"));
        let text = format!("{from}{place} {verb}{words}{more}");
        let need = Need::new(Kind::Answered, text, "`ensemble recv`".to_owned());
        let need = need.only_for(&to).about(newest.id.as_str()).since(Some(newest.at));
        // An agent of this project may have the same name.
        Some(if project.is_some() { need } else { need.of(&from) })
    };
    pairs.into_iter().filter_map(of_pair).collect()
}

/// Who has agreed to be shut down, in one line: after `down` it is the whole team.
fn of_farewells(mail: &[PersonMail]) -> Option<Need> {
    let left: Vec<&PersonMail> = mail.iter().filter(|it| it.act == MailAct::Leaves).collect();
    let newest = left.last()?;
    let names: BTreeSet<&str> = left.iter().map(|unread| unread.from.as_str()).collect();
    let names: Vec<&str> = names.into_iter().collect();
    let text = format!("{} agreed to shut down", names.join(", "));
    let need = Need::new(Kind::Answered, text, "`ensemble recv`".to_owned());
    Some(need.only_for(&newest.to).about(newest.id.as_str()).since(Some(newest.at)))
}

fn of_agent(agent: &AgentView) -> Option<Need> {
    let AgentView { name, why, .. } = agent;
    let (kind, text, help) = match agent.state {
        State::Blocked => {
            let help = match &agent.terminal {
                _ if agent.has_pane || agent.machine.is_some() => {
                    format!("`ensemble agent attach {name}`")
                }
                // A person has started it, and only that terminal takes an answer.
                Some(terminal) => format!("answer in {terminal}"),
                None => "answer in its own terminal".to_owned(),
            };
            let why = why.strip_prefix("waits for a person ").unwrap_or(why);
            let enclosed = why.strip_prefix('(').and_then(|why| why.strip_suffix(')'));
            let why = enclosed.unwrap_or(why);
            let why = why.strip_prefix("hooks: ").unwrap_or(why);
            (Kind::Blocked, format!("{name} waits for a person: {why}"), help)
        }
        State::Gone => {
            let left = match (agent.holds.is_empty(), agent.unread) {
                (false, _) => format!("; it held {}", agent.holds.join(", ")),
                (true, 0) => String::new(),
                (true, unread) => format!("; {unread} unread"),
            };
            (Kind::Gone, format!("{name} is gone: {why}{left}"), agent.again.clone())
        }
        State::Limited => {
            let text = format!("{name} is at its usage limit: {why}");
            (Kind::Limited, text, "it continues by itself".to_owned())
        }
        State::Idle if agent.waited.is_some_and(|waited| waited > MAIL_WAITS_MAX) => {
            let nudges = agent.nudges.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
            let text = format!("mail waits for {name}, which is idle{nudges}");
            (Kind::Undelivered, text, format!("`ensemble agent nudge {name}`"))
        }
        State::Idle
        | State::Working
        | State::Starting
        | State::Unknown
        | State::Waiting
        | State::Shutdown => return None,
    };
    let help = match &agent.machine {
        // Nudges and stories go from host to host.
        Some(machine) if matches!(kind, Kind::Blocked | Kind::Gone) => {
            format!("on {machine}: {help}")
        }
        Some(_) | None => help,
    };
    Some(Need::new(kind, text, help).of(name).since(agent.since))
}

/// Mail for an agent that was never started, or that has left while others are still there.
fn of_leaver(facts: &NeedFacts<'_>, agent: &AgentView) -> Option<Need> {
    let is_awaited = agent.is_new || !is_team_down(facts);
    if agent.state != State::Shutdown || agent.unread == 0 || !is_awaited {
        return None;
    }
    let waits = match agent.unread {
        1 => "1 message waits".to_owned(),
        unread => format!("{unread} messages wait"),
    };
    let how = if agent.is_new { "was never started" } else { "has left" };
    let text = format!("{} {how}, and {waits} for it", agent.name);
    let help = match &agent.machine {
        Some(machine) => format!("on {machine}: {}", agent.again),
        None => agent.again.clone(),
    };
    Some(Need::new(Kind::Undelivered, text, help).of(&agent.name).since(agent.since))
}

fn of_request(facts: &NeedFacts<'_>, asked: &AskedRequest) -> Option<Need> {
    let is_agent = |agent: &AgentView| agent.name == asked.to && is_there(agent.state);
    let waited = facts.now.since(asked.created_at);
    if facts.agents.iter().any(is_agent) && waited < UNDECIDED_MAX {
        return None;
    }
    let AskedRequest { request_id: id, kind, from, to, .. } = asked;
    let kind = kind.as_str().replace('_', " ");
    let text = format!("{from} waits for {to} to decide on its {kind}{}", words_of(asked));
    let help = format!("`ensemble request list {id}` shows it, and how to answer");
    Some(
        Need::new(Kind::Decision, text, help)
            .of(to)
            .about(id.as_str())
            .since(Some(asked.created_at)),
    )
}

fn words_of(asked: &AskedRequest) -> String {
    let content = Envelope::new(asked.to.clone(), asked.content.as_str());
    behind_colon(&content.first_words(ASKED_CHARS_MAX))
}

fn behind_colon(words: &str) -> String {
    if words.is_empty() { String::new() } else { format!(": \"{words}\"") }
}

/// The requester continues without a decision, and the conductor was notified; no agent has dealt with that.
fn of_undecided(asked: &AskedRequest) -> Need {
    let AskedRequest { request_id: id, kind, from, to, .. } = asked;
    let kind = kind.as_str().replace('_', " ");
    let text = format!("{to} did not decide on the {kind} of {from} in time{}", words_of(asked));
    let help = format!("`ensemble request list {id}` shows it; ask {from} to ask again");
    Need::new(Kind::Decision, text, help).of(to).about(id.as_str()).since(Some(asked.created_at))
}

/// A task that is done can no longer be refused: its reviewer, or a person, judges the work itself.
fn of_unplanned(settled: &UnplannedTask) -> Need {
    let UnplannedTask { task_id, settled_by, notified, at } = settled;
    let text = format!("{settled_by} has settled task {task_id} without an approved plan");
    let help = format!("`ensemble why {}`; {notified} has a notice of it", shell_word(task_id));
    Need::new(Kind::Decision, text, help).of(settled_by).about(task_id).since(Some(*at))
}

fn of_ladder(ladder: &LadderFile) -> Option<Need> {
    if !matches!(ladder.state, LadderState::Escalating | LadderState::Escalated) {
        return None;
    }
    let LadderFile { worker, task, .. } = ladder;
    let text = format!("{worker} did not take task {task}, and the conductor was notified");
    let help = format!("`ensemble why {}`; `ensemble agent inspect {worker}`", shell_word(task));
    Some(Need::new(Kind::Escalation, text, help).of(worker).about(task))
}

fn of_trouble(trouble: &BoardTrouble) -> Need {
    let kind = if trouble.is_pause() { Kind::Paused } else { Kind::Standstill };
    Need::new(kind, trouble.text.clone(), trouble.help.clone()).about(&trouble.about)
}

fn of_step(step: &StuckStep) -> Need {
    let (task, index) = (&step.key.task_id, step.key.step_index);
    let what = match step.stops_queue {
        true => format!("task {task} is stuck at step {index}"),
        false => format!("step {index} of task {task} is stuck"),
    };
    let named = shell_word(task);
    let help = format!("`ensemble step {} {named} {index}`, or `step skip`", step.remedy);
    let need = Need::new(Kind::Step, format!("{what}: {}", step.reason), help);
    need.about(task).since(step.since.parse().ok())
}

fn of_dead(letter: &DeadTask, all: &ShortIds) -> Need {
    let DeadTask { mailbox, id, task, words, reason, at, is_readable } = letter;
    let what = match task {
        Some(task) => format!("task {task}"),
        None if words.is_empty() => format!("message {id}"),
        None => format!("\"{words}\""),
    };
    let text = format!("{what} of {mailbox} is a dead letter: {reason}");
    let short = all.shorten(id.as_str());
    let help = match is_readable {
        true => format!("`ensemble dead retry {short}`, or `dead drop`"),
        false => format!("`ensemble dead show {short}`, then `dead drop`"),
    };
    Need::new(Kind::DeadLetter, text, help).of(mailbox).about(id.as_str()).since(*at)
}

fn of_stranded(file: &StrandedFile) -> Need {
    let text = format!("{} is not delivered: {}", file.path, file.why);
    Need::new(Kind::Undelivered, text, file.help.clone()).about(&file.path)
}

fn of_budget(parked: &ParkedScope) -> Need {
    let ParkedScope { scope, limit, used, since, .. } = parked;
    let text = format!("{scope} has used {used} of {limit}: no work of it begins");
    let help = budget_help(&scope.arguments());
    Need::new(Kind::Budget, text, help).about(scope.arguments()).since(Some(*since))
}
