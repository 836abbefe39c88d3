//! Worktrees of tasks in real repositories: claims, hand-ins, verdicts, merges, and cleanup.

mod bed;
mod claims;
mod damaged;
mod hosts;
mod killed;
mod left;
mod merges;
mod remote;
mod stopped;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_team::board::{Board, TaskStatus, is_fenced};
use ensemble_team::proto::task::TaskHolder;
use ensemble_team::worktree::{
    ClaimedTask, MergeOutcome, MergeTests, ReviewDecision, UnfitReason, WorktreeOptions, Worktrees,
};

use crate::children;
use crate::children::{Child, wait_until};
use bed::{Bed, board_options, commit, done, git, name, options, refusal};

#[test]
fn play_role() {
    if let Some(role) = children::cast() {
        match &role[..] {
            [what, home, agent, epoch] if what == "hold" => stopped::hold(home, agent, epoch),
            _ => killed::play(&role),
        }
    }
}
