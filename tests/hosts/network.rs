//! Failures of the network between hosts and servers: slow links, swallowed packets, a split
//! cluster; and hosts whose clocks differ. Real servers on loopback, with links that the test
//! controls.

use crate::conformance::bed::observe_for;
use crate::nats_support::program;

use crate::*;

/// For calls that are to fail; one is to succeed before, with which the lease begins.
const IMPATIENCE: Duration = Duration::from_secs(3);
/// Beyond the usual lease and what an observer adds.
const LONG: Duration = Duration::from_secs(700);

fn reached(port: u16, team: &str) -> NatsOptions {
    NatsOptions::new(format!("nats://127.0.0.1:{port}"), name(team)).with_patience(PATIENCE)
}

fn outbox_at(home: &std::path::Path) -> Outbox {
    let options = SpoolOptions::default().with_durability(Durability::Process);
    Outbox::open(&home.join("outbox"), 100, options).unwrap()
}

/// Each verb makes a connection, and asks little more than once.
#[test]
fn a_new_connection_probes_a_stream_once() {
    let (server, team) = (Server::start(), fresh_team());
    let options = server.options(&team);
    NatsTransport::connect(&options)
        .unwrap()
        .add_mailbox(&name(MAILBOX), &Settings::default())
        .unwrap();
    let mut listener = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    let mut heard = BufReader::new(listener.try_clone().unwrap());
    let mut until_pong = |sent: String| {
        listener.write_all(sent.as_bytes()).unwrap();
        let (mut lines, mut line) = (Vec::new(), String::new());
        while line != "PONG\r\n" {
            line.clear();
            assert!(heard.read_line(&mut line).unwrap() > 0, "the server has ended: {lines:?}");
            lines.push(line.clone());
        }
        lines
    };
    until_pong(format!("CONNECT {{}}\r\nSUB ens.{team}.probe 1\r\nPING\r\n"));
    for number in 0..20 {
        let queue = NatsTransport::connect(&options).unwrap();
        queue.publish(&message(&number.to_string())).unwrap();
    }
    let lines = until_pong("PING\r\n".to_owned());
    let probes = lines.iter().filter(|line| line.starts_with("MSG ")).count();
    assert_eq!(probes, 20, "{lines:?}");
}

#[test]
fn a_slow_network_costs_time_and_nothing_else() {
    const MESSAGES: usize = 8;
    let server = Server::start();
    let team = fresh_team();
    let link = Link::to(server.port);
    let far = NatsTransport::connect(&reached(link.port, &team)).unwrap();
    far.add_mailbox(&name(MAILBOX), &Settings::default()).unwrap();
    let near = NatsTransport::connect(&reached(server.port, &team)).unwrap();
    link.delay(Duration::from_millis(60));
    for n in 0..2 * MESSAGES {
        far.publish(&message(&n.to_string())).unwrap();
    }
    let (mut there, mut here) = std::thread::scope(|scope| {
        // Both take from one mailbox, and the far one is late with every take.
        let there = scope.spawn(|| settle_all(&far, MAILBOX));
        let here = scope.spawn(|| settle_all(&near, MAILBOX));
        (there.join().unwrap(), here.join().unwrap())
    });
    there.append(&mut here);
    let unique: BTreeSet<&String> = there.iter().collect();
    assert_eq!((there.len(), unique.len()), (2 * MESSAGES, 2 * MESSAGES), "{there:?}");
}

#[test]
fn a_network_that_swallows_everything_ends_calls_and_fences_who_was_away() {
    let server = Server::start();
    let team = fresh_team();
    let link = Link::to(server.port);
    let near = NatsTransport::connect(&reached(server.port, &team)).unwrap();
    near.add_mailbox(&name(MAILBOX), &Settings::default()).unwrap();
    let far = connect_impatient(&reached(link.port, &team).with_patience(IMPATIENCE));
    near.publish(&message("held").with_id(id("held"))).unwrap();
    let lease = far.receive(&name(MAILBOX), &name("far")).unwrap().unwrap().lease;

    link.cut();
    let start = Instant::now();
    let home = tempfile::tempdir().unwrap();
    let outbox = outbox_at(home.path());
    assert!(matches!(outbox.post(Some(&far), &message("waits")).unwrap(), PostOutcome::Kept(_)));
    for result in [far.settle(&lease), far.receive(&name(MAILBOX), &name("far")).map(drop)] {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Server { unreachable: true, .. }), "{error}");
    }
    assert!(start.elapsed() < PATIENCE, "calls end: {:?}", start.elapsed());
    // Messages sent to a silent server arrive only later, so the holder has fallen silent.
    assert_eq!(observe_for(&near, LONG), 1);
    let again = near.receive(&name(MAILBOX), &name("near")).unwrap().unwrap();
    assert_eq!((again.lease.id.as_str(), again.lease.epoch), ("held", 2));

    link.heal();
    let back = NatsTransport::connect(&reached(link.port, &team)).unwrap();
    assert!(matches!(back.settle(&lease), Err(Error::LeaseLost { .. })), "it was given to another");
    near.settle(&again.lease).unwrap();
    outbox.drain(&back).unwrap();
    assert_eq!(outbox.waiting().unwrap(), 0);
    assert_eq!(settle_all(&near, MAILBOX), ["waits"]);
}

