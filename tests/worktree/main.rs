//! Worktrees of tasks in real repositories: claims, hand-ins, verdicts, merges, and what is left.

mod bed;
#[path = "../children/mod.rs"]
mod children;
mod claims;
mod killed;
mod left;
mod merges;

#[test]
fn play_role() {
    if let Some(role) = children::cast() {
        killed::play(&role);
    }
}
