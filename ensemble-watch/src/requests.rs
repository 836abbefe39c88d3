//! The watcher's part in requests: the work that their own processes left undone.
//!
//! ```text
//! inotify, start, every poll interval ──> look ──> Tracker ──> announce, remind, expire
//!                                           └─────> decided: notify, then hand over
//! ```
//!
//! The process that asks or decides normally does the follow-up itself. The watcher does it if that
//! process was killed, if a script had only `ln`, or if no answer comes in time. It retries a
//! failed step, for example a full mailbox. It hands the remaining work after a decision to
//! `departures`, again at every start until the request is closed.
//!
//! The same code serves requests on servers, where the thread that follows them sends the events
//! (see `remote`). The watchers of several hosts run it in parallel; each result is stored once.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ensemble_core::env::{Clock as _, Lease, Monotonic, SystemClock};
use ensemble_core::event_log::types;
use ensemble_core::message::Name;
use ensemble_core::proto::Machine as _;
use ensemble_core::proto::request::{
    Correlated, Decision, Effect, Event, Outcome, Request, RequestTracker,
};
use ensemble_core::requests::{
    DecisionNote, GateState, Kinds, REQUESTS, RequestEntry, RequestStore, Requests,
};
use ensemble_core::watch::WatchError;
use ensemble_core::{Error, Result};
use ensemble_project::Project;
use ensemble_project::status::ACTOR;
use ensemble_project::workload::describe_wait;
use ensemble_team::authority::NotAuthorized;
use ensemble_team::driver::departure_note;
use ensemble_team::roster::Roster;
use serde_json::json;

use crate::authority::AuthorityGuard;
use crate::context::WatchContext;
use crate::departures::DepartureThreads;
use crate::watch_set::{WatchSet, WatchedPlace};

/// Time left to the asking or deciding process to finish by itself.
const GRACE: Duration = Duration::from_millis(200);
const RETRY: Duration = Duration::from_secs(5);

pub(crate) struct RequestWatch {
    dir: PathBuf,
    kinds: Kinds,
    tracker: RequestTracker,
    due: BTreeMap<Name, Monotonic>,
    /// Each with whether its requester was notified before.
    handed_over: BTreeSet<(Name, bool)>,
    closed: HashSet<Name>,
    departures: Option<DepartureThreads>,
    /// Where several hosts watch: only decisions about these agents are carried out here.
    members: Option<Roster>,
    authority: AuthorityGuard,
    /// Called for a decision as soon as it is seen.
    note: DecisionNote<'static>,
}

impl RequestWatch {
    /// Requests for a shutdown whose requester has no authority are withdrawn: the commands refuse them, so they
    /// were put down by hand. An agent that has agreed to its shutdown is `leaving` in the roster.
    pub(crate) fn new(project: &Project) -> Result<Self> {
        Ok(Self {
            dir: project.queue.join(REQUESTS),
            kinds: project.kinds()?,
            tracker: RequestTracker::default(),
            due: BTreeMap::new(),
            handed_over: BTreeSet::new(),
            closed: HashSet::new(),
            departures: None,
            members: None,
            authority: AuthorityGuard::new(project),
            note: departure_note(project.roster()),
        })
    }

    /// Leaves agents that are not in this roster to their own hosts.
    pub(crate) fn only_for(self, members: Roster) -> Self {
        Self { members: Some(members), ..self }
    }

    /// Carries out the decisions about the requests of this store.
    pub(crate) fn carry_out_for(
        &mut self,
        context: &Arc<WatchContext>,
        store: Arc<dyn RequestStore + Send + Sync>,
    ) {
        self.departures = Some(DepartureThreads::new(context, store));
    }

    pub(crate) fn rewatch(&mut self, watch_set: &mut WatchSet) -> Result<(), WatchError> {
        // A handmade queue may lack the directory, and asking makes it.
        let _ = std::fs::create_dir(&self.dir);
        watch_set.rewatch(&self.dir, WatchedPlace::Requests)?;
        let ids = self.tracker.iter().filter_map(|request| Name::new(request.id()).ok());
        ids.for_each(|id| watch(&self.dir, watch_set, &id));
        Ok(())
    }

    pub(crate) fn scan(
        &mut self,
        now: Monotonic,
        store: &dyn RequestStore,
        mut watch_set: Option<&mut WatchSet>,
    ) {
        if let Some(watch_set) = &mut watch_set
            && let Err(error) = self.rewatch(watch_set)
        {
            tracing::warn!(%error, "cannot watch the requests");
        }
        let ids = match Requests::new(store).ids() {
            Ok(ids) => ids,
            Err(error) => return tracing::warn!(%error, "cannot list the requests"),
        };
        let present: HashSet<Name> = ids.iter().cloned().collect();
        self.closed.retain(|id| present.contains(id));
        let gone: Vec<String> = self.tracker.iter().map(|r| r.id().to_owned()).collect();
        for id in gone.iter().filter(|id| !present.iter().any(|p| p.as_str() == **id)) {
            self.tracker.remove(id);
        }
        for id in ids {
            self.observe_request(now, &id, store, watch_set.as_deref_mut());
        }
    }

