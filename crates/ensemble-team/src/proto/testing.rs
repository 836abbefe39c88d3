//! What the tests of the machines share.

use std::fmt::Debug;

use ensemble_core::proto::testing::pairs;

/// The name of a value's variant, without its fields.
pub(super) fn variant(value: &impl Debug) -> String {
    let text = format!("{value:?}");
    text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
}

/// [`pairs`] of states and events that are called as their variants.
pub(super) fn variant_pairs<S: Copy + Debug, E: Copy + Debug>(
    states: &[S],
    events: &[E],
    outcome: impl Fn(S, E) -> String,
) -> String {
    let states: Vec<_> = states.iter().map(|state| (variant(state), *state)).collect();
    let events: Vec<_> = events.iter().map(|event| (variant(event), *event)).collect();
    let states: Vec<_> = states.iter().map(|(name, state)| (name.as_str(), *state)).collect();
    let events: Vec<_> = events.iter().map(|(name, event)| (name.as_str(), *event)).collect();
    pairs(&states, &events, |state, event| outcome(*state, *event))
}
