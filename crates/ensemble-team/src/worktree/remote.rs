//! The git remote through which the hosts of a team share branches and saved work.
//!
//! | ref on the remote | content | who moves it, and from what |
//! |---|---|---|
//! | `refs/heads/<integration>` | approved work | a merge, from the tip that it has merged with |
//! | `refs/heads/task/<task>` | the base of a claim, then what its holder submitted | a claim or a submission, from the tip that it saw before it asked the board |
//! | `refs/ensemble/salvage/<task>/<epoch>.<commit>` | saved work | created, and never moved |
//!
//! Every push names the tips that it replaces (`--force-with-lease`), and moves all its refs or none (`--atomic`). So
//! a push is a compare-and-set, as `update-ref` is in one repository. A merge's new tip contains the old one. Commits
//! that a task's branch loses are saved in the same push.
//!
//! | a process dies | what remains | who continues |
//! |---|---|---|
//! | before the push | the remote as it was; saved work of this repository only | the same verb; each later push of the task takes the saved work along |
//! | after the push of a claim | a branch at the base, and no claim | the next claim |
//! | after the push of a submission | the branch, and a task that is CLAIMED | the same verb; the next claim saves the branch |
//! | after the push of a merge | the merge, and a task that is APPROVED | the next merge of the task finds its commit contained |
//!
//! A git that outlives its caller is harmless: its push succeeds upon the tips that its caller saw, or not at all.

use std::collections::BTreeMap;
use std::time::Duration;

use super::git::{CEILING_VARIABLE, GitCall};
use super::salvage::{SALVAGE, Salvage};
use super::{GitError, Operation, WorktreeFault, Worktrees};
use crate::board::{BoardTask, is_branch};
use crate::silence::SilentPeer;
use ensemble_core::durable::FileLock;
use ensemble_core::message::Name;
use ensemble_core::{Error, Result};

/// Time limit of a git command that asks the remote.
pub const REMOTE_LIMIT: Duration = Duration::from_secs(60);
const FETCH_LOCK: &str = "ensemble-fetch.lock";
/// Length of the commit in the name of saved work, in digits.
const DIGITS: usize = 12;

