//! The summary of a session's records, gathered in one pass and in bounded memory.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use ensemble_core::event_log::{Record, types};
use ensemble_core::message::{MessagePurpose, RESERVED_NAMES, Timestamp};
use serde_json::Value;

use super::asked::SessionRequests;
use super::index::StoryIndex;
use super::latency::Latency;
use super::states::{self, AgentStates};
use super::trouble::{self, SessionTrouble, TroubleWeight, member};
use super::work::{SessionWork, TaskSpan, TaskStage};

const AGENTS_MAX: usize = 60;
/// Most messages that are followed at once; of more, only the totals are kept.
const FOLLOWED_MAX: usize = 100_000;
pub(super) const SPANS_MAX: usize = 3_000;
const TROUBLES_MAX: usize = 2_000;
/// The lane of agents beyond [`AGENTS_MAX`].
const OTHERS: &str = "others";

#[derive(Clone, Debug)]
pub(super) struct HeldSpan {
    pub(super) label: String,
    pub(super) from: Timestamp,
    pub(super) to: Timestamp,
    pub(super) is_open: bool,
    pub(super) is_dead: bool,
    pub(super) story: String,
}

#[derive(Clone, Debug, Default)]
pub(super) struct SessionAgent {
    pub(super) states: AgentStates,
    is_watched: bool,
    pub(super) holds: Vec<HeldSpan>,
    pub(super) sent: u64,
    pub(super) received: u64,
    pub(super) settled: u64,
    pub(super) given_back: u64,
    pub(super) nudges: u64,
    pub(super) deferrals: u64,
    pub(super) held: Duration,
    pub(super) mail_waited: Duration,
    pub(super) hidden: u64,
}

impl SessionAgent {
    pub(super) fn is_drawn(&self) -> bool {
        !self.holds.is_empty() || !self.states.spans.is_empty()
    }

    fn hold(&mut self, hold: HeldSpan) {
        self.held += hold.to.since(hold.from);
        if self.holds.len() < SPANS_MAX { self.holds.push(hold) } else { self.hidden += 1 }
    }

    /// Time in states in which it does nothing although it should.
    pub(super) fn stuck(&self) -> Duration {
        ["blocked", "gone", "limited"].iter().map(|state| self.states.time_in(state)).sum()
    }
}

#[derive(Clone, Debug)]
struct FollowedMessage {
    label: String,
    task: Option<String>,
    /// Whether it is a request or a notice, whose death is not a problem.
    is_work: bool,
    story: Option<String>,
    queued: Option<Timestamp>,
    submitted: Option<Timestamp>,
    held: Option<(Timestamp, String)>,
}

#[derive(Clone, Debug, Default)]
pub struct SessionStory {
    pub(super) session: String,
    pub(super) start: Option<Timestamp>,
    pub(super) end: Option<Timestamp>,
    pub(super) has_ended: bool,
    pub(super) records: u64,
    pub(super) messages: u64,
    pub(super) settled: u64,
    pub(super) agents: BTreeMap<String, SessionAgent>,
    pub(super) work: SessionWork,
    pub(super) requests: SessionRequests,
    pub(super) troubles: Vec<SessionTrouble>,
    pub(super) troubles_hidden: u64,
    pub(super) index: StoryIndex,
    /// Stored until typed or handed to the agent.
    pub(super) delivery: Latency,
    /// Stored until received.
    pub(super) ack: Latency,
    /// Received until settled.
    pub(super) took: Latency,
    followed: HashMap<(String, String), FollowedMessage>,
    /// The wanted session; the newest if there is none.
    wanted: Option<String>,
}

impl SessionStory {
    pub fn of(session: Option<String>) -> Self {
        let full = |name: String| match name.strip_prefix("session-") {
            Some(_) => name,
            None => format!("session-{name}"),
        };
        Self { wanted: session.map(full), ..Self::default() }
    }

    /// Whether it is the story of the newest session, to which the present belongs.
    pub const fn is_newest(&self) -> bool {
        self.wanted.is_none()
    }

