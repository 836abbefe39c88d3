//! Phase 3 of the seed: the state of the project, short enough for a small context.

use serde_json::Value;

use super::{BoardRole, PromptReader, line, notes_of, said};
use crate::board::graph::{claimable, reviewable, unmet};
use crate::board::state::{BoardTask, HumanNote, State, TaskStatus};
use crate::board::steps::word;
use crate::board::{ActiveControl, Discovery};
use crate::proto::task::EXHAUSTED_BY;
use ensemble_core::message::Name;

/// Most tasks, agents and notes that are listed by name; beyond that only their number is given.
const NAMED_MAX: usize = 20;
/// Most characters of a description of tasks that are not the reader's.
const DESCRIPTION_CHARS: usize = 100;

pub(super) fn text(state: &State, controls: &[ActiveControl], reader: &PromptReader<'_>) -> String {
    let mut text = Vec::new();
    text.push(match &state.goal {
        Some(goal) => {
            let status = goal.status.map(|status| serde_json::json!(status));
            let status = status.as_ref().and_then(Value::as_str).unwrap_or("PLANNING");
            format!("GOAL: {} {status}: {}", goal.id, said(goal.description.as_deref()))
        }
        None => "GOAL: none".to_owned(),
    });
    let signal = |control: &ActiveControl| {
        let reason = if control.reason.is_empty() { "no reason given" } else { &control.reason };
        format!("{} since {} ({})", control.file.name(), control.since, line(reason))
    };
    text.push(match controls {
        [] => "SIGNALS: none".to_owned(),
        some => format!("SIGNALS: {}", some.iter().map(signal).collect::<Vec<_>>().join("; ")),
    });
    let open = state.tasks.iter().filter(|task| !task.status.is_terminal());
    section(&mut text, "OPEN TASKS", open.map(|task| task_line(state, task)).collect());
    let agents = state.agents.iter().map(|(name, agent)| {
        let task = agent.current_task.as_ref().map(|task| format!(", {task}")).unwrap_or_default();
        let role = agent.role.as_deref().unwrap_or("no role");
        let status = word(agent.status);
        format!("{name}: {role}, {status}{task}")
    });
    section(&mut text, "AGENTS", agents.collect());
    section(&mut text, "HAND-OVER NOTES", handed_over(state, reader));
    section(&mut text, "NOTES FROM PEOPLE", of_people(state, reader));
    if reader.role == BoardRole::Planner {
        section(&mut text, "IMMEDIATE DISCOVERIES", immediate(state));
    }
    text.join("\n")
}

/// A titled list; nothing if the list is empty.
fn section(text: &mut Vec<String>, title: &str, items: Vec<String>) {
    if items.is_empty() {
        return;
    }
    text.push(format!("{title}:"));
    let more = items.len().saturating_sub(NAMED_MAX);
    text.extend(items.into_iter().take(NAMED_MAX).map(|item| format!("- {item}")));
    if more > 0 {
        text.push(format!("- and {more} more: `ensemble board show`"));
    }
}

fn task_line(state: &State, task: &BoardTask) -> String {
    let mut told = format!("{} {}", task.id, task.status.as_str());
    if let Some(agent) = task.reviewing_by.as_ref().or(task.assigned_to.as_ref()) {
        told.push_str(&format!(", {agent}"));
    }
    let waits: Vec<&str> = unmet(state, task).into_iter().map(Name::as_str).collect();
    if !waits.is_empty() {
        told.push_str(&format!(", waits for {}", waits.join(" ")));
    }
    if let Some(description) = &task.description {
        let short: String = line(description).chars().take(DESCRIPTION_CHARS).collect();
        told.push_str(&format!(": {}", short.trim_end()));
    }
    told
}

/// Hand-over notes: in full for the agent that works on the task, only mentioned for others.
fn handed_over(state: &State, reader: &PromptReader<'_>) -> Vec<String> {
    let mut all = Vec::new();
    for task in &state.tasks {
        let Some(notes) = notes_of(state, task) else { continue };
        let by = notes.get("agent").and_then(Value::as_str).unwrap_or("an unknown agent");
        if reader.task.is_none_or(|(own, _)| own.id != task.id) {
            if task.status.is_claimable() {
                all.push(format!(
                    "{}: left by {}, for the next agent that claims it",
                    task.id,
                    line(by)
                ));
            }
            continue;
        }
        let mut told = format!("{}, by {}:", task.id, line(by));
        for (name, value) in notes {
            if !value.is_null() && name != "agent" {
                told.push_str(&format!("\n  {}:{}", line(name), indented(value)));
            }
        }
        all.push(told);
    }
    all
}