/// What the remote has of a task, and its integration branch. All of it has been fetched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RemoteBranches {
    pub(super) integration: Option<String>,
    pub(super) branch: Option<String>,
    saved: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum BranchMove<'c> {
    Stay,
    To(&'c str),
    Away,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteState {
    pub remote: String,
    pub branch: String,
    pub tip: Option<String>,
    /// Number of commits of the branch of this repository that the remote lacks.
    pub unpushed: u64,
}

/// Whether this can be the name of a git remote: no path, no address, and no option.
pub fn is_remote(name: &str) -> bool {
    is_branch(name) && Name::new(name).is_ok()
}

impl Worktrees {
    /// Whether only another host can continue with a task, because it has the worktree. With a remote, every host
    /// can.
    pub fn is_kept_elsewhere(&self, task: &BoardTask) -> bool {
        self.options.remote.is_none() && self.board.is_kept_elsewhere(task)
    }

    /// Asks the remote for its integration branch, and for how far this repository's own is ahead; `None` without a
    /// remote.
    pub fn remote_state(&self) -> Result<Option<RemoteState>> {
        let Some(remote) = &self.options.remote else { return Ok(None) };
        let branch = self.integration_branch()?;
        let tip = self.fetch_remote_state(None)?.and_then(|seen| seen.integration);
        let own = self.commit_at(&format!("refs/heads/{branch}"))?;
        let unpushed = match (&own, &tip) {
            (Some(own), Some(tip)) => {
                let range = format!("{tip}..{own}");
                self.repository().run(&["rev-list", "--count", &range])?.parse().ok()
            }
            _ => None,
        };
        let unpushed = unpushed.unwrap_or_default();
        Ok(Some(RemoteState { remote: remote.clone(), branch, tip, unpushed }))
    }

    /// The ref of approved work: this repository's copy of the remote's branch, or the branch itself.
    pub(super) fn integration_ref(&self) -> Result<String> {
        match &self.options.remote {
            Some(remote) => Ok(format!("refs/remotes/{remote}/{}", self.integration_branch()?)),
            None => Ok(format!("refs/heads/{}", self.integration_branch()?)),
        }
    }

    /// This repository's copy of a task's branch on the remote.
    pub(super) fn copy_of(&self, task: &Name) -> Option<String> {
        let remote = self.options.remote.as_ref()?;
        Some(format!("refs/remotes/{remote}/{}", Self::branch_of(task)))
    }

    /// Fetches the integration branch, and what the remote has of a task; `None` without a remote. Call it before the
    /// board is asked: a push upon what was seen then cannot replace the work of a later holder.
    pub(super) fn fetch_remote_state(&self, task: Option<&Name>) -> Result<Option<RemoteBranches>> {
        let Some(remote) = &self.options.remote else { return Ok(None) };
        if !is_remote(remote) {
            return Err(self.no_remote());
        }
        let integration = format!("refs/heads/{}", self.integration_branch()?);
        let copy = self.integration_ref()?;
        let branch = task.map(|task| format!("refs/heads/{}", Self::branch_of(task)));
        let saved = task.map(|task| format!("{SALVAGE}/{task}/"));
        // Two processes that fetch into the same ref would disturb each other.
        let lock = FileLock::acquire(&self.common.join(FETCH_LOCK), self.options.patience)?;
        let pattern = saved.as_ref().map(|below| format!("{below}*"));
        let mut words = vec!["ls-remote", "--quiet", remote, &integration];
        words.extend(branch.as_deref().into_iter().chain(pattern.as_deref()));
        let there = refs(&self.ask_remote("look", &lock, &words)?);

        let mine = refs(&self.here(&copy, task, saved.as_deref())?);
        let mut specs = Vec::new();
        let mut stale = None;
        let pairs = [(Some(integration), Some(copy.clone())), (branch, self.copy_for(task))];
        for (theirs, mine_at) in pairs.into_iter().filter_map(|(a, b)| a.zip(b)) {
            match (there.get(&theirs), mine.get(&mine_at)) {
                (Some(new), old) if old != Some(new) => specs.push(format!("+{theirs}:{mine_at}")),
                (None, Some(old)) => stale = Some((mine_at, old.clone())),
                _ => {}
            }
        }
        // A remote may say anything: only what git itself takes as a name is fetched.
        let name_of =
            |name: &str| saved.as_ref().and_then(|below| name.strip_prefix(below)).map(is_branch);
        let is_saved = |name: &str| name_of(name) == Some(true);
        let new = there.keys().filter(|name| is_saved(name) && !mine.contains_key(*name));
        specs.extend(new.map(|name| format!("{name}:{name}")));
        if !specs.is_empty() {
            let mut words = vec!["fetch", "--quiet", "--no-tags", "--no-write-fetch-head"];
            words.extend(["--no-recurse-submodules", remote]);
            words.extend(specs.iter().map(String::as_str));
            self.ask_remote("fetch", &lock, &words)?;
        }
        if let Some((copy, at)) = stale {
            self.delete_ref(&lock, &copy, &at)?;
        }
        // A branch may have moved between the two questions: what was fetched counts.
        let mut found = refs(&self.here(&copy, task, None)?);
        let saved = there.into_iter().filter(|(name, _)| is_saved(name)).collect();
        let branch = self.copy_for(task).and_then(|copy| found.remove(&copy));
        Ok(Some(RemoteBranches { integration: found.remove(&copy), branch, saved }))
    }

    fn copy_for(&self, task: Option<&Name>) -> Option<String> {
        task.and_then(|task| self.copy_of(task))
    }

    /// The refs of this repository that stand for refs of the remote, as lines of `commit ref`.
    fn here(&self, copy: &str, task: Option<&Name>, saved: Option<&str>) -> Result<String> {
        let branch = self.copy_for(task);
        let mut words = vec!["for-each-ref", "--format=%(objectname) %(refname)", copy];
        words.extend(branch.as_deref().into_iter().chain(saved));
        self.repository().run(&words)
    }

    /// The tip of the remote's integration branch. A missing branch is made there, at this repository's branch of that
    /// name, or at HEAD.
    pub(super) fn shared_head(&self, lock: &FileLock, seen: &RemoteBranches) -> Result<String> {
        if let Some(head) = &seen.integration {
            return Ok(head.clone());
        }
        let branch = self.integration_branch()?;
        let head = match self.commit_at(&format!("refs/heads/{branch}"))? {
            Some(head) => head,
            None => self.checked_out_commit(&branch)?,
        };
        match self.advance(lock, None, &head)? {
            true => Ok(head),
            // Another host was quicker.
            false => self
                .fetch_remote_state(None)?
                .and_then(|seen| seen.integration)
                .ok_or_else(|| WorktreeFault::RemoteMoved { branch }.to(Operation::Share)),
        }
    }

    /// Moves the remote's integration branch, or makes it. Returns `false` if it was not at `old` any more. `lock`
    /// stays taken until git has ended.
    pub(super) fn advance(&self, lock: &FileLock, old: Option<&str>, new: &str) -> Result<bool> {
        let reference = format!("refs/heads/{}", self.integration_branch()?);
        let lease = format!("--force-with-lease={reference}:{}", old.unwrap_or_default());
        let pushed = self.push(lock, &[lease], &[format!("{new}:{reference}")])?;
        let Err(refused) = pushed else {
            let note = "ensemble: pushed";
            let copy = self.integration_ref()?;
            // The next look does it, too.
            let _ = self.repository().run(&["update-ref", "-m", note, &copy, new]);
            return Ok(true);
        };
        let now = self.fetch_remote_state(None)?.and_then(|seen| seen.integration);
        if now.as_deref() == old { Err(refused) } else { Ok(false) }
    }

    /// Pushes what this repository has saved of a task, and moves the task's branch on the remote. Commits that the
    /// branch loses are saved first, and returned.
    pub(super) fn publish(
        &self,
        lock: &FileLock,
        task: &BoardTask,
        seen: &RemoteBranches,
        to: BranchMove<'_>,
    ) -> Result<Option<Salvage>> {
        let mut kept = None;
        if let (Some(old), BranchMove::To(_) | BranchMove::Away) = (&seen.branch, to)
            && !self.is_safe(old, to, seen)?
        {
            kept = Some(self.keep_commit(lock, task, old)?);
        }
        let branch = format!("refs/heads/{}", Self::branch_of(&task.id));
        let (mut leases, mut specs) = (Vec::new(), self.unpublished(&task.id, seen)?);
        let new = match to {
            BranchMove::Stay => seen.branch.as_deref(),
            BranchMove::To(new) => Some(new),
            BranchMove::Away => None,
        };
        if new != seen.branch.as_deref() {
            let old = seen.branch.as_deref().unwrap_or_default();
            leases.push(format!("--force-with-lease={branch}:{old}"));
            specs.push(format!("{}:{branch}", new.unwrap_or_default()));
        }
        if specs.is_empty() {
            return Ok(kept);
        }
        let Err(refused) = self.push(lock, &leases, &specs)? else { return Ok(kept) };
        match self.fetch_remote_state(Some(&task.id))? {
            Some(now) if now != *seen => {
                let branch = Self::branch_of(&task.id);
                Err(WorktreeFault::RemoteMoved { branch }.to(Operation::Share))
            }
            _ => Err(refused),
        }
    }

    /// Whether a branch of the remote contains a commit after the task's branch has moved.
    fn is_safe(&self, commit: &str, to: BranchMove<'_>, seen: &RemoteBranches) -> Result<bool> {
        let new = match to {
            BranchMove::To(new) => Some(new),
            BranchMove::Stay | BranchMove::Away => None,
        };
        for other in new.into_iter().chain(seen.integration.as_deref()) {
            if self.is_ancestor(commit, other)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn unpublished(&self, task: &Name, seen: &RemoteBranches) -> Result<Vec<String>> {
        let below = format!("{SALVAGE}/{task}/");
        let words = ["for-each-ref", "--format=%(objectname) %(refname)", &below];
        let mine = refs(&self.repository().run(&words)?);
        let is_there = |commit: &String| seen.saved.values().any(|saved| saved == commit);
        let left = mine.into_iter().filter(|(_, commit)| !is_there(commit));
        Ok(left
            .map(|(name, commit)| match seen.saved.contains_key(&name) {
                // A host without a remote gave the same name to something else.
                true => format!("{name}:{name}.{}", digits(&commit)),
                false => format!("{name}:{name}"),
            })
            .collect())
    }

    /// Pushes, all or nothing. The inner error is the remote's refusal.
    fn push(
        &self,
        lock: &FileLock,
        leases: &[String],
        specs: &[String],
    ) -> Result<Result<(), Error>> {
        let remote = self.options.remote.as_deref().unwrap_or_default();
        let mut words = vec!["push", "--atomic", "--quiet", "--recurse-submodules=no"];
        words.extend(leases.iter().map(String::as_str));
        words.push(remote);
        words.extend(specs.iter().map(String::as_str));
        let call = self.call_remote(lock)?.set("push.followTags=false");
        let answer = call.attempt(&words);
        self.board.waited();
        let (code, detail) = answer.map_err(|error| self.unreachable("push to", error))?;
        if matches!(code, Some(0 | 1)) {
            self.heard();
        }
        let command = "push".to_owned();
        let refused = || GitError::Failed { command, path: self.project.clone(), detail };
        match code {
            Some(0) => Ok(Ok(())),
            // The remote, or a hook of this repository, refused a ref.
            Some(1) => Ok(Err(refused().into())),
            _ => Err(self.unreachable("push to", refused().into())),
        }
    }

    fn ask_remote(&self, what: &'static str, lock: &FileLock, words: &[&str]) -> Result<String> {
        let operation = if what == "look" { "read branches" } else { "fetch branches" };
        let answer = self.call_remote(lock)?.run(words);
        self.board.waited();
        let answer = answer.map_err(|error| self.unreachable(operation, error))?;
        self.heard();
        Ok(answer)
    }

    fn heard(&self) {
        if let Some(state_dir) = &self.options.state_dir {
            SilentPeer::Remote.end_silence(state_dir);
        }
    }

    /// A git command that asks the remote. It asks no person for a password or a key, and ends in time.
    fn call_remote<'a>(&'a self, lock: &'a FileLock) -> Result<GitCall<'a>> {
        // A relative address of a remote counts from the checkout.
        let at = || self.git.at(&self.project).with(CEILING_VARIABLE, "");
        let ssh = at().ask(&["config", "--get", "core.sshCommand"])?;
        let ssh = ssh.as_deref().unwrap_or("ssh");
        let call = at().within(self.options.remote_limit).under(lock);
        let call = call.with("GIT_ASKPASS", "true").with("GCM_INTERACTIVE", "never");
        Ok(call.set(format!("core.sshCommand={ssh} -o BatchMode=yes")))
    }

    /// The error of a remote that gave no answer. A remote that is not there is a mistake of the configuration.
    fn unreachable(&self, operation: &'static str, error: Error) -> Error {
        let remote = self.options.remote.as_deref().unwrap_or_default();
        let detail = match error.into_area() {
            Ok(GitError::Failed { detail, .. }) => detail,
            Ok(other) => other.to_string(),
            Err(other) => return other,
        };
        let at = self.git.at(&self.project).with(CEILING_VARIABLE, "");
        let key = format!("remote.{remote}.url");
        if matches!(at.ask(&["config", "--get", &key]), Ok(None)) {
            return self.no_remote();
        }
        if let Some(state_dir) = &self.options.state_dir {
            SilentPeer::Remote.record_silence(state_dir, remote, &detail);
        }
        let server = format!("the git remote `{remote}`");
        Error::Server { operation, server, detail, unreachable: true }
    }

    fn no_remote(&self) -> Error {
        let remote = self.options.remote.clone().unwrap_or_default();
        WorktreeFault::NoRemote { remote }.to(Operation::Share)
    }
}

pub(super) fn digits(commit: &str) -> &str {
    commit.get(..DIGITS).unwrap_or(commit)
}

/// Lines of `commit ref`, by their ref.
fn refs(lines: &str) -> BTreeMap<String, String> {
    let pairs = lines.lines().filter_map(|line| line.split_once([' ', '\t']));
    pairs.map(|(commit, name)| (name.to_owned(), commit.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remote_has_a_name_and_no_path_or_address() {
        for name in ["origin", "team.hub", "a-b_c"] {
            assert!(is_remote(name), "{name}");
        }
        for name in ["", "-o", "a/b", "../x", "..", ".", "x.lock", "https://h/x", "ext::sh", "a b"]
        {
            assert!(!is_remote(name), "{name}");
        }
    }
}
