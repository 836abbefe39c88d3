//! What the tests of the machines share.

use std::fmt::Debug;

use ensemble_core::env::Monotonic;
use ensemble_core::proto::Machine;
use ensemble_core::proto::testing::{drain, pairs};

/// What a machine asks for when it has taken an event.
pub(crate) fn react<M: Machine>(
    machine: &mut M,
    now: Monotonic,
    event: M::Event,
) -> Vec<M::Effect> {
    machine.handle(now, event);
    drain(machine)
}

/// What a machine asks for when time has passed.
pub(crate) fn wake<M: Machine>(machine: &mut M, now: Monotonic) -> Vec<M::Effect> {
    machine.handle_timeout(now);
    drain(machine)
}

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
