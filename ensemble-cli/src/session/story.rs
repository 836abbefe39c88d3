//! What a session's records come to, gathered in one pass and in bounded memory.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use ensemble_core::event_log::{Record, types};
use ensemble_core::message::Timestamp;
use serde_json::Value;

use super::latency::Latency;
use super::trouble::{self, Trouble, Weight};

/// How many agents are told of one by one.
const AGENTS_MAX: usize = 60;
/// How many messages are followed at once; of more, only the totals are kept.
const FOLLOWED_MAX: usize = 100_000;
/// How many spans, and how many marks, are kept of one agent.
pub(super) const SPANS_MAX: usize = 3_000;
/// How many troubles are kept.
const TROUBLES_MAX: usize = 200;
/// How many messages that are not done at the end are named.
const LEFT_MAX: usize = 20;

/// What a stretch of time was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SpanKind {
    /// Mail waits for the agent.
    Waiting,
    /// The agent holds a message.
    Held,
}

/// The end of a stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Taken,
    Settled,
    GivenBack,
    Dead,
    Open,
}

#[derive(Clone, Debug)]
pub(super) struct Span {
    pub(super) kind: SpanKind,
    pub(super) from: Timestamp,
    pub(super) to: Timestamp,
    pub(super) end: End,
    pub(super) label: String,
}

/// What happened at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MarkKind {
    Nudge,
    Deferred,
    Trouble,
}

#[derive(Clone, Debug)]
pub(super) struct Mark {
    pub(super) kind: MarkKind,
    pub(super) at: Timestamp,
    pub(super) label: String,
}

/// One agent's part.
#[derive(Clone, Debug, Default)]
pub(super) struct Agent {
    pub(super) spans: Vec<Span>,
    pub(super) marks: Vec<Mark>,
    pub(super) received: u64,
    pub(super) settled: u64,
    pub(super) given_back: u64,
    pub(super) dead: u64,
    pub(super) sent: u64,
    pub(super) nudges: u64,
    pub(super) deferrals: u64,
    pub(super) escalations: u64,
    pub(super) busy: Duration,
    pub(super) waited: Duration,
    pub(super) hidden: u64,
}

impl Agent {
    pub(super) const fn is_silent(&self) -> bool {
        self.received + self.settled + self.nudges + self.deferrals + self.escalations + self.dead
            == 0
            && self.spans.is_empty()
            && self.marks.is_empty()
    }

    fn span(&mut self, span: Span) {
        if self.spans.len() < SPANS_MAX { self.spans.push(span) } else { self.hidden += 1 }
    }

    fn mark(&mut self, mark: Mark) {
        if self.marks.len() < SPANS_MAX { self.marks.push(mark) } else { self.hidden += 1 }
    }
}

/// A message on its way.
#[derive(Clone, Debug)]
struct Followed {
    label: String,
    queued: Option<Timestamp>,
    told: Option<Timestamp>,
    held: Option<(Timestamp, String)>,
}

/// The story of one session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Story {
    pub(super) session: String,
    pub(super) start: Option<Timestamp>,
    pub(super) end: Option<Timestamp>,
    pub(super) has_ended: bool,
    pub(super) records: u64,
    pub(super) messages: u64,
    pub(super) settled: u64,
    pub(super) agents: BTreeMap<String, Agent>,
    /// Agents beyond those that are told of.
    pub(super) other_agents: u64,
    pub(super) troubles: Vec<Trouble>,
    pub(super) troubles_total: u64,
    /// How many of them are bad.
    pub(super) bad_total: u64,
    /// Stored until told of in the agent's pane.
    pub(super) delivery: Latency,
    /// Stored until taken.
    pub(super) ack: Latency,
    /// Told of until taken.
    pub(super) waking: Latency,
    pub(super) work: Latency,
    /// What each agent holds now, for a session that goes on.
    pub(super) holds: BTreeMap<String, Vec<String>>,
    followed: HashMap<(String, String), Followed>,
    /// Which session is wanted; the newest if none is.
    wanted: Option<String>,
}

