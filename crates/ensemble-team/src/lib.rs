//! What a team of coding agents needs on top of the broker [`ensemble_core`].
//!
//! * [`roster`] lists the agents of a team: their names, roles, panes and passes.
//! * [`admission`] answers whether an agent may begin or hand in a task, for mail, board and steps alike.
//! * [`board`] is the blackboard `state.yaml`; [`worktree`] keeps one git worktree for each of its tasks,
//!   from the claim to the merge.
//! * `steps` (feature) is a queue of steps in SQLite, with focused prompts and a completion tool.
//! * [`holdings`] says what an agent holds: messages, board tasks, reviews and steps. [`authority`] says
//!   which agents may stop others.
//! * [`collect`] gathers the reports of a batch of tasks.
//! * [`proto`] has the state machines of tasks, steps and supervisors; [`driver`] performs what they ask
//!   for: supervisors, batches, departures, reviews.
//! * [`migration`] moves the mailboxes of a team from files to servers, or back.
//! * [`replay`] rebuilds the state of a project from its event log and compares it with the disk.
//!
//! The crate starts no thread. It runs the program `git` for worktrees, and the agents' own programs.
#![forbid(unsafe_code)]

pub mod admission;
pub mod authority;
pub mod board;
pub mod budget;
pub mod collect;
pub mod driver;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod holdings;
pub mod migration;
pub mod proto;
pub mod replay;
pub mod roster;
pub mod silence;
#[cfg(feature = "steps")]
pub mod steps;
mod template;
pub mod worktree;
