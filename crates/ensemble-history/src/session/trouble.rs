//! The problems of a session, the worst first: from all records that report trouble, and only from those.

use std::time::Duration;

use ensemble_app::text::plural;
use ensemble_core::event_log::{Record, types};
use ensemble_core::message::Timestamp;
use serde_json::Value;

/// How bad it is; the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TroubleWeight {
    /// Work was lost, or a person had to act.
    Bad,
    /// Something took an odd turn.
    Odd,
}

#[derive(Clone, Debug)]
pub(super) struct SessionTrouble {
    pub(super) weight: TroubleWeight,
    pub(super) at: Option<Timestamp>,
    pub(super) until: Option<Timestamp>,
    pub(super) who: String,
    pub(super) what: String,
    pub(super) why: String,
    pub(super) subjects: Vec<String>,
    pub(super) story: String,
    pub(super) may_follow: bool,
}

const MAY_FOLLOW: [&str; 4] =
    [types::ESCALATION, types::ALARM_RAISED, types::SUPERVISE_EXITED, types::LEASE_HOLDER_GONE];
/// How long after a trouble another record may still speak of it.
const ECHO: Duration = Duration::from_secs(120);

/// What a record reports on trouble, if it does. `task` is the task that its message hands over.
pub(super) fn of(record: &Record, task: Option<&str>) -> Option<SessionTrouble> {
    let (weight, (who, what, why)) = match bad(record, task) {
        Some(said) => (TroubleWeight::Bad, said),
        None => (TroubleWeight::Odd, odd(record)?),
    };
    let names = ["task_id", "task", "about", "id", "agent", "worker_id", "request_id"];
    let named = names.iter().map(|name| member(record, name)).chain(task.map(str::to_owned));
    let subjects: Vec<String> =
        named.chain([who.clone()]).filter(|name| !name.is_empty()).collect();
    let story = task.map_or_else(|| story_of(record, &who), |task| format!("t:{task}"));
    Some(SessionTrouble {
        weight,
        at: Some(record.timestamp),
        until: None,
        who,
        what,
        why,
        subjects,
        story,
        may_follow: MAY_FOLLOW.contains(&record.kind.as_str()),
    })
}

fn story_of(record: &Record, who: &str) -> String {
    let keys = [("task_id", "t"), ("task", "t"), ("request_id", "r")];
    let key = keys.iter().find_map(|(name, kind)| {
        Some(member(record, name)).filter(|id| !id.is_empty()).map(|id| format!("{kind}:{id}"))
    });
    key.unwrap_or_else(|| if who.is_empty() { String::new() } else { format!("a:{who}") })
}

/// Merges each problem that another one explains into that one, so that it is listed once.
pub(super) fn without_echoes(mut all: Vec<SessionTrouble>) -> Vec<SessionTrouble> {
    all.sort_by_key(|trouble| (trouble.may_follow, trouble.at));
    let mut kept: Vec<SessionTrouble> = Vec::new();
    for trouble in all {
        let cause = kept.iter_mut().find(|cause| trouble.is_echo_of(cause));
        match cause {
            Some(cause) if cause.why.len() < 200 => {
                let before = if cause.why.is_empty() { "" } else { "; " };
                cause.why = format!("{}{before}{}", cause.why, trouble.what);
            }
            Some(_) => {}
            None => kept.push(trouble),
        }
    }
    kept.sort_by_key(|trouble| (trouble.weight, trouble.at));
    kept
}

impl SessionTrouble {
    fn is_echo_of(&self, cause: &Self) -> bool {
        let shares = self.subjects.iter().any(|subject| cause.subjects.contains(subject));
        let (Some(at), Some(from)) = (self.at, cause.at) else { return false };
        let until = cause.until.unwrap_or(from);
        // A dead letter comes after its escalation.
        let is_near = at >= from && at.since(until) <= ECHO || from >= at && from.since(at) <= ECHO;
        self.may_follow && cause.weight == TroubleWeight::Bad && shares && is_near
    }
}

/// The agent it is about, what happened, and why.
type TroubleWords = (String, String, String);

fn said(who: String, what: impl Into<String>, why: impl Into<String>) -> Option<TroubleWords> {
    Some((who, what.into(), why.into()))
}