fn indented(value: &Value) -> String {
    match value {
        Value::String(text) => format!(" {}", said(Some(text)).replace("\n  ", "\n    ")),
        Value::Array(items) => {
            items.iter().map(|item| format!("\n    -{}", indented(item))).collect()
        }
        other => format!(" {other}"),
    }
}

/// Notes from people to all agents, to this agent or to its role.
fn of_people(state: &State, reader: &PromptReader<'_>) -> Vec<String> {
    let me = [reader.agent.as_str(), reader.role.as_str(), "all"];
    let is_me = |value: &Value| value.as_str().is_some_and(|text| me.contains(&text));
    let is_mine = |note: &&HumanNote| match &note.to {
        Value::Null => true,
        Value::Array(names) => names.is_empty() || names.iter().any(is_me),
        one => is_me(one),
    };
    let notes = state.human_notes.iter().filter(is_mine);
    notes.filter_map(|note| Some(said(Some(note.message.as_deref()?)))).collect()
}

fn immediate(state: &State) -> Vec<String> {
    let told = |found: &Discovery| {
        let field = |name: &str| found.more.get(name).and_then(Value::as_str);
        let mut told = format!("{}: {}", found.id, said(field("description")));
        for (name, title) in
            [("by", "by"), ("during", "during"), ("severity", "severity"), ("recommendation", "do")]
        {
            if let Some(text) = field(name) {
                told.push_str(&format!("\n  {title}: {}", said(Some(text))));
            }
        }
        told
    };
    state.discovered.iter().filter(|found| found.is_urgent()).map(told).collect()
}

pub(super) fn sprint(state: &State) -> String {
    let count =
        |is_it: &dyn Fn(&BoardTask) -> bool| state.tasks.iter().filter(|t| is_it(t)).count();
    let of = |status: TaskStatus| count(&|task| task.status == status);
    let mut lines = Vec::new();
    if let Some(sprint) = &state.sprint {
        let status = serde_json::json!(sprint.status);
        lines.push(format!("- sprint: {} {}", sprint.id, status.as_str().unwrap_or("IN_PROGRESS")));
        let is_merged =
            |id: &&Name| state.task(id).is_some_and(|task| task.status == TaskStatus::Merged);
        let planned = &sprint.scope.planned;
        let merged = planned.iter().filter(is_merged).count();
        lines.push(format!("- planned: {merged} of {} merged", planned.len()));
        if let Some(deadline) = sprint.timeline.deadline {
            lines.push(format!("- deadline: {deadline}"));
        }
    }
    let exhausted =
        |task: &BoardTask| !task.status.is_terminal() && task.failed_by.len() >= EXHAUSTED_BY;
    let numbers = [
        ("total", state.tasks.len()),
        ("merged", of(TaskStatus::Merged)),
        ("abandoned", of(TaskStatus::Abandoned)),
        ("superseded", of(TaskStatus::Superseded)),
        ("blocked", of(TaskStatus::Blocked)),
        ("in_progress", of(TaskStatus::Claimed)),
        ("ready_for_review", of(TaskStatus::ReadyForReview)),
        ("rejected", of(TaskStatus::Rejected)),
        ("approved", of(TaskStatus::Approved)),
        ("integration_failed", of(TaskStatus::IntegrationFailed)),
        ("unclaimed", of(TaskStatus::Unclaimed)),
        ("draft", of(TaskStatus::Draft)),
        ("claimable_now", claimable(state, None).len()),
        ("reviewable_now", reviewable(state, None).len()),
        ("hypothesis_exhausted", count(&exhausted)),
        ("immediate_discoveries", immediate(state).len()),
        ("anomalies", state.anomalies.len()),
    ];
    lines.extend(numbers.map(|(name, number)| format!("- {name}: {number}")));
    lines.join("\n")
}
