//! Failures of a team's NATS servers: killed and stopped servers, a cluster that loses a member,
//! lost disks, an outbox, a killed bridge. Real servers on loopback.

use std::sync::atomic::AtomicBool;

use ensemble_core::env::Transport as _;
use rustix::process::Signal;

use crate::nats_support::Cluster;

use crate::*;

fn queue_on(server: &Server) -> (NatsOptions, NatsTransport) {
    let options = server.options(&fresh_team()).with_patience(PATIENCE);
    let queue = NatsTransport::connect(&options).unwrap();
    queue.add_mailbox(&name(MAILBOX), &Settings::default()).unwrap();
    (options, queue)
}

fn spool_at(home: &Path) -> Spool {
    let options = SpoolOptions::default().with_durability(Durability::Process);
    let spool = Spool::create(&home.join("queue"), options).unwrap();
    spool.add_mailbox(&name(MAILBOX), &Settings::default()).unwrap();
    spool
}

#[test]
fn killing_the_server_in_the_middle_loses_nothing() {
    const MESSAGES: usize = 400;
    let server = Server::start();
    let (options, queue) = queue_on(&server);
    let is_sent = AtomicBool::new(false);
    let received: Vec<String> = std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..MESSAGES {
                queue.publish(&message(&format!("{n}"))).unwrap();
            }
            is_sent.store(true, Ordering::SeqCst);
        });
        let reader = scope.spawn(|| {
            let queue = NatsTransport::connect(&options).unwrap();
            let mut received = Vec::new();
            loop {
                let was_sent = is_sent.load(Ordering::SeqCst);
                received.extend(settle_all(&queue, MAILBOX));
                if was_sent && received.len() >= MESSAGES {
                    return received;
                }
                queue.wait(&name(MAILBOX), Duration::from_millis(50)).unwrap();
            }
        });
        for _ in 0..3 {
            let before = count_settled(&queue);
            let start = Instant::now();
            while count_settled(&queue) < before + 20 && !is_sent.load(Ordering::SeqCst) {
                assert!(start.elapsed() < PATIENCE, "messages come through between two kills");
            }
            server.restart();
        }
        reader.join().unwrap()
    });
    let distinct: BTreeSet<_> = received.iter().collect();
    assert_eq!((received.len(), distinct.len()), (MESSAGES, MESSAGES));
    assert_eq!(count_settled(&queue), MESSAGES as u64);
}

fn count_settled(queue: &NatsTransport) -> u64 {
    queue.scan(&name(MAILBOX)).unwrap().settled
}

#[test]
fn a_lease_outlives_the_server() {
    let server = Server::start();
    let (_, queue) = queue_on(&server);
    queue.publish(&message("one")).unwrap();
    queue.publish(&message("two")).unwrap();
    let lease = queue.receive(&name(MAILBOX), &name("alice")).unwrap().unwrap().lease;
    server.restart();
    assert_eq!(settle_all(&queue, MAILBOX), ["two"], "a held message is not delivered again");
    queue.settle(&lease).unwrap();
    assert!(matches!(queue.settle(&lease), Err(Error::LeaseLost { .. })));
}

#[test]
fn an_outbox_keeps_what_the_server_cannot_take() {
    let server = Server::start();
    // Calls expected to succeed have patience; calls expected to fail have none.
    let (patient, queue) = queue_on(&server);
    let quick = connect_impatient(&patient.clone().with_patience(Duration::from_millis(300)));
    let home = tempfile::tempdir().unwrap();
    let options = SpoolOptions::default().with_durability(Durability::Process);
    let outbox = Outbox::open(&home.path().join("outbox"), 4, options).unwrap();
    let sent = message("0");
    assert_eq!(
        outbox.post(Some(&queue), &sent).unwrap(),
        PostOutcome::Sent(PublishOutcome::Stored)
    );
    drop(queue);
    server.kill();
    // This one is sent again, as by a sender that got no answer.
    assert!(matches!(outbox.post(Some(&quick), &sent).unwrap(), PostOutcome::Kept(_)));
    for n in 1..4 {
        assert!(matches!(
            outbox.post(None, &message(&format!("{n}"))).unwrap(),
            PostOutcome::Kept(_)
        ));
    }
    let full = outbox.post(None, &message("4"));
    assert!(matches!(full, Err(Error::Full { capacity: 4, .. })), "{full:?}");
    outbox
        .post(None, &Envelope::new(name("no-such-box"), "for a mailbox that is not there"))
        .unwrap();
    assert_eq!(outbox.waiting().unwrap(), 5);
    server.run();
    server.answers();
    let back = NatsTransport::connect(&patient).unwrap();
    assert_eq!(
        outbox.post(Some(&back), &message("5")).unwrap(),
        PostOutcome::Sent(PublishOutcome::Stored)
    );
    assert_eq!(outbox.waiting().unwrap(), 0);
    assert_eq!(settle_all(&back, MAILBOX), ["0", "1", "2", "3", "5"]);
    let letters = outbox.spool().dead_letters(&name("no-such-box")).unwrap();
    assert!(letters[0].reason.contains("no mailbox `no-such-box`"), "{}", letters[0].reason);
}

