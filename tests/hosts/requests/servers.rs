//! Requests on real servers: several hosts, servers that are killed, clients that die half-way.

use ensemble_core::requests::{RequestStore as _, WriteOutcome};

use crate::requests::bed::{Bed, name};

use crate::*;

fn host(options: &NatsOptions, log: &SimRecorder) -> NatsTransport {
    let options = options.clone().with_recorder(Arc::new(log.clone())).with_patience(PATIENCE);
    NatsTransport::connect(&options).unwrap()
}

fn team(server: &Server, log: &SimRecorder) -> (NatsOptions, NatsTransport) {
    let options = server.options(&fresh_team());
    let queue = host(&options, log);
    for mailbox in ["conductor", "lead", "bob"] {
        queue.add_mailbox(&name(mailbox), &Settings::default()).unwrap();
    }
    (options, queue)
}

fn plan(id: &str, text: &str) -> NewRequest {
    NewRequest::new("plan_approval", name("bob"), name("lead"), text).with_id(id).with_task("risky")
}

#[test]
fn of_hosts_that_decide_at_the_same_time_one_decides_and_all_know_which() {
    let (server, log) = (Server::shared(), SimRecorder::default());
    let (options, queue) = team(&server, &log);
    Requests::new(&queue).ask(plan("p1", "a plan")).unwrap();
    let answers: Vec<_> = std::thread::scope(|scope| {
        let deciding: Vec<_> = (0..4)
            .map(|n| {
                let (options, log) = (&options, &log);
                scope.spawn(move || {
                    let queue = host(options, log);
                    let comment = format!("by host {n}");
                    Requests::new(&queue).respond("p1", &name("lead"), n % 2 == 0, &comment)
                })
            })
            .collect();
        deciding.into_iter().map(|decider| decider.join().unwrap()).collect()
    });
    let standing = Requests::new(&queue).get("p1").unwrap().decision.unwrap();
    let winners: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().ok()).collect();
    assert_eq!(winners.len(), 1);
    assert_eq!(winners[0].decision.as_ref(), Some(&standing));
    for error in answers.iter().filter_map(|answer| answer.as_ref().err()) {
        let Some(DecisionRefusal::Decided { decision, .. }) = error.area() else {
            panic!("{error}")
        };
        assert_eq!(decision, &standing);
    }
    // Every watcher may announce it, and one does.
    for queue in [host(&options, &log), queue] {
        Requests::new(&queue).resume("p1").unwrap();
    }
    assert_eq!(log.count("request.decided"), 1);
}

#[test]
fn two_hosts_that_remind_and_expire_do_it_once() {
    let (server, log) = (Server::shared(), SimRecorder::default());
    let (options, queue) = team(&server, &log);
    Requests::new(&queue).ask(plan("p1", "a plan").with_deadline_seconds(0)).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let queue = host(&options, &log);
                let requests = Requests::new(&queue);
                requests.remind("p1", 1).unwrap();
            });
        }
    });
    let reminded = queue.state(&name("lead"), &"p1.remind-1".parse().unwrap()).unwrap();
    assert!(reminded.is_some());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let queue = host(&options, &log);
                let entry = Requests::new(&queue).expire(&name("p1")).unwrap().unwrap();
                assert_eq!(entry.state(), "expired");
            });
        }
    });
    let kinds = ["request.opened", "request.reminded", "request.expired"];
    assert_eq!(kinds.map(|kind| log.count(kind)), [1; 3]);
    assert_eq!(queue.unfinished(&name("conductor"), 9).unwrap().len(), 1);
    assert_eq!(queue.unfinished(&name("bob"), 9).unwrap().len(), 1);
}

#[test]
fn a_server_that_is_killed_between_question_and_answer_loses_neither() {
    let (server, log) = (Server::start(), SimRecorder::default());
    let (options, queue) = team(&server, &log);
    Requests::new(&queue).ask(plan("p1", "a plan")).unwrap();
    server.restart();
    let requests = Requests::new(&queue);
    assert_eq!(requests.get("p1").unwrap().state(), "pending");
    assert_eq!(requests.gate("risky", &name("bob")).unwrap().unwrap().state, GateState::Pending);
    requests.respond("p1", &name("lead"), true, "go").unwrap();
    server.restart();
    let other = host(&options, &log);
    let entry = Requests::new(&other).get("p1").unwrap();
    assert_eq!((entry.state(), entry.is_closed), ("approved", true));
    assert_eq!(other.gate("risky", &name("bob")).unwrap(), None);
    let answer = other.receive(&name("bob"), &name("bob")).unwrap().unwrap().envelope;
    assert_eq!(answer.kind.as_str(), "plan_approval_response");
}

#[test]
fn a_client_that_dies_after_its_gate_has_asked_all_the_same() {
    let bed = Bed::on_servers();
    bed.plan("seen", "other", "a plan");
    let mut asked = bed.requests().get("seen").unwrap().request;
    (asked.request_id, asked.task_id) = (name("p1"), Some("risky".to_owned()));
    assert!(bed.queue().close_gate(&asked, None).unwrap());
    assert!(!bed.queue().close_gate(&asked, None).unwrap(), "there is one");
    let gate = bed.requests().gate("risky", &name("bob")).unwrap().unwrap();
    assert_eq!((gate.state, gate.request_id), (GateState::Pending, name("p1")));
    assert!(bed.requests().find("p1").unwrap().is_none());
    // Another plan comes second, and by that the first one is asked.
    let second = bed.requests().ask(plan("p2", "another")).unwrap_err();
    assert!(matches!(second.area(), Some(DecisionRefusal::PlanPending { .. })), "{second}");
    assert_eq!(bed.requests().get("p1").unwrap().state(), "pending");
    bed.requests().respond("p1", &name("lead"), true, "").unwrap();
    assert!(bed.requests().gate("risky", &name("bob")).unwrap().is_none());
}