    /// Looks at one request; a closed one is not read again.
    pub(crate) fn observe_request(
        &mut self,
        now: Monotonic,
        id: &Name,
        store: &dyn RequestStore,
        watch_set: Option<&mut WatchSet>,
    ) {
        if self.closed.contains(id) {
            return;
        }
        if let Some(watch_set) = watch_set
            && !Requests::new(store).is_closed(id).unwrap_or(false)
        {
            // Watched before reading, so that an answer in between raises an event.
            watch(&self.dir, watch_set, id);
        }
        match self.requests(store).find(id.as_str()) {
            Ok(Some(entry)) if entry.is_closed => self.forget(id),
            Ok(Some(entry)) => {
                let refused = self.authority.refuses(&entry);
                match refused.map(|refused| self.withdraw(&entry, &refused, store)) {
                    None => self.update_machine(now, &entry, store),
                    Some(Ok(())) => self.forget(id),
                    Some(Err(error)) => tracing::warn!(%error, "cannot withdraw a request"),
                }
            }
            // The request is gone, or not complete yet.
            Ok(None) => {}
            Err(error @ (Error::Malformed { .. } | Error::TooLarge { .. })) => {
                match self.requests(store).reject(id) {
                    Ok(Some(kept_as)) => {
                        tracing::warn!(%error, kept_as, "an invalid request was moved aside");
                    }
                    Ok(None) => {}
                    Err(error) => tracing::warn!(%error, "cannot read a request"),
                }
            }
            // `status` names what is in the place of a request until it is moved away.
            Err(error) if error.io_kind() == Some(ErrorKind::NotADirectory) => {}
            Err(error) => tracing::warn!(%error, "cannot read a request"),
        }
    }

    fn withdraw(
        &self,
        entry: &RequestEntry,
        refused: &NotAuthorized,
        store: &dyn RequestStore,
    ) -> Result<()> {
        let id = &entry.request.request_id;
        let NotAuthorized { name, role, act, .. } = refused;
        self.requests(store).moot(id.as_str(), &refused.to_string())?;
        let data = json!({ "agent": name, "role": role, "act": act.key(), "request_id": id });
        store.recorder().record(types::AUTHORITY_REFUSED, ACTOR, data);
        Ok(())
    }

    fn update_machine(&mut self, now: Monotonic, entry: &RequestEntry, store: &dyn RequestStore) {
        let asked = &entry.request;
        let id = asked.request_id.as_str();
        self.tracker.insert(asked.machine());
        let age = store.age(asked.created_at);
        self.tracker.handle(now, Correlated::new(id, Event::Opened { age }));
        if let Some(decision) = &entry.decision {
            // A script that decides with `ln` leaves everything that follows to this process.
            if let Err(error) = (self.note)(entry) {
                tracing::warn!(%id, %error, "cannot note a decision: it is tried again");
            }
            let standing = Event::Standing(decision.clone());
            self.tracker.handle(now, Correlated::new(id, standing));
        }
    }

    fn forget(&mut self, id: &Name) {
        self.tracker.remove(id.as_str());
        self.due.remove(id);
        self.handed_over.retain(|(handed, _)| handed != id);
        self.closed.insert(id.clone());
    }

    /// An agent has gone: the requests that it will not answer expire without waiting.
    pub(crate) fn absent(&mut self, now: Monotonic, agent: &Name, why: &str) {
        let asked = |request: &&Request| request.to() == agent && request.decision().is_none();
        let ids: Vec<String> =
            self.tracker.iter().filter(asked).map(|request| request.id().to_owned()).collect();
        for id in ids {
            let decision = Decision::new(Outcome::Expired, agent.clone(), SystemClock.wall());
            let absent = Event::Absent(decision.with_comment(why));
            self.tracker.handle(now, Correlated::new(id, absent));
        }
    }

    pub(crate) fn drive(&mut self, now: Monotonic, store: &dyn RequestStore) {
        self.tracker.handle_timeout(now);
        while let Some(Correlated { id, inner }) = self.tracker.poll_effect() {
            let Ok(id) = Name::new(id) else { continue };
            let done = match inner {
                // The asking or deciding process does the rest; otherwise this code does.
                Effect::Announce | Effect::Closed(_) => {
                    self.due.entry(id).or_insert(now + GRACE);
                    continue;
                }
                Effect::Remind { nth } => self.requests(store).remind(id.as_str(), nth),
                Effect::Close(expiry) => {
                    self.requests(store).propose(id.as_str(), &expiry).map(|p| {
                        let standing = Event::Standing(p.standing);
                        self.tracker.handle(now, Correlated::new(id.as_str(), standing));
                    })
                }
                // The watcher decides no request.
                Effect::Refused(_) => Ok(()),
            };
            if let Err(error) = done {
                // The machine proposes the step again by itself.
                tracing::warn!(%id, %error, "cannot continue a request");
            }
        }
        let due: Vec<Name> =
            self.due.iter().filter(|(_, at)| **at <= now).map(|(id, _)| id.clone()).collect();
        for id in due {
            self.due.remove(&id);
            if let Err(error) = self.go_on(&id, store) {
                tracing::warn!(%id, %error, "cannot continue a request: it is tried again");
                self.due.insert(id, now + RETRY);
            }
        }
    }

