//! Red, Green, Refactor, Review: the order of test-driven steps. It is checked in a plan and when a
//! step is taken (seed 003, "Strict TDD Rules").
//!
//! Steps of one *cycle* pass through the phases in order. A phase may have several steps or none,
//! but there is no Green without a Red before it. Cycles do not wait for each other.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A phase of a cycle, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum TddPhase {
    /// Write a test that fails.
    Red,
    /// Make it pass.
    Green,
    /// Tidy up while it passes.
    Refactor,
    /// Review the result.
    Review,
}

impl TddPhase {
    /// All phases, in order.
    pub const ALL: [Self; 4] = [Self::Red, Self::Green, Self::Refactor, Self::Review];

    /// Its place in the order, starting at 0.
    pub const fn rank(self) -> u8 {
        match self {
            Self::Red => 0,
            Self::Green => 1,
            Self::Refactor => 2,
            Self::Review => 3,
        }
    }

    pub const fn word(self) -> &'static str {
        match self {
            Self::Red => "red",
            Self::Green => "green",
            Self::Refactor => "refactor",
            Self::Review => "review",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    #[error("has no `phase`: the policy `tdd` needs red, green, refactor or review")]
    NoPhase { step: usize },
    #[error("is `{}` after `{}` in cycle `{cycle}`: the order is red, green, refactor, review", phase.word(), after.word())]
    Backwards { step: usize, phase: TddPhase, after: TddPhase, cycle: String },
    #[error("begins cycle `{cycle}` with `{}`: begin with `red`", phase.word())]
    NoTest { step: usize, phase: TddPhase, cycle: String },
}

impl OrderError {
    /// Index of the step concerned, starting at 0.
    pub const fn step(&self) -> usize {
        match self {
            Self::NoPhase { step } | Self::Backwards { step, .. } | Self::NoTest { step, .. } => {
                *step
            }
        }
    }
}

/// Checks a plan. `steps` are the phase and the cycle of each step, in order.
pub fn check_cycles<'a>(
    steps: impl IntoIterator<Item = (Option<TddPhase>, &'a str)>,
) -> Result<(), OrderError> {
    let mut last: BTreeMap<&str, TddPhase> = BTreeMap::new();
    for (step, (phase, cycle)) in steps.into_iter().enumerate() {
        let Some(phase) = phase else { return Err(OrderError::NoPhase { step }) };
        let cycle_name = || cycle.to_owned();
        match last.insert(cycle, phase) {
            None if phase != TddPhase::Red => {
                return Err(OrderError::NoTest { step, phase, cycle: cycle_name() });
            }
            Some(after) if phase < after => {
                return Err(OrderError::Backwards { step, phase, after, cycle: cycle_name() });
            }
            Some(_) | None => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycle_begins_red_and_never_goes_back() {
        use TddPhase::{Green, Red, Refactor, Review};
        let check = |phases: &[TddPhase]| check_cycles(phases.iter().map(|p| (Some(*p), "a")));
        assert_eq!(check(&[Red, Green, Refactor, Review]), Ok(()));
        assert_eq!(check(&[Red, Red, Green, Review]), Ok(()));
        assert!(matches!(check(&[Green]), Err(OrderError::NoTest { step: 0, .. })));
        assert!(matches!(check(&[Red, Review, Green]), Err(OrderError::Backwards { step: 2, .. })));
        assert_eq!(check_cycles([(None, "a")]), Err(OrderError::NoPhase { step: 0 }));
        // Cycles do not wait for each other.
        let steps = [(Red, "a"), (Red, "b"), (Green, "a"), (Green, "b")];
        assert_eq!(check_cycles(steps.map(|(phase, cycle)| (Some(phase), cycle))), Ok(()));
    }
}