    pub const fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Takes a record, in the order of the log.
    pub fn apply_record(&mut self, record: &Record) {
        match &self.wanted {
            Some(wanted) if *wanted != record.session_id => return,
            None if self.session != record.session_id && !record.unordered => {
                *self = Self { session: record.session_id.clone(), ..Self::default() };
            }
            Some(_) | None => {}
        }
        self.session.clone_from(&record.session_id);
        self.records += 1;
        self.start.get_or_insert(record.timestamp);
        self.end = Some(self.end.map_or(record.timestamp, |end| end.max(record.timestamp)));
        let keys = self.stories_of(record);
        self.index.add(record, &keys);
        self.requests.apply_record(record);
        if !self.is_calm(record) {
            let followed = self.followed.get(&(member(record, "mailbox"), member(record, "id")));
            let task = followed.and_then(|one| one.task.clone());
            trouble::of(record, task.as_deref()).into_iter().for_each(|it| self.trouble(it));
        }
        self.follow_agent(record);
        self.follow_message(record);
        self.follow_steps(record);
        self.follow_board(record);
    }

    fn stories_of(&self, record: &Record) -> Vec<String> {
        let text = |name: &str| member(record, name);
        let mut keys = Vec::new();
        let mut add = |kind: &str, id: String| {
            let key = format!("{kind}:{id}");
            if !id.is_empty() && !keys.contains(&key) {
                keys.push(key);
            }
        };
        add("t", text("task_id"));
        add("t", text("task"));
        add("r", text("request_id"));
        add("r", text("correlation_id"));
        let followed = self.followed.get(&(text("mailbox"), text("id")));
        if let Some(task) = followed.and_then(|one| one.task.clone()) {
            add("t", task);
        }
        for agent in [text("agent"), text("worker_id"), text("mailbox")] {
            add("a", agent);
        }
        if !RESERVED_NAMES.contains(&&*record.actor) {
            add("a", record.actor.clone());
        }
        let steps = record.data.get("steps").and_then(Value::as_array);
        for step in steps.into_iter().flatten() {
            add("t", step["task"].as_str().unwrap_or_default().to_owned());
            add("a", step["agent"].as_str().unwrap_or_default().to_owned());
        }
        keys
    }

    /// The death of a message that is not work: the answer of an agent that leaves, say.
    fn is_calm(&self, record: &Record) -> bool {
        if record.kind.as_str() != types::MESSAGE_DEAD {
            return false;
        }
        let id = member(record, "id");
        match self.followed.get(&(member(record, "mailbox"), id.clone())) {
            Some(followed) => !followed.is_work,
            None => id.ends_with(".request") || id.ends_with(".response"),
        }
    }

    fn follow_agent(&mut self, record: &Record) {
        let text = |name: &str| member(record, name);
        let (agent, at) = (text("agent"), record.timestamp);
        match record.kind.as_str() {
            types::AGENT_STATE => {
                let (next, why) = (text("to"), text("why"));
                let part = self.agent(&agent);
                part.is_watched = true;
                let ended = part.states.enter(at, &next, &why);
                if let Some(ended) = ended {
                    self.state_ended(&agent, &ended, Some(&next));
                }
            }
            // Without a watcher, a supervisor says whether its agent works.
            types::SUPERVISE_SPAWNED => self.supervised(&agent, at, "working"),
            types::SUPERVISE_EXITED => self.supervised(&agent, at, "idle"),
            types::SUPERVISE_ENDED => self.supervised(&agent, at, "shutdown"),
            types::NUDGE_SENT => self.agent(&agent).nudges += 1,
            types::NUDGE_DEFERRED => self.agent(&agent).deferrals += 1,
            types::SESSION_END => self.has_ended = true,
            _ => {}
        }
    }

    fn supervised(&mut self, agent: &str, at: Timestamp, state: &str) {
        let part = self.agent(agent);
        if !part.is_watched {
            part.states.enter(at, state, "supervised");
        }
    }

    fn state_ended(&mut self, agent: &str, span: &states::StateSpan, next: Option<&str>) {
        let held = self.work.held_by(agent);
        if let Some(trouble) = states::trouble(agent, span, next, held) {
            self.trouble(trouble);
        }
    }

