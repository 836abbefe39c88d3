//! What is checked of the blackboard.

use ensemble_team::worktree::CheckedOut;

use super::{Check, Level};
use crate::context::Context;

/// Whether approved tasks can be merged. Nothing is said without a blackboard in a git repository.
pub(super) fn merges(context: &Context) -> Option<Check> {
    let board = context.board().ok()?;
    let worktrees = context.worktrees(&board).ok()?;
    Some(match worktrees.checked_out() {
        Ok(None) => Check::ok("merges", "the integration branch is not checked out"),
        Ok(Some(CheckedOut { branch, path, .. })) => Check::bad(
            "merges",
            Level::Warn,
            format!("`{branch}`, the integration branch, is checked out at {}", path.display()),
            "approved tasks wait until then: `git switch --detach` there, or name another \
             `integration_branch`",
        ),
        Err(error) => Check::bad("merges", Level::Warn, error.to_string(), "see what git says"),
    })
}
