//! Rules that every board must obey. They are checked when the board is read and before it is
//! written. Each violation names its field, and all violations are reported.
//!
//! A rule on which nothing depends is a warning where it is read: what an agent or a person has written by hand must
//! not stop the team. Ensemble itself does not write what would be a new warning.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::VERSION;
use super::graph::{cycle, unmet};
use super::shape::{ShapeFindings, Violation};
use super::state::{BoardTask, State, TaskStatus};
use crate::proto::agent;
use ensemble_core::message::Name;

pub const BLOCKED_QUESTIONS_MAX: usize = 3;
/// Longest name of a branch or a remote, in bytes: git makes a file of it.
const BRANCH_BYTES_MAX: usize = 200;

pub(super) fn check_rules(state: &State) -> ShapeFindings {
    let mut found = RuleFindings { at: String::new(), all: Vec::new(), warnings: Vec::new() };
    if state.version > VERSION {
        let problem = format!(
            "is {}, but this program reads at most {VERSION}: update the program",
            state.version
        );
        found.all.push(Violation::new("version", problem));
    }
    let ids = unique_ids(state, &mut found);
    for (at, task) in state.tasks.iter().enumerate() {
        found.at = format!("tasks[{at}]");
        task_fields(task, &mut found);
        review_fields(task, &mut found);
        references(task, &ids, &mut found);
        history(task, &mut found);
        fences(state, task, &mut found);
        if task.status == TaskStatus::Claimed {
            for dependency in unmet(state, task) {
                found.push("depends_on", format!("is claimed, but `{dependency}` is not merged"));
            }
        }
    }
    if let Some(cycle) = cycle(&state.tasks) {
        let at = state.position(&cycle[0]).unwrap_or_default();
        let names: Vec<&str> = cycle.iter().map(Name::as_str).collect();
        found.at = format!("tasks[{at}]");
        found.push("depends_on", format!("depends on itself: {}", names.join(" -> ")));
    }
    one_task_each(state, &mut found);
    agents(state, &mut found);
    notes(state, &ids, &mut found);
    sprint(state, &ids, &mut found);
    let branch = state.config.integration_branch.as_deref();
    if let Some(branch) = branch.filter(|branch| !is_branch(branch)) {
        found.at = "config".to_owned();
        found.warn("integration_branch", format!("`{branch}` is not the name of a branch"));
    }
    ShapeFindings { violations: found.all, warnings: found.warnings }
}

/// The findings so far, and the path of the current entry.
struct RuleFindings {
    at: String,
    all: Vec<Violation>,
    warnings: Vec<Violation>,
}

impl RuleFindings {
    fn push(&mut self, field: &str, problem: impl Into<String>) {
        self.all.push(Violation::new(format!("{}.{field}", self.at), problem));
    }

    fn warn(&mut self, field: &str, problem: impl Into<String>) {
        self.warnings.push(Violation::new(format!("{}.{field}", self.at), problem));
    }

    fn require(&mut self, is_there: bool, field: &str, status: TaskStatus) {
        if !is_there {
            self.push(field, format!("is missing from a task that is {}", status.as_str()));
        }
    }

    fn expect(&mut self, is_there: bool, field: &str, status: TaskStatus) {
        if !is_there {
            self.warn(field, format!("is missing from a task that is {}", status.as_str()));
        }
    }

    fn expect_none(&mut self, is_there: bool, field: &str, status: TaskStatus) {
        if is_there {
            self.warn(field, format!("must be absent from a task that is {}", status.as_str()));
        }
    }
}

fn unique_ids<'a>(state: &'a State, found: &mut RuleFindings) -> BTreeSet<&'a Name> {
    let mut lower = BTreeMap::new();
    for (at, task) in state.tasks.iter().enumerate() {
        if let Some(first) = lower.insert(task.id.as_str().to_ascii_lowercase(), at) {
            found.at = format!("tasks[{at}]");
            found.push("id", format!("`{}` is also the name of tasks[{first}]", task.id));
        }
    }
    state.tasks.iter().map(|task| &task.id).collect()
}

