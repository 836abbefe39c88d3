//! What went wrong, the worst first.

use ensemble_core::event_log::{Record, types};
use ensemble_core::message::Timestamp;
use serde_json::Value;

/// How bad it is; the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Weight {
    /// Work was lost, or a person has to act.
    Bad,
    /// Something took an odd turn.
    Odd,
}

/// Something that went wrong.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    pub(super) weight: Weight,
    pub(super) at: Option<Timestamp>,
    /// Whom it is about.
    pub(super) who: String,
    /// Description of the trouble.
    pub(super) what: String,
    /// Why, or what else is known.
    pub(super) why: String,
}

/// What a record tells of trouble, if it does.
pub(super) fn of(record: &Record) -> Option<Trouble> {
    let (weight, (who, what, why)) = match bad(record) {
        Some(said) => (Weight::Bad, said),
        None => (Weight::Odd, odd(record)?),
    };
    Some(Trouble { weight, at: Some(record.timestamp), who, what, why })
}

/// Whom it is about, what happened, and why.
type Said = (String, String, String);

fn said(who: String, what: impl Into<String>, why: impl Into<String>) -> Option<Said> {
    Some((who, what.into(), why.into()))
}

fn bad(record: &Record) -> Option<Said> {
    let text = |name: &str| member(record, name);
    let task = Some(text("task_id")).filter(|task| !task.is_empty()).unwrap_or_else(|| text("id"));
    match record.kind.as_str() {
        types::ESCALATION => said(
            Some(text("worker_id")).filter(|who| !who.is_empty()).unwrap_or_else(|| text("worker")),
            format!("{task} was not taken"),
            format!("{} after phase {}", text("reason"), text("phase")),
        ),
        types::LOOP_DETECTED => said(
            record.actor.clone(),
            format!("{task} goes round in circles"),
            format!("{} rounds of {}", text("cycles"), text("limit")),
        ),
        types::TASK_FAILED => said(text("worker_id"), format!("{task} failed"), text("reason")),
        types::MESSAGE_DEAD => {
            said(text("mailbox"), format!("{task} is a dead letter"), text("reason"))
        }
        types::MESSAGE_DAMAGED => said(text("mailbox"), format!("{task} is damaged"), ""),
        types::FILE_REJECTED => {
            said(String::new(), format!("{} was set aside", text("file")), text("error"))
        }
        types::READY_FAILED => {
            said(text("worker-id"), "did not answer any ping", text("observation"))
        }
        types::MAILBOX_FULL => {
            said(text("mailbox"), "the mailbox was full", format!("{} refused", text("refused")))
        }
        types::MAILBOX_QUOTA => said(
            record.actor.to_string(),
            "had as much unread as one sender may",
            format!("{} in {}", text("messages"), text("mailbox")),
        ),
        types::WORKER_GIVEN_UP => said(text("agent"), "stayed at its limit", ""),
        types::WATCH_QUEUE_GONE => said(String::new(), "the queue was gone", ""),
        _ => None,
    }
}

fn odd(record: &Record) -> Option<Said> {
    let text = |name: &str| member(record, name);
    let watcher = || "watcher".to_owned();
    match record.kind.as_str() {
        types::NUDGE_UNANSWERED => said(
            text("agent"),
            "did not react to nudges",
            format!("{} waiting after {} nudges", text("waiting"), text("nudges")),
        ),
        types::REPORT_VAGUE => {
            said(String::new(), format!("{} is vague", text("file")), text("rules"))
        }
        types::ROLE_PATIENCE_ENDED => said(text("role"), "was not told in time", ""),
        types::LEASE_MASS_EXPIRY => said(
            String::new(),
            "leases ran out together",
            format!("{} of {}", text("late"), text("of")),
        ),
        types::WATCH_DEGRADED => said(watcher(), "no events, looking instead", text("why")),
        types::WATCH_OVERFLOW => said(watcher(), "events overflowed", ""),
        types::IDENTITY_REFUSED => {
            said(text("actual"), format!("tried to act as {}", text("claimed")), text("why"))
        }
        types::REQUEST_EXPIRED => {
            said(text("to"), format!("did not decide {}", text("request_id")), "")
        }
        _ => None,
    }
}

fn member(record: &Record, name: &str) -> String {
    match record.data.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => String::new(),
        Some(Value::Array(items)) => {
            items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
        }
        Some(other) => other.to_string(),
    }
}
