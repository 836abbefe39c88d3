//! `ensemble status`: everything at a glance, however deep the backlog.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use ensemble_core::Error;
use ensemble_core::driver::{LadderFile, LadderState, LadderStore};
use ensemble_core::durable::FileLock;
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::message::Name;
use ensemble_core::spool::{Glance, Overflow};
use ensemble_team::holdings::{Holding, tasks};
use ensemble_team::roster::State;
use ensemble_watch::members;
use ensemble_watch::project::Project;
use ensemble_watch::workload::Books;
use serde_json::{Value, json};

use super::attention::{self, Overdue};
use super::standstill;
use crate::context::Context;
use crate::exit::{Outcome, say};
use crate::output::{FAINT, GOOD, WARNING};
use crate::queue::Queue;
use crate::text::{age, one_line, plural};

/// Messages are counted up to here; an exact count of more takes long.
pub(super) const COUNT_MAX: u64 = 1000;
/// The largest status file of a watcher, in bytes.
const WATCH_BYTES_MAX: u64 = 1024 * 1024;
/// How many open ladders are listed.
const LADDERS_SHOWN_MAX: usize = 10;
/// How deep the watcher's own words are shown.
const SHOWN_DEPTH_MAX: usize = 6;

/// Show the mailboxes, what agents hold, the watcher and its undelivered files
///
/// The first line warns of mail that has waited for an idle agent for over 30 s, and of a watcher that
/// does not run. The lines after it say what stands still on the blackboard and in step queues, and the
/// command that helps. With `--json`, one object a mailbox and then one about the watcher, the
/// blackboard, the steps and what agents hold.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let queue = Queue::open(context)?;
        let project = context.project()?;
        let watcher = Watcher::look(project);
        let holds = holds(&queue, project)?;
        if context.out.is_json() {
            print_json(context, &look(&queue)?, &watcher, &holds)
        } else {
            let mailboxes = look(&queue)?;
            attention::print(context, watcher.runs(), &watcher.overdue(project, &mailboxes))?;
            standstill::print(context, &standstill::all(project)?)?;
            super::print_standing(context, &super::standing_steps(context)?)?;
            print_mailboxes(context, &mailboxes)?;
            print_holds(context, &holds)?;
            context.out.line("")?;
            print_ladders(context, &ladders(project)?)?;
            print_watcher(context, &watcher)
        }
    }
}

/// A number that was counted up to [`COUNT_MAX`].
pub(super) fn counted(number: u64) -> String {
    if number >= COUNT_MAX { format!("{COUNT_MAX}+") } else { number.to_string() }
}

/// The watcher as seen from outside.
#[derive(Debug)]
pub(crate) struct Watcher {
    /// The holder of the watcher's lock.
    pub(super) holder: Option<String>,
    /// What it says of itself.
    status: Option<Value>,
}

impl Watcher {
    pub(crate) fn look(project: &Project) -> Self {
        let lock = project.watch_lock();
        // A lock file that never was is not made by looking.
        let holder = match lock.exists() {
            false => None,
            true => match FileLock::acquire_shared(&lock, Duration::ZERO) {
                Ok(_) => None,
                Err(Error::Locked { holder, .. }) => Some(holder),
                Err(error) => {
                    say(&format!("warning: {error}"));
                    None
                }
            },
        };
        Self { holder, status: read_status(&project.watch_status()) }
    }
}

impl Watcher {
    pub(crate) const fn runs(&self) -> bool {
        self.holder.is_some()
    }

    /// What it last said of its nudges to an agent.
    pub(super) fn why_not_told(&self, agent: &Name) -> Option<String> {
        let row = self.told().find(|row| row["agent"] == agent.as_str())?;
        let deferred = row["deferred"]["detail"].as_str().map(|why| format!("not notified: {why}"));
        let nudges = row["nudges"].as_u64().filter(|nudges| *nudges > 0);
        deferred.or_else(|| Some(format!("notified {}", plural(nudges?, "time"))))
    }

    /// The agents it notifies, in its own words.
    fn told(&self) -> impl Iterator<Item = &Value> {
        let rows =
            self.status.as_ref().filter(|_| self.runs()).and_then(|s| s["agents"].as_array());
        rows.into_iter().flatten()
    }

