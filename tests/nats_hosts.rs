//! The hosts of a team on a real server: one has the name of an agent, and one answers what another asks. A message is
//! found in whatever mailbox.

#[path = "conformance/mod.rs"]
mod conformance;
#[path = "nats_support/mod.rs"]
mod nats_support;

use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use conformance::bed::{id, name};
use ensemble_core::Error;
use ensemble_core::broker::Broker as _;
use ensemble_core::env::{Clock, Monotonic, SystemClock};
use ensemble_core::message::{Envelope, Timestamp};
use ensemble_core::spool::Settings;
use ensemble_nats::{NatsTransport, SILENCE_MAX};
use nats_support::{Server, free_port, fresh_team, monitored};

/// The machine's time, and so much more.
#[derive(Clone, Default)]
struct Ahead(Arc<Mutex<Duration>>);

impl Clock for Ahead {
    fn monotonic(&self) -> Monotonic {
        SystemClock.monotonic()
    }
    fn wall(&self) -> Timestamp {
        SystemClock.wall().plus(*self.0.lock().unwrap())
    }
}

#[test]
fn of_many_hosts_that_claim_a_name_at_once_one_has_it() {
    let server = Server::start();
    let team = fresh_team();
    let (agent, start) = (name("worker-1"), Barrier::new(4));
    let claimed: Vec<_> = thread::scope(|scope| {
        let claims: Vec<_> = (0..4)
            .map(|number| {
                let (options, agent, start) = (server.options(&team), &agent, &start);
                scope.spawn(move || {
                    let queue = NatsTransport::connect(&options).unwrap();
                    start.wait();
                    queue.claim_member(agent, &name(&format!("host-{number}"))).unwrap()
                })
            })
            .collect();
        claims.into_iter().map(|claim| claim.join().unwrap()).collect()
    });
    let winners = claimed.iter().filter(|other| other.is_none()).count();
    assert_eq!(winners, 1, "{claimed:?}");
    let queue = NatsTransport::connect(&server.options(&team)).unwrap();
    let holder = queue.host_of_member(&agent).unwrap().expect("one has it");
    assert!(claimed.iter().flatten().all(|other| *other == holder), "{claimed:?} {holder}");
}

#[test]
fn a_name_is_free_once_it_was_given_back_or_its_host_is_silent() {
    let server = Server::start();
    let clock = Ahead::default();
    let options = server.options(&fresh_team()).with_clock(Arc::new(clock.clone()));
    let queue = NatsTransport::connect(&options).unwrap();
    let (agent, near, far) = (name("worker-1"), name("near"), name("far"));
    assert_eq!(queue.claim_member(&agent, &far).unwrap(), None);
    assert_eq!(queue.claim_member(&agent, &far).unwrap(), None, "it has it already");
    assert_eq!(queue.claim_member(&agent, &near).unwrap(), Some(far.clone()));
    queue.release_member(&agent, &near).unwrap();
    assert_eq!(queue.host_of_member(&agent).unwrap(), Some(far.clone()), "not its own to give");
    queue.release_member(&agent, &far).unwrap();
    assert_eq!(queue.host_of_member(&agent).unwrap(), None);

    assert_eq!(queue.claim_member(&agent, &far).unwrap(), None);
    *clock.0.lock().unwrap() = SILENCE_MAX;
    assert_eq!(queue.host_of_member(&agent).unwrap(), None, "it was silent for too long");
    queue.report_host(&far, "{}").unwrap();
    assert!(queue.host_reports().unwrap()[0].is_silent);
    assert_eq!(queue.claim_member(&agent, &near).unwrap(), None);
    assert_eq!(queue.host_of_member(&agent).unwrap(), None, "by this clock, the claim is old");
    *clock.0.lock().unwrap() = Duration::ZERO;
    assert_eq!(queue.host_of_member(&agent).unwrap(), Some(near));
    assert!(!queue.host_reports().unwrap()[0].is_silent);
}

#[test]
fn a_call_is_seen_once_answered_once_and_forgotten() {
    let server = Server::start();
    let team = fresh_team();
    let asker = NatsTransport::connect(&server.options(&team)).unwrap();
    let asked = NatsTransport::connect(&server.options(&team)).unwrap();
    let host = name("far");
    asked.follow_requests().unwrap();
    assert!(asked.calls(&host).unwrap().is_empty());
    let call = asker.call_host(&host, "are you there").unwrap();
    let mut seen = 0;
    while !asked.was_called(&host) {
        seen = asked.wait_for_news(seen, Duration::from_secs(10));
    }
    assert!(!asked.was_called(&name("another")));
    let calls = asked.calls(&host).unwrap();
    assert_eq!((calls.len(), &calls[0].id, calls[0].text.as_str()), (1, &call, "are you there"));
    asked.answer_call(&host, &call, "yes").unwrap();
    asked.answer_call(&host, &call, "no").unwrap();
    assert!(asked.calls(&host).unwrap().is_empty(), "it is answered");
    assert_eq!(asker.answer(&host, &call).unwrap().as_deref(), Some("yes"), "the first stands");
    asker.forget_call(&host, &call).unwrap();
    assert_eq!(asker.answer(&host, &call).unwrap(), None);
    assert!(asked.calls(&host).unwrap().is_empty());
}

#[test]
fn a_message_is_found_by_as_few_requests_in_many_mailboxes_as_in_few() {
    const MAILBOXES: usize = 60;
    let (home, monitor) = (tempfile::tempdir().unwrap(), free_port());
    let arguments = ["-m".to_owned(), monitor.to_string()];
    let server = Server::at(home.path(), free_port(), &arguments);
    let team = fresh_team();
    let queue = NatsTransport::connect(&server.options(&team)).unwrap();
    let mailbox = |number: usize| name(&format!("worker-{number}"));
    let publish = |to: usize, with: &str| {
        queue.publish(&Envelope::new(mailbox(to), "work").with_id(id(with))).unwrap();
    };
    for number in 0..MAILBOXES {
        queue.add_mailbox(&mailbox(number), &Settings::default()).unwrap();
    }
    publish(MAILBOXES - 1, "one");
    let requests = || monitored(monitor, "/varz", "in_msgs");
    let other = NatsTransport::connect(&server.options(&team)).unwrap();
    let before = requests();
    assert_eq!(other.find(&id("one")).unwrap().mailbox, mailbox(MAILBOXES - 1));
    let asked = requests() - before;
    assert!(asked < MAILBOXES as u64 / 2, "{asked} requests");
    assert!(matches!(other.find(&id("none")), Err(Error::NoMessage { .. })));
    publish(0, "both");
    publish(1, "both");
    assert!(matches!(other.find(&id("both")), Err(Error::Ambiguous { .. })));
    let lease = queue.receive(&mailbox(0), &mailbox(0)).unwrap().unwrap().lease;
    queue.settle(&lease).unwrap();
    assert!(
        matches!(other.find(&id("both")), Err(Error::Ambiguous { .. })),
        "a settled one counts"
    );
}
