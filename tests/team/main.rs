//! A team: its blackboard, steps, batches, roles, supervisors and worktrees, in real processes and in simulated time.

#[path = "../support/children.rs"]
mod children;
#[path = "../support/git.rs"]
mod git;
#[path = "../support/memory.rs"]
mod memory;
#[cfg(feature = "postgres")]
#[path = "../support/postgres.rs"]
mod postgres_support;
#[path = "../support/queue.rs"]
mod queue;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/tmux.rs"]
mod tmux_support;

mod batches_killed;
mod board;
mod board_sim;
mod dispatch;
mod lint_corpus;
mod queue_example;
mod roles;
mod security;
#[cfg(feature = "steps")]
mod sim;
mod spool_model;
#[cfg(feature = "postgres")]
mod steps;
#[cfg(feature = "postgres")]
mod steps_on_server;
mod supervise;
mod worktree;