#[test]
fn of_two_plans_for_a_task_at_the_same_time_one_is_submitted() {
    let (server, log) = (Server::shared(), SimRecorder::default());
    let (options, queue) = team(&server, &log);
    let asked: Vec<_> = std::thread::scope(|scope| {
        let asking: Vec<_> = (0..4)
            .map(|n| {
                let (options, log) = (&options, &log);
                scope.spawn(move || {
                    let queue = host(options, log);
                    Requests::new(&queue).ask(plan(&format!("p{n}"), &format!("plan {n}")))
                })
            })
            .collect();
        asking.into_iter().map(|asker| asker.join().unwrap()).collect()
    });
    let stored: Vec<_> = asked.iter().filter_map(|asked| asked.as_ref().ok()).collect();
    assert_eq!(stored.len(), 1);
    for error in asked.iter().filter_map(|asked| asked.as_ref().err()) {
        assert!(matches!(error.area(), Some(DecisionRefusal::PlanPending { .. })), "{error}");
    }
    let gate = queue.gate("risky", &name("bob")).unwrap().unwrap();
    assert_eq!(gate.request_id, stored[0].request.request_id);
    assert_eq!(Requests::new(&queue).ids().unwrap().len(), 1);
}

#[test]
fn what_counts_for_nothing_is_put_aside_and_the_question_is_open_again() {
    let bed = Bed::on_servers();
    bed.shutdown("abc");
    let by_hand =
        |text: &str| bed.queue().write_once(&name("abc"), RequestFile::Decision, text).unwrap();
    for text in ["approve: [", "approve: true\nby: mallory\n", "outcome: expired\nby: alice\n"] {
        assert_eq!(by_hand(text), WriteOutcome::Done);
        assert_eq!(bed.requests().get("abc").unwrap().state(), "pending", "{text}");
        assert_eq!(bed.pages("abc"), ["request"]);
    }
    assert_eq!(bed.records("request.rejected_file").len(), 3);
    // As `nats kv create` does it.
    assert_eq!(by_hand("approve: true\nby: alice\n"), WriteOutcome::Done);
    assert_eq!(by_hand("approve: false\nby: alice\n"), WriteOutcome::Exists);
    let entry = bed.requests().resume("abc").unwrap().unwrap();
    assert_eq!((entry.state(), entry.is_closed), ("approved", false));
    assert_eq!(bed.types("lead"), ["shutdown_response"]);
    let bad = name("bad");
    bed.queue().write_once(&bad, RequestFile::Request, "request_id: good\n").unwrap();
    assert!(bed.requests().find("bad").is_err());
    assert!(bed.requests().reject(&bad).unwrap().unwrap().contains("rejected.bad.request"));
    assert!(bed.requests().find("bad").unwrap().is_none());
}

#[test]
fn closed_requests_are_forgotten_and_those_that_a_gate_names_are_not() {
    // Its clock is years ahead of the server's.
    let bed = Bed::on_servers();
    bed.shutdown("open");
    bed.plan("done", "other", "a plan");
    bed.requests().respond("done", &name("lead"), true, "").unwrap();
    bed.plan("no", "risky", "a plan");
    bed.requests().respond("no", &name("lead"), false, "").unwrap();
    assert_eq!(bed.requests().sweep().unwrap(), 1);
    let mut ids = bed.requests().ids().unwrap();
    ids.sort();
    assert_eq!(ids, [name("no"), name("open")]);
    assert_eq!(bed.requests().gates().unwrap().len(), 1);
}

#[test]
fn content_that_no_message_carries_is_attached() {
    let bed = Bed::on_servers();
    for content in ["x".repeat(33 * 1024).into_bytes(), vec![0xff]] {
        let ask = NewRequest::new("shutdown", name("lead"), name("alice"), content.clone());
        bed.requests().ask(ask).unwrap();
        let queue = bed.queue().broker();
        let asked = queue.receive(&name("alice"), &name("alice")).unwrap().unwrap().envelope;
        assert_eq!(queue.attached(&asked.attachment.unwrap()).unwrap(), content);
    }
}

#[test]
fn a_follower_is_notified_of_questions_and_answers_of_other_hosts() {
    let (server, log) = (Server::shared(), SimRecorder::default());
    let (options, queue) = team(&server, &log);
    queue.follow_requests().unwrap();
    let other = host(&options, &log);
    let mut seen = 0;
    let mut heard = |id: &str| {
        let start = std::time::Instant::now();
        loop {
            seen = queue.wait_for_news(seen, PATIENCE);
            if queue.changed_requests().contains(&name(id)) {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "nothing was heard of {id}");
        }
    };
    Requests::new(&other).ask(plan("p1", "a plan")).unwrap();
    heard("p1");
    Requests::new(&other).respond("p1", &name("lead"), true, "").unwrap();
    heard("p1");
}
