use ensemble_app::text::plural;
use ensemble_core::Error;
use ensemble_team::worktree::{CheckedOut, RemoteState};

use super::DoctorCheck;
use crate::context::Context;

/// Whether approved tasks can be merged. Nothing is said without a blackboard in a git repository.
pub(super) fn merges(context: &Context) -> Option<DoctorCheck> {
    let board = context.board().ok()?;
    let worktrees = context.worktrees(&board).ok()?;
    if let Some(state) = worktrees.remote_state().transpose() {
        return Some(shared(state));
    }
    Some(match worktrees.checked_out() {
        Ok(None) => DoctorCheck::ok("merges", "the integration branch is not checked out"),
        Ok(Some(CheckedOut { branch, path, .. })) => DoctorCheck::warn(
            "merges",
            format!("`{branch}`, the integration branch, is checked out at {}", path.display()),
            "approved tasks wait until then: `git switch --detach` there, or name another \
             `integration_branch`",
        ),
        Err(error) => DoctorCheck::warn("merges", error.to_string(), "see what git says"),
    })
}

fn shared(state: Result<RemoteState, Error>) -> DoctorCheck {
    let (remote, branch, tip, unpushed) = match state {
        Ok(RemoteState { remote, branch, tip, unpushed, .. }) => (remote, branch, tip, unpushed),
        Err(error) => {
            let remedy = "no task can be claimed, submitted or merged until it answers: try \
                          `git ls-remote`, and see `worktrees: {remote: …}` in ensemble.yaml";
            return DoctorCheck::fail("merges", error.to_string(), remedy);
        }
    };
    match (tip, unpushed) {
        (None, _) => {
            let text = format!("`{remote}` answers; the first claim makes `{branch}` there");
            DoctorCheck::ok("merges", text)
        }
        (Some(_), 0) => {
            DoctorCheck::ok("merges", format!("go to `{branch}` of `{remote}`, which answers"))
        }
        (Some(_), count) => {
            let text =
                format!("`{branch}` here has {}, which `{remote}` lacks", plural(count, "commit"));
            let remedy =
                format!("tasks begin at the remote's branch: `git push {remote} {branch}`");
            DoctorCheck::warn("merges", text, remedy)
        }
    }
}
