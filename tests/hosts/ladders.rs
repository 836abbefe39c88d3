//! The hosts of a team on a real server: one has the name of an agent, and one answers what another asks. A message is
//! found in any mailbox.

use ensemble_core::env::{Clock, Monotonic};
use ensemble_nats::SILENCE_MAX;

use crate::*;

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

/// A server that counts what it is sent, with a team of [`MANY`] mailboxes.
struct Counted {
    server: Server,
    monitor: u16,
    team: String,
    queue: NatsTransport,
    _home: tempfile::TempDir,
}

/// Mailboxes, or requests: enough that a query for each would be noticed.
const MANY: usize = 60;

fn worker(number: usize) -> Name {
    name(&format!("worker-{number}"))
}

impl Counted {
    fn start() -> Self {
        let (home, monitor) = (tempfile::tempdir().unwrap(), free_port());
        let arguments = ["-m".to_owned(), monitor.to_string()];
        let server = Server::at(home.path(), free_port(), &arguments);
        let team = fresh_team();
        let queue = NatsTransport::connect(&server.options(&team)).unwrap();
        for number in 0..MANY {
            queue.add_mailbox(&worker(number), &Settings::default()).unwrap();
        }
        Self { server, monitor, team, queue, _home: home }
    }

    fn connect(&self) -> NatsTransport {
        NatsTransport::connect(&self.server.options(&self.team)).unwrap()
    }

    /// Runs something that sends the server few messages.
    #[track_caller]
    fn few<T>(&self, run: impl FnOnce() -> T) -> T {
        let sent = || monitored(self.monitor, "/varz", "in_msgs");
        let before = sent();
        let result = run();
        let count = sent() - before;
        assert!(count < MANY as u64 / 2, "{count} messages to the server");
        result
    }
}

#[test]
fn a_message_is_found_by_as_few_questions_in_many_mailboxes_as_in_few() {
    let bed = Counted::start();
    let publish = |to: usize, with: &str| {
        bed.queue.publish(&Envelope::new(worker(to), "work").with_id(id(with))).unwrap();
    };
    publish(MANY - 1, "one");
    let other = bed.connect();
    assert_eq!(bed.few(|| other.find(&id("one"))).unwrap().mailbox, worker(MANY - 1));
    assert!(matches!(other.find(&id("none")), Err(Error::NoMessage { .. })));
    publish(0, "both");
    publish(1, "both");
    assert!(matches!(other.find(&id("both")), Err(Error::Ambiguous { .. })));
    let lease = bed.queue.receive(&worker(0), &worker(0)).unwrap().unwrap().lease;
    bed.queue.settle(&lease).unwrap();
    assert!(
        matches!(other.find(&id("both")), Err(Error::Ambiguous { .. })),
        "a settled one counts"
    );
}

#[test]
fn requests_are_listed_by_as_few_questions_whether_many_or_few() {
    let bed = Counted::start();
    let ours = Requests::new(&bed.queue);
    for number in 1..MANY {
        ours.ask(NewRequest::new("shutdown", worker(0), worker(number), "the work is done"))
            .unwrap();
    }
    let other = bed.connect();
    let (listed, unreadable) = bed.few(|| Requests::new(&other).list()).unwrap();
    assert_eq!((listed.len(), unreadable.len()), (MANY - 1, 0));
}