    /// The idle agents whose mail has waited for too long, as far as a running watcher has seen.
    fn overdue(&self, project: &Project, mailboxes: &[Row]) -> Vec<Overdue> {
        let seen = members::last_observed(&project.watch_status());
        let is_idle =
            |agent: &str| seen.iter().any(|o| o.agent.as_str() == agent && o.state == State::Idle);
        let overdue = |row: &Value| {
            let (agent, mailbox) = (row["agent"].as_str()?, row["mailbox"].as_str()?);
            let (name, glance, _) = mailboxes.iter().find(|(name, ..)| name.as_str() == mailbox)?;
            let waited = attention::waited(glance);
            if !is_idle(agent) || !attention::is_overdue(waited) {
                return None;
            }
            let agent = Name::new(agent).ok()?;
            let why = self.why_not_told(&agent);
            let waited_seconds = waited?.as_secs();
            Some(Overdue { agent, mailbox: name.clone(), waited_seconds, why })
        };
        self.told().filter_map(overdue).collect()
    }
}

fn read_status(path: &Path) -> Option<Value> {
    let mut text = String::new();
    File::open(path).ok()?.take(WATCH_BYTES_MAX).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

fn print_json(context: &Context, mailboxes: &[Row], watcher: &Watcher, holds: &Holds) -> Outcome {
    let overdue = watcher.overdue(context.project()?, mailboxes);
    for (name, glance, overflow) in mailboxes {
        let mut object = json!({ "mailbox": name });
        for (key, value) in
            serde_json::to_value(glance).unwrap_or_default().as_object().into_iter().flatten()
        {
            object[key] = value.clone();
        }
        object["oldest_seconds"] = json!(oldest(glance).map(|age| age.as_secs()));
        object["overflow"] = json!(overflow);
        object["counted_up_to"] = json!(COUNT_MAX);
        context.out.object(&object)?;
    }
    context.out.object(&json!({
        "watcher": {
            "running": watcher.holder.is_some(),
            "holder": watcher.holder,
            "status": watcher.status,
            "overdue": overdue,
        },
        "board": { "troubles": standstill::all(context.project()?)? },
        "ladders": ladders(context.project()?)?,
        "steps": { "standing": super::standing_steps(context)? },
        "holds": holds,
    }))
}

/// The tasks whose ack is waited for, the highest phase first.
fn ladders(project: &Project) -> Outcome<Vec<LadderFile>> {
    let all = LadderStore::new(&project.state).all()?.into_iter().map(|(_, file)| file);
    let mut open: Vec<LadderFile> = all.filter(|file| file.state != LadderState::Acked).collect();
    open.sort_by_key(|file| (std::cmp::Reverse((file.state, file.phase)), file.began_ms));
    for file in &mut open {
        // For the conductor, who has it in a file.
        file.escalation = None;
    }
    Ok(open)
}

fn print_ladders(context: &Context, ladders: &[LadderFile]) -> Outcome {
    if ladders.is_empty() {
        return Ok(());
    }
    let row = |file: &LadderFile| {
        let state = match &file.waits_for {
            Some(worker) => format!("waits: {worker}"),
            None => file.state.word().to_owned(),
        };
        let (task, mailbox) = (one_line(&file.task), file.mailbox.to_string());
        vec![task, mailbox, state, file.phase.to_string(), file.attempt.to_string()]
    };
    let shown = ladders.iter().take(LADDERS_SHOWN_MAX).map(row).collect();
    context.out.table(&["not acked", "mailbox", "ladder", "phase", "attempt"], shown)?;
    if let Some(more) = ladders.len().checked_sub(LADDERS_SHOWN_MAX).filter(|more| *more > 0) {
        context.out.line(format!("and {more} more"))?;
    }
    context.out.line("")
}

/// Held messages, tasks, reviews and steps, by agent.
type Holds = BTreeMap<Name, Vec<Holding>>;

fn holds(queue: &Queue, project: &Project) -> Outcome<Holds> {
    queue.overlook()?;
    Ok(Books::open(project).holds(&**queue, |_| true)?)
}

fn print_holds(context: &Context, holds: &Holds) -> Outcome {
    if holds.is_empty() {
        return Ok(());
    }
    context.out.line("")?;
    let row =
        |(agent, held): (&Name, &Vec<Holding>)| vec![agent.to_string(), tasks(held).join(", ")];
    context.out.table(&["agent", "holds"], holds.iter().map(row).collect())
}

fn print_mailboxes(context: &Context, mailboxes: &[Row]) -> Outcome {
    if mailboxes.is_empty() {
        return context.out.line("no mailbox yet: `ensemble mailbox add NAME` makes one");
    }
    let row = |(name, glance, overflow): &Row| {
        vec![
            name.to_string(),
            counted(glance.waiting),
            counted(glance.delayed),
            oldest(glance).map_or_else(|| "-".to_owned(), age),
            counted(glance.held),
            counted(glance.dead),
            overflow.as_ref().map_or_else(String::new, |o| format!("full: {} refused", o.refused)),
        ]
    };
    context.out.table(
        &["mailbox", "waiting", "delayed", "oldest", "held", "dead", ""],
        mailboxes.iter().map(row).collect(),
    )
}

/// A mailbox.
type Row = (Name, Glance, Option<Overflow>);

fn look(queue: &Queue) -> Outcome<Vec<Row>> {
    let mut all = Vec::new();
    for name in queue.mailboxes()? {
        let glance = match queue.glance(&name, COUNT_MAX) {
            // Removed since it was listed.
            Err(Error::NoMailbox { .. }) => continue,
            other => other?,
        };
        // Damage that `fsck` repairs must not hide the rest of the status.
        let overflow = queue.overflow(&name).unwrap_or_else(|error| {
            say(&format!("warning: {error}"));
            None
        });
        all.push((name, glance, overflow));
    }
    Ok(all)
}

fn oldest(glance: &Glance) -> Option<Duration> {
    let now = u64::try_from(SystemClock.wall().unix_millis()).unwrap_or(0);
    glance.oldest_millis.map(|made_at| Duration::from_millis(now.saturating_sub(made_at)))
}

fn print_watcher(context: &Context, watcher: &Watcher) -> Outcome {
    let out = &context.out;
    match &watcher.holder {
        Some(holder) => {
            out.line(format!("watcher  {}, {}", out.paint(GOOD, "running"), one_line(holder)))?;
        }
        None => out.line(format!(
            "watcher  {}: `ensemble watch` starts it",
            out.paint(WARNING, "not running")
        ))?,
    }
    match &watcher.status {
        Some(status) if watcher.holder.is_none() => {
            out.line(out.paint(FAINT, "what the last one said:"))?;
            print_value(context, status, 1)
        }
        Some(status) => print_value(context, status, 1),
        None => Ok(()),
    }
}

/// Whatever the watcher says of itself, readably: members in lines, deeper ones indented.
fn print_value(context: &Context, value: &Value, depth: usize) -> Outcome {
    let indent = "  ".repeat(depth);
    let Value::Object(members) = value else {
        return context.out.line(format!("{indent}{}", scalar(value)));
    };
    for (key, value) in members {
        let key = one_line(key);
        match value {
            Value::Object(inner) if inner.is_empty() => {}
            Value::Array(items) if items.is_empty() => {}
            Value::Object(_) if depth < SHOWN_DEPTH_MAX => {
                context.out.line(format!("{indent}{key}"))?;
                print_value(context, value, depth + 1)?;
            }
            Value::Array(items)
                if depth < SHOWN_DEPTH_MAX && items.iter().any(Value::is_object) =>
            {
                let count = plural(items.len() as u64, "entry");
                context.out.line(format!("{indent}{key}: {count}"))?;
                for item in items {
                    context.out.line(format!("{indent}  {}", inline(item)))?;
                }
            }
            other => context.out.line(format!("{indent}{key}: {}", inline(other)))?,
        }
    }
    Ok(())
}

/// A value in one line: `mailbox=worker-1 reason=copy_mode`.
pub(super) fn inline(value: &Value) -> String {
    match value {
        Value::Object(members) => members
            .iter()
            .map(|(key, value)| format!("{}={}", one_line(key), scalar(value)))
            .collect::<Vec<_>>()
            .join(" "),
        Value::Array(items) => items.iter().map(scalar).collect::<Vec<_>>().join(", "),
        other => scalar(other),
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => one_line(text),
        Value::Null => "-".to_owned(),
        other => one_line(&other.to_string()),
    }
}