    fn go_on(&mut self, id: &Name, store: &dyn RequestStore) -> Result<()> {
        let Some(entry) = self.requests(store).resume(id.as_str())? else {
            self.tracker.remove(id.as_str());
            return Ok(());
        };
        if entry.is_closed {
            self.forget(id);
        } else if entry.is_to_be_carried_out()
            && self.is_ours(&entry.request.to)?
            && self.handed_over.insert((id.clone(), entry.untold.is_none()))
        {
            let data = json!({
                "request_id": id, "kind": entry.request.kind, "from": entry.request.from,
                "to": entry.request.to, "outcome": entry.state(),
            });
            store.recorder().record(types::REQUEST_HANDED_OVER, ACTOR, data);
            if let Some(departures) = &mut self.departures {
                departures.begin(&entry);
            }
        }
        entry.untold.map_or(Ok(()), |detail| Err(Error::Refused { detail }))
    }

    fn is_ours(&self, agent: &Name) -> Result<bool> {
        match &self.members {
            None => Ok(true),
            Some(roster) => Ok(roster.get(agent)?.is_some()),
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Monotonic> {
        self.tracker.poll_timeout().into_iter().chain(self.due.values().copied()).min()
    }

    /// Pending requests between agents, as of the last look, in a few words.
    pub(crate) fn waits_for(&self) -> BTreeMap<Name, String> {
        let pending = self.tracker.iter().filter(|request| request.decision().is_none());
        let words = |r: &Request| (r.from().clone(), describe_wait(&r.kind().name, r.to()));
        pending.map(words).collect()
    }

    pub(crate) fn summary(&self) -> serde_json::Value {
        let pending = self.tracker.iter().filter(|r| r.decision().is_none()).count();
        json!({ "pending": pending, "decided": self.tracker.iter().count() - pending })
    }

    fn requests<'l>(&self, store: &'l dyn RequestStore) -> Requests<'l> {
        Requests::new(store).with_kinds(self.kinds.clone()).with_note(Arc::clone(&self.note))
    }
}

/// The next scan finds an answer that raises no event.
fn watch(dir: &Path, watch_set: &mut WatchSet, id: &Name) {
    let _ = watch_set.watch(&dir.join(id.as_str()), WatchedPlace::Request(id.clone()));
}

/// Extends the leases of agents that wait for the review of a plan.
pub(crate) fn keep_gated(held: &[(Lease, Duration)], store: &dyn RequestStore) {
    for (lease, duration) in held {
        let kept = match store.gate_of(lease) {
            Ok(Some(gate)) if gate.state == GateState::Pending => {
                store.broker().extend(lease, *duration)
            }
            other => other.map(drop),
        };
        match kept {
            // The worker released it in the meantime.
            Ok(()) | Err(Error::LeaseLost { .. }) => {}
            Err(error) => tracing::warn!(%error, %lease, "cannot keep a gated task for its worker"),
        }
    }
}

#[cfg(test)]
mod tests {
    use ensemble_core::proto::request::SHUTDOWN;
    use ensemble_core::requests::NewRequest;
    use ensemble_core::spool::{Settings, Spool, SpoolOptions};
    use ensemble_team::roster::{Member, MemberState};

    use super::*;

    #[test]
    fn an_agent_that_agrees_by_a_script_is_leaving_as_soon_as_the_decision_is_seen() {
        let home = tempfile::tempdir().unwrap();
        let spool = Spool::create(&home.path().join("queue"), SpoolOptions::default()).unwrap();
        let project = Project::discover(Some(spool.root())).unwrap();
        project.ensure_state().unwrap();
        let name = |text: &str| Name::new(text).unwrap();
        let (bob, lead) = (name("bob"), name("lead"));
        for agent in [&bob, &lead] {
            spool.add_mailbox(agent, &Settings::default()).unwrap();
        }
        let member = Member::new(bob.clone(), name("worker"), "shell", SystemClock.wall());
        let roster = project.roster();
        roster.change(&bob, |_| Ok(Some(member))).unwrap();
        let ask = NewRequest::new(SHUTDOWN, lead, bob.clone(), "go").with_id("r1");
        Requests::new(&spool).ask(ask).unwrap();
        let decision = spool.root().join("requests/r1/decision.yaml");
        std::fs::write(decision, "approve: true\nby: bob\n").unwrap();
        let mut watch = RequestWatch::new(&project).unwrap();
        watch.observe_request(SystemClock.monotonic(), &name("r1"), &spool, None);
        assert_eq!(roster.get(&bob).unwrap().unwrap().state, MemberState::Leaving);
    }
}
