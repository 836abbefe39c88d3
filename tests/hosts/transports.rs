//! Every transport satisfies the same contract: the suite of `conformance/` against a directory and a real server.

use crate::conformance::bed::Bed;

use crate::*;

fn in_a_directory(settings: &Settings) -> Bed {
    let home = tempfile::tempdir().unwrap();
    Bed::new(settings, move |clock, log| {
        let mut options = SpoolOptions::default()
            .with_durability(Durability::Process)
            .with_clock(Arc::new(clock.clone()))
            .with_recorder(Arc::new(log.clone()));
        options.quota = Some(Quota::default());
        Box::new(Spool::create(&home.path().join("queue"), options).unwrap())
    })
}

crate::conformance!(directory, in_a_directory);

crate::conformance!(nats, nats_support::bed::fresh);

/// A task whose budget is used up is kept back, and no other work.
mod budgets {
    use ensemble_core::message::TASK_TYPE;
    use ensemble_team::admission::{MailAdmission, ProjectAdmission};

    use super::*;
    use crate::conformance::bed::message;

    /// The admission of a project in which the budget of the task `parked` is used up.
    fn admission(project: &std::path::Path) -> Arc<MailAdmission> {
        let state = project.join(".ensemble");
        std::fs::create_dir_all(&state).unwrap();
        let parked = serde_json::json!({ "version": 1, "parked": [{
            "scope": "task", "name": "parked", "limit": { "usd": 5 }, "used": { "usd": 5.5 },
            "since": "2026-11-25T10:00:00Z",
        }] });
        std::fs::write(state.join("budget.json"), parked.to_string()).unwrap();
        Arc::new(MailAdmission::new(ProjectAdmission::new(project, &state)))
    }

    fn are_kept(queue: &dyn Broker) {
        let mailbox = name(MAILBOX);
        queue.add_mailbox(&mailbox, &Settings::default()).unwrap();
        let task = |task: &str| message(task).with_kind(name(TASK_TYPE)).with_task(task);
        for sent in [task("parked"), task("free"), message("a letter")] {
            queue.publish(&sent).unwrap();
        }
        let due = queue.due_ids_for(&mailbox, &mailbox, 9).unwrap();
        assert_eq!(due.len(), 2);
        let parked = queue.unfinished(&mailbox, 1).unwrap().remove(0).id;
        let refused = queue.receive_id(&mailbox, &parked, &mailbox).unwrap_err();
        assert!(refused.to_string().contains("the budget of task parked is used up"), "{refused}");
        let receive = || queue.receive(&mailbox, &mailbox).unwrap();
        let received = std::iter::from_fn(receive).map(|delivery| delivery.envelope.body);
        assert_eq!(received.collect::<Vec<_>>(), ["free", "a letter"]);
    }

    #[test]
    fn in_a_directory() {
        let home = tempfile::tempdir().unwrap();
        let options = SpoolOptions::default().with_durability(Durability::Process);
        let options = options.with_admission(admission(home.path()));
        are_kept(&Spool::create(&home.path().join("queue"), options).unwrap());
    }

    #[test]
    fn on_servers() {
        let (home, server) = (tempfile::tempdir().unwrap(), nats_support::Server::shared());
        let mut options = server.options(&nats_support::fresh_team());
        options.standstill = Some(admission(home.path()));
        let options = options.with_patience(nats_support::PATIENCE);
        are_kept(&ensemble_nats::NatsTransport::connect(&options).unwrap());
    }
}

/// Settled messages are kept for their days and forgotten then.
mod keeping {
    use ensemble_core::broker::Broker;
    use ensemble_core::env::{Clock, PublishOutcome, SystemClock};

