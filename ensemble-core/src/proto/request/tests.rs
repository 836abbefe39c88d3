use super::*;
use crate::proto::testing::{at, drain, name, pairs, run};
use crate::sim::SimRng;
use std::collections::BTreeMap;

fn wall(seconds: i64) -> Timestamp {
    Timestamp::from_unix_millis(1_763_765_401_000 + seconds * 1_000)
}

fn by(who: &str, outcome: Outcome) -> Decision {
    Decision::new(outcome, name(who), wall(7))
}

fn plan() -> Request {
    Request::new("xyz", RequestKind::plan_approval(), name("bob"), name("lead"), wall(0))
}

fn opened(mut request: Request) -> Request {
    request.handle(at(0), Event::Opened { age: Duration::ZERO });
    drain(&mut request);
    request
}

#[test]
fn plan_reminds_and_expires() {
    let mut request = opened(plan());
    let log = run(&mut request, at(1_815));
    let remind = |nth| Effect::Remind { nth };
    let expiry = Decision::new(Outcome::Expired, name("lead"), wall(1_800));
    assert_eq!(
        log,
        [
            (at(300), remind(1)),
            (at(600), remind(2)),
            (at(900), remind(3)),
            (at(1_200), remind(4)),
            (at(1_500), remind(5)),
            (at(1_800), Effect::Close(expiry.clone())),
            (at(1_810), Effect::Close(expiry.clone())),
        ]
    );
    request.handle(at(1_811), Event::Standing(expiry));
    assert_eq!(request.poll_timeout(), None);
    assert_eq!(request.kind().at_expiry, AtExpiry::Escalate);
}

#[test]
fn restart_keeps_the_deadline() {
    let mut request = plan();
    request.handle(at(50), Event::Opened { age: Duration::from_secs(1_790) });
    assert_eq!(request.poll_timeout(), Some(at(60)));
}

fn states() -> Vec<(&'static str, Request)> {
    let new = plan();
    let pending = opened(plan());
    let closed = |outcome| Request { state: State::Closed(by("lead", outcome)), ..plan() };
    vec![
        ("new", new),
        ("pending", pending),
        ("approved", closed(Outcome::Approved)),
        ("rejected", closed(Outcome::Rejected)),
        ("expired", closed(Outcome::Expired)),
        ("cancelled", closed(Outcome::Cancelled)),
    ]
}

fn show(request: &Request, now: Monotonic, event: Option<&Event>) -> String {
    let mut request = request.clone();
    match event {
        Some(event) => request.handle(now, event.clone()),
        None => request.handle_timeout(now),
    }
    let mut cell = match &request.state {
        State::New => "new",
        State::Pending { .. } => "pending",
        State::Closed(decision) => decision.outcome.word(),
    }
    .to_owned();
    for effect in drain(&mut request) {
        cell.push_str(match effect {
            Effect::Announce => " announce",
            Effect::Remind { .. } => " remind",
            Effect::Close(_) => " close",
            Effect::Closed(_) => " done",
            Effect::Refused(_) => " refuse",
        });
    }
    cell
}

#[test]
fn every_pair_of_state_and_event() {
    let events = [
        ("opened", Some(Event::Opened { age: Duration::ZERO })),
        ("approve", Some(Event::Decide(by("lead", Outcome::Approved)))),
        ("reject", Some(Event::Decide(by("lead", Outcome::Rejected)))),
        ("stranger", Some(Event::Decide(by("eve", Outcome::Approved)))),
        ("own", Some(Event::Decide(by("bob", Outcome::Approved)))),
        ("cancel", Some(Event::Cancel(by("bob", Outcome::Cancelled)))),
        ("meddle", Some(Event::Cancel(by("eve", Outcome::Cancelled)))),
        ("standing", Some(Event::Standing(by("lead", Outcome::Approved)))),
        ("absent", Some(Event::Absent(by("lead", Outcome::Expired)))),
        ("time", None),
    ];
    let table = pairs(&states(), &events, |request, event| show(request, at(300), event.as_ref()));
    assert_eq!(
        table,
        "
          new               pending         approved         rejected         expired         cancelled
opened    pending announce  pending         approved         rejected         expired         cancelled
approve   new refuse        pending close   approved refuse  rejected refuse  expired refuse  cancelled refuse
reject    new refuse        pending close   approved refuse  rejected refuse  expired refuse  cancelled refuse
stranger  new refuse        pending refuse  approved refuse  rejected refuse  expired refuse  cancelled refuse
own       new refuse        pending refuse  approved refuse  rejected refuse  expired refuse  cancelled refuse
cancel    new refuse        pending close   approved refuse  rejected refuse  expired refuse  cancelled refuse
meddle    new refuse        pending refuse  approved refuse  rejected refuse  expired refuse  cancelled refuse
standing  approved done     approved done   approved         rejected         expired         cancelled
absent    new               pending         approved         rejected         expired         cancelled
time      new               pending remind  approved         rejected         expired         cancelled
"
    );
}

