//! What an agent learns about those that worked on its task before.

use serde_json::Value;

use super::{line, said};
use crate::board::state::{BoardAnomaly, BoardTask, State};

const FILES_MAX: usize = 20;

pub(super) fn of_former_agents(
    state: &State,
    task: &BoardTask,
    uncommitted: &[String],
) -> Option<String> {
    let mut parts = Vec::new();
    let is_its = |anomaly: &&BoardAnomaly| anomaly.task.as_ref() == Some(&task.id);
    if let Some(last) = state.anomalies.iter().rev().find(is_its) {
        parts.push(format!("- the last anomaly: {}", described(last)));
    }
    if !uncommitted.is_empty() {
        let named: Vec<String> = uncommitted.iter().take(FILES_MAX).map(|it| line(it)).collect();
        let more = uncommitted.len().saturating_sub(FILES_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        parts.push(format!(
            "- not committed in the worktree: {}{more}. Look at them (`git status`, `git diff`), then \
             continue with them or discard them",
            named.join(", ")
        ));
    }
    let saved = task.history.iter().rev().find(|line| line.event == "salvaged");
    if let Some(place) = saved.and_then(|line| line.text("ref")) {
        parts.push(format!("- saved from an earlier worktree: `git log -p {}`", line(place)));
    }
    let parts: String = parts.iter().map(|part| format!("\n  {part}")).collect();
    (!parts.is_empty()).then(|| {
        format!("An agent has worked on this task before you, and did not finish it:{parts}")
    })
}

fn described(anomaly: &BoardAnomaly) -> String {
    let mut told = line(&anomaly.kind);
    for (name, value) in anomaly.details.as_object().into_iter().flatten() {
        let value = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        told.push_str(&format!(", {}: {}", line(name), said(Some(&value)).replace('\n', "\n  ")));
    }
    told
}
