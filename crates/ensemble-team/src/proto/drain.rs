//! Shutting down a whole team in order, its leader last (seed 004: "the lead requests").
//!
//! ```text
//! state        event                                -> state        effects
//! New          Begin                                -> Tier 0       Ask, each of the tier
//! Tier n       Gone, Stayed, of one of it           -> Tier n
//! Tier n       the last of it, all have gone        -> Tier n+1     Ask, each of the tier
//! Tier n       the last of it, some have stayed     -> Over         Over
//! last tier    the last of it                       -> Over         Over
//! any          of another agent, or again           -> the same
//! ```
//!
//! Workers end first, all at once; then their dispatchers; the Conductor last. An agent is not
//! asked if an agent that stays needs it: a worker that rejects its shutdown keeps its Dispatch and
//! its Conductor. The requester hears which agents stayed and why others were not asked.
//!
//! *Silence* is handled by each request's own deadline. *A crash* in the middle leaves requests
//! that continue by themselves. When the drain is repeated, agents that have ended are not asked.

use std::collections::{BTreeMap, BTreeSet};

use ensemble_core::message::Name;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Begin,
    Gone(Name),
    /// This agent stays: it rejected the request, or could not be asked.
    Stayed(Name),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Ask(Name),
    /// No further agent is asked. Exactly once.
    Over {
        gone: BTreeSet<Name>,
        stayed: BTreeSet<Name>,
        /// Agents that were not asked because an agent that stays needs them.
        unasked: BTreeSet<Name>,
    },
}

/// The tier of a role; tier 0 ends first.
pub fn tier(role: &Name) -> u8 {
    match role.as_str() {
        "conductor" | "lead" | "orchestrator" => 2,
        "dispatch" | "dispatcher" | "planner" => 1,
        _ => 0,
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    New,
    Tier { open: BTreeSet<Name> },
    Over,
}

#[derive(Clone, Debug)]
pub struct TeamDrain {
    state: State,
    /// Agents that were not asked yet, by tier.
    later: BTreeMap<u8, BTreeSet<Name>>,
    gone: BTreeSet<Name>,
    stayed: BTreeSet<Name>,
}

impl TeamDrain {
    pub fn new(team: impl IntoIterator<Item = (Name, Name)>) -> Self {
        let mut later: BTreeMap<u8, BTreeSet<Name>> = BTreeMap::new();
        for (agent, role) in team {
            later.entry(tier(&role)).or_default().insert(agent);
        }
        Self { state: State::New, later, gone: BTreeSet::new(), stayed: BTreeSet::new() }
    }

    pub fn next(mut self, event: Event) -> (Self, Vec<Effect>) {
        let state = std::mem::replace(&mut self.state, State::Over);
        let (state, effects) = match (state, event) {
            (State::New, Event::Begin) => self.next_tier(),
            (State::Tier { open }, Event::Gone(agent)) => self.answered(open, agent, true),
            (State::Tier { open }, Event::Stayed(agent)) => self.answered(open, agent, false),
            (late, Event::Begin | Event::Gone(_) | Event::Stayed(_)) => (late, Vec::new()),
        };
        self.state = state;
        (self, effects)
    }

    fn next_tier(&mut self) -> (State, Vec<Effect>) {
        if self.stayed.is_empty()
            && let Some((_, tier)) = self.later.pop_first()
        {
            let asked = tier.iter().cloned().map(Effect::Ask).collect();
            return (State::Tier { open: tier }, asked);
        }
        let unasked = std::mem::take(&mut self.later).into_values().flatten().collect();
        let (gone, stayed) = (self.gone.clone(), self.stayed.clone());
        (State::Over, vec![Effect::Over { gone, stayed, unasked }])
    }

    fn answered(
        &mut self,
        mut open: BTreeSet<Name>,
        agent: Name,
        has_gone: bool,
    ) -> (State, Vec<Effect>) {
        if open.remove(&agent) {
            if has_gone { &mut self.gone } else { &mut self.stayed }.insert(agent);
        }
        if open.is_empty() { self.next_tier() } else { (State::Tier { open }, Vec::new()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ensemble_core::proto::testing::name;

    fn names<const N: usize>(all: [&str; N]) -> BTreeSet<Name> {
        all.map(name).into()
    }

    fn team() -> TeamDrain {
        let leads = [("boss", "conductor"), ("router", "dispatch")];
        let others = [("ann", "worker"), ("bob", "code-reviewer")];
        let members = leads.into_iter().chain(others);
        TeamDrain::new(members.map(|(agent, role)| (name(agent), name(role))))
    }

    fn asked(machine: &mut TeamDrain, event: Event) -> Vec<Effect> {
        let (next, effects) = machine.clone().next(event);
        *machine = next;
        effects
    }

    fn ask<const N: usize>(all: [&str; N]) -> Vec<Effect> {
        all.map(|agent| Effect::Ask(name(agent))).into()
    }

    #[test]
    fn conductor_ends_last() {
        let mut machine = team();
        assert_eq!(asked(&mut machine, Event::Begin), ask(["ann", "bob"]));
        assert_eq!(asked(&mut machine, Event::Gone(name("bob"))), []);
        assert_eq!(asked(&mut machine, Event::Gone(name("ann"))), ask(["router"]));
        assert_eq!(asked(&mut machine, Event::Gone(name("router"))), ask(["boss"]));
        let over = asked(&mut machine, Event::Gone(name("boss")));
        let gone = names(["ann", "bob", "boss", "router"]);
        let (stayed, unasked) = (BTreeSet::new(), BTreeSet::new());
        assert_eq!(over, [Effect::Over { gone, stayed, unasked }]);
    }

    #[test]
    fn agent_needed_by_one_that_stays_is_not_asked() {
        let mut machine = team();
        asked(&mut machine, Event::Begin);
        assert_eq!(asked(&mut machine, Event::Stayed(name("ann"))), []);
        let over = asked(&mut machine, Event::Gone(name("bob")));
        let (gone, stayed) = (names(["bob"]), names(["ann"]));
        assert_eq!(over, [Effect::Over { gone, stayed, unasked: names(["boss", "router"]) }]);
    }

    #[test]
    fn every_pair_of_state_and_event() {
        let mut tier = team();
        asked(&mut tier, Event::Begin);
        let mut over = TeamDrain::new([]);
        assert_eq!(asked(&mut over, Event::Begin).len(), 1, "an empty team is over at once");
        let events = [Event::Begin, Event::Gone(name("boss")), Event::Stayed(name("stranger"))];
        for (machine, moves) in [(team(), 1), (tier, 0), (over, 0)] {
            for (number, event) in events.clone().into_iter().enumerate() {
                let mut machine = machine.clone();
                let before = machine.state.clone();
                let effects = asked(&mut machine, event);
                let moved = number < moves;
                assert_eq!((machine.state != before, !effects.is_empty()), (moved, moved));
            }
        }
        // Doubled answers count once.
        let mut machine = team();
        asked(&mut machine, Event::Begin);
        for _ in 0..2 {
            assert_eq!(asked(&mut machine, Event::Gone(name("ann"))), []);
        }
        assert_eq!(asked(&mut machine, Event::Stayed(name("ann"))), []);
    }
}
