//! Resources that clients can read without calling a tool: the inbox, requests, tasks, the blackboard.
//!
//! Subscriptions to resources: the client is notified that its inbox or its requests have changed.
//!
//! inotify wakes a thread for each subscription. The content decides whether anything has changed, so a lost or
//! needless event does no harm.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ensemble_core::durable::read_file;
use ensemble_core::message::{Digest, yaml};
use ensemble_core::requests::{self, RequestEntry};
use ensemble_core::watch::Waiter;
use rmcp::model::{Resource, ResourceTemplate};
use serde_json::{Value, json};
use tokio::sync::mpsc::{Receiver, channel};

use super::ToolContext;
use super::tools::{ToolError, mail};

const BOARD_FILE: &str = "state.yaml";
const BOARD_BYTES_MAX: usize = 4 * 1024 * 1024;
const INBOX: &str = "ensemble://inbox";
const REQUESTS: &str = "ensemble://requests";
const BOARD: &str = "ensemble://board";
const TASK: &str = "ensemble://task/";
const JSON: &str = "application/json";
const YAML: &str = "application/yaml";

pub(super) fn list(desk: &ToolContext) -> Result<Vec<Resource>, ToolError> {
    let mut all = vec![
        Resource::new(INBOX, "inbox")
            .with_description("Your mail that waits or is in your hands")
            .with_mime_type(JSON),
        Resource::new(REQUESTS, "requests")
            .with_description("Requests from you and to you, with their answers")
            .with_mime_type(JSON),
    ];
    if desk.project.state.join(BOARD_FILE).exists() {
        let board = Resource::new(BOARD, "board").with_description("The blackboard, state.yaml");
        all.push(board.with_mime_type(YAML));
    }
    for queue in desk.store.queues()? {
        let uri = format!("{TASK}{}", queue.task_id);
        let task = Resource::new(uri, queue.task_id.clone()).with_mime_type(JSON);
        all.push(task.with_description(format!("The steps of task {}", queue.task_id)));
    }
    Ok(all)
}

pub(super) fn templates() -> Vec<ResourceTemplate> {
    let task = ResourceTemplate::new(format!("{TASK}{{task_id}}"), "task")
        .with_description("The steps of a task, in order")
        .with_mime_type(JSON);
    vec![task]
}

/// A resource's type and content; `None` if there is none of this name.
pub(super) fn read(
    desk: &ToolContext,
    uri: &str,
) -> Result<Option<(&'static str, String)>, ToolError> {
    if uri == INBOX {
        return Ok(Some((JSON, pretty(&mail::inbox(desk, mail::INBOX_MAX)?))));
    }
    if uri == REQUESTS {
        let (entries, _) = desk.requests()?.list()?;
        let is_mine = |entry: &&RequestEntry| {
            let asked = &entry.request;
            asked.from == desk.agent || asked.to == desk.agent
        };
        let mine: Vec<Value> = entries.iter().filter(is_mine).map(RequestEntry::to_json).collect();
        return Ok(Some((JSON, pretty(&json!({ "requests": mine })))));
    }
    if uri == BOARD {
        return Ok(board(desk)?.map(|text| (YAML, text)));
    }
    let Some(task) = uri.strip_prefix(TASK) else { return Ok(None) };
    let queues = desk.store.queues()?;
    let Some(queue) = queues.into_iter().find(|queue| queue.task_id == task) else {
        return Ok(None);
    };
    let steps = desk.store.steps(task)?;
    Ok(Some((JSON, pretty(&json!({ "queue": queue, "steps": steps })))))
}

fn board(desk: &ToolContext) -> Result<Option<String>, ToolError> {
    let path = desk.project.state.join(BOARD_FILE);
    let Some(content) = read_file(&path, BOARD_BYTES_MAX)? else { return Ok(None) };
    Ok(Some(yaml::decode_text(&content, &path)?.to_owned()))
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// How many changes wait for a slow client; the thread sleeps then.
const CHANGES_MAX: usize = 16;
/// The longest sleep of a thread that is to end.
const END_WITHIN: Duration = Duration::from_secs(5);

pub(super) fn is_followed(uri: &str) -> bool {
    [INBOX, REQUESTS].contains(&uri)
}

/// Reports each change of these resources until the flag is set or the receiver is dropped.
pub(super) fn follow(
    desk: Arc<ToolContext>,
    uris: Vec<String>,
    is_over: Arc<AtomicBool>,
) -> Receiver<String> {
    let (changed, changes) = channel(CHANGES_MAX);
    let waiter = waiter(&desk);
    let mut seen: Vec<Option<Digest>> = uris.iter().map(|uri| content(&desk, uri)).collect();
    std::thread::spawn(move || {
        while !is_over.load(Ordering::SeqCst) && !changed.is_closed() {
            waiter.wait(END_WITHIN);
            for (uri, seen) in uris.iter().zip(&mut seen) {
                let now = content(&desk, uri);
                // A resource that cannot be read now is checked again.
                if now.is_some() && now != *seen {
                    *seen = now;
                    if changed.blocking_send(uri.clone()).is_err() {
                        return;
                    }
                }
            }
        }
    });
    changes
}

fn content(desk: &ToolContext, uri: &str) -> Option<Digest> {
    let (_, text) = read(desk, uri).ok()??;
    Some(Digest::of(text.as_bytes()))
}

fn waiter(desk: &ToolContext) -> Waiter {
    let project = &desk.project;
    let mailbox = project.queue.join("mailbox").join(desk.mailbox.as_str());
    let mut dirs: Vec<_> = ["new", "front", "cur"].map(|below| mailbox.join(below)).into();
    dirs.extend([project.queue.join(requests::REQUESTS), project.logs()]);
    dirs.retain(|dir| dir.is_dir());
    Waiter::for_logs(&dirs)
}