#[test]
fn absent_addressee_forces_the_action_at_once_if_silence_would() {
    let words = "the process in the pane has ended";
    let absent = by("lead", Outcome::Expired).with_comment(words);
    let mut request = Request::new(
        "x",
        RequestKind::shutdown(),
        Name::new("bob").unwrap(),
        Name::new("lead").unwrap(),
        Timestamp::from_unix_millis(0),
    );
    request.handle(at(0), Event::Opened { age: Duration::ZERO });
    drain(&mut request);
    request.handle(at(1), Event::Absent(absent.clone()));
    assert_eq!(drain(&mut request), [Effect::Close(absent)]);
}

/// Decision files and the decisions that were announced, while processes crash between proposing
/// and writing.
#[derive(Default)]
struct World {
    tracker: RequestTracker,
    files: BTreeMap<String, Decision>,
    closed: BTreeMap<String, u32>,
}

impl World {
    fn perform(&mut self, now: Monotonic, crash: bool) {
        while let Some(Correlated { id, inner }) = self.tracker.poll_effect() {
            match inner {
                Effect::Close(_) if crash => {}
                Effect::Close(decision) => {
                    let standing = self.files.entry(id.clone()).or_insert(decision).clone();
                    self.tracker.handle(now, Correlated::new(id, Event::Standing(standing)));
                }
                Effect::Closed(decision) => {
                    let request = self.tracker.get(&id).unwrap();
                    assert_eq!(self.files.get(&id), Some(&decision));
                    match decision.outcome {
                        Outcome::Approved | Outcome::Rejected => {
                            assert_eq!(decision.by, *request.to());
                            assert_ne!(decision.by, *request.from());
                        }
                        Outcome::Cancelled => assert_eq!(decision.by, *request.from()),
                        Outcome::Expired => assert!(now >= at(0) + request.kind().deadline),
                    }
                    *self.closed.entry(id).or_default() += 1;
                }
                Effect::Refused(DecisionRefusal::Unknown { id }) => assert_eq!(id, "8"),
                Effect::Announce | Effect::Remind { .. } | Effect::Refused(_) => {}
            }
        }
    }
}

/// A lead and teammates, some of which interfere; messages come late, twice and out of order.
#[test]
fn each_request_gets_one_decision_by_its_addressee_in_time() {
    let people = ["lead", "alice", "bob", "carol"];
    for seed in 0..2_000 {
        println!("seed {seed}");
        let (mut rng, mut world, mut now) = (SimRng::new(seed), World::default(), at(0));
        for id in 0..8 {
            let (from, to) = (people[rng.below(4) as usize], people[rng.below(4) as usize]);
            let kind = if rng.below(2) == 0 {
                RequestKind::shutdown()
            } else {
                RequestKind::plan_approval()
            };
            let request = Request::new(id.to_string(), kind, name(from), name(to), wall(0));
            world.tracker.insert(request);
            world.tracker.handle(
                now,
                Correlated::new(id.to_string(), Event::Opened { age: Duration::ZERO }),
            );
        }
        for _ in 0..200 {
            now = now + Duration::from_secs(rng.below(60));
            let id = rng.below(9).to_string();
            let decision = by(people[rng.below(4) as usize], Outcome::Approved);
            let event = match rng.below(8) {
                0 => Some(Event::Decide(decision)),
                1 => Some(Event::Decide(Decision { outcome: Outcome::Rejected, ..decision })),
                2 => Some(Event::Cancel(decision)),
                3 => Some(Event::Opened { age: Duration::ZERO }),
                _ => None,
            };
            match event {
                Some(event) => world.tracker.handle(now, Correlated::new(id, event)),
                None => world.tracker.handle_timeout(now),
            }
            world.perform(now, rng.below(3) == 0);
        }
        while let Some(due) = world.tracker.poll_timeout() {
            now = due.max(now);
            world.tracker.handle_timeout(now);
            world.perform(now, false);
            assert!(now < at(20_000), "pending for ever");
        }
        let decided_once = |id: u32| world.closed.get(&id.to_string()) == Some(&1);
        assert!((0..8).all(decided_once));
    }
}
