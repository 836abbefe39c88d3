//! The story of one thing: what the event log has of it, where it is now, and what it took.

use std::path::Path;

use ensemble_core::driver::LadderStore;
use ensemble_core::event_log::{Record, Story, read_all, story, types};
use ensemble_core::message::{MessageId, Name};
use ensemble_project::members::last_observed;
use ensemble_team::usage::{Spent, by_task};
use serde_json::{Value, json};

use crate::asking::requests;
use crate::failure::Outcome;
use crate::queue::Queue;
use crate::team_log::TeamLog;
use crate::text::{age, inline, one_line};
use crate::usage::TeamUsage;
use crate::{App, ids};

/// Whether a story ends with such a record, or begins again. A late record of the watcher does neither.
fn is_end(record: &Record) -> bool {
    match record.kind.as_str() {
        types::TASK_FAILED
        | types::TASK_COMPLETE
        | types::MESSAGE_DEAD
        | types::MESSAGE_REDRIVEN => true,
        types::MESSAGE_STORED => record.data.get("type").is_some_and(|kind| kind == "task"),
        _ => false,
    }
}

/// What is asked, and how to answer, of a request that is not decided.
fn asked(app: &App, id: &str) -> Vec<String> {
    let entry = Queue::open(app).and_then(|queue| Ok(requests(app, &queue)?.get(id)?));
    let Ok(entry) = entry else { return Vec::new() };
    let said = entry.request.content.lines().map(|line| format!("asked  {}", one_line(line)));
    said.collect()
}

/// The records about an id, and where it is now.
pub fn look_up_story(app: &App, logs: &Path, id: &str) -> Outcome<(Option<Story>, Vec<Value>)> {
    let told = if logs.is_dir() { Some(story(logs, id)?) } else { None };
    Ok((told, whereabouts(app, id)))
}

/// The one id that begins so, among those of unfinished messages, of requests and of the log.
pub fn complete_id(app: &App, logs: &Path, prefix: &str) -> Outcome<Option<String>> {
    let queue = Queue::open(app)?;
    queue.overlook()?;
    let waiting = ids::unfinished(&*queue)?.into_iter().map(String::from);
    let (asked, _) = requests(app, &queue)?.list()?;
    let asked = asked.into_iter().map(|entry| entry.request.request_id.into());
    let logged: Vec<String> = match logs.is_dir() {
        true => read_all(logs)?.flat_map(|record| ids_in(&record)).collect(),
        false => Vec::new(),
    };
    ids::unique(prefix, waiting.chain(asked).chain(logged))
}

/// The ids that a record names.
fn ids_in(record: &Record) -> Vec<String> {
    const FIELDS: [&str; 3] = ["id", "task_id", "request_id"];
    let of = |field: &&str| record.data.get(*field)?.as_str().map(str::to_owned);
    FIELDS.iter().filter_map(of).collect()
}

/// What a task or an agent took; `None` without a record.
pub fn spent_on(app: &App, id: &str) -> Option<Spent> {
    let usage = TeamUsage::read(app).ok()?;
    let task = by_task(&usage.agents).remove(id);
    task.or_else(|| Some(usage.agents.get(&Name::new(id).ok()?)?.spent.clone()))
}

/// Why it failed, and the type and author of the record that says so. A story that went on since has no such end.
pub fn reason_of(records: &[Record]) -> Option<(String, String)> {
    let last = records.iter().rfind(|record| is_end(record))?;
    let reason = last.data.get("reason")?.as_str().filter(|reason| !reason.is_empty())?;
    let of = format!("{}, {}", last.kind, one_line(&last.actor));
    (last.kind.as_str() != types::TASK_COMPLETE).then(|| (one_line(reason), of))
}

/// The whole story, a line each, without styles.
pub fn story_lines(app: &App, id: &str) -> Outcome<Vec<String>> {
    let team = TeamLog::open(app)?;
    let logs = team.path();
    let told = if logs.is_dir() { Some(story(logs, id)?) } else { None };
    let records: &[Record] = told.as_ref().map_or(&[], |story| &story.records);
    let start = records.first().map(|record| record.timestamp);
    let mut lines: Vec<String> = records
        .iter()
        .map(|record| {
            let since = age(record.timestamp.since(start.unwrap_or(record.timestamp)));
            let (kind, actor) = (&record.kind, one_line(&record.actor));
            format!("+{since:>6}  {kind}  {actor}  {}", inline(&Value::Object(record.data.clone())))
        })
        .collect();
    lines.extend(whereabouts(app, id).iter().map(|place| format!("now  {}", inline(place))));
    lines.extend(reason_of(records).map(|(reason, of)| format!("why  {reason} ({of})")));
    lines.extend(asked(app, id));
    if lines.is_empty() {
        lines.push("no event mentions it".to_owned());
    }
    Ok(lines)
}

/// Where it is now, by what it may be. What a project does not have cannot tell.
fn whereabouts(app: &App, id: &str) -> Vec<Value> {
    [locate_message(app, id), locate_task(app, id), locate_request(app, id), locate_agent(app, id)]
        .into_iter()
        .flatten()
        .chain(list_ladders(app, id))
        .collect()
}

fn locate_message(app: &App, id: &str) -> Option<Value> {
    let queue = Queue::open(app).ok()?;
    let found = queue.find(&MessageId::new(id).ok()?).ok()?;
    let mut told = json!({
        "what": "message", "id": found.id, "mailbox": found.mailbox, "state": found.state.word(),
    });
    if let ensemble_core::spool::State::Acked { holder, epoch } = &found.state {
        (told["holder"], told["epoch"]) = (json!(holder), json!(epoch));
    }
    Some(told)
}

/// The ladders of a task, or of a message.
fn list_ladders(app: &App, id: &str) -> Vec<Value> {
    let Ok(project) = app.project() else { return Vec::new() };
    let all = LadderStore::new(&project.state).all().unwrap_or_default();
    let mine = all.into_iter().filter(|(_, file)| file.task == id || file.message.as_str() == id);
    mine.map(|(_, file)| {
        json!({
            "what": "ladder", "id": file.task, "message": file.message, "mailbox": file.mailbox,
            "state": file.state, "phase": file.phase, "attempt": file.attempt,
            "waits_for": file.waits_for,
        })
    })
    .collect()
}

fn locate_task(app: &App, id: &str) -> Option<Value> {
    let state = app.board().ok()?.read().ok()?;
    let task = state.task(&Name::new(id).ok()?)?;
    Some(json!({ "what": "task", "id": task.id, "state": task.status }))
}

fn locate_request(app: &App, id: &str) -> Option<Value> {
    let queue = Queue::open(app).ok()?;
    let entry = requests(app, &queue).ok()?.get(id).ok()?;
    Some(json!({
        "what": "request", "id": entry.request.request_id, "kind": entry.request.kind,
        "state": entry.state(),
    }))
}

fn locate_agent(app: &App, id: &str) -> Option<Value> {
    let roster = ensemble_team::roster::Roster::open(&app.project().ok()?.state);
    let member = roster.get(&Name::new(id).ok()?).ok()??;
    let seen = last_observed(&app.project().ok()?.watch_status());
    let seen = seen.into_iter().find(|seen| seen.agent == member.name && member.is_present());
    Some(match seen {
        Some(seen) => {
            json!({ "what": "agent", "id": member.name, "state": seen.state, "why": seen.why })
        }
        None => json!({ "what": "agent", "id": member.name, "state": member.state }),
    })
}
