//! Requests: what nobody else does for them (seed 004).
//!
//! ```text
//! inotify, start, every poll interval ──> look ──> Tracker ──> announce, remind, expire
//!                                                     └─────> decided: tell, then hand over
//! ```
//!
//! The process that asks or decides does by itself what follows. Here it is finished where that
//! process was killed, where a script had only `ln`, and where nobody answers in time. A step that
//! fails, for a mailbox that is full, is tried again. What is left to be carried out after a decision
//! goes to a [`Consequence`], again at every start until the request is closed.
//!
//! The same serves requests on servers, where the thread that follows them rings (see `remote`). The
//! watchers of several hosts do it side by side: what each of them does is stored once.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ensemble_core::env::{Clock as _, Lease, Monotonic, SystemClock};
use ensemble_core::event_log::Recorder;
use ensemble_core::message::Name;
use ensemble_core::proto::Machine as _;
use ensemble_core::proto::request::{
    Correlated, Decision, Effect, Event, Outcome, Request, Tracker,
};
use ensemble_core::requests::{Entry, GateState, Kinds, REQUESTS, RequestStore, Requests};
use ensemble_core::roster::Roster;
use ensemble_core::{Error, Result};
use serde_json::json;

use crate::doorbell::Doorbell;
#[cfg(feature = "nats")]
use crate::duties::words;
use crate::run::ACTOR;

/// How long the process that has asked or decided is left to finish by itself.
const GRACE: Duration = Duration::from_millis(200);
/// How soon a step that failed is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// Carries out what was decided, where that is more than a message: a worker that has agreed to its
/// shutdown, or that said nothing in time, is to go.
///
/// It must not block the watcher: it starts what takes time elsewhere, and calls
/// [`Requests::close`] when everything is done.
pub trait Consequence: Send {
    /// This request is decided. Told once in a run of the watcher, and again in the next one while
    /// the request is not closed.
    fn decided(&mut self, entry: &Entry);
}

/// The requests that are not closed.
pub(crate) struct RequestWatch {
    dir: PathBuf,
    kinds: Kinds,
    tracker: Tracker,
    /// What is to be gone on with, and when.
    due: BTreeMap<Name, Monotonic>,
    /// Handed over in this run.
    handed_over: BTreeSet<Name>,
    /// Not to be looked at again.
    closed: HashSet<Name>,
    consequence: Option<Box<dyn Consequence>>,
    /// Where several hosts watch: only decisions about these agents are carried out here.
    members: Option<Roster>,
}

impl RequestWatch {
    pub(crate) fn new(queue: &Path, kinds: Kinds) -> Self {
        Self {
            dir: queue.join(REQUESTS),
            kinds,
            tracker: Tracker::default(),
            due: BTreeMap::new(),
            handed_over: BTreeSet::new(),
            closed: HashSet::new(),
            consequence: None,
            members: None,
        }
    }

    /// Leaves agents that are not in this roster to the hosts that have them.
    #[cfg(feature = "nats")]
    pub(crate) fn only_for(self, members: Roster) -> Self {
        Self { members: Some(members), ..self }
    }

    pub(crate) fn set_consequence(&mut self, consequence: Box<dyn Consequence>) {
        self.consequence = Some(consequence);
    }

    /// Whether something in this directory is about a request.
    pub(crate) fn concerns(&self, dir: &Path) -> bool {
        dir == self.dir || dir.parent() == Some(&self.dir)
    }

    /// Watches what is to be watched, before anything is listed.
    pub(crate) fn rewatch(&mut self, doorbell: &mut Doorbell) -> Result<(), String> {
        // A queue that was made by hand may lack it, and asking makes it.
        let _ = std::fs::create_dir(&self.dir);
        // The same path may be another directory now.
        doorbell.unwatch(&self.dir);
        doorbell.watch(&self.dir)?;
        self.tracker.iter().for_each(|request| watch(&self.dir, doorbell, request.id()));
        Ok(())
    }

    /// Something has landed in a directory of requests, or has left it.
    pub(crate) fn rung(
        &mut self,
        now: Monotonic,
        dir: &Path,
        name: Option<&str>,
        store: &dyn RequestStore,
        doorbell: Option<&mut Doorbell>,
    ) {
        let id =
            if dir == self.dir { name } else { dir.file_name().and_then(|name| name.to_str()) };
        if let Some(id) = id.and_then(|id| Name::new(id).ok()) {
            self.look(now, &id, store, doorbell);
        }
    }

    /// Looks at all requests that are not closed.
    pub(crate) fn scan(
        &mut self,
        now: Monotonic,
        store: &dyn RequestStore,
        mut doorbell: Option<&mut Doorbell>,
    ) {
        if let Some(doorbell) = &mut doorbell
            && let Err(why) = self.rewatch(doorbell)
        {
            tracing::warn!(%why, "cannot watch the requests");
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
            self.look(now, &id, store, doorbell.as_deref_mut());
        }
    }

