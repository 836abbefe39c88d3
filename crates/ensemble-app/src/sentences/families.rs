//! The words of each type of record, by families.

use ensemble_core::event_log::{Record, types};
use ensemble_core::message::MessagePurpose;
use ensemble_core::spool::RECALLED;
use serde_json::Value;

use super::NamedMessage;
use super::SentenceWeight::{self, Change, Detail, Talk, Trouble};
use crate::mail::delivered::PLAIN_TYPE;
use crate::text::{one_line, plural, uncapitalized};

const REASON_CHARS_MAX: usize = 160;

/// The sentence for a record: nothing, or words. `None` leaves the record to [`fallback`].
pub(super) type RecordWords = Option<Option<(SentenceWeight, String)>>;

const SILENT: RecordWords = Some(None);

fn said(weight: SentenceWeight, text: String) -> RecordWords {
    Some(Some((weight, text)))
}

pub(super) fn word(record: &Record, field: &str) -> String {
    one_line(record.data.get(field).and_then(Value::as_str).unwrap_or_default())
}

fn number(record: &Record, field: &str) -> u64 {
    record.data.get(field).and_then(Value::as_u64).unwrap_or_default()
}

pub(super) fn shortened(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}…", text[..end].trim_end()),
        None => text.to_owned(),
    }
}

/// A reason behind a colon, or nothing.
fn because(reason: &str) -> String {
    match reason.is_empty() {
        true => String::new(),
        false => format!(": {}", shortened(reason, REASON_CHARS_MAX)),
    }
}

pub(super) fn of_message(record: &Record, message: &NamedMessage, is_person: bool) -> RecordWords {
    let (mailbox, actor) = (word(record, "mailbox"), one_line(&record.actor));
    let subject = message.subject();
    let purpose = MessagePurpose::of(&message.kind);
    match record.kind.as_str() {
        types::MESSAGE_STORED => stored(&mailbox, message, purpose),
        // Requests and alarms have their own sentences.
        _ if purpose == MessagePurpose::Request || is_echo(&message.kind) => SILENT,
        types::MESSAGE_ACKED if is_person => said(Detail, format!("{actor} read {subject}")),
        types::MESSAGE_ACKED => said(Change, format!("{actor} received {subject}")),
        types::MESSAGE_SETTLED if is_person => SILENT,
        types::MESSAGE_SETTLED => said(Change, format!("{actor} finished {subject}")),
        types::MESSAGE_EXTENDED => said(Detail, format!("{actor} took more time for {subject}")),
        types::MESSAGE_RELEASED => {
            let why = because(&word(record, "why"));
            said(Trouble, format!("{subject} is back in {mailbox}'s mailbox{why}"))
        }
        types::MESSAGE_DEAD => {
            let reason = word(record, "reason");
            if let Some(sender) = reason.strip_prefix(RECALLED) {
                let text = format!("{sender} recalled {subject}: {mailbox} never read it");
                return said(Talk, text);
            }
            let why = because(&reason);
            said(Trouble, format!("{mailbox}: {subject} became a dead letter{why}"))
        }
        types::MESSAGE_WITHDRAWN => {
            let by = word(record, "by");
            said(Change, format!("{subject} was withdrawn, because {by} had reported it"))
        }
        types::MESSAGE_REDRIVEN => {
            said(Change, format!("{subject} is back in {mailbox}'s mailbox, with all its attempts"))
        }
        types::MESSAGE_DROPPED => said(Change, format!("the dead letter {subject} was deleted")),
        _ => None,
    }
}

/// Mail that repeats another record.
fn is_echo(kind: &str) -> bool {
    matches!(kind, "board.alarm" | "report.escalation") || kind.ends_with("_response")
}

fn stored(mailbox: &str, message: &NamedMessage, purpose: MessagePurpose) -> RecordWords {
    let NamedMessage { from, kind, task, words } = message;
    if is_echo(kind) || purpose == MessagePurpose::Request {
        return SILENT;
    }
    let about = match (kind.as_str(), task) {
        (PLAIN_TYPE, None) => String::new(),
        (PLAIN_TYPE | "task", Some(task)) => format!("task {}", one_line(task)),
        (kind, Some(task)) => format!("{} about task {}", one_line(kind), one_line(task)),
        (kind, None) => one_line(kind),
    };
    // The body of a report is for programs.
    let is_prose = matches!(kind.as_str(), PLAIN_TYPE | "task");
    let text = match (about.is_empty(), is_prose && !words.is_empty()) {
        (true, true) => words.clone(),
        (true, false) => "a message".to_owned(),
        (false, true) => format!("{about}: {words}"),
        (false, false) => about,
    };
    said(Talk, format!("{from} -> {mailbox}  {text}"))
}

