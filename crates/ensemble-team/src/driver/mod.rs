//! Where the protocols of a team meet the world. Machines are fed with the state of boards, files,
//! processes and clocks, and their effects are carried out.
//!
//! ```text
//! Dispatcher   collect::Collect over the reports, and Batches, which tell once (`ensemble task summary`)
//! DispatchRun  proto::dispatch over mailboxes, ladders and reports    (`ensemble task dispatch`)
//! Conductor    sends an instruction, hears of escalations, waits for the summary  (`ensemble agent instruct`)
//! Reviews      how often a task came back from review                 (`ensemble task review`)
//! TaskEnds     records each end of a task once                      (`task_complete`, `task_failed`)
//! ShutdownDriver      proto::shutdown over processes, a pane, mail and the roster        (seed 004)
//! supervise    proto::supervise over a blackboard, worktrees and processes     (seed 001)
//! BoardLeases  proto::lease over a blackboard's leases                         (seed 001)
//! BoardUpkeep  what follows from control files and anomalies beside it         (seed 001)
//! StepDriver   a step queue (feature `steps`) over mailboxes                          (seed 003)
//! RunNote      what a killed `ensemble step run` leaves for people
//! ```
//!
//! The drivers of readiness and acknowledgement are in [`ensemble_core::driver`]; what its page says of
//! waiting and recording holds here, too.

mod batches;
mod board_leases;
mod board_upkeep;
mod collect;
mod conductor;
mod departure;
mod dispatch;
mod ends;
mod reviews;
#[cfg(feature = "steps")]
mod step_runs;
#[cfg(feature = "steps")]
mod steps;
pub mod supervise;
mod task_reports;

pub use batches::{BatchError, Batches, SUMMARY_PATH, SummaryOutcome, batch_of};
pub use board_leases::{BoardLeases, SupervisorSeat, UnsupervisedAgent};
pub use board_upkeep::BoardUpkeep;
pub use collect::{Dispatcher, TaskBatch};
pub use conductor::{Conductor, INSTRUCTION_TYPE};
pub use departure::{AgentDeparture, AgentHost, DepartureOutcome, ShutdownDriver, departure_note};
pub use dispatch::{
    AvailableWorker, BatchProgress, DispatchFile, DispatchRun, WorkerPool, list_left_batches,
    plan_of, task_message,
};
pub use ends::{TaskEnds, retention};
pub use reviews::{REVIEW_CYCLES_DEFAULT, ReviewCount, ReviewCounts, file_stem};
#[cfg(feature = "steps")]
pub use step_runs::{RunNote, list_lost_runs};
#[cfg(feature = "steps")]
pub use steps::{STEP_TYPE, SentPrompt, StepDriver, StepRound};