    use super::*;
    use crate::conformance::bed::{id, message};
    use crate::queue::AheadClock;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    /// `sweep(later)` sweeps the queue with a clock that is so much later, and says how much was removed.
    fn forgets(queue: &dyn Broker, sweep: impl Fn(Arc<dyn Clock + Send + Sync>) -> u64) {
        let sweep = |later| sweep(Arc::new(AheadClock::by(later)));
        let mailbox = name(MAILBOX);
        let mut settings = Settings::default();
        settings.done_days = 2;
        queue.add_mailbox(&mailbox, &settings).unwrap();
        // A queue counts time from its first sweep on.
        assert_eq!(sweep(Duration::ZERO), 0);
        for settled in ["a", "b"] {
            queue.publish(&message(settled).with_id(id(settled))).unwrap();
            let lease = queue.receive(&mailbox, &mailbox).unwrap().unwrap().lease;
            queue.settle(&lease).unwrap();
        }
        for unfinished in ["held", "waits"] {
            queue.publish(&message(unfinished).with_id(id(unfinished))).unwrap();
        }
        queue.receive(&mailbox, &mailbox).unwrap().unwrap();
        assert_eq!(sweep(DAY), 0);
        assert_eq!(queue.state(&mailbox, &id("a")).unwrap(), Some(State::Settled));
        assert_eq!(sweep(3 * DAY), 2);
        assert_eq!(sweep(3 * DAY), 0);
        for settled in ["a", "b"] {
            assert_eq!(queue.state(&mailbox, &id(settled)).unwrap(), None);
        }
        let counts = queue.scan(&mailbox).unwrap();
        assert_eq!((counts.queued, counts.acked), (1, 1));
        // An id that was forgotten is a new one.
        let again = message("anew").with_id(id("a"));
        assert_eq!(queue.publish(&again).unwrap(), PublishOutcome::Stored);
        assert_eq!(sweep(3 * DAY), 0);
        assert_eq!(queue.peek(&mailbox, &id("a")).unwrap().body, "anew");
    }

    #[test]
    fn a_directory_forgets_what_was_settled_long_ago() {
        let home = tempfile::tempdir().unwrap();
        let open = |clock: Arc<dyn Clock + Send + Sync>| {
            let mut options = SpoolOptions::default().with_durability(Durability::Process);
            options.clock = clock;
            Spool::create(&home.path().join("queue"), options).unwrap()
        };
        let spool = open(Arc::new(SystemClock));
        forgets(&spool, |clock| open(clock).sweep().unwrap().done_removed as u64);
    }

    #[test]
    fn servers_forget_what_was_settled_long_ago() {
        use ensemble_nats::NatsTransport;

        let server = nats_support::Server::shared();
        let options = server.options(&nats_support::fresh_team());
        let options = options.with_patience(Duration::from_secs(20));
        let queue = NatsTransport::connect(&options).unwrap();
        let connect = |clock| NatsTransport::connect(&options.clone().with_clock(clock)).unwrap();
        forgets(&queue, |clock| connect(clock).sweep().unwrap());
    }
}

/// A watcher that has an eye on a whole team.
mod whole_team {
    use super::nats_support::{PATIENCE, Server, free_port, fresh_team, monitored};
    use crate::conformance::bed::name;
    use ensemble_core::broker::Broker as _;
    use ensemble_core::env::Transport as _;
    use ensemble_core::leases::LeaseTable as _;
    use ensemble_core::message::Envelope;
    use ensemble_core::spool::Settings;
    use ensemble_nats::NatsTransport;

    #[test]
    fn it_costs_the_server_one_consumer_and_sees_every_mailbox() {
        let (home, monitor) = (tempfile::tempdir().unwrap(), free_port());
        let flags = ["-m".to_owned(), monitor.to_string()];
        let server = Server::at(home.path(), free_port(), &flags);
        let options = server.options(&fresh_team()).with_patience(PATIENCE);
        let [watcher, sender] = [(); 2].map(|()| NatsTransport::connect(&options).unwrap());
        let mailboxes = ["w1", "w2", "w3"].map(name);
        let (early, late) = mailboxes.split_at(2);
        let send = |to: &_| {
            sender.add_mailbox(to, &Settings::default()).unwrap();
            sender.publish(&Envelope::new(to.clone(), "work")).unwrap();
        };
        early.iter().for_each(send);
        watcher.follow_team().unwrap();
        late.iter().for_each(send);
        for mailbox in &mailboxes {
            assert_eq!(watcher.due_ids(mailbox, 9).unwrap().len(), 1);
            assert_eq!(watcher.unfinished(mailbox, 9).unwrap().len(), 1);
            assert!(watcher.observe(mailbox).unwrap().is_empty());
        }
        assert_eq!(monitored(monitor, "/jsz", "consumers"), 1);
        // A notice has no content, a received message has.
        let held = watcher.receive(&mailboxes[0], &mailboxes[0]).unwrap().unwrap();
        assert_eq!(held.envelope.body, "work");
        assert_eq!(watcher.observe(&mailboxes[0]).unwrap()[0].lease, held.lease);
        watcher.settle(&held.lease).unwrap();
        assert_eq!(watcher.scan(&mailboxes[0]).unwrap().settled, 1);
        // A server that was away is followed again.
        server.kill();
        server.run();
        server.answers();
        sender.publish(&Envelope::new(mailboxes[1].clone(), "more")).unwrap();
        assert_eq!(watcher.unfinished(&mailboxes[1], 9).unwrap().len(), 2);
    }
}
