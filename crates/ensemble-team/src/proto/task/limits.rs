//! Limits of tries before a person or a planner must intervene.

use std::collections::BTreeSet;

use ensemble_core::message::Name;

/// Number of failed coders at which a task counts as exhausted.
pub const EXHAUSTED_BY: usize = 2;

/// The limits of every task; a task's `max_iterations` overrides the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskLimits {
    pub iterations_max: u32,
    pub iterations_warn: u32,
    /// Most rejections of one coder's work.
    pub review_cycles_max: u32,
    /// Rejection from which on there is a warning.
    pub review_cycles_warn: u32,
}

impl Default for TaskLimits {
    fn default() -> Self {
        Self::with_max(10, 5)
    }
}

impl TaskLimits {
    /// Limits with these maxima; warnings come two before.
    pub const fn with_max(iterations_max: u32, review_cycles_max: u32) -> Self {
        Self {
            iterations_max,
            iterations_warn: iterations_max.saturating_sub(2),
            review_cycles_max,
            review_cycles_warn: review_cycles_max.saturating_sub(2),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitKind {
    Iterations,
    ReviewCycles,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskCounts {
    /// Iteration of its coder, starting at 1.
    pub iteration: u32,
    /// The coder of these iterations: the last one that claimed the task, if known.
    pub coder: Option<Name>,
    /// Rejections of its coder's work.
    pub review_cycles_current: u32,
    /// Rejections of all coders' work.
    pub review_cycles_total: u32,
    pub failed_by: BTreeSet<Name>,
}

impl TaskCounts {
    pub fn is_exhausted(&self) -> bool {
        self.failed_by.len() >= EXHAUSTED_BY
    }
}
