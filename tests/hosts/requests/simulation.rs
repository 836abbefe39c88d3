//! A team of a hundred over a modelled disk: processes that decide, and watchers that continue where
//! they died. Messages come late, twice and out of order, and crashes happen between any two steps.
//!
//! The disk is what all processes share: files that are created with no-replace, and messages that are stored once by
//! their ids. Everything else is forgotten when a process dies. The machines are the real ones; the code here that
//! replaces the library's steps has the same order. `ENSEMBLE_SIM_COUNT` says how many seeds are run.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use ensemble_core::env::Monotonic;
use ensemble_core::message::{Name, Timestamp};
use ensemble_core::proto::Machine as _;
use ensemble_core::proto::request::{
    Correlated, Decision, DecisionRefusal, Effect, Event, Outcome, Request, RequestKind,
    RequestTracker,
};

use crate::requests::bed::name;
use crate::support::{Random, setting};

const AGENTS: u64 = 100;
const REQUESTS: u64 = 16;
const WATCHERS: usize = 2;
const STEPS: u64 = 1_500;
/// Few enough for every run of the tests; a run of 10,000 is `ENSEMBLE_SIM_COUNT=10000` in release.
const SEEDS: u64 = 60;
/// After its deadline a request is closed within this, once a watcher runs.
const SLACK: Duration = Duration::from_secs(60);

/// Content in the place of a decision file.
#[derive(Clone, Debug, PartialEq)]
enum File {
    Valid(Decision),
    /// Written by a stranger, or torn.
    Junk,
}

/// A request's directory.
struct OnDisk {
    request: Request,
    asked_at: Monotonic,
    decision: Option<File>,
    closed: bool,
    /// Messages are stored once by their ids, however often they are sent.
    messages: BTreeSet<&'static str>,
    /// Every valid decision that was ever created.
    ever: Vec<Decision>,
}

/// A process that decides, and how far it is.
struct Decider {
    id: String,
    decision: Decision,
    step: Step,
}

#[derive(Clone, Copy, PartialEq)]
enum Step {
    Look,
    Create,
    Tell,
    Close,
    Done,
}

struct Watcher {
    tracker: RequestTracker,
    effects: VecDeque<Correlated<Effect>>,
    unfinished: BTreeSet<String>,
}

impl Watcher {
    fn start() -> Self {
        let (tracker, effects) = (RequestTracker::default(), VecDeque::new());
        Self { tracker, effects, unfinished: BTreeSet::new() }
    }
}

struct World {
    rng: Random,
    now: Monotonic,
    disk: BTreeMap<String, OnDisk>,
    /// Answers under way: any may arrive now, and again.
    mail: Vec<(String, Decision)>,
    deciders: Vec<Decider>,
    watchers: Vec<Watcher>,
    refused: u64,
    won: u64,
}

fn wall(at: Monotonic) -> Timestamp {
    Timestamp::from_unix_millis(0).plus(at.as_duration())
}