#[test]
fn a_silent_server_ends_every_call_and_stores_once() {
    let server = Server::start();
    let (options, patient) = queue_on(&server);
    // One call is to succeed before those that are to fail. It makes the lease known to this
    // connection, so that the settlement is sent into the silence.
    let impatient = connect_impatient(&options.clone().with_patience(Duration::from_secs(3)));
    patient.publish(&message("before").with_id(id("before"))).unwrap();
    let lease = impatient.receive(&name(MAILBOX), &name("alice")).unwrap().unwrap().lease;
    server.signal(Signal::STOP);
    let envelope = message("meanwhile").with_id(id("meanwhile"));
    let start = Instant::now();
    let results = [
        impatient.publish(&envelope).map(drop),
        impatient.receive(&name(MAILBOX), &name("alice")).map(drop),
        impatient.settle(&lease),
        impatient.mailboxes().map(drop),
    ];
    assert!(start.elapsed() < PATIENCE, "calls end: {:?}", start.elapsed());
    for result in results {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Server { unreachable: true, .. }), "{error}");
        assert!(error.is_transient());
    }
    server.signal(Signal::CONT);
    let queue = NatsTransport::connect(&options).unwrap();
    // A message sent to a silent server may arrive late; sent again it is still stored once.
    queue.publish(&envelope).unwrap();
    queue.publish(&envelope).unwrap();
    match queue.settle(&lease) {
        Ok(()) => {}
        Err(Error::LeaseLost { now, .. }) => assert_eq!(now, "settled"),
        Err(error) => panic!("{error}"),
    }
    assert_eq!(settle_all(&queue, MAILBOX), ["meanwhile"]);
}

#[test]
fn a_cluster_goes_on_without_one_of_three() {
    let Some(cluster) = Cluster::start() else { return };
    let mut options = NatsOptions::new(cluster.urls(), name("team")).with_patience(PATIENCE);
    options.replicas = 3;
    let queue = NatsTransport::connect(&options).unwrap();
    queue.add_mailbox(&name(MAILBOX), &Settings::default()).unwrap();
    let mut expected = Vec::new();
    for (round, server) in cluster.servers.iter().enumerate() {
        for n in 0..10 {
            let body = format!("{round}.{n}");
            queue.publish(&message(&body)).unwrap();
            expected.push(body);
        }
        // One after the other, so that the leader is among them.
        server.kill();
        let body = format!("{round} without one");
        queue.publish(&message(&body)).unwrap();
        expected.push(body);
        server.run();
        cluster.catches_up(round);
    }
    assert_eq!(settle_all(&queue, MAILBOX), expected);
}

/// A consumer that was made on another server than the one that is asked: its first question must arrive. It is
/// not replaced by another consumer, which would cost seconds and might be as deaf.
#[test]
fn a_reader_of_a_cluster_needs_one_consumer() {
    const READERS: usize = 30;
    let Some(cluster) = Cluster::start() else { return };
    let options = |url: String| NatsOptions { replicas: 3, ..NatsOptions::new(url, name("team")) };
    let first = NatsTransport::connect(&options(cluster.urls())).unwrap();
    first.add_mailbox(&name(MAILBOX), &Settings::default()).unwrap();
    for (n, server) in cluster.servers.iter().enumerate() {
        server.restart();
        cluster.catches_up(n);
    }
    let mut made = Made::listen(&cluster.servers[0]);
    for n in 0..READERS {
        let url = cluster.servers[n % cluster.servers.len()].url();
        let queue = NatsTransport::connect(&options(url).with_patience(PATIENCE)).unwrap();
        queue.publish(&message(&n.to_string())).unwrap();
        assert_eq!(settle_all(&queue, MAILBOX), [n.to_string()]);
    }
    // One that follows the mailbox, and one for the time.
    let made = made.count();
    assert!(made <= 2 * READERS, "{made} consumers for {READERS} readers");
}

/// What a server reports on consumers that are made.
struct Made(BufReader<TcpStream>);

impl Made {
    fn listen(server: &Server) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut made = Self(BufReader::new(stream));
        made.say("CONNECT {\"verbose\":false}\r\nSUB $JS.EVENT.ADVISORY.CONSUMER.CREATED.> 1\r\n");
        made.count();
        made
    }

    fn say(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).unwrap();
    }

    /// How many were made since it was asked last.
    fn count(&mut self) -> usize {
        self.say("PING\r\n");
        let mut count = 0;
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the connection ended");
            match line.split_whitespace().next() {
                Some("PONG") => return count,
                Some("PING") => self.say("PONG\r\n"),
                Some("MSG") => count += 1,
                _ => {}
            }
        }
    }
}