fn task_fields(task: &BoardTask, found: &mut RuleFindings) {
    let status = task.status;
    match status {
        TaskStatus::Draft | TaskStatus::Unclaimed => {
            found.expect_none(task.assigned_to.is_some(), "assigned_to", status);
        }
        TaskStatus::Claimed => {
            found.require(task.assigned_to.is_some(), "assigned_to", status);
            found.require(task.worktree.is_some(), "worktree", status);
            found.expect(task.lease_expires.is_some(), "lease_expires", status);
            if task.integration_fix != Some(true) {
                found.require(task.base_commit.is_some(), "base_commit", status);
            }
        }
        // The supervisor of its coder, or of its reviewer, adds what is missing.
        TaskStatus::ReadyForReview => {
            found.expect(task.review_commit.is_some(), "review_commit", status);
        }
        TaskStatus::Approved => found.expect(task.approved_by.is_some(), "approved_by", status),
        TaskStatus::Rejected => {
            found.expect(task.rejection_reason.is_some(), "rejection_reason", status);
        }
        TaskStatus::Merged => found.expect_none(task.worktree.is_some(), "worktree", status),
        TaskStatus::Blocked => {
            found.expect(task.blocked_reason.is_some(), "blocked_reason", status);
            found.expect(!task.blocked_questions.is_empty(), "blocked_questions", status);
        }
        TaskStatus::Superseded => {
            found.expect(task.superseded_by.is_some(), "superseded_by", status);
            found.expect(task.rescope_reason.is_some(), "rescope_reason", status);
        }
        TaskStatus::IntegrationFailed | TaskStatus::Abandoned => {}
    }
    if !matches!(status, TaskStatus::Draft | TaskStatus::Superseded | TaskStatus::Abandoned) {
        found.require(task.done_when.is_some(), "done_when", status);
        found.require(task.spec_ref.is_some(), "spec_ref", status);
    }
    if task.blocked_questions.len() > BLOCKED_QUESTIONS_MAX {
        found.warn("blocked_questions", format!("has more than {BLOCKED_QUESTIONS_MAX} questions"));
    }
}

fn review_fields(task: &BoardTask, found: &mut RuleFindings) {
    let Some(reviewer) = &task.reviewing_by else {
        if task.review_lease_expires.is_some() {
            found.warn("review_lease_expires", "is set, but the task has no reviewer");
        }
        return;
    };
    let is_in_review = task.status == TaskStatus::ReadyForReview;
    found.expect_none(!is_in_review, "reviewing_by", task.status);
    if task.review_lease_expires.is_none() {
        found.warn("review_lease_expires", "is missing, but the task has a reviewer");
    }
    if task.assigned_to.as_ref() == Some(reviewer) {
        found.push("reviewing_by", format!("`{reviewer}` reviews its own work"));
    }
}

fn references(task: &BoardTask, ids: &BTreeSet<&Name>, found: &mut RuleFindings) {
    let mut seen = BTreeSet::new();
    for (at, id) in task.depends_on.iter().enumerate() {
        if !ids.contains(id) {
            found.push(&format!("depends_on[{at}]"), format!("there is no task `{id}`"));
        }
        if !seen.insert(id) {
            found.warn(&format!("depends_on[{at}]"), format!("`{id}` is listed twice"));
        }
    }
    for (at, id) in task.superseded_by.iter().flatten().enumerate() {
        if !ids.contains(id) {
            found.warn(&format!("superseded_by[{at}]"), format!("there is no task `{id}`"));
        } else if *id == task.id {
            found.warn(&format!("superseded_by[{at}]"), "is the task itself");
        }
    }
    if let Some(id) = task.supersedes.as_ref().filter(|id| !ids.contains(id)) {
        found.warn("supersedes", format!("there is no task `{id}`"));
    }
    let mut failed = BTreeSet::new();
    for (at, agent) in task.failed_by.iter().enumerate() {
        if !failed.insert(agent) {
            found.warn(&format!("failed_by[{at}]"), format!("`{agent}` is listed twice"));
        }
    }
    if let (Some(by), Some(author)) = (&task.approved_by, &task.assigned_to)
        && by == author
        && task.status == TaskStatus::Approved
    {
        found.push("approved_by", format!("`{by}` approved its own work"));
    }
}