/// Three servers of which the first reaches the others only through `link`.
struct Split {
    servers: Vec<Server>,
    monitors: [u16; 3],
    link: Link,
    _home: tempfile::TempDir,
}

impl Split {
    /// `None` without the program for clusters.
    fn start() -> Option<Self> {
        let program = cluster_program()?;
        let home = tempfile::tempdir().unwrap();
        let routes = [free_port(), free_port(), free_port()];
        let monitors = [free_port(), free_port(), free_port()];
        let link = Link::to(routes[0]);
        // All servers connect to the first one through the link, and it introduces them to each
        // other. The first one connects to no other; it detects that its own route leads to itself.
        let own = [link.port, routes[1], routes[2]];
        let servers: Vec<Server> = (0..3)
            .map(|n| {
                let home = home.path().join(n.to_string());
                std::fs::create_dir(&home).unwrap();
                let mut arguments: Vec<String> = [
                    ("--name", format!("server-{n}")),
                    ("--cluster_name", "ensemble-split".to_owned()),
                    ("--cluster", format!("nats://127.0.0.1:{}", routes[n])),
                    ("--cluster_advertise", format!("127.0.0.1:{}", own[n])),
                    ("--http_port", monitors[n].to_string()),
                    ("--routes", format!("nats-route://127.0.0.1:{}", link.port)),
                ]
                .into_iter()
                .flat_map(|(flag, value)| [flag.to_owned(), value])
                .collect();
                arguments.push("--no_advertise".to_owned());
                Server::by(&program, &home, free_port(), &arguments)
            })
            .collect();
        for (server, monitor) in servers.iter().zip(monitors) {
            server.is_current(monitor);
        }
        Some(Self { servers, monitors, link, _home: home })
    }

    /// Number of messages that each server has, for the report of a failure: they are to have the same ones.
    fn stored(&self) -> [u64; 3] {
        self.monitors.map(|monitor| monitored(monitor, "/jsz", "messages"))
    }
}

#[test]
fn a_partition_leaves_one_side_that_writes_and_loses_nothing() {
    const MESSAGES: usize = 5;
    let Some(split) = Split::start() else { return };
    let team = fresh_team();
    let url = format!("{},{}", split.servers[1].url(), split.servers[2].url());
    let mut majority = NatsOptions::new(url, name(&team)).with_patience(PATIENCE);
    majority.replicas = 3;
    let most = NatsTransport::connect(&majority).unwrap();
    most.add_mailbox(&name(MAILBOX), &Settings::default()).unwrap();
    let lone = reached(split.servers[0].port, &team);
    let few = connect_impatient(&lone.clone().with_patience(Duration::from_secs(2)));
    NatsTransport::connect(&lone).unwrap().publish(&message("before")).unwrap();

    split.link.cut();
    let home = tempfile::tempdir().unwrap();
    let outbox = outbox_at(home.path());
    for n in 0..MESSAGES {
        assert!(matches!(
            outbox.post(Some(&few), &message(&format!("few {n}"))).unwrap(),
            PostOutcome::Kept(_)
        ));
        most.publish(&message(&format!("most {n}"))).unwrap();
    }
    assert_eq!(outbox.waiting().unwrap(), MESSAGES as u64);

    split.link.heal();
    let back = NatsTransport::connect(&lone).unwrap();
    outbox.drain(&back).unwrap();
    assert_eq!(outbox.waiting().unwrap(), 0);
    let found = settle_all(&most, MAILBOX);
    let unique: BTreeSet<&str> = found.iter().map(String::as_str).collect();
    let stored = split.stored();
    assert_eq!(
        (found.len(), unique.len()),
        (2 * MESSAGES + 1, 2 * MESSAGES + 1),
        "{found:?}, the servers have {stored:?}"
    );
    assert!(settle_all(&back, MAILBOX).is_empty(), "both sides see the same");
}

