//! Worktrees of tasks in real repositories: claims, hand-ins, verdicts, merges, and what is left.

mod bed;
mod claims;
mod merges;