fn history(task: &BoardTask, found: &mut RuleFindings) {
    let has_failed = task.history.iter().any(|happened| happened.event == "integration_failed");
    if task.integration_fix == Some(true) && !has_failed {
        found.warn("integration_fix", "is true, but the task's history has no integration_failed");
    }
}

/// Fencing epochs are drawn from one counter, so none can be greater than it.
fn fences(state: &State, task: &BoardTask, found: &mut RuleFindings) {
    for (field, epoch) in [("lease_epoch", task.lease_epoch), ("review_epoch", task.review_epoch)] {
        if epoch.is_some_and(|epoch| epoch > state.epoch) {
            found.push(field, format!("is ahead of the board's epoch {}", state.epoch));
        }
    }
}

fn one_task_each(state: &State, found: &mut RuleFindings) {
    let mut first: BTreeMap<&Name, usize> = BTreeMap::new();
    for (at, task) in state.tasks.iter().enumerate() {
        let Some(agent) = task.assigned_to.as_ref().filter(|_| task.status.is_active()) else {
            continue;
        };
        if let Some(other) = first.insert(agent, at) {
            let id = &state.tasks[other].id;
            found.at = format!("tasks[{at}]");
            found.push("assigned_to", format!("`{agent}` already has tasks[{other}] (`{id}`)"));
        }
    }
}

fn agents(state: &State, found: &mut RuleFindings) {
    for (name, agent) in &state.agents {
        found.at = format!("agents.{name}");
        let busy = matches!(agent.status, agent::State::Working | agent::State::Reviewing);
        if busy && agent.current_task.is_none() {
            found.warn("current_task", "is missing from an agent that works or reviews");
        }
        if busy && agent.lease_expires.is_none() {
            found.warn("lease_expires", "is missing from an agent that works or reviews");
        }
        if let Some(id) = &agent.current_task
            && state.task(id).is_none()
        {
            found.warn("current_task", format!("there is no task `{id}`"));
        }
        if agent.epoch.is_some_and(|epoch| epoch > state.epoch) {
            found.push("epoch", format!("is ahead of the board's epoch {}", state.epoch));
        }
    }
}

const DETAILS: [(&str, &[&str]); 5] = [
    ("retry_loop", &["count", "error_pattern"]),
    ("trade_off", &["what", "why", "debt_created"]),
    ("external_blocker", &["blocker_service"]),
    ("assumption_violated", &["assumption", "reality"]),
    ("system_ambiguity", &["protocol_section", "question"]),
];

pub(super) fn missing_details(kind: &str, details: &Value) -> Vec<&'static str> {
    let wanted = DETAILS.iter().find(|(known, _)| *known == kind).map_or(&[][..], |d| d.1);
    let is_missing = |field: &&&str| details.get(**field).is_none_or(Value::is_null);
    wanted.iter().filter(is_missing).copied().collect()
}

fn notes(state: &State, ids: &BTreeSet<&Name>, found: &mut RuleFindings) {
    found.at = "handoff".to_owned();
    for id in state.handoff.keys().filter(|id| !ids.contains(id)) {
        found.warn(id.as_str(), "there is no such task");
    }
    for (at, anomaly) in state.anomalies.iter().enumerate() {
        found.at = format!("anomalies[{at}].details");
        for field in missing_details(&anomaly.kind, &anomaly.details) {
            found.warn(field, format!("is missing from an anomaly of type {}", anomaly.kind));
        }
    }
    for (at, discovery) in state.discovered.iter().enumerate() {
        if let Some(id) = discovery.converted_to_task.as_ref().filter(|id| !ids.contains(id)) {
            found.at = format!("discovered[{at}]");
            found.warn("converted_to_task", format!("there is no task `{id}`"));
        }
    }
}