fn bad(record: &Record, task: Option<&str>) -> Option<TroubleWords> {
    let text = |name: &str| member(record, name);
    let either = |first: &str, second: &str| {
        Some(text(first)).filter(|found| !found.is_empty()).unwrap_or_else(|| text(second))
    };
    let task = task.map_or_else(|| either("task_id", "id"), str::to_owned);
    let step = || format!("step {} of {task}", text("step_index"));
    match record.kind.as_str() {
        types::ESCALATION => {
            let detail = text("detail");
            let why = format!("{} after phase {}", text("reason"), text("phase"));
            let why = if detail.is_empty() { why } else { format!("{why}: {detail}") };
            said(either("worker_id", "worker"), format!("did not take {task}"), why)
        }
        types::LOOP_DETECTED => said(
            either("worker_id", ""),
            format!("{} goes round in circles", either("task_id", "file")),
            format!("{} rounds of {}", text("cycles"), text("limit")),
        ),
        types::TASK_FAILED if text("by") != "dead_letter" => {
            said(text("worker_id"), format!("failed {task}"), text("reason"))
        }
        types::MESSAGE_DEAD => {
            said(text("mailbox"), format!("has a dead letter: {task}"), text("reason"))
        }
        types::MESSAGE_DAMAGED => said(text("mailbox"), format!("{task} is damaged"), ""),
        types::READY_FAILED => {
            said(text("worker-id"), "did not answer any ping", text("observation"))
        }
        types::ALARM_RAISED => said(
            String::new(),
            format!("alarm: {}", text("text")),
            format!("{} ({})", text("alarm"), text("about")),
        ),
        types::STEP_BLOCKED => said(record.actor.clone(), format!("blocked {}", step()), ""),
        types::STEP_FAILED if text("paused") == "true" => {
            said(record.actor.clone(), format!("failed {} for good", step()), "")
        }
        types::STEP_LEASE_ENDED if text("stopped") == "true" => {
            said(text("holder"), format!("lost {} for good", step()), "its lease ran out")
        }
        types::SUPERVISE_BLOCKED => {
            said(text("agent"), format!("cannot continue {}", text("task")), text("reason"))
        }
        types::SHUTDOWN_FAILED => said(text("agent"), "could not be shut down", text("error")),
        types::BUDGET_PARKED => {
            let what = "a budget is used up".to_owned();
            said(String::new(), what, format!("{} of {}", text("used"), text("limit")))
        }
        types::WORKER_GIVEN_UP => said(text("agent"), "stayed at its limit", ""),
        types::WATCH_QUEUE_GONE => said(String::new(), "the queue was gone", ""),
        _ => None,
    }
}

fn odd(record: &Record) -> Option<TroubleWords> {
    let text = |name: &str| member(record, name);
    let nowhere = String::new;
    match record.kind.as_str() {
        types::FILE_REJECTED => {
            said(nowhere(), format!("{} was rejected", text("file")), text("error"))
        }
        types::FILE_UNMATCHED => said(nowhere(), format!("{} has no route", text("file")), ""),
        types::REPORT_VAGUE => said(nowhere(), format!("{} is vague", text("file")), text("rules")),
        types::MAILBOX_FULL => {
            said(text("mailbox"), "its mailbox was full", format!("{} refused", text("refused")))
        }
        types::MAILBOX_QUOTA => said(
            record.actor.to_string(),
            "had as much unread as one sender may",
            format!("{} in {}", text("messages"), text("mailbox")),
        ),
        types::NUDGE_UNANSWERED => said(
            text("agent"),
            "did not react to nudges",
            format!("{} waiting after {} nudges", text("waiting"), text("nudges")),
        ),
        types::SUPERVISE_EXITED if text("holds") == "true" && text("ending") != "HandOver" => said(
            text("agent"),
            format!("left work behind: {}", text("task")),
            format!("its program ended: {}", text("ending")),
        ),
        types::LEASE_HOLDER_GONE => {
            said(text("agent"), format!("left work behind: {}", left(record)), text("why"))
        }
        types::STEP_REFUSED => {
            said(record.actor.clone(), format!("was refused {}", text("task_id")), text("error"))
        }
        types::REVIEW_RESULT if text("status") == "rejected" => {
            said(text("reviewer"), format!("rejected {}", text("task_id")), "")
        }
        types::ROLE_PATIENCE_ENDED => said(text("role"), "was not notified in time", ""),
        types::LEASE_LATE_LOOK => {
            said(nowhere(), "the watcher of leases was stopped", format!("{}s", text("seconds")))
        }
        types::WATCH_DEGRADED => said(nowhere(), "the watcher has no events", text("why")),
        types::WATCH_OVERFLOW => said(nowhere(), "events overflowed", ""),
        types::IDENTITY_REFUSED => {
            said(text("actual"), format!("tried to act as {}", text("claimed")), text("why"))
        }
        types::HOOK_FAILED => said(nowhere(), "a hook failed", text("why")),
        types::ALERT_FAILED => said(nowhere(), "an alert reached no person", text("error")),
        types::AGENT_REMAINS => said(text("agent"), "left processes behind", text("survivors")),
        _ => None,
    }
}

fn left(record: &Record) -> String {
    let count =
        |name: &str| record.data.get(name).and_then(Value::as_array).map_or(0, Vec::len) as u64;
    let counts = [(count("messages"), "message"), (count("others"), "task")];
    let parts = counts.iter().filter(|(count, _)| *count > 0);
    parts.map(|(count, what)| plural(*count, what)).collect::<Vec<_>>().join(", ")
}

pub(super) fn member(record: &Record, name: &str) -> String {
    match record.data.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => String::new(),
        Some(Value::Array(items)) => {
            items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
        }
        Some(other) => other.to_string(),
    }
}
