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

use crate::children;

#[test]
fn play_role() {
    if let Some(role) = children::cast() {
        match &role[..] {
            [what, home, agent, epoch] if what == "hold" => stopped::hold(home, agent, epoch),
            _ => killed::play(&role),
        }
    }
}
