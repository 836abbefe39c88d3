//! `ensemble why`: the whole story of one thing.

use std::path::Path;

use clap_complete::engine::ArgValueCandidates;
use ensemble_core::driver::LadderStore;
use ensemble_core::event_log::{Record, Story, read_all, story, types};
use ensemble_core::message::{MessageId, Name, Timestamp};
use ensemble_team::usage::{Spent, by_task};
use serde_json::{Value, json};

use ensemble_watch::attention::Need;
use ensemble_watch::members::last_observed;
use ensemble_watch::overview::Evidence;

use super::usage::Usage;
use crate::asking::requests;
use crate::completion;
use crate::context::Context;
use crate::exit::{Exit, Failure, Outcome, say};
use crate::ids;
use crate::output::{FAINT, STRONG};
use crate::overview::gather;
use crate::queue::Queue;
use crate::team_log::TeamLog;
use crate::text::{age, inline, one_line, plural};

/// Whether a story ends with such a record, or begins anew. A late record of the watcher does neither.
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

/// Tell the whole story of a message, a task, a step's task, a request or an agent
///
/// Everything that the event log has of it and of the messages about it, from the first record to
/// the last. Then where it is now. The last line of a failed task says why.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ensemble why T-17
  ensemble why 019b3c5e-7b1a-7c44-9d0e-2f6a5b8c1d3e --json | jq -r .records[].type")]
pub(crate) struct Arguments {
    /// Its id, as `inbox`, `task list`, `request list` or `log` show it, or a unique beginning of it
    #[arg(add = ArgValueCandidates::new(completion::stories))]
    id: String,
}

impl Arguments {
    pub(crate) fn run(mut self, context: &Context) -> Outcome {
        let team = TeamLog::open(context)?;
        let logs = team.path().to_owned();
        let (mut told, mut now) = looked_up(context, &logs, &self.id)?;
        if is_nothing(told.as_ref(), &now)
            && let Some(whole) = whole_id(context, &logs, &self.id)?
        {
            (told, now) = looked_up(context, &logs, &whole)?;
            self.id = whole;
        }
        if is_nothing(told.as_ref(), &now) {
            return Err(Failure::nothing(format!("no event mentions `{}`", one_line(&self.id)))
                .with_hint("`ensemble log`, `inbox`, `request list` and `task list` show ids"));
        }
        let took = took(context, &self.id);
        if context.out.is_json() {
            let records = told.iter().flat_map(|story| &story.records).collect::<Vec<_>>();
            let names = told.iter().flat_map(|story| &story.names).collect::<Vec<_>>();
            let whole = json!({ "id": self.id, "names": names, "records": records, "now": now, "took": took });
            context.out.object(&whole)?;
        } else {
            tell(context, told.as_ref(), &now)?;
            if let Some((reason, of)) = told.as_ref().and_then(|story| reason(&story.records)) {
                context
                    .out
                    .line(format!("{}  {reason} ({of})", context.out.paint(STRONG, "why")))?;
            }
            for line in wanted(context, &self.id) {
                context.out.line(line)?;
            }
            if let Some(took) = took {
                let took = super::usage::in_words(&took);
                context.out.line(format!("{}  {took}", context.out.paint(STRONG, "took")))?;
            }
        }
        told.map_or(Ok(()), |story| complete(story, &logs))
    }
}

/// What needs a person because of it, and the command that helps.
fn wanted(context: &Context, id: &str) -> Vec<String> {
    // The story stands without it.
    let Ok(overview) = gather(context, Evidence::Watcher) else { return Vec::new() };
    let is_it = |need: &&Need| {
        need.about.as_deref() == Some(id) || need.agent.as_ref().is_some_and(|it| it.as_str() == id)
    };
    let lines = overview.needs.iter().filter(is_it);
    lines
        .flat_map(|need| {
            let text = format!("needs you  {}", one_line(&need.text));
            std::iter::once(text)
                .chain(others_of(&need.help, id).map(|help| format!("    -> {help}")))
        })
        .collect()
}

/// The help of a need, without the command that has just printed the story.
fn others_of(help: &str, id: &str) -> Option<String> {
    let own = format!("`ensemble why {id}`");
    let others: Vec<&str> = help.split("; ").filter(|part| *part != own).collect();
    (!others.is_empty()).then(|| one_line(&others.join("; ")))
}

/// What is asked, and how to answer, of a request that is not decided.
fn asked(context: &Context, id: &str) -> Vec<String> {
    let entry = Queue::open(context).and_then(|queue| Ok(requests(context, &queue)?.get(id)?));
    let Ok(entry) = entry else { return Vec::new() };
    let said = entry.request.content.lines().map(|line| format!("asked  {}", one_line(line)));
    said.collect()
}

/// The records about an id, and where it is now.
fn looked_up(context: &Context, logs: &Path, id: &str) -> Outcome<(Option<Story>, Vec<Value>)> {
    let told = if logs.is_dir() { Some(story(logs, id)?) } else { None };
    Ok((told, whereabouts(context, id)))
}

fn is_nothing(told: Option<&Story>, now: &[Value]) -> bool {
    now.is_empty() && told.is_none_or(|story| story.records.is_empty())
}