    fn follow_message(&mut self, record: &Record) {
        let text = |name: &str| member(record, name);
        let (mailbox, id, at) = (text("mailbox"), text("id"), record.timestamp);
        match record.kind.as_str() {
            types::MESSAGE_STORED => self.stored(record, mailbox, id),
            types::RECEIPT_SUBMITTED => {
                let ids = record.data.get("ids").and_then(Value::as_array);
                for id in ids.into_iter().flatten().filter_map(Value::as_str) {
                    let key = (mailbox.clone(), id.to_owned());
                    if let Some(one) = self.followed.get_mut(&key)
                        && one.submitted.is_none()
                    {
                        one.submitted = Some(at);
                        self.delivery.add(one.queued.map_or(Duration::ZERO, |from| at.since(from)));
                    }
                }
            }
            types::MESSAGE_ACKED => self.acked(record, &mailbox, id),
            types::MESSAGE_SETTLED | types::MESSAGE_WITHDRAWN => {
                self.finish(at, mailbox, id, TaskStage::Over);
            }
            types::MESSAGE_RELEASED => self.finish(at, mailbox, id, TaskStage::Queued),
            types::MESSAGE_DEAD => self.finish(at, mailbox, id, TaskStage::Dead),
            types::MESSAGE_REDRIVEN => {
                if let Some(one) = self.followed.get_mut(&(mailbox.clone(), id)) {
                    one.queued = Some(at);
                    if let Some(task) = one.task.clone() {
                        self.enter(&task, at, TaskStage::Queued, &mailbox);
                    }
                }
            }
            _ => {}
        }
    }

    fn stored(&mut self, record: &Record, mailbox: String, id: String) {
        let text = |name: &str| member(record, name);
        let (kind, task, at) = (text("type"), text("task_id"), record.timestamp);
        self.messages += 1;
        self.agent(&record.actor).sent += 1;
        let is_task = MessagePurpose::of(&kind) == MessagePurpose::Work;
        let is_work =
            matches!(MessagePurpose::of(&kind), MessagePurpose::Work | MessagePurpose::Other);
        let request = Some(text("correlation_id")).filter(|id| !id.is_empty());
        let task = is_task.then(|| if task.is_empty() { id.clone() } else { task });
        if let Some(task) = &task {
            self.enter(task, at, TaskStage::Queued, &mailbox);
        }
        let label = task.clone().unwrap_or_else(|| format!("{kind} from {}", record.actor));
        let story = match &task {
            Some(task) => Some(format!("t:{task}")),
            None => request.map(|id| format!("r:{id}")),
        };
        let (queued, submitted, held) = (Some(at), None, None);
        let one = FollowedMessage { label, task, is_work, story, queued, submitted, held };
        if self.followed.len() < FOLLOWED_MAX {
            self.followed.insert((mailbox, id), one);
        }
    }

    fn acked(&mut self, record: &Record, mailbox: &str, id: String) {
        let (at, holder) = (record.timestamp, record.actor.clone());
        self.agent(&holder).received += 1;
        let Some(one) = self.followed.get_mut(&(mailbox.to_owned(), id)) else { return };
        one.held = Some((at, holder.clone()));
        let (queued, task) = (one.queued.take(), one.task.clone());
        if let Some(from) = queued {
            self.ack.add(at.since(from));
            self.agent(mailbox).mail_waited += at.since(from);
        }
        if let Some(task) = task {
            self.enter(&task, at, TaskStage::Held, &holder);
        }
    }

