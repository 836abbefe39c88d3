//! Worktrees of tasks in real repositories: claims, hand-ins, verdicts, merges, and cleanup.

mod bed;
#[path = "../support/children.rs"]
mod children;
mod claims;
mod damaged;
#[path = "../support/git.rs"]
mod git;
mod hosts;
mod killed;
mod left;
#[path = "../support/memory.rs"]
mod memory;
mod merges;
mod remote;
mod stopped;

#[test]
fn play_role() {
    if let Some(role) = children::cast() {
        match &role[..] {
            [what, home, agent, epoch] if what == "hold" => stopped::hold(home, agent, epoch),
            _ => killed::play(&role),
        }
    }
}
