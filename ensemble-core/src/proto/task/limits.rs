//! How often something is tried before a person or a planner must look.

use std::collections::BTreeSet;

use crate::message::Name;

/// How many coders must have failed for a task to count as wrongly cut.
pub const EXHAUSTED_BY: usize = 2;

/// The limits of every task; `max_iterations` of a task overrides the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Iterations of one coder.
    pub iterations_max: u32,
    /// From which iteration on there is a warning.
    pub iterations_warn: u32,
    /// Rejections of one coder's work.
    pub review_cycles_max: u32,
    /// From which rejection on there is a warning.
    pub review_cycles_warn: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { iterations_max: 10, iterations_warn: 8, review_cycles_max: 5, review_cycles_warn: 3 }
    }
}

const _: () = {
    let usual = Limits {
        iterations_max: 10,
        iterations_warn: 8,
        review_cycles_max: 5,
        review_cycles_warn: 3,
    };
    assert!(usual.iterations_warn < usual.iterations_max);
    assert!(usual.review_cycles_warn < usual.review_cycles_max);
};

impl Limits {
    /// With other maxima; warnings come two before.
    #[must_use]
    pub const fn with_max(iterations_max: u32, review_cycles_max: u32) -> Self {
        Self {
            iterations_max,
            iterations_warn: iterations_max.saturating_sub(2),
            review_cycles_max,
            review_cycles_warn: review_cycles_max.saturating_sub(2),
        }
    }
}

/// Which limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// [`Limits::iterations_max`].
    Iterations,
    /// [`Limits::review_cycles_max`].
    ReviewCycles,
}

impl Limit {
    /// In words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Iterations => "iterations",
            Self::ReviewCycles => "review_cycles",
        }
    }
}

/// What was counted of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Iterations of its coder, from 1.
    pub iteration: u32,
    /// Whose iterations these are: the last one that claimed it, if that is known.
    pub coder: Option<Name>,
    /// Rejections of its coder's work.
    pub review_cycles_current: u32,
    /// Rejections of anybody's.
    pub review_cycles_total: u32,
    /// Coders that failed.
    pub failed_by: BTreeSet<Name>,
}

impl Counts {
    /// Whether nobody should try again as it is.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.failed_by.len() >= EXHAUSTED_BY
    }
}
