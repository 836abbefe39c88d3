//! The integration branch: where it is, and whether it still has all that was merged into it.

use super::git::CEILING_VARIABLE;
use super::remote::RemoteBranches;
use super::{Operation, WorktreeFault, Worktrees};
use crate::board::{State, TaskStatus};
use ensemble_core::durable::FileLock;
use ensemble_core::message::Name;
use ensemble_core::{Error, Result};

impl Worktrees {
    /// The head of the integration branch, which with a remote is that of the remote. A missing branch is created at
    /// HEAD, unless work was merged into it before.
    pub(super) fn integration_head(
        &self,
        lock: &FileLock,
        seen: Option<&RemoteBranches>,
    ) -> Result<String> {
        let branch = self.integration_branch()?;
        let head = match seen {
            Some(seen) => seen.integration.clone(),
            None => self.commit_at(&format!("refs/heads/{branch}"))?,
        };
        let begins_at = || self.checked_out_commit(&branch);
        let at = head.clone().map_or_else(begins_at, Ok)?;
        let state = self.board.read()?;
        if let Some(fault) = self.missing_merge(&state, (&branch, head.is_some()), &at)? {
            return Err(fault.to(Operation::Begin(branch)));
        }
        match (head, seen) {
            (Some(head), _) => Ok(head),
            (None, Some(seen)) => self.shared_head(lock, seen),
            (None, None) => self.begin_integration(lock, &branch),
        }
    }

    fn begin_integration(&self, lock: &FileLock, branch: &str) -> Result<String> {
        let head = self.checked_out_commit(branch)?;
        let reference = format!("refs/heads/{branch}");
        let call = self.repository().under(lock);
        let made = call.run(&["update-ref", "-m", "ensemble: begin", &reference, &head, ""]);
        made.map_err(|error| self.explain_branch(branch, error))?;
        Ok(head)
    }

    /// The commit at which the integration branch begins: that of the user's checkout.
    pub(super) fn checked_out_commit(&self, branch: &str) -> Result<String> {
        let call = || self.git.at(&self.project).with(CEILING_VARIABLE, "");
        let found = call().ask(&["rev-parse", "--verify", "--quiet", "HEAD^{commit}"])?;
        let operation = || Operation::MakeBranch(branch.to_owned());
        let Some(found) = found else {
            let named = call().ask(&["symbolic-ref", "--quiet", "HEAD"])?.unwrap_or_default();
            let others = call().ask(&["for-each-ref", "--count=1", "refs/heads"])?;
            let fault = match others.is_some_and(|branch| !branch.trim().is_empty()) {
                true => WorktreeFault::UnbornHead { branch: named },
                false => WorktreeFault::EmptyRepository,
            };
            return Err(fault.to(operation()));
        };
        Ok(found)
    }

    /// What the integration branch lacks of the work that was merged into it, as it was deleted or moved back. `at` is
    /// its commit, or the one where it would begin.
    pub(super) fn missing_merge(
        &self,
        state: &State,
        (branch, exists): (&str, bool),
        at: &str,
    ) -> Result<Option<WorktreeFault>> {
        let merged = state.tasks.iter().filter(|task| task.status == TaskStatus::Merged);
        let merges = merged.filter_map(|task| Some((&task.id, task.merge_commit.as_deref()?)));
        // By hand, something else may have been written there.
        let merges: Vec<(&Name, &str)> = merges.filter(|(_, commit)| is_commit(commit)).collect();
        if merges.is_empty() {
            return Ok(None);
        }
        let without = format!("^{at}");
        let mut words = vec!["rev-list", "--max-count=1", "--topo-order", "--ignore-missing"];
        words.extend(merges.iter().map(|(_, commit)| *commit));
        words.push(&without);
        let first = self.repository().run(&words)?;
        let Some((task, commit)) = merges.into_iter().find(|(_, commit)| *commit == first) else {
            return Ok(None);
        };
        let (branch, task, commit) = (branch.to_owned(), task.clone(), commit.to_owned());
        let can_move = self.is_ancestor(at, &commit)?;
        Ok(Some(WorktreeFault::MergeMissing { branch, task, commit, exists, can_move }))
    }

    /// Names the branch that keeps another one from being made, if that is why git has refused it: of `task` and
    /// `task/a` there can only be one.
    pub(super) fn explain_branch(&self, branch: &str, error: Error) -> Error {
        let is_there = |name: &str| {
            let found = self.commit_at(&format!("refs/heads/{name}"));
            found.is_ok_and(|commit| commit.is_some())
        };
        let around = branch.match_indices('/').map(|(at, _)| &branch[..at]).find(|at| is_there(at));
        let below = || {
            let words = ["for-each-ref", "--count=1", "--format=%(refname:lstrip=2)"];
            let below = format!("refs/heads/{branch}/");
            let found = self.repository().run(&[&words[..], &[below.as_str()]].concat());
            found.ok().filter(|name| !name.is_empty())
        };
        match around.map(str::to_owned).or_else(below) {
            Some(other) => {
                WorktreeFault::BranchInTheWay { other }.to(Operation::MakeBranch(branch.to_owned()))
            }
            None => error,
        }
    }
}

fn is_commit(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
