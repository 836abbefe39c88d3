//! Claims, and those that fail again and again.
//!
//! ```text
//! another agent was faster, or the gate is closed   the next task is tried
//! anything else, while the task is still free       it is told, the board says why (`claim_error`), and the
//!                                                   claim is tried again after the poll interval
//! the 5th time in a row                             the task is BLOCKED with a question (a review: as before)
//! ```

use std::collections::BTreeMap;

use serde_json::json;

use super::run::SupervisorRun;
use super::work::{HeldClaim, SupervisedWork};
use crate::admission::is_refusal;
use crate::board::{BoardError, BoardObstacle, BoardTask, State, is_fenced};
use crate::proto::task::TaskHolder;
use crate::worktree::{Operation, WorktreeFault, Worktrees, short_reason};
use ensemble_core::env::Monotonic;
use ensemble_core::event_log::types;
use ensemble_core::message::Name;
use ensemble_core::{Error, Result};

/// Most tasks that are tried in one look, if other agents claim first.
const CLAIMS_A_LOOK: usize = 8;

/// Takes a task: the work, and the failure of a hook that did not keep it from being taken.
type ClaimCall = fn(&Worktrees, &Name, &TaskHolder) -> Result<(SupervisedWork, Option<String>)>;

#[derive(Debug, Default)]
pub(super) struct FailedClaims(BTreeMap<Name, ClaimRefusal>);

#[derive(Debug)]
struct ClaimRefusal {
    count: u32,
    why: String,
    again_at: Monotonic,
}

impl SupervisorRun<'_> {
    pub(super) fn claim(
        &mut self,
        agent: &TaskHolder,
        mut state: State,
        open: impl for<'s> Fn(&'s State, &Name) -> Vec<&'s BoardTask>,
        take: ClaimCall,
    ) -> Result<Option<SupervisedWork>> {
        let Some(worktrees) = self.worktrees else {
            return Err(WorktreeFault::NoRepository.to(Operation::Claim));
        };
        self.refusals.0.retain(|id, _| open(&state, &agent.by).iter().any(|task| task.id == *id));
        let mut tried: Vec<Name> = Vec::new();
        for _ in 0..CLAIMS_A_LOOK {
            let now = self.now();
            let is_free = |task: &&BoardTask| {
                !tried.contains(&task.id)
                    && self.refusals.0.get(&task.id).is_none_or(|it| it.again_at <= now)
                    && !worktrees.is_kept_elsewhere(task)
            };
            let next = open(&state, &agent.by).into_iter().find(is_free);
            let Some(id) = next.map(|task| task.id.clone()) else { break };
            let taken = take(worktrees, &id, agent);
            state = self.board.read()?;
            let is_open = open(&state, &agent.by).iter().any(|task| task.id == id);
            match taken {
                Ok((work, hook_failure)) => {
                    self.refusals.0.remove(&id);
                    if let Some(why) = hook_failure {
                        self.queue_line(format!("warning: the post-checkout hook failed: {why}"));
                    }
                    return Ok(Some(work));
                }
                Err(error) if is_refusal(&error) || is_race(&error) => {}
                Err(error) if is_fenced(&error) => return Err(error),
                Err(error) => {
                    if is_open {
                        state = self.refuse_claim(&id, &error)?;
                    }
                }
            }
            tried.push(id);
        }
        Ok(None)
    }

    pub(super) fn take_task(
        worktrees: &Worktrees,
        id: &Name,
        agent: &TaskHolder,
    ) -> Result<(SupervisedWork, Option<String>)> {
        let claimed = worktrees.claim_task_now(id, agent)?;
        let (id, holder) = (id.clone(), claimed.granted.holder);
        let claim = HeldClaim { id, holder, path: claimed.path };
        Ok((SupervisedWork::Task(claim), claimed.hook_failure))
    }

    pub(super) fn take_review(
        worktrees: &Worktrees,
        id: &Name,
        agent: &TaskHolder,
    ) -> Result<(SupervisedWork, Option<String>)> {
        let claimed = worktrees.claim_review_now(id, agent)?;
        let (id, holder) = (id.clone(), claimed.granted.holder);
        Ok((SupervisedWork::Review(HeldClaim { id, holder, path: claimed.path }), None))
    }

    /// Counts a claim that failed although the task is free. Returns the board after that.
    fn refuse_claim(&mut self, id: &Name, error: &Error) -> Result<State> {
        let (why, again_at) = (short_reason(error), self.now() + self.order.pace.poll);
        let before = self.refusals.0.remove(id);
        let is_new = before.as_ref().is_none_or(|before| before.why != why);
        let count = before.map_or(1, |before| before.count + 1);
        if is_new {
            let what = format!("claim `{id}`");
            self.record(
                types::SUPERVISE_FAILED,
                json!({ "what": what, "error": error.to_string() }),
            );
            self.queue_line(format!("cannot {what}: {why}"));
        }
        let mut locked = self.board.lock()?;
        let is_claimable = locked.state().task(id).is_some_and(|task| task.status.is_claimable());
        if count >= self.order.pace.crashes_max && is_claimable {
            let reason = format!("{count} claims failed in a row: {why}");
            let question = format!("What keeps agents from claiming `{id}`? {why}");
            locked.block(id, None, &reason, &[question])?;
            self.report_block(id, &reason);
        } else {
            locked.claim_refused(id, &why)?;
            self.refusals.0.insert(id.clone(), ClaimRefusal { count, why, again_at });
        }
        locked.commit()
    }
}

/// Whether another try may succeed at once: other processes have changed the board or the remote.
fn is_race(error: &Error) -> bool {
    let changed = BoardObstacle::ChangedSincePlan;
    error.is_transient()
        || matches!(error.area(), Some(BoardError::NotAllowed { why, .. }) if *why == changed)
}