pub(super) fn of_notice(record: &Record, message: &NamedMessage) -> RecordWords {
    let (mailbox, worker) = (word(record, "mailbox"), word(record, "worker_id"));
    let task = word(record, "task_id");
    match record.kind.as_str() {
        types::RECEIPT_SUBMITTED => {
            let way = record.data.get("evidence").and_then(|it| it.get("way"));
            let text = match way.and_then(Value::as_str) {
                Some("keystrokes") => format!("{mailbox} was notified by a line in its terminal"),
                _ => format!("{mailbox} was given {}", message.subject()),
            };
            said(Detail, text)
        }
        types::RECEIPT_CONFIRMED => {
            let text = format!("{mailbox} has {} in its own record", message.subject());
            said(Detail, text)
        }
        types::NUDGE_DEFERRED => {
            let why = because(&word(record, "detail"));
            said(Detail, format!("{} is not notified yet{why}", word(record, "agent")))
        }
        types::NUDGE_UNANSWERED => {
            let (agent, hints) = (word(record, "agent"), number(record, "nudges"));
            let hints = plural(hints, "hint");
            said(Trouble, format!("{agent} has not read its mail after {hints}"))
        }
        types::LADDER_NUDGE => match (number(record, "phase"), record.data.get("sent")) {
            (0, _) => SILENT,
            (phase, Some(Value::Bool(true))) => {
                said(Trouble, format!("{worker} was reminded of task {task} ({phase} of 3)"))
            }
            _ => {
                let detail = [word(record, "detail"), word(record, "reason")];
                let why = detail.iter().find(|it| !it.is_empty()).map_or("", String::as_str);
                let why = because(why);
                said(Detail, format!("{worker} could not be reminded of task {task}{why}"))
            }
        },
        types::LADDER_WAITING => said(Detail, format!("{worker} is busy, so task {task} waits")),
        types::LADDER_LATE_ACK => said(Change, format!("{worker} picked up task {task} after all")),
        types::READY_FAILED => {
            said(Trouble, format!("{worker} did not answer when asked if it is ready"))
        }
        types::READY_PONG | types::READY_IDLE => said(Detail, format!("{worker} is ready")),
        _ => SILENT,
    }
}

pub(super) fn of_agent(record: &Record) -> RecordWords {
    let (agent, why) = (word(record, "agent"), word(record, "why"));
    match record.kind.as_str() {
        types::AGENT_UP => {
            let how = word(record, "how");
            let how = if how.is_empty() { "started".to_owned() } else { how };
            said(Change, format!("{agent} {how}"))
        }
        types::AGENT_LEFT => {
            let code = record.data.get("exit_code").and_then(Value::as_i64);
            let code = code.map_or_else(String::new, |code| format!(" with exit code {code}"));
            said(Change, format!("{agent} exited{code}"))
        }
        types::AGENT_STATE => {
            let (from, to) = (word(record, "from"), word(record, "to"));
            let is_trouble = matches!(&*to, "blocked" | "gone" | "limited");
            let weight = if is_trouble { Trouble } else { Change };
            let why = if is_trouble { because(&why) } else { String::new() };
            match (&*from, &*to) {
                // Its start has been said, and a screen that is not known yet says nothing.
                ("", "idle" | "starting" | "shutdown" | "unknown") => SILENT,
                ("", _) => said(weight, format!("{agent} is {to}{why}")),
                _ => said(weight, format!("{agent}  {from} -> {to}{why}")),
            }
        }
        // The held messages have their own sentences.
        types::LEASE_HOLDER_GONE | types::LEASE_KEPT => SILENT,
        types::WORKER_PARKED => said(Trouble, format!("{agent} is at its usage limit")),
        types::WORKER_RESUMED => said(Change, format!("{agent} is no longer at its usage limit")),
        types::SUPERVISE_SPAWNED => {
            // A planner has none.
            let task = word(record, "task");
            let work = if task.is_empty() { task } else { format!(" on task {task}") };
            said(Change, format!("{agent} started working{work}"))
        }
        types::SUPERVISE_EXITED => {
            let how = match &*word(record, "ending") {
                "Done" => "finished its turn".to_owned(),
                "HandOver" => "handed over to a fresh session".to_owned(),
                "Killed(9)" => "was killed by signal 9".to_owned(),
                other => format!("ended: {other}"),
            };
            said(Change, format!("{agent} {how}"))
        }
        types::SUPERVISE_FAILED => {
            let why = because(&word(record, "error"));
            said(Trouble, format!("{agent}: {} failed{why}", word(record, "what")))
        }
        _ => None,
    }
}

pub(super) fn of_request(record: &Record) -> RecordWords {
    let (from, to) = (word(record, "from"), word(record, "to"));
    let kind = word(record, "kind").replace('_', " ");
    let task = word(record, "task_id");
    let about = if task.is_empty() { String::new() } else { format!(" for task {task}") };
    match record.kind.as_str() {
        types::REQUEST_OPENED => {
            said(Talk, format!("{from} -> {to}  asks for a decision: {kind}{about}"))
        }
        types::REQUEST_REMINDED => said(Detail, format!("{to} was reminded of {from}'s {kind}")),
        types::REQUEST_DECIDED => {
            let (by, outcome) = (word(record, "by"), word(record, "outcome"));
            said(Talk, format!("{by} -> {from}  {kind}{about}: {outcome}"))
        }
        types::REQUEST_EXPIRED => {
            said(Trouble, format!("{to} did not decide {from}'s {kind} in time"))
        }
        types::REQUEST_CANCELLED => said(Change, format!("{from} took its {kind} back{about}")),
        types::REQUEST_HANDED_OVER => SILENT,
        _ => None,
    }
}

