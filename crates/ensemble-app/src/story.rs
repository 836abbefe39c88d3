//! The story of one thing: what the event log has of it, where it is now, and what it took.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use ensemble_core::broker::Broker;
use ensemble_core::driver::LadderStore;
use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::event_log::{ObjectStory, Record, read_all, story, types};
use ensemble_core::message::{MessageId, Name, Timestamp, shell_word};
use ensemble_core::spool::{RECALLED, State};
use ensemble_project::attention::Kind as NeedKind;
use ensemble_project::members::last_observed;
use ensemble_project::overview::{AgentOverview, MailboxOverview, StateSource};
use ensemble_team::roster::State as Presence;
use ensemble_usage::{UsageTotals, by_task};
use serde_json::{Value, json};

use crate::asking::requests;
use crate::failure::Outcome;
use crate::mail::delivered::agent_flag;
use crate::overview::gather;
use crate::queue::ProjectQueue;
use crate::sentences::{Sentence, SentenceMaker, SentenceWeight, sort_causally};
use crate::team_log::TeamLog;
use crate::text::{ago, elapsed, moment, one_line, plural, wrapped};
use crate::usage::TeamUsage;
use crate::{App, ids};

const WORDS_CHARS_MAX: usize = 200;
/// Most messages without an answer that are shown in one part.
const SINGLES_MAX: usize = 8;
/// A pause after which something new begins in the life of an agent.
const PAUSE_MIN: Duration = Duration::from_secs(10 * 60);

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

/// The records about an id, and where it is now. The story of an answer is that of the whole conversation.
pub fn look_up_story(
    app: &App,
    logs: &Path,
    id: &str,
) -> Outcome<(Option<ObjectStory>, Vec<Value>)> {
    let mut told = if logs.is_dir() { Some(story(logs, id)?) } else { None };
    let root = told.as_ref().and_then(|story| root_of(&story.records, id));
    if let Some(root) = root {
        told = Some(story(logs, &root)?);
    }
    Ok((told, whereabouts(app, id)))
}

/// The message with which the conversation of this one began.
fn root_of(records: &[Record], id: &str) -> Option<String> {
    let is_it = |record: &&Record| {
        record.kind.as_str() == types::MESSAGE_STORED
            && record.data.get("id").is_some_and(|it| it == id)
    };
    let root = records.iter().find(is_it)?.data.get("correlation_id")?.as_str()?;
    // A request is its own subject.
    (root.len() == id.len() && root != id).then(|| root.to_owned())
}