#[test]
fn what_a_power_cut_takes_is_missed_and_not_mixed_up() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::at(home.path(), free_port(), &[]);
    let (_, queue) = queue_on(&server);
    queue.publish(&message("kept").with_id(id("kept"))).unwrap();
    server.kill();
    let saved = tempfile::tempdir().unwrap();
    copy(home.path(), saved.path());
    server.run();
    server.answers();
    let late = message("late").with_id(id("late"));
    queue.publish(&late).unwrap();
    let lease = queue.receive(&name(MAILBOX), &name("alice")).unwrap().unwrap().lease;
    assert_eq!(lease.id, id("kept"));
    // As if nothing since then had reached the disk.
    server.kill();
    std::fs::remove_dir_all(home.path().join("jetstream")).unwrap();
    copy(saved.path(), home.path());
    server.run();
    server.answers();
    assert!(matches!(queue.settle(&lease), Err(Error::LeaseLost { .. })));
    assert_eq!(queue.publish(&late).unwrap(), PublishOutcome::Stored, "its sender sends it again");
}

fn copy(from: &Path, to: &Path) {
    let status =
        std::process::Command::new("cp").arg("-a").arg(from.join("jetstream")).arg(to).status();
    assert!(status.unwrap().success());
}

#[test]
fn a_bridge_carries_once_whatever_happened_before() {
    let server = Server::start();
    let (_, queue) = queue_on(&server);
    let home = tempfile::tempdir().unwrap();
    let spool = spool_at(home.path());
    for n in 0..5 {
        spool.publish(&message(&format!("{n}"))).unwrap();
    }
    // A bridge that died after it had taken the first, and one that died after it had stored it.
    let bridge = name("bridge");
    spool.receive(&name(MAILBOX), &bridge).unwrap().unwrap();
    let second = spool.receive(&name(MAILBOX), &bridge).unwrap().unwrap();
    queue.publish(&second.envelope).unwrap();
    let carried = Bridge::new(&spool, &queue, bridge.clone(), UnknownMailbox::Create)
        .carry(&name(MAILBOX))
        .unwrap();
    assert_eq!((carried.carried, carried.buried), (5, 0));
    let mut bodies = settle_all(&queue, MAILBOX);
    bodies.sort_unstable();
    assert_eq!(bodies, ["0", "1", "2", "3", "4"]);
    assert_eq!(spool.counts(&name(MAILBOX)).unwrap().settled, 5);

    // And back, into a mailbox that is not there yet.
    let other = name("other");
    queue.add_mailbox(&other, &Settings::default().with_attempts_max(9)).unwrap();
    queue.publish(&Envelope::new(other.clone(), "back").with_priority(3)).unwrap();
    let back = Bridge::new(&queue, &spool, bridge, UnknownMailbox::Create);
    assert_eq!(back.carry(&other).unwrap().carried, 1);
    assert_eq!(spool.settings(&other).unwrap().attempts_max, 9);
    assert_eq!(spool.receive(&other, &other).unwrap().unwrap().envelope.priority, 3);
}

#[test]
fn a_bridge_holds_on_while_the_server_is_away() {
    let server = Server::start();
    let (options, patient) = queue_on(&server);
    let queue = connect_impatient(&options.with_patience(Duration::from_millis(300)));
    let home = tempfile::tempdir().unwrap();
    let spool = spool_at(home.path());
    spool.publish(&message("patient")).unwrap();
    let bridge = Bridge::new(&spool, &queue, name("bridge"), UnknownMailbox::Create);
    server.kill();
    for _ in 0..8 {
        let error = bridge.carry(&name(MAILBOX)).unwrap_err();
        assert!(error.is_transient(), "{error}");
    }
    assert_eq!(spool.counts(&name(MAILBOX)).unwrap().dead, 0, "no attempt was used up");
    server.run();
    server.answers();
    let start = Instant::now();
    while bridge.carry(&name(MAILBOX)).is_err() {
        assert!(start.elapsed() < PATIENCE, "the bridge goes on by itself");
    }
    assert_eq!(settle_all(&patient, MAILBOX), ["patient"]);
}

#[test]
fn a_listing_outlasts_a_server_that_is_killed_in_its_middle() {
    const FILES: usize = 600;
    let server = Server::start();
    let (options, queue) = queue_on(&server);
    for n in 0..FILES {
        queue.write_file(&format!("leases/{n}.yaml"), b"beat", "", 0).unwrap().unwrap();
    }
    let (listed, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let reader = NatsTransport::connect(&options).unwrap();
            while !is_over.load(Ordering::SeqCst) {
                assert_eq!(reader.list_files("leases").unwrap().len(), FILES);
                listed.fetch_add(1, Ordering::SeqCst);
            }
        });
        for _ in 0..3 {
            let (before, start) = (listed.load(Ordering::SeqCst), Instant::now());
            while listed.load(Ordering::SeqCst) < before + 5 {
                assert!(start.elapsed() < PATIENCE, "listings come through between two kills");
                count_settled(&queue);
            }
            server.restart();
        }
        is_over.store(true, Ordering::SeqCst);
    });
}
