//! What went wrong, the worst first.

use ensemble_core::event_log::Record;
use ensemble_core::message::Timestamp;
use serde_json::Value;

/// How bad it is; the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Weight {
    /// Work was lost, or somebody has to act.
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
    /// What happened.
    pub(super) what: String,
    /// Why, or what else is known.
    pub(super) why: String,
}

/// What a record tells of trouble, if it does.
pub(super) fn of(record: &Record) -> Option<Trouble> {
    let text = |name: &str| match record.data.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => String::new(),
        Some(Value::Array(items)) => {
            items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
        }
        Some(other) => other.to_string(),
    };
    let task = || match text("task_id").as_str() {
        "" => text("id"),
        task => task.to_owned(),
    };
    let (weight, who, what, why) = match record.kind.as_str() {
        "escalation" => (
            Weight::Bad,
            first(&[text("worker_id"), text("worker")]),
            format!("{} was not taken", task()),
            format!("{} after phase {}", text("reason"), text("phase")),
        ),
        "loop_detected" => (
            Weight::Bad,
            record.actor.clone(),
            format!("{} goes round in circles", task()),
            format!("{} rounds of {}", text("cycles"), text("limit")),
        ),
        "task_failed" => {
            (Weight::Bad, text("worker_id"), format!("{} failed", task()), text("reason"))
        }
        "message.dead" => {
            (Weight::Bad, text("mailbox"), format!("{} is a dead letter", task()), text("reason"))
        }
        "message.damaged" => {
            (Weight::Bad, text("mailbox"), format!("{} is damaged", task()), String::new())
        }
        "file.rejected" => {
            (Weight::Bad, String::new(), format!("{} was set aside", text("file")), text("error"))
        }
        "ready.failed" => (
            Weight::Bad,
            text("worker-id"),
            "did not answer any ping".to_owned(),
            text("observation"),
        ),
        "mailbox.full" => (
            Weight::Bad,
            text("mailbox"),
            "the mailbox was full".to_owned(),
            format!("{} refused", text("refused")),
        ),
        "worker.given_up" => {
            (Weight::Bad, text("agent"), "stayed at its limit".to_owned(), String::new())
        }
        "watch.queue_gone" => {
            (Weight::Bad, String::new(), "the queue was gone".to_owned(), String::new())
        }
        "nudge.unanswered" => (
            Weight::Odd,
            text("agent"),
            "did not react to nudges".to_owned(),
            format!("{} waiting after {} nudges", text("waiting"), text("nudges")),
        ),
        "report.vague" => {
            (Weight::Odd, String::new(), format!("{} is vague", text("file")), text("rules"))
        }
        "role.patience_ended" => {
            (Weight::Odd, text("role"), "was not told in time".to_owned(), String::new())
        }
        "lease.mass_expiry" => (
            Weight::Odd,
            String::new(),
            "leases ran out together".to_owned(),
            format!("{} of {}", text("late"), text("of")),
        ),
        "watch.degraded" => (
            Weight::Odd,
            "watcher".to_owned(),
            "no events, looking instead".to_owned(),
            text("why"),
        ),
        "watch.overflow" => {
            (Weight::Odd, "watcher".to_owned(), "events overflowed".to_owned(), String::new())
        }
        "identity.refused" => (
            Weight::Odd,
            text("actual"),
            format!("tried to act as {}", text("claimed")),
            text("why"),
        ),
        "request.expired" => (
            Weight::Odd,
            text("to"),
            format!("did not decide {}", text("request_id")),
            String::new(),
        ),
        _ => return None,
    };
    Some(Trouble { weight, at: Some(record.timestamp), who, what, why })
}

fn first(texts: &[String]) -> String {
    texts.iter().find(|text| !text.is_empty()).cloned().unwrap_or_default()
}