#[test]
fn clocks_that_differ_shift_dates_and_no_leases() {
    const APART: Duration = Duration::from_secs(3600);
    let server = Server::start();
    let (behind, ahead) = (hand_clock(), hand_clock());
    ahead.advance(APART);
    let team = fresh_team();
    let host = |clock: &SimClock| {
        let options = server.options(&team).with_patience(PATIENCE);
        NatsTransport::connect(&options.with_clock(Arc::new(clock.clone()))).unwrap()
    };
    let (slow, fast) = (host(&behind), host(&ahead));
    slow.add_mailbox(&name(MAILBOX), &Settings::default()).unwrap();
    // By the other host's clock, a lease of the host that is behind would have expired long ago.
    assert_eq!(slow.publish(&message("held")).unwrap(), PublishOutcome::Stored);
    let lease = slow.receive(&name(MAILBOX), &name("slow")).unwrap().unwrap().lease;
    assert_eq!(observe_for(&fast, Duration::from_secs(299)), 0);
    slow.settle(&lease).unwrap();
    // A date, such as that of a delay, is judged by the reader's clock.
    slow.publish(&message("given back")).unwrap();
    let lease = fast.receive(&name(MAILBOX), &name("fast")).unwrap().unwrap().lease;
    fast.release(&lease, Duration::from_secs(60)).unwrap();
    let receive = |host: &NatsTransport| host.receive(&name(MAILBOX), &name("reader")).unwrap();
    assert!(receive(&slow).is_none());
    behind.advance(APART + Duration::from_secs(59));
    assert!(receive(&slow).is_none());
    behind.advance(Duration::from_secs(1));
    assert_eq!(receive(&slow).unwrap().envelope.body, "given back");
}

/// A server, and a leaf node that reaches it only through `link`.
struct LeafNode {
    server: Server,
    link: Link,
    leaf: Server,
    _home: tempfile::TempDir,
}

impl LeafNode {
    fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        let file = |name: &str, text: String| {
            let file = home.path().join(name);
            std::fs::write(&file, text).unwrap();
            file
        };
        let port = free_port();
        let text =
            format!("jetstream: {{domain: hub}}\nleafnodes: {{listen: \"127.0.0.1:{port}\"}}\n");
        let config = file("server.conf", text);
        let arguments = ["-c".to_owned(), config.display().to_string()];
        let server = Server::at(home.path(), free_port(), &arguments);
        let link = Link::to(port);
        let mappings = r#"{"$JS.API.>": "$JS.hub.API.>", "$KV.>": "$JS.hub.API.$KV.>"}"#;
        let remote = format!(r#"{{url: "nats://127.0.0.1:{}"}}"#, link.port);
        let text = format!("leafnodes: {{remotes: [{remote}]}}\nmappings: {mappings}\n");
        let at = home.path().join("leaf");
        std::fs::create_dir(&at).unwrap();
        let leaf = Server::leaf(Path::new(program()), &at, free_port(), &file("leaf.conf", text));
        Self { server, link, leaf, _home: home }
    }
}

#[test]
fn what_is_missing_at_the_servers_is_missing_through_a_leaf_node() {
    let node = LeafNode::start();
    let team = fresh_team();
    let queue = connect_impatient(&reached(node.leaf.port, &team));
    assert!(queue.host_reports().unwrap().is_empty());
    queue.report_host(&name("far"), "{}").unwrap();
    assert_eq!(queue.host_reports().unwrap().len(), 1);
}

#[test]
fn a_leaf_node_that_loses_its_server_loses_no_message() {
    let node = LeafNode::start();
    let team = fresh_team();
    let near = NatsTransport::connect(&reached(node.server.port, &team)).unwrap();
    near.add_mailbox(&name(MAILBOX), &Settings::default()).unwrap();
    let far = connect_impatient(&reached(node.leaf.port, &team));
    near.publish(&message("held")).unwrap();
    let lease = far.receive(&name(MAILBOX), &name("far")).unwrap().unwrap().lease;
    // What is sent while nothing gets through arrives once it does.
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| far.wait(&name(MAILBOX), PATIENCE).unwrap());
        node.link.cut();
        near.publish(&message("cut off")).unwrap();
        node.link.heal();
        assert!(waiting.join().unwrap());
    });
    far.settle(&lease).unwrap();
    assert_eq!(settle_all(&far, MAILBOX), ["cut off"]);
    // The server forgets what the leaf node has asked it, which is asked again.
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| far.wait(&name(MAILBOX), PATIENCE).unwrap());
        node.server.restart();
        near.publish(&message("after")).unwrap();
        assert!(waiting.join().unwrap());
    });
    assert_eq!(settle_all(&far, MAILBOX), ["after"]);
}