fn sprint(state: &State, ids: &BTreeSet<&Name>, found: &mut RuleFindings) {
    let Some(sprint) = &state.sprint else { return };
    found.at = "sprint".to_owned();
    let goal = state.goal.as_ref().map(|goal| &goal.id);
    if let Some(goal_ref) = sprint.goal_ref.as_ref().filter(|id| Some(*id) != goal) {
        found.warn("goal_ref", format!("`{goal_ref}` is not the goal"));
    }
    if sprint.timeline.started.is_none() {
        found.warn("timeline.started", "is missing");
    }
    for (field, tasks) in [("planned", &sprint.scope.planned), ("stretch", &sprint.scope.stretch)] {
        for (at, id) in tasks.iter().enumerate().filter(|(_, id)| !ids.contains(id)) {
            found.warn(&format!("scope.{field}[{at}]"), format!("there is no task `{id}`"));
        }
    }
}

/// Files that the board names but that do not exist. `exists` is called with paths relative to the
/// project.
pub fn missing_files(state: &State, exists: impl Fn(&str) -> bool) -> Vec<Violation> {
    let mut found = Vec::new();
    for (at, task) in state.tasks.iter().enumerate() {
        let worktree = task.worktree.as_deref().filter(|_| task.status == TaskStatus::Claimed);
        if let Some(path) = worktree.filter(|path| !exists(path)) {
            let problem = format!("there is no directory {path}");
            found.push(Violation::new(format!("tasks[{at}].worktree"), problem));
        }
        if let Some(path) = missing_specification(task.spec_ref.as_deref(), &exists) {
            let problem = format!("there is no file {path}");
            found.push(Violation::new(format!("tasks[{at}].spec_ref"), problem));
        }
    }
    let of_goal = state.goal.as_ref().and_then(|goal| goal.spec_ref.as_deref());
    if let Some(path) = missing_specification(of_goal, &exists) {
        found.push(Violation::new("goal.spec_ref", format!("there is no file {path}")));
    }
    found
}

/// The file of a specification that does not exist. An address is not looked for.
pub fn missing_specification(
    spec_ref: Option<&str>,
    exists: impl Fn(&str) -> bool,
) -> Option<&str> {
    let path = spec_ref?.split('#').next()?;
    (!path.is_empty() && !path.contains("://") && !exists(path)).then_some(path)
}

/// Whether git takes this as the name of a branch (git-check-ref-format), and no command takes it for an option or
/// for another revision.
pub fn is_branch(name: &str) -> bool {
    let is_plain = |c: char| !c.is_control() && !" ~^:?*[\\".contains(c);
    let is_part =
        |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock");
    name.len() <= BRANCH_BYTES_MAX
        && name.chars().all(is_plain)
        && name.split('/').all(is_part)
        && !name.starts_with('-')
        && !name.starts_with("refs/")
        && !name.ends_with('.')
        && !["..", "@{"].iter().any(|sign| name.contains(sign))
        && !["@", "HEAD"].contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_git_does_not_take_as_branches_are_refused() {
        for name in ["integration", "team/work", "a-b_c.d", "é", "release-1.2"] {
            assert!(is_branch(name), "{name}");
        }
        let long = "x".repeat(BRANCH_BYTES_MAX + 1);
        for name in ["refs/heads/x", &long] {
            assert!(!is_branch(name), "{name}");
        }
        for name in [
            "", "-rf", "--force", "a..b", "a b", "../x", "HEAD", "@", "@{-1}", "a\n", "a\u{1b}",
            "x.lock", "x.lock/y", "/x", "x/", "a//b", ".x", "a/.x", "x.", "a~1", "a^", "a:b", "a?",
            "a*", "a[b", "a\\b",
        ] {
            assert!(!is_branch(name), "{name}");
        }
    }
}