impl Story {
    /// A story of one session, or of the newest.
    pub(crate) fn of(session: Option<String>) -> Self {
        let full = |name: String| match name.strip_prefix("session-") {
            Some(_) => name,
            None => format!("session-{name}"),
        };
        Self { wanted: session.map(full), ..Self::default() }
    }

    /// Whether the session goes on, so that what agents hold now belongs to it.
    pub(crate) const fn goes_on(&self) -> bool {
        self.wanted.is_none() && !self.has_ended
    }

    /// Adds what each agent holds now.
    pub(crate) fn hold(&mut self, holds: BTreeMap<String, Vec<String>>) {
        self.holds = holds;
    }

    /// Whether nothing was told.
    pub(crate) const fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Takes a record, in the order of the log.
    pub(crate) fn take(&mut self, record: &Record) {
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
        if let Some(trouble) = trouble::of(record) {
            self.trouble(trouble);
        }
        self.follow(record);
    }

    fn follow(&mut self, record: &Record) {
        let text = |name: &str| text(record, name);
        let (mailbox, id, at) = (text("mailbox"), text("id"), record.timestamp);
        match record.kind.as_str() {
            types::MESSAGE_STORED => {
                self.messages += 1;
                self.agent(&record.actor).sent += 1;
                let what = match (text("type"), text("task_id")) {
                    (kind, task) if kind == "task" && !task.is_empty() => task,
                    (kind, task) => format!("{kind} {task}").trim_end().to_owned(),
                };
                let label = format!("{what} from {}", record.actor);
                let queued = Some(at);
                self.queue(mailbox, id, Followed { label, queued, told: None, held: None });
            }
            types::RECEIPT_SUBMITTED => {
                let ids = record.data.get("ids").and_then(Value::as_array);
                for id in ids.into_iter().flatten().filter_map(Value::as_str) {
                    let key = (mailbox.clone(), id.to_owned());
                    let Some(one) = self.followed.get_mut(&key) else { continue };
                    if one.told.is_none() {
                        one.told = Some(at);
                        let queued = one.queued;
                        self.delivery.add(queued.map_or(Duration::ZERO, |from| at.since(from)));
                    }
                }
            }
            types::MESSAGE_ACKED => self.acked(record, mailbox, id),
            types::MESSAGE_SETTLED => self.finish(record, mailbox, id, End::Settled),
            types::MESSAGE_RELEASED => self.finish(record, mailbox, id, End::GivenBack),
            types::MESSAGE_DEAD => self.finish(record, mailbox, id, End::Dead),
            types::MESSAGE_REDRIVEN => {
                let (label, queued) = ("redriven".to_owned(), Some(at));
                self.queue(mailbox, id, Followed { label, queued, told: None, held: None });
            }
            types::NUDGE_SENT => {
                let agent = self.agent(&text("agent"));
                agent.nudges += 1;
                agent.mark(Mark { kind: MarkKind::Nudge, at, label: "nudged".to_owned() });
            }
            types::NUDGE_DEFERRED => {
                let label = format!("not disturbed: {} {}", text("reason"), text("detail"));
                let agent = self.agent(&text("agent"));
                agent.deferrals += 1;
                agent.mark(Mark { kind: MarkKind::Deferred, at, label });
            }
            types::ESCALATION => self.agent(&text("worker_id")).escalations += 1,
            types::SESSION_END => self.has_ended = true,
            _ => {}
        }
    }

    fn queue(&mut self, mailbox: String, id: String, one: Followed) {
        if self.followed.len() < FOLLOWED_MAX {
            self.followed.insert((mailbox, id), one);
        }
    }

    fn acked(&mut self, record: &Record, mailbox: String, id: String) {
        let (at, holder) = (record.timestamp, record.actor.clone());
        self.agent(&holder).received += 1;
        let Some(one) = self.followed.get_mut(&(mailbox.clone(), id)) else { return };
        one.held = Some((at, holder));
        let (queued, told, label) = (one.queued.take(), one.told.take(), one.label.clone());
        if let Some(from) = queued {
            self.ack.add(at.since(from));
            let agent = self.agent(&mailbox);
            agent.waited += at.since(from);
            agent.span(Span { kind: SpanKind::Waiting, from, to: at, end: End::Taken, label });
        }
        if let Some(told) = told {
            self.waking.add(at.since(told));
        }
    }

