//! What must be true when everything is over.

use std::collections::{BTreeMap, BTreeSet};

use ensemble_core::board::Status;
use ensemble_core::event_log::read_all;
use serde_json::Value;

use crate::bed::{Bed, git};
use crate::is_hopeless;
use crate::roles::journal;

/// Where everything is, for a test that fails.
pub(crate) fn told(bed: &Bed) -> String {
    let state = bed.board.read().unwrap();
    let line = |task: &ensemble_core::board::Task| {
        let events: Vec<&str> = task.history.iter().map(|line| line.event.as_str()).collect();
        format!("{} {} {events:?}", task.id, task.status.as_str())
    };
    let tasks: Vec<String> = state
        .tasks
        .iter()
        .filter(|task| !matches!(task.status, Status::Merged | Status::Blocked))
        .map(line)
        .collect();
    let journal = journal(&bed.path());
    let last = &journal[journal.len().saturating_sub(20)..];
    format!("not over:\n{}\n{:?}\n{}", tasks.join("\n"), state.agents, last.join("\n"))
}

/// All that was done to tasks, in the order of the log, each write once.
fn steps(bed: &Bed) -> Vec<Value> {
    let mut by_revision: BTreeMap<u64, Vec<Value>> = BTreeMap::new();
    for record in read_all(&bed.home.path().join(".ensemble/logs")).unwrap() {
        if record.kind.matches("board.written") {
            let steps = record.data["steps"].as_array().unwrap().clone();
            by_revision.insert(record.data["revision"].as_u64().unwrap(), steps);
        }
    }
    by_revision.into_values().flatten().collect()
}

/// Who works on a task or reviews it, by the log alone: never two at once, and each under a number that
/// nobody had before.
fn one_holder_at_a_time(steps: &[Value]) -> (usize, usize) {
    let mut held: BTreeMap<(String, bool), u64> = BTreeMap::new();
    let mut drawn = BTreeSet::new();
    let (mut claims, mut lost) = (0, 0);
    for step in steps {
        let Some(task) = step["task"].as_str() else { continue };
        let what = step["what"].as_str().unwrap();
        let epoch = step["epoch"].as_u64();
        let is_review =
            what.contains("review_claim") || matches!(what, "task.approved" | "task.rejected");
        let key = (task.to_owned(), is_review);
        match what {
            "task.claimed"
            | "task.reclaimed_after_rejection"
            | "task.reassigned_after_rejection"
            | "task.claimed_for_integration_fix"
            | "task.review_claimed" => {
                let epoch = epoch.unwrap();
                assert_eq!(held.insert(key, epoch), None, "two at once: {step}");
                assert!(drawn.insert(epoch), "given out twice: {step}");
                claims += 1;
            }
            "task.ready_for_review" | "task.approved" | "task.rejected" => {
                assert_eq!(held.remove(&key), epoch, "by somebody else: {step}");
            }
            "task.coder_claim_released" | "task.review_claim_released" => {
                assert_eq!(held.remove(&key), epoch, "of somebody else: {step}");
                lost += 1;
            }
            "task.blocked" => drop(held.remove(&key)),
            _ => {}
        }
    }
    assert!(held.is_empty(), "somebody still holds {held:?}");
    (claims, lost)
}

/// Judges, and sums up.
pub(crate) fn judge(bed: &Bed) -> String {
    let state = bed.board.read().unwrap();
    let home = bed.home.path();
    let (mut merged, mut blocked) = (0, 0);
    for task in &state.tasks {
        let id = task.id.as_str();
        if task.status == Status::Blocked {
            assert!(is_hopeless(id) && task.blocked_reason.is_some(), "{task:?}");
            blocked += 1;
            continue;
        }
        merged += 1;
        let merge = task.merge_commit.clone().unwrap();
        let trailer = format!("--grep=^Ensemble-Task: {id}$");
        let merges = git(home, &["log", "--format=%H", &trailer, "integration"]);
        assert_eq!(merges, merge, "{id} is merged once, and where the board says");
        let content = bed.file_in("integration", id);
        for part in 0..3 {
            assert!(content.contains(&format!("{id} part {part}")), "{id}: {content}");
        }
        for before in &task.depends_on {
            let first = state.task(before).unwrap().merge_commit.clone().unwrap();
            git(home, &["merge-base", "--is-ancestor", &first, &format!("{merge}^2")]);
        }
    }
    let (claims, lost) = one_holder_at_a_time(&steps(bed));
    assert!(bed.directories().is_empty(), "{:?}", bed.directories());
    assert!(bed.refs("refs/heads/task").is_empty());
    assert!(bed.trees().recover(false).unwrap().is_empty());
    let refused = journal(&bed.path()).iter().filter(|line| line.starts_with("refused")).count();
    let salvaged = bed.refs("refs/ensemble/salvage").len();
    format!(
        "{merged} merged, {blocked} blocked, {claims} claims and reviews, {lost} of them lost, \
         {refused} late writes refused, {salvaged} salvaged"
    )
}