    /// Looks at one request; one that is closed is not looked at again.
    pub(crate) fn look(
        &mut self,
        now: Monotonic,
        id: &Name,
        store: &dyn RequestStore,
        doorbell: Option<&mut Doorbell>,
    ) {
        if self.closed.contains(id) {
            return;
        }
        if let Some(doorbell) = doorbell
            && !Requests::new(store).is_closed(id).unwrap_or(false)
        {
            // Before it is read, so that an answer which comes meanwhile rings.
            watch(&self.dir, doorbell, id.as_str());
        }
        match self.requests(store).find(id.as_str()) {
            Ok(Some(entry)) if entry.is_closed => self.forget(id),
            Ok(Some(entry)) => self.take(now, &entry),
            // Gone, or still being made.
            Ok(None) => {}
            Err(error @ (Error::Malformed { .. } | Error::TooLarge { .. })) => {
                match self.requests(store).reject(id) {
                    Ok(Some(kept_as)) => {
                        tracing::warn!(%error, kept_as, "a request was put aside");
                    }
                    Ok(None) => {}
                    Err(error) => tracing::warn!(%error, "cannot read a request"),
                }
            }
            Err(error) => tracing::warn!(%error, "cannot read a request"),
        }
    }

    /// Tells the machines what stands on disk.
    fn take(&mut self, now: Monotonic, entry: &Entry) {
        let asked = &entry.request;
        let id = asked.request_id.as_str();
        self.tracker.insert(asked.machine());
        let age = SystemClock.wall().since(asked.created_at);
        self.tracker.handle(now, Correlated::new(id, Event::Opened { age }));
        if let Some(decision) = &entry.decision {
            let standing = Event::Standing(decision.clone());
            self.tracker.handle(now, Correlated::new(id, standing));
        }
    }

    fn forget(&mut self, id: &Name) {
        self.tracker.remove(id.as_str());
        self.due.remove(id);
        self.handed_over.remove(id);
        self.closed.insert(id.clone());
    }

    /// An agent has gone: what it is asked and will not answer is not waited for.
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

    /// Lets time pass and does what is due.
    pub(crate) fn drive(
        &mut self,
        now: Monotonic,
        store: &dyn RequestStore,
        recorder: &dyn Recorder,
    ) {
        self.tracker.handle_timeout(now);
        while let Some(Correlated { id, inner }) = self.tracker.poll_effect() {
            let Ok(id) = Name::new(id) else { continue };
            let done = match inner {
                // Whoever has asked or decided does the rest; if not, it is done here.
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
                // Nobody decides here.
                Effect::Refused(_) => Ok(()),
            };
            if let Err(error) = done {
                // The machine proposes again by itself.
                tracing::warn!(%id, %error, "cannot go on with a request");
            }
        }
        let due: Vec<Name> =
            self.due.iter().filter(|(_, at)| **at <= now).map(|(id, _)| id.clone()).collect();
        for id in due {
            self.due.remove(&id);
            if let Err(error) = self.go_on(&id, store, recorder) {
                tracing::warn!(%id, %error, "cannot go on with a request: it is tried again");
                self.due.insert(id, now + RETRY);
            }
        }
    }

    /// Finishes what is unfinished, and hands over what is left to be carried out.
    fn go_on(
        &mut self,
        id: &Name,
        store: &dyn RequestStore,
        recorder: &dyn Recorder,
    ) -> Result<()> {
        let Some(entry) = self.requests(store).resume(id.as_str())? else {
            self.tracker.remove(id.as_str());
            return Ok(());
        };
        if entry.is_closed {
            self.forget(id);
        } else if entry.is_to_be_carried_out()
            && self.is_ours(&entry.request.to)?
            && self.handed_over.insert(id.clone())
        {
            recorder.record(
                "request.handed_over",
                ACTOR,
                json!({
                    "request_id": id, "kind": entry.request.kind, "from": entry.request.from,
                    "to": entry.request.to, "outcome": entry.state(),
                }),
            );
            if let Some(consequence) = &mut self.consequence {
                consequence.decided(&entry);
            }
        }
        Ok(())
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

    /// Who waits for whose decision, as far as was looked, in a few words.
    #[cfg(feature = "nats")]
    pub(crate) fn waits_for(&self) -> BTreeMap<Name, String> {
        let pending = self.tracker.iter().filter(|request| request.decision().is_none());
        let words = |r: &Request| (r.from().clone(), words(&r.kind().name, r.id(), r.to()));
        pending.map(words).collect()
    }

    /// For `status`: how many wait for an answer.
    pub(crate) fn summary(&self) -> serde_json::Value {
        let pending = self.tracker.iter().filter(|r| r.decision().is_none()).count();
        json!({ "pending": pending, "decided": self.tracker.iter().count() - pending })
    }

    fn requests<'l>(&self, store: &'l dyn RequestStore) -> Requests<'l> {
        Requests::new(store).with_kinds(self.kinds.clone())
    }
}

/// An answer that does not ring is found by the next scan.
fn watch(dir: &Path, doorbell: &mut Doorbell, id: &str) {
    let _ = doorbell.watch(&dir.join(id));
}

/// Whoever waits for the review of a plan keeps the task meanwhile, without having to say so.
pub(crate) fn keep_gated(held: &[(Lease, Duration)], store: &dyn RequestStore) {
    for (lease, duration) in held {
        let kept = match store.gate_of(lease) {
            Ok(Some(gate)) if gate.state == GateState::Pending => {
                store.broker().extend(lease, *duration)
            }
            other => other.map(drop),
        };
        match kept {
            // It was given back meanwhile.
            Ok(()) | Err(Error::LeaseLost { .. }) => {}
            Err(error) => tracing::warn!(%error, %lease, "cannot keep a gated task for its worker"),
        }
    }
}