pub(super) fn of_work(record: &Record) -> RecordWords {
    let (actor, task) = (one_line(&record.actor), word(record, "task_id"));
    let step = format!("step {} of {task}", number(record, "step_index"));
    let text = match record.kind.as_str() {
        types::BOARD_WRITTEN => {
            let steps = board_steps(record).join(", ");
            return if steps.is_empty() { SILENT } else { said(Change, steps) };
        }
        types::STEP_TAKEN => format!("{actor} started {step}"),
        types::STEP_COMPLETED => format!("{actor} finished {step}"),
        types::STEPS_DONE => format!("all steps of {task} are done"),
        types::STEP_PROMPTED => return SILENT,
        types::STEP_FAILED | types::STEP_BLOCKED | types::STEP_LEASE_ENDED => {
            let how = record.kind.as_str().trim_start_matches("step.").replace('_', " ");
            return said(Trouble, format!("{actor}: {step} {how}"));
        }
        types::CONTROL_PUT => {
            let why = because(&word(record, "reason"));
            format!("{actor} set {} for the team{why}", word(record, "file"))
        }
        types::CONTROL_REMOVED => format!("{actor} lifted {}", word(record, "file")),
        _ => return None,
    };
    said(Change, text)
}

fn board_steps(record: &Record) -> Vec<String> {
    let steps = record.data.get("steps").and_then(Value::as_array);
    let words = |step: &Value| {
        let word = |field: &str| step.get(field).and_then(Value::as_str).map(one_line);
        let what = word("what")?.strip_prefix("task.")?.replace('_', " ");
        let status = word("status").map_or_else(String::new, |status| format!(" -> {status}"));
        let task = word("task").unwrap_or_default();
        Some(format!("{}: {task} {what}{status}", one_line(&record.actor)))
    };
    steps.into_iter().flatten().filter_map(words).collect()
}

pub(super) fn of_event(record: &Record) -> RecordWords {
    let (task, worker) = (word(record, "task_id"), word(record, "worker_id"));
    let file = word(record, "file");
    match record.kind.as_str() {
        types::SESSION_START
        | types::SESSION_END
        | types::LOG_CONTINUED
        | types::MAILBOX_ADDED
        | types::MAILBOX_CONFIGURED
        | types::QUEUE_SWEPT
        | types::HISTORY_SWEPT
        | types::FILE_ROUTED
        | types::ACK_RECEIVED => SILENT,
        // The message that carries it is in the log, too.
        types::WORKER_ASSIGN => SILENT,
        types::WORKER_RELEASE => {
            let why = because(&word(record, "reason"));
            said(Change, format!("{worker} left the team{why}"))
        }
        types::TASK_START => said(Change, format!("{worker} received task {task}")),
        types::TASK_COMPLETE => said(Change, format!("{worker} finished task {task}")),
        types::TASK_FAILED => {
            let why = because(&word(record, "reason"));
            said(Trouble, format!("task {task} failed{why}"))
        }
        types::ESCALATION => {
            let reason = match word(record, "reason") {
                reason if reason.is_empty() => reason,
                reason => format!(" ({})", reason.replace('_', " ")),
            };
            let text =
                format!("{worker} has not picked up task {task}{reason}: conductor notified");
            said(Trouble, text)
        }
        types::ALARM_RAISED => {
            let to = word(record, "told");
            said(Trouble, format!("watcher -> {to}  {}", word(record, "text")))
        }
        types::ALERT_SENT => said(Detail, format!("you were alerted: {}", word(record, "text"))),
        types::FILE_REJECTED => {
            let why = because(&word(record, "error"));
            said(Trouble, format!("{file} was rejected{why}"))
        }
        types::FILE_WAITING | types::FILE_UNMATCHED => {
            let why = because(&word(record, "error"));
            said(Trouble, format!("{file} is not delivered{why}"))
        }
        types::REVIEW_RESULT => {
            let (who, how) = (word(record, "reviewer"), word(record, "status"));
            said(Talk, format!("{who} reviewed task {task}: {how}"))
        }
        _ => None,
    }
}

/// A sentence from the meaning of a record's type, for records without a better one.
pub(super) fn fallback(record: &Record) -> Option<(SentenceWeight, String)> {
    let kind = record.kind.as_str();
    let row = types::TABLE.iter().find(|row| row.name == kind);
    let meaning = row.map_or_else(
        // Another program's record.
        || kind.replace(['.', '_'], " "),
        |row| uncapitalized(&row.meaning.trim_end_matches('.').replace('`', "")),
    );
    let about = ["task_id", "task", "agent", "mailbox", "file", "scope"];
    let about = about.iter().map(|field| word(record, field)).find(|about| !about.is_empty());
    let about = about.map_or_else(String::new, |about| format!(" ({about})"));
    Some((Detail, format!("{}: {meaning}{about}", one_line(&record.actor))))
}