    fn finish(&mut self, at: Timestamp, mailbox: String, id: String, to: TaskStage) {
        let key = (mailbox.clone(), id);
        let Some(one) = self.followed.get_mut(&key) else { return };
        let (held, task, label) = (one.held.take(), one.task.clone(), one.label.clone());
        let story = one.story.clone();
        match to {
            TaskStage::Over => drop(self.followed.remove(&key)),
            _ => one.queued = (to == TaskStage::Queued).then_some(at),
        }
        let who = held.as_ref().map_or_else(|| mailbox.clone(), |(_, holder)| holder.clone());
        let agent = self.agent(&who);
        match to {
            TaskStage::Over => agent.settled += u64::from(held.is_some()),
            TaskStage::Queued => agent.given_back += 1,
            _ => {}
        }
        if let Some((from, _)) = held {
            if task.is_none() {
                let story = story.unwrap_or_else(|| format!("a:{who}"));
                let (to, is_dead) = (at, to == TaskStage::Dead);
                let hold = HeldSpan { label, from, to, is_open: false, is_dead, story };
                self.agent(&who).hold(hold);
            }
            if to == TaskStage::Over {
                self.settled += 1;
                self.took.add(at.since(from));
            }
        }
        if let Some(task) = task {
            self.enter(&task, at, to, &mailbox);
        }
    }

    /// A task is something else from now on; what its holder held until now is drawn.
    pub(super) fn enter(&mut self, task: &str, at: Timestamp, stage: TaskStage, who: &str) {
        if task.is_empty() {
            return;
        }
        if let Some(ended) = self.work.enter(task, at, stage, who) {
            self.drop_hold(task, &ended, stage == TaskStage::Dead);
        }
    }

    fn drop_hold(&mut self, task: &str, span: &TaskSpan, is_dead: bool) {
        if matches!(span.stage, TaskStage::Held | TaskStage::Review) && !span.who.is_empty() {
            let TaskSpan { from, to, is_open, .. } = *span;
            let (label, story) = (task.to_owned(), format!("t:{task}"));
            self.agent(&span.who).hold(HeldSpan { label, from, to, is_open, is_dead, story });
        }
    }

    fn agent(&mut self, name: &str) -> &mut SessionAgent {
        let is_known = self.agents.contains_key(name);
        let name = if name.is_empty() { "unknown" } else { name };
        if !is_known && self.agents.len() >= AGENTS_MAX {
            return self.agents.entry(OTHERS.to_owned()).or_default();
        }
        self.agents.entry(name.to_owned()).or_default()
    }

    pub(super) fn trouble(&mut self, trouble: SessionTrouble) {
        match self.troubles.len() < TROUBLES_MAX {
            true => self.troubles.push(trouble),
            false => self.troubles_hidden += 1,
        }
    }

    /// Closes all open spans at the end of the log.
    pub fn finish_all(&mut self) {
        let Some(end) = self.end else { return };
        let names: Vec<String> = self.agents.keys().cloned().collect();
        for name in &names {
            if let Some(span) = self.agent(name).states.close(end) {
                self.state_ended(name, &span, None);
            }
        }
        for (task, span) in self.work.finish(end) {
            self.drop_hold(&task, &span, false);
        }
        let asked: Vec<SessionTrouble> =
            self.requests.all.iter().filter_map(|asked| asked.trouble(end)).collect();
        asked.into_iter().for_each(|trouble| self.trouble(trouble));
        self.troubles = trouble::without_echoes(std::mem::take(&mut self.troubles));
        let left: Vec<((String, String), FollowedMessage)> = self.followed.drain().collect();
        for ((mailbox, _), one) in left {
            let Some((from, holder)) = one.held else {
                self.agent(&mailbox).mail_waited +=
                    one.queued.map_or(Duration::ZERO, |from| end.since(from));
                continue;
            };
            if one.task.is_none() {
                let story = one.story.unwrap_or_else(|| format!("a:{holder}"));
                let (label, is_open, is_dead) = (one.label, true, false);
                let hold = HeldSpan { label, from, to: end, is_open, is_dead, story };
                self.agent(&holder).hold(hold);
            }
        }
    }

    pub(super) fn count(&self, weight: TroubleWeight) -> u64 {
        let kept = self.troubles.iter().filter(|trouble| trouble.weight == weight).count() as u64;
        kept + if weight == TroubleWeight::Bad { self.troubles_hidden } else { 0 }
    }

    pub(super) fn length(&self) -> Duration {
        match (self.start, self.end) {
            (Some(start), Some(end)) => end.since(start),
            _ => Duration::ZERO,
        }
    }
}