/// The one id that begins so, among those of unfinished messages, of requests and of the log.
fn whole_id(context: &Context, logs: &Path, prefix: &str) -> Outcome<Option<String>> {
    let queue = Queue::open(context)?;
    queue.overlook()?;
    let waiting = ids::unfinished(&*queue)?.into_iter().map(String::from);
    let (asked, _) = requests(context, &queue)?.list()?;
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
fn took(context: &Context, id: &str) -> Option<Spent> {
    let usage = Usage::read(context).ok()?;
    let task = by_task(&usage.agents).remove(id);
    task.or_else(|| Some(usage.agents.get(&Name::new(id).ok()?)?.spent.clone()))
}

fn tell(context: &Context, story: Option<&Story>, now: &[Value]) -> Outcome {
    let mut first: Option<Timestamp> = None;
    for record in story.iter().flat_map(|story| &story.records) {
        let start = *first.get_or_insert(record.timestamp);
        context.out.line(line(context, record, start))?;
    }
    for place in now {
        context.out.line(format!("{}  {}", context.out.paint(STRONG, "now"), inline(place)))?;
    }
    Ok(())
}

/// Why it failed, and the type and author of the record that says so. A story that went on since has no such end.
fn reason(records: &[Record]) -> Option<(String, String)> {
    let last = records.iter().rfind(|record| is_end(record))?;
    let reason = last.data.get("reason")?.as_str().filter(|reason| !reason.is_empty())?;
    let of = format!("{}, {}", last.kind, one_line(&last.actor));
    (last.kind.as_str() != types::TASK_COMPLETE).then(|| (one_line(reason), of))
}

/// The whole story, a line each, without styles.
pub(crate) fn story_lines(context: &Context, id: &str) -> Outcome<Vec<String>> {
    let team = TeamLog::open(context)?;
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
    lines.extend(whereabouts(context, id).iter().map(|place| format!("now  {}", inline(place))));
    lines.extend(reason(records).map(|(reason, of)| format!("why  {reason} ({of})")));
    lines.extend(asked(context, id));
    if lines.is_empty() {
        lines.push("no event mentions it".to_owned());
    }
    Ok(lines)
}

fn line(context: &Context, record: &Record, start: Timestamp) -> String {
    let time = record.timestamp.to_string().replace('T', " ");
    let since = format!("+{}", age(record.timestamp.since(start)));
    format!(
        "{} {}  {}  {}  {}",
        context.out.paint(FAINT, time.trim_end_matches('Z')),
        context.out.paint(FAINT, format!("{since:>6}")),
        context.out.paint(STRONG, &record.kind),
        one_line(&record.actor),
        inline(&Value::Object(record.data.clone())),
    )
}

/// What the log could not tell is said, since a story with a gap is no proof.
fn complete(story: Story, logs: &Path) -> Outcome {
    if story.bad_lines > 0 {
        say(&format!("warning: {} passed over: not records", plural(story.bad_lines, "line")));
    }
    match story.failure {
        Some(failure) => {
            let text = format!("the story is not whole: {failure}");
            let hint = format!("`ensemble admin fsck` looks at {}", logs.display());
            Err(Failure::new(Exit::Failed, text).with_hint(hint))
        }
        None => Ok(()),
    }
}

/// Where it is now, by what it may be. What a project does not have cannot tell.
fn whereabouts(context: &Context, id: &str) -> Vec<Value> {
    [message(context, id), task(context, id), request(context, id), agent(context, id)]
        .into_iter()
        .flatten()
        .chain(ladders(context, id))
        .collect()
}

fn message(context: &Context, id: &str) -> Option<Value> {
    let queue = Queue::open(context).ok()?;
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
fn ladders(context: &Context, id: &str) -> Vec<Value> {
    let Ok(project) = context.project() else { return Vec::new() };
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

fn task(context: &Context, id: &str) -> Option<Value> {
    let state = context.board().ok()?.read().ok()?;
    let task = state.task(&Name::new(id).ok()?)?;
    Some(json!({ "what": "task", "id": task.id, "state": task.status }))
}

fn request(context: &Context, id: &str) -> Option<Value> {
    let queue = Queue::open(context).ok()?;
    let entry = requests(context, &queue).ok()?.get(id).ok()?;
    Some(json!({
        "what": "request", "id": entry.request.request_id, "kind": entry.request.kind,
        "state": entry.state(),
    }))
}

fn agent(context: &Context, id: &str) -> Option<Value> {
    let roster = ensemble_team::roster::Roster::open(&context.project().ok()?.state);
    let member = roster.get(&Name::new(id).ok()?).ok()??;
    let seen = last_observed(&context.project().ok()?.watch_status());
    let seen = seen.into_iter().find(|seen| seen.agent == member.name && member.is_present());
    Some(match seen {
        Some(seen) => {
            json!({ "what": "agent", "id": member.name, "state": seen.state, "why": seen.why })
        }
        None => json!({ "what": "agent", "id": member.name, "state": member.state }),
    })
}

#[cfg(test)]
mod tests {
    use super::others_of;

    #[test]
    fn a_story_does_not_end_with_the_command_that_has_told_it() {
        let help = "`ensemble why t1`; `ensemble agent attach w1`";
        assert_eq!(others_of(help, "t1").as_deref(), Some("`ensemble agent attach w1`"));
        assert_eq!(others_of(help, "w1").as_deref(), Some(help));
        assert_eq!(others_of("`ensemble why t1`", "t1"), None);
    }
}
