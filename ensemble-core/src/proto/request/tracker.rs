//! Many requests, identified by their ids.

use std::collections::{BTreeMap, VecDeque};

use super::{DecisionRefusal, Effect, Event, Request};
use crate::env::Monotonic;
use crate::proto::Machine;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Correlated<T> {
    pub id: String,
    pub inner: T,
}

impl<T> Correlated<T> {
    pub fn new(id: impl Into<String>, inner: T) -> Self {
        Self { id: id.into(), inner }
    }
}

/// All requests of a team. Correlates events by id; they may arrive in any order.
#[derive(Clone, Debug, Default)]
pub struct RequestTracker {
    requests: BTreeMap<String, Request>,
    effects: VecDeque<Correlated<Effect>>,
}

impl RequestTracker {
    /// Adds a request; a known id keeps its request.
    pub fn insert(&mut self, request: Request) {
        self.requests.entry(request.id().to_owned()).or_insert(request);
    }

    pub fn remove(&mut self, id: &str) -> Option<Request> {
        self.requests.remove(id)
    }

    pub fn get(&self, id: &str) -> Option<&Request> {
        self.requests.get(id)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Request> {
        self.requests.values()
    }

    fn collect(effects: &mut VecDeque<Correlated<Effect>>, request: &mut Request) {
        while let Some(effect) = request.poll_effect() {
            effects.push_back(Correlated::new(request.id(), effect));
        }
    }
}

impl Machine for RequestTracker {
    type Event = Correlated<Event>;
    type Effect = Correlated<Effect>;

    fn handle(&mut self, now: Monotonic, event: Correlated<Event>) {
        let Correlated { id, inner } = event;
        match (self.requests.get_mut(&id), inner) {
            (Some(request), event) => {
                request.handle(now, event);
                Self::collect(&mut self.effects, request);
            }
            (None, Event::Decide(_) | Event::Cancel(_)) => {
                let refusal = Effect::Refused(DecisionRefusal::Unknown { id: id.clone() });
                self.effects.push_back(Correlated::new(id, refusal));
            }
            (None, Event::Opened { .. } | Event::Standing(_) | Event::Absent(_)) => {}
        }
    }

    fn handle_timeout(&mut self, now: Monotonic) {
        for request in self.requests.values_mut() {
            request.handle_timeout(now);
            Self::collect(&mut self.effects, request);
        }
    }

    fn poll_effect(&mut self) -> Option<Correlated<Effect>> {
        self.effects.pop_front()
    }

    fn poll_timeout(&self) -> Option<Monotonic> {
        self.requests.values().filter_map(Request::poll_timeout).min()
    }
}