fn agent(number: u64) -> Name {
    name(&format!("agent-{number}"))
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            rng: Random::from_seed(seed),
            now: Monotonic::ZERO,
            disk: BTreeMap::new(),
            mail: Vec::new(),
            deciders: Vec::new(),
            watchers: (0..WATCHERS).map(|_| Watcher::start()).collect(),
            refused: 0,
            won: 0,
        };
        for id in 0..REQUESTS {
            let (from, to) = (world.rng.below(AGENTS), world.rng.below(AGENTS - 1));
            let to = if to >= from { to + 1 } else { to };
            let kind = if world.rng.percent(50) {
                RequestKind::shutdown()
            } else {
                RequestKind::plan_approval()
            };
            let request =
                Request::new(id.to_string(), kind, agent(from), agent(to), wall(world.now));
            world.answers(&request);
            let on_disk = OnDisk {
                request,
                asked_at: world.now,
                decision: None,
                closed: false,
                messages: BTreeSet::new(),
                ever: Vec::new(),
            };
            world.disk.insert(id.to_string(), on_disk);
        }
        world
    }

    /// Answers by the addressee, by others, and by the requester; some never come, some twice.
    fn answers(&mut self, request: &Request) {
        for _ in 0..self.rng.below(5) {
            let by = match self.rng.below(4) {
                0 | 1 => request.to().clone(),
                2 => request.from().clone(),
                _ => agent(self.rng.below(AGENTS)),
            };
            let outcome = match self.rng.below(5) {
                0 | 1 => Outcome::Approved,
                2 | 3 => Outcome::Rejected,
                _ => Outcome::Cancelled,
            };
            self.mail.push((request.id().to_owned(), Decision::new(outcome, by, wall(self.now))));
        }
    }

    /// One thing happens somewhere.
    fn step(&mut self) {
        match self.rng.below(10) {
            0 => self.now = self.now + Duration::from_secs(self.rng.below(20)),
            1 | 2 if !self.mail.is_empty() => {
                let index = usize::try_from(self.rng.below(self.mail.len() as u64)).unwrap();
                let (id, decision) = self.mail[index].clone();
                if self.rng.percent(70) {
                    self.mail.swap_remove(index);
                }
                self.deciders.push(Decider { id, decision, step: Step::Look });
            }
            3..6 if !self.deciders.is_empty() => {
                let index = usize::try_from(self.rng.below(self.deciders.len() as u64)).unwrap();
                if self.rng.percent(10) {
                    self.deciders.swap_remove(index);
                } else {
                    self.decider(index);
                }
            }
            6 if self.rng.percent(20) => {
                let id = self.rng.below(REQUESTS).to_string();
                self.disk.get_mut(&id).unwrap().decision.get_or_insert(File::Junk);
            }
            _ => {
                let index = usize::try_from(self.rng.below(WATCHERS as u64)).unwrap();
                match self.rng.below(30) {
                    0 => self.watchers[index] = Watcher::start(),
                    1..4 => self.scan(index),
                    4..9 => self.watchers[index].tracker.handle_timeout(self.now),
                    _ => self.watcher(index),
                }
            }
        }
    }

    /// The decision that counts; a process that finds junk sets it aside.
    fn standing(&mut self, id: &str) -> Option<Decision> {
        let on_disk = self.disk.get_mut(id)?;
        match &on_disk.decision {
            Some(File::Valid(decision)) => Some(decision.clone()),
            Some(File::Junk) => {
                on_disk.decision = None;
                None
            }
            None => None,
        }
    }

    /// Creates the decision file unless it exists. Returns the decision that counts, if it is known.
    fn create(&mut self, id: &str, decision: &Decision) -> Option<Decision> {
        let on_disk = self.disk.get_mut(id).unwrap();
        if on_disk.decision.is_none() {
            on_disk.decision = Some(File::Valid(decision.clone()));
            on_disk.ever.push(decision.clone());
        }
        self.standing(id)
    }

    fn tell(&mut self, id: &str) {
        let on_disk = self.disk.get_mut(id).unwrap();
        assert!(
            matches!(on_disk.decision, Some(File::Valid(_))),
            "told of a decision that was not made"
        );
        on_disk.messages.insert("response");
    }

    fn close(&mut self, id: &str) {
        let on_disk = self.disk.get_mut(id).unwrap();
        assert!(on_disk.messages.contains("response"), "closed before the decision was announced");
        on_disk.closed = true;
    }

    /// One step of a process that decides.
    fn decider(&mut self, index: usize) {
        let Decider { id, decision, step } = &self.deciders[index];
        let (id, decision, step) = (id.clone(), decision.clone(), *step);
        let next = match step {
            Step::Look => {
                let standing = self.standing(&id);
                let mut machine = self.disk[&id].request.clone();
                machine.handle(self.now, Event::opened());
                while machine.poll_effect().is_some() {}
                if let Some(standing) = standing {
                    machine.handle(self.now, Event::Standing(standing));
                    while machine.poll_effect().is_some() {}
                }
                let event = match decision.outcome {
                    Outcome::Cancelled => Event::Cancel(decision),
                    _ => Event::Decide(decision),
                };
                machine.handle(self.now, event);
                match machine.poll_effect() {
                    Some(Effect::Close(_)) => Step::Create,
                    Some(Effect::Refused(refusal)) => self.refuse(&id, &refusal),
                    other => panic!("{other:?}"),
                }
            }
            Step::Create => match self.create(&id, &decision) {
                Some(standing) if standing == decision && self.disk[&id].ever.len() == 1 => {
                    self.won += 1;
                    Step::Tell
                }
                // Another agent decided first, or an obstacle was moved aside.
                _ => Step::Look,
            },
            Step::Tell => {
                self.tell(&id);
                Step::Close
            }
            Step::Close => {
                self.close(&id);
                Step::Done
            }
            Step::Done => Step::Done,
        };
        match next {
            Step::Done => drop(self.deciders.swap_remove(index)),
            next => self.deciders[index].step = next,
        }
    }

    /// A refused agent learns the reason: if the request was decided, the decision on disk.
    fn refuse(&mut self, id: &str, refusal: &DecisionRefusal) -> Step {
        self.refused += 1;
        if let DecisionRefusal::Decided { decision, .. } = refusal {
            assert_eq!(self.disk[id].decision, Some(File::Valid(decision.clone())));
        }
        Step::Done
    }

    /// A watcher looks at everything that is not closed.
    fn scan(&mut self, index: usize) {
        for id in (0..REQUESTS).map(|id| id.to_string()) {
            let standing = self.standing(&id);
            let on_disk = &self.disk[&id];
            if on_disk.closed {
                self.watchers[index].tracker.remove(&id);
                continue;
            }
            let age = self.now.since(on_disk.asked_at);
            let tracker = &mut self.watchers[index].tracker;
            tracker.insert(on_disk.request.clone());
            tracker.handle(self.now, Correlated::new(id.as_str(), Event::Opened { age }));
            if let Some(decision) = standing {
                tracker.handle(self.now, Correlated::new(id, Event::Standing(decision)));
            }
        }
    }

    /// A watcher performs one effect, or continues with one request.
    fn watcher(&mut self, index: usize) {
        let watcher = &mut self.watchers[index];
        watcher.effects.extend(std::iter::from_fn(|| watcher.tracker.poll_effect()));
        let Some(Correlated { id, inner }) = watcher.effects.pop_front() else {
            if let Some(id) = watcher.unfinished.pop_first() {
                self.go_on(index, id);
            }
            return;
        };
        match inner {
            Effect::Announce | Effect::Closed(_) => drop(watcher.unfinished.insert(id)),
            Effect::Remind { .. } => {
                let is_open = self.standing(&id).is_none();
                if is_open {
                    self.disk.get_mut(&id).unwrap().messages.insert("reminder");
                }
            }
            Effect::Close(expiry) => {
                assert_eq!(expiry.outcome, Outcome::Expired);
                // The machine proposes again if that file is in the way.
                if let Some(standing) = self.create(&id, &expiry) {
                    let event = Correlated::new(id, Event::Standing(standing));
                    self.watchers[index].tracker.handle(self.now, event);
                }
            }
            Effect::Refused(refusal) => panic!("a watcher decides nothing: {refusal}"),
        }
    }

    fn go_on(&mut self, index: usize, id: String) {
        match self.standing(&id) {
            None => drop(self.disk.get_mut(&id).unwrap().messages.insert("request")),
            Some(_) if !self.disk[&id].messages.contains("response") => {
                self.tell(&id);
                self.watchers[index].unfinished.insert(id);
            }
            Some(_) => {
                self.close(&id);
                self.watchers[index].tracker.remove(&id);
            }
        }
    }

    /// From now on one watcher runs undisturbed and alone.
    fn settle_down(&mut self, seed: u64) {
        self.deciders.clear();
        self.watchers = vec![Watcher::start()];
        let last = self.disk.values().map(|d| d.asked_at + d.request.kind().deadline).max();
        let end = last.unwrap().max(self.now) + SLACK;
        while self.disk.values().any(|d| !d.closed) {
            self.scan(0);
            self.watchers[0].tracker.handle_timeout(self.now);
            for _ in 0..REQUESTS * 4 {
                self.watcher(0);
            }
            let due = self.watchers[0].tracker.poll_timeout();
            self.now = due.unwrap_or(self.now).max(self.now + Duration::from_secs(1));
            assert!(self.now <= end, "seed {seed}: pending for ever");
        }
    }

    fn judge(&self, seed: u64) {
        for (id, on_disk) in &self.disk {
            let what = format!("seed {seed}, request {id}");
            assert_eq!(on_disk.ever.len(), 1, "{what}: one decision, {:?}", on_disk.ever);
            let (decision, request) = (&on_disk.ever[0], &on_disk.request);
            assert_eq!(on_disk.decision, Some(File::Valid(decision.clone())), "{what}: it stands");
            match decision.outcome {
                Outcome::Approved | Outcome::Rejected => {
                    assert_eq!(decision.by, *request.to(), "{what}: by its addressee");
                    assert_ne!(
                        decision.by,
                        *request.from(),
                        "{what}: no agent decides its own request"
                    );
                }
                Outcome::Cancelled => assert_eq!(decision.by, *request.from(), "{what}"),
                Outcome::Expired => {
                    let deadline = wall(on_disk.asked_at).plus(request.kind().deadline);
                    assert!(decision.at >= deadline, "{what}: before its deadline");
                }
            }
        }
    }
}

#[test]
fn one_decision_a_request_whatever_dies_and_nothing_pending_for_ever() {
    let (mut won, mut refused) = (0, 0);
    let seeds = setting("ENSEMBLE_SIM_COUNT", SEEDS);
    for seed in 0..seeds {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step();
        }
        world.settle_down(seed);
        world.judge(seed);
        (won, refused) = (won + world.won, refused + world.refused);
    }
    println!("{seeds} seeds: {won} answers stood, {refused} were refused");
    assert!(won > seeds && refused > seeds, "nothing happens in this simulation");
}