/// The one id that begins so, among those of unfinished messages, of requests and of the log.
pub fn complete_id(app: &App, logs: &Path, prefix: &str) -> Outcome<Option<String>> {
    let queue = ProjectQueue::open(app)?;
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

fn ids_in(record: &Record) -> Vec<String> {
    const FIELDS: [&str; 3] = ["id", "task_id", "request_id"];
    let of = |field: &&str| record.data.get(*field)?.as_str().map(str::to_owned);
    FIELDS.iter().filter_map(of).collect()
}

pub fn spent_on(app: &App, id: &str) -> Option<UsageTotals> {
    let usage = TeamUsage::read(app).ok()?;
    let task = by_task(&usage.agents).remove(id);
    task.or_else(|| Some(usage.agents.get(&Name::new(id).ok()?)?.spent.clone()))
}

/// Why it failed. A story that continued since has no such end.
fn reason_of(records: &[Record]) -> Option<String> {
    let last = records.iter().rfind(|record| is_end(record))?;
    let reason = last.data.get("reason")?.as_str().filter(|reason| !reason.is_empty())?;
    (last.kind.as_str() != types::TASK_COMPLETE).then(|| one_line(reason))
}

/// Whether an id is that of a request: the end of its messages is not a failure of it.
fn is_of_request(records: &[Record], id: &str) -> bool {
    records.iter().any(|record| record.data.get("request_id").is_some_and(|it| it == id))
}

#[derive(Debug, Default)]
pub struct ToldStory {
    /// Its nature and present place, one sentence per line.
    pub head: Vec<String>,
    /// The events, in causal order in each part: the newest part of an agent comes first.
    pub parts: Vec<Vec<(Timestamp, Sentence)>>,
}

impl ToldStory {
    /// The story in lines of at most `width` columns; of the parts as many as `lines_max` has room for, and how many
    /// lines that leaves out.
    pub fn lines(&self, width: usize, lines_max: usize) -> (Vec<String>, usize) {
        let now = SystemClock.wall();
        let head = self.head.iter().flat_map(|line| wrapped(line, width, 4));
        let mut lines: Vec<String> = head.collect();
        let (mut left_out, mut is_full) = (0, false);
        for (number, part) in self.parts.iter().enumerate() {
            let mut block = Vec::new();
            if !lines.is_empty() {
                block.push(String::new());
            }
            if number == 1 {
                block.push("Before that:".to_owned());
            }
            for (at, Sentence { text, .. }) in part {
                let time = moment(*at, now);
                block.extend(wrapped(&format!("{time}  {text}"), width, time.len() + 2));
            }
            is_full |= number > 0 && lines.len() + block.len() > lines_max;
            if is_full { left_out += part.len() } else { lines.extend(block) }
        }
        (lines, left_out)
    }
}

/// Writes the story of a message, a task, a request or an agent in words.
pub fn tell_story(app: &App, id: &str, story: Option<&ObjectStory>) -> ToldStory {
    let queue = ProjectQueue::open(app).ok();
    let mut records = story.map_or_else(Vec::new, |story| story.records.clone());
    sort_causally(&mut records);
    let people = app.project().map(|project| project.people()).unwrap_or_default();
    let mut maker = SentenceMaker::for_people(people.clone());
    let broker = queue.as_deref().map(|queue| queue as &dyn Broker);
    let mut told: Vec<(&Record, Sentence)> = Vec::with_capacity(records.len());
    for record in &records {
        told.extend(maker.describe(record, broker).map(|sentence| (record, sentence)));
    }
    let mut head = Vec::new();
    if let Some(queue) = &queue {
        head.extend(head_of_message(queue, id, &records, &people));
        head.extend(head_of_request(app, queue, id));
    }
    head.extend(head_of_board(app, id));
    let overview = gather(app, StateSource::Watcher).ok();
    let agent = overview.as_ref().and_then(|overview| {
        overview.agents.iter().find(|agent| agent.row.member.name.as_str() == id)
    });
    if let (Some(agent), Some(overview)) = (agent, &overview) {
        head.extend(head_of_agent(agent, overview.at));
    }
    head.extend(list_ladders(app, id).iter().filter_map(describe_ladder));
    let name = Name::new(id).ok();
    let is_person = name.as_ref().is_some_and(|name| name.is_operator() || people.contains(name));
    let mailbox = overview.as_ref().and_then(|overview| {
        overview.mailboxes.iter().find(|mailbox| name.as_ref() == Some(&mailbox.name))
    });
    if is_person {
        let who =
            if people.len() < 2 { "the person who runs" } else { "one of the people who run" };
        head.push(format!("{id}, {who} this team"));
    }
    match mailbox.filter(|_| agent.is_none() && !is_person) {
        Some(mailbox) => head.push(head_of_mailbox(mailbox)),
        None if agent.is_some() || is_person || is_of_request(&records, id) => {}
        None => {
            let reason = reason_of(&records).filter(|reason| !reason.starts_with(RECALLED));
            head.extend(reason.map(|reason| format!("It failed: {reason}")));
        }
    }
    for need in overview.iter().flat_map(|overview| &overview.needs) {
        let is_it = need.about.as_deref() == Some(id)
            || need.agent.as_ref().is_some_and(|agent| agent.as_str() == id)
            || is_person && need.need == NeedKind::Answered;
        if is_it {
            // That an agent is blocked or gone has been said.
            let is_said = agent.is_some() && need.text.starts_with(&format!("{id} is "));
            head.extend((!is_said).then(|| one_line(&need.text)));
            // One command for several answers is said once, behind the last.
            let help = others_of(&need.help, id).map(|help| format!("    -> {help}"));
            head.retain(|line| is_said || Some(line) != help.as_ref());
            head.extend(help);
        }
    }
    let mut parts = match agent.is_some() || mailbox.is_some() {
        _ if is_person => conversations_of(told),
        true => parts_of(told),
        false => vec![told.into_iter().map(|(record, it)| (record.timestamp, it)).collect()],
    };
    for part in &mut parts {
        let mut details = BTreeSet::new();
        part.retain(|(_, it)| {
            it.weight != SentenceWeight::Detail || details.insert(it.text.clone())
        });
    }
    ToldStory { head, parts: parts.into_iter().filter(|part| !part.is_empty()).collect() }
}

/// Mail from and to a person: one part per conversation, the most recent first.
fn conversations_of(told: Vec<(&Record, Sentence)>) -> Vec<Vec<(Timestamp, Sentence)>> {
    let mut parts: BTreeMap<&str, Vec<(Timestamp, Sentence)>> = BTreeMap::new();
    for (record, sentence) in told {
        let root = ["correlation_id", "request_id", "id"];
        let root = root.iter().find_map(|field| record.data.get(*field)?.as_str());
        if let Some(root) = root.filter(|_| sentence.weight == SentenceWeight::Talk) {
            parts.entry(root).or_default().push((record.timestamp, sentence));
        }
    }
    let mut parts: Vec<_> = parts.into_values().collect();
    parts.sort_by_key(|part| Reverse(part.last().map(|(at, _)| *at)));
    let mut joined: Vec<Vec<(Timestamp, Sentence)>> = Vec::new();
    let mut is_single = false;
    for mut part in parts {
        // Messages without an answer are one part.
        let is_next = std::mem::replace(&mut is_single, part.len() == 1) && part.len() == 1;
        match joined.last_mut().filter(|last| is_next && last.len() < SINGLES_MAX) {
            Some(last) => last.insert(0, part.remove(0)),
            None => joined.push(part),
        }
    }
    joined
}

/// The help of a need, without the command that has just printed the story.
fn others_of(help: &str, id: &str) -> Option<String> {
    let own = format!("`ensemble why {}`", shell_word(id));
    let others: Vec<&str> = help.split("; ").filter(|part| *part != own).collect();
    (!others.is_empty()).then(|| one_line(&others.join("; ")))
}

/// The life of an agent in parts, the newest first: each ends when the agent has nothing to do, or after a pause.
fn parts_of(told: Vec<(&Record, Sentence)>) -> Vec<Vec<(Timestamp, Sentence)>> {
    let mut parts: Vec<Vec<(Timestamp, Sentence)>> = vec![Vec::new()];
    let mut is_over = false;
    for (record, sentence) in told {
        let at = record.timestamp;
        let last = parts.last().and_then(|part| part.last());
        is_over |= last.is_some_and(|(then, _)| at.since(*then) > PAUSE_MIN);
        if is_over {
            parts.push(Vec::new());
        }
        let to = record.data.get("to").and_then(Value::as_str);
        is_over = record.kind.as_str() == types::AGENT_STATE && to == Some("idle");
        parts.last_mut().expect("there is a part").push((at, sentence));
    }
    parts.reverse();
    parts
}

/// The first words of a message, or of the last message of a task, and its state.
fn head_of_message(
    queue: &ProjectQueue,
    id: &str,
    records: &[Record],
    people: &[Name],
) -> Vec<String> {
    let of_task = || {
        let is_it = |record: &&Record| {
            record.kind.as_str() == types::MESSAGE_STORED
                && record.data.get("task_id").is_some_and(|task| task == id)
                && record.data.get("type").is_some_and(|kind| kind == "task")
        };
        records.iter().rfind(is_it)?.data.get("id")?.as_str()?.parse().ok()
    };
    let own = MessageId::new(id).ok();
    let found = own.and_then(|own| queue.find(&own).ok());
    let Some(found) = found.or_else(|| queue.find(&of_task()?).ok()) else { return Vec::new() };
    let Ok(envelope) = queue.peek(&found.mailbox, &found.id) else { return Vec::new() };
    let task = envelope.task_id.as_deref().map(|task| format!("task {}: ", one_line(task)));
    let words = envelope.first_words(WORDS_CHARS_MAX);
    let ago = ago(SystemClock.wall().since(envelope.created_at));
    let state = match &found.state {
        State::Queued { epoch: 0, .. } => "not read yet".to_owned(),
        State::Queued { .. } => "back in the mailbox".to_owned(),
        State::Acked { holder, epoch: 0 | 1 } => format!("{holder} has it"),
        State::Acked { holder, epoch } => {
            let before = queue.attempts_before(&found.mailbox, &found.id).unwrap_or(0);
            format!("{holder} has it (attempt {})", epoch.saturating_sub(before))
        }
        State::Settled if people.contains(&found.mailbox) => "read".to_owned(),
        State::Settled => "finished".to_owned(),
        State::Dead => match reason_of(records).filter(|it| it.starts_with(RECALLED)) {
            Some(recalled) => recalled,
            None => format!("a dead letter (`ensemble dead show {}`)", found.id),
        },
    };
    vec![
        format!("{}\"{words}\"", task.unwrap_or_default()),
        format!("{} -> {}, {ago}: {state}", envelope.sender_address(), found.mailbox),
    ]
}

fn head_of_request(app: &App, queue: &ProjectQueue, id: &str) -> Vec<String> {
    let Some(entry) = requests(app, queue).ok().and_then(|requests| requests.get(id).ok()) else {
        return Vec::new();
    };
    let asked = &entry.request;
    let state = entry.state();
    let mut head = vec![format!(
        "{} asks {} to decide: {} ({state})",
        asked.from,
        asked.to,
        asked.kind.as_str().replace('_', " ")
    )];
    head.extend(asked.content.lines().map(|line| format!("    {}", one_line(line))));
    if entry.decision.is_none() {
        let answer = format!("ensemble request answer {id}");
        let who = agent_flag(app, &asked.to).unwrap_or_default();
        head.push(format!("    -> `{answer} --approve{who}`, or `--reject --reason TEXT`"));
    }
    head
}

fn head_of_board(app: &App, id: &str) -> Option<String> {
    let state = app.board().ok()?.read().ok()?;
    let task = state.task(&Name::new(id).ok()?)?;
    let by = task.assigned_to.as_ref().map_or_else(String::new, |by| format!(", by {by}"));
    let start = |text: &String| one_line(&text.chars().take(WORDS_CHARS_MAX).collect::<String>());
    let words =
        task.description.as_ref().map_or_else(String::new, |it| format!(": \"{}\"", start(it)));
    Some(format!("task {id}{words}, {} on the blackboard{by}", task.status.as_str()))
}

fn head_of_agent(agent: &AgentOverview, now: Timestamp) -> Vec<String> {
    let name = &agent.row.member.name;
    let state = agent.presence.state.word();
    let said = agent.since.map_or_else(
        || format!("{name} is {state}"),
        |at| format!("{name} has been {state} for {}", elapsed(now.since(at))),
    );
    let is_plain = matches!(agent.presence.state, Presence::Idle | Presence::Working);
    let why = if is_plain { String::new() } else { format!(": {}", one_line(&agent.presence.why)) };
    let mut head = vec![format!("{said}{why}")];
    let holds = agent.holds.iter().map(|holding| {
        let from = holding.from.as_ref().map_or_else(String::new, |from| format!(", from {from}"));
        format!("it has {}{from}", one_line(&holding.describe()))
    });
    head.extend(holds);
    if agent.unread > 0 {
        head.push(format!("{} not read yet", plural(agent.unread, "message")));
    }
    head
}

/// How many messages are in a mailbox that no agent of the team reads.
fn head_of_mailbox(mailbox: &MailboxOverview) -> String {
    let (waiting, held) = (mailbox.glance.waiting, mailbox.glance.held);
    let held = if held > 0 { format!(", {held} held") } else { String::new() };
    format!("mailbox {}: {} not read yet{held}", mailbox.name, plural(waiting, "message"))
}

fn describe_ladder(ladder: &Value) -> Option<String> {
    let word = |field: &str| ladder[field].as_str().unwrap_or_default();
    let phase = ladder["phase"].as_u64().unwrap_or_default();
    let is_open = !matches!(word("state"), "acked" | "done" | "ended");
    (is_open && phase > 0).then(|| format!("{} was reminded {phase} of 3 times", word("mailbox")))
}

/// The whole story in lines, without styles.
pub fn story_lines(app: &App, id: &str, width: usize) -> Outcome<Vec<String>> {
    let team = TeamLog::open(app)?;
    let (story, _) = look_up_story(app, team.path(), id)?;
    let (lines, _) = tell_story(app, id, story.as_ref()).lines(width, usize::MAX);
    Ok(if lines.is_empty() { vec!["nothing is known of it".to_owned()] } else { lines })
}

/// Where it is now, by what it may be. Parts that the project does not have are skipped.
fn whereabouts(app: &App, id: &str) -> Vec<Value> {
    [locate_message(app, id), locate_task(app, id), locate_request(app, id), locate_agent(app, id)]
        .into_iter()
        .flatten()
        .chain(list_ladders(app, id))
        .collect()
}

fn locate_message(app: &App, id: &str) -> Option<Value> {
    let queue = ProjectQueue::open(app).ok()?;
    let found = queue.find(&MessageId::new(id).ok()?).ok()?;
    let mut told = json!({
        "what": "message", "id": found.id, "mailbox": found.mailbox, "state": found.state.word(),
    });
    if let ensemble_core::spool::State::Acked { holder, epoch } = &found.state {
        (told["holder"], told["epoch"]) = (json!(holder), json!(epoch));
    }
    Some(told)
}

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
    let queue = ProjectQueue::open(app).ok()?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_story_does_not_end_with_the_command_that_has_told_it() {
        let help = "`ensemble why t1`; `ensemble agent attach w1`";
        assert_eq!(others_of(help, "t1").as_deref(), Some("`ensemble agent attach w1`"));
        assert_eq!(others_of(help, "w1").as_deref(), Some(help));
        assert_eq!(others_of("`ensemble why t1`", "t1"), None);
    }

    #[test]
    fn the_newest_part_comes_first_and_the_oldest_are_left_out() {
        let at = |second: i64| Timestamp::from_unix_millis(1_600_000_000_000 + second * 1000);
        let sentence =
            |text: &str| Sentence { weight: SentenceWeight::Talk, text: text.to_owned() };
        let long = format!("a -> b  {}", "word ".repeat(30));
        let story = ToldStory {
            head: vec!["b is working".to_owned()],
            parts: vec![
                vec![(at(9), sentence("c -> b  new")), (at(10), sentence("b received \"new\""))],
                vec![(at(5), sentence(&long))],
                vec![(at(1), sentence("b started"))],
            ],
        };
        let (lines, left_out) = story.lines(60, 10);
        assert_eq!(left_out, 1, "{lines:?}");
        assert!(lines[2].ends_with("c -> b  new") && lines[3].ends_with("b received \"new\""));
        assert_eq!(lines[5], "Before that:");
        assert!(lines.iter().all(|line| line.chars().count() <= 60), "{lines:?}");
        assert!(lines[7].starts_with("                 word"), "{lines:?}");
        assert_eq!(story.lines(60, usize::MAX).1, 0);
    }
}