    fn finish(&mut self, record: &Record, mailbox: String, id: String, end: End) {
        let at = record.timestamp;
        let key = (mailbox.clone(), id);
        let Some(mut one) = self.followed.remove(&key) else { return };
        let who = one.held.as_ref().map_or(mailbox, |(_, holder)| holder.clone());
        let label = one.label.clone();
        let held = one.held.take();
        let agent = self.agent(&who);
        match end {
            End::Settled => agent.settled += 1,
            End::GivenBack => agent.given_back += 1,
            End::Dead => agent.dead += 1,
            End::Taken | End::Open => {}
        }
        if let Some((from, _)) = &held {
            agent.busy += at.since(*from);
            agent.span(Span { kind: SpanKind::Held, from: *from, to: at, end, label });
        }
        if end == End::Settled {
            self.settled += 1;
            if let Some((from, _)) = held {
                self.work.add(at.since(from));
            }
        }
        if end == End::GivenBack {
            one.queued = Some(at);
            self.followed.insert(key, one);
        }
    }

    fn agent(&mut self, name: &str) -> &mut Agent {
        const OTHERS: &str = "others";
        let is_known = self.agents.contains_key(name);
        let name = if name.is_empty() { "unknown" } else { name };
        if !is_known && self.agents.len() >= AGENTS_MAX {
            self.other_agents += 1;
            return self.agents.entry(OTHERS.to_owned()).or_default();
        }
        self.agents.entry(name.to_owned()).or_default()
    }

    fn trouble(&mut self, trouble: Trouble) {
        self.troubles_total += 1;
        self.bad_total += u64::from(trouble.weight == Weight::Bad);
        if let Some(at) = trouble.at.filter(|_| !trouble.who.is_empty()) {
            let label = format!("{} {}", trouble.what, trouble.why);
            self.agent(&trouble.who).mark(Mark { kind: MarkKind::Trouble, at, label });
        }
        if self.troubles.len() < TROUBLES_MAX {
            self.troubles.push(trouble);
        } else if trouble.weight == Weight::Bad
            && let Some(odd) = self.troubles.iter().position(|t| t.weight == Weight::Odd)
        {
            self.troubles[odd] = trouble;
        }
    }

    /// The log is over: what is still open is drawn to its end, and named if the session is over too.
    pub(crate) fn finish_all(&mut self) {
        let Some(end) = self.end else { return };
        let mut left: Vec<_> = std::mem::take(&mut self.followed).into_iter().collect();
        left.sort_by_key(|(_, one)| one.held.as_ref().map(|(at, _)| *at).or(one.queued));
        let mut named = 0;
        for ((mailbox, _), one) in left {
            let (who, kind, from) = match (one.held, one.queued) {
                (Some((at, holder)), _) => (holder, SpanKind::Held, at),
                (None, Some(at)) => (mailbox, SpanKind::Waiting, at),
                (None, None) => continue,
            };
            let label = one.label.clone();
            let agent = self.agent(&who);
            if kind == SpanKind::Held {
                agent.busy += end.since(from);
            } else {
                agent.waited += end.since(from);
            }
            agent.span(Span { kind, from, to: end, end: End::Open, label: label.clone() });
            if self.has_ended && named < LEFT_MAX {
                named += 1;
                let what = match kind {
                    SpanKind::Held => format!("never finished: {label}"),
                    SpanKind::Waiting => format!("never took: {label}"),
                };
                let why = "still so when the session ended".to_owned();
                let trouble = Trouble { weight: Weight::Odd, at: Some(from), who, what, why };
                self.troubles_total += 1;
                self.troubles.push(trouble);
            }
        }
        self.troubles.sort_by_key(|trouble| (trouble.weight, trouble.at));
        self.agents.retain(|_, agent| !agent.is_silent() || agent.sent > 0);
    }

    pub(super) fn length(&self) -> Duration {
        match (self.start, self.end) {
            (Some(start), Some(end)) => end.since(start),
            _ => Duration::ZERO,
        }
    }
}

fn text(record: &Record, name: &str) -> String {
    match record.data.get(name) {
        Some(Value::String(text)) => text.clone(),
        _ => String::new(),
    }
}
