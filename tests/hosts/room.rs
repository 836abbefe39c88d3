//! Room, history and time at the servers: a full server is drained, a reader reads what waits, and the
//! servers' time counts.

use std::io::Read as _;
use std::net::{Shutdown, TcpListener};

use async_nats::jetstream::Context;
use async_nats::jetstream::stream::Stream;
use tokio::io::AsyncReadExt as _;

use crate::*;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn open(options: &NatsOptions) -> NatsTransport {
    let queue = NatsTransport::connect(options).unwrap();
    match queue.add_mailbox(&name(MAILBOX), &Settings::default()) {
        Ok(()) | Err(Error::MailboxExists { .. }) => queue,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_full_server_is_drained() {
    let home = tempfile::tempdir().unwrap();
    let config = home.path().join("server.conf");
    std::fs::write(&config, "jetstream { max_file_store: 4MB }\n").unwrap();
    let (monitor, clock) = (free_port(), AheadClock::default());
    let flags =
        ["-c", &config.display().to_string(), "-m", &monitor.to_string()].map(str::to_owned);
    let server = Server::at(home.path(), free_port(), &flags);
    let options = server.options(&fresh_team()).with_patience(PATIENCE);
    let queue = open(&options.with_clock(Arc::new(clock.clone())));
    let messages = || monitored(monitor, "/jsz", "messages");
    let (body, empty) = ("x".repeat(32 * 1024), messages());
    let mut stored = 0;
    let full = loop {
        match queue.publish(&message(&body)) {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
        assert!(stored < 1000, "the server has a limit");
    };
    assert!(full.is_transient(), "there may be room later: {full}");
    assert!(full.to_string().contains("full"), "{full}");
    assert!(NatsTransport::is_without_room(&full), "it answers: {full}");
    assert!(stored > 50, "{stored}");
    for n in 0..stored {
        let delivery = queue.receive(&name(MAILBOX), &name("w")).unwrap().expect("one waits");
        queue.extend(&delivery.lease, Duration::from_secs(600)).unwrap();
        queue.settle(&delivery.lease).unwrap_or_else(|error| panic!("message {n}: {error}"));
    }
    assert!(queue.receive(&name(MAILBOX), &name("w")).unwrap().is_none());
    clock.advance(8 * DAY);
    assert_eq!(queue.sweep().unwrap(), stored);
    assert!(messages() < empty, "the changes of state have used the reserve");
    queue.keep_reserve().unwrap();
    assert_eq!(messages(), empty, "it is made again");
}

/// Settles that many messages, and sets them apart.
fn with_history(options: &NatsOptions, clock: &SimClock, messages: usize) -> NatsTransport {
    let queue = open(options);
    for n in 0..messages {
        let id = ensemble_core::message::MessageId::new(format!("m-{n}")).unwrap();
        queue.publish(&message(&format!("{n}")).with_id(id)).unwrap();
        let delivery = queue.receive(&name(MAILBOX), &name("w")).unwrap().unwrap();
        queue.settle(&delivery.lease).unwrap();
    }
    clock.advance(Duration::from_secs(61));
    assert_eq!(queue.set_settled_apart().unwrap(), 0, "they are copied first");
    clock.advance(Duration::from_secs(61));
    let (mut apart, start) = (queue.set_settled_apart().unwrap(), Instant::now());
    assert!(apart > 0, "they leave two minutes after they were settled");
    while apart < messages as u64 {
        apart += queue.set_settled_apart().unwrap();
        clock.advance(Duration::from_secs(61));
        assert!(start.elapsed() < 20 * PATIENCE, "{apart} of {messages} are set apart");
    }
    queue
}

#[test]
fn a_reader_reads_what_waits_and_not_the_history() {
    const MESSAGES: usize = 400;
    let home = tempfile::tempdir().unwrap();
    let monitor = free_port();
    let server = Server::at(home.path(), free_port(), &["-m".to_owned(), monitor.to_string()]);
    let clock = hand_clock();
    let options =
        server.options(&fresh_team()).with_patience(PATIENCE).with_clock(Arc::new(clock.clone()));
    let queue = with_history(&options, &clock, MESSAGES);
    let again = message("0").with_id(ensemble_core::message::MessageId::new("m-0").unwrap());
    assert_eq!(queue.publish(&again).unwrap(), PublishOutcome::AlreadyStored, "its id stays taken");
    let other = message("other").with_id(again.id.clone());
    assert!(matches!(queue.publish(&other), Err(Error::Conflict { .. })));
    assert_eq!(queue.state(&name(MAILBOX), &again.id).unwrap(), Some(State::Settled));
    assert_eq!(queue.peek(&name(MAILBOX), &again.id).unwrap().body, "0");
    queue.publish(&message("waits")).unwrap();
    let before = monitored(monitor, "/varz", "out_msgs");
    let reader = NatsTransport::connect(&options).unwrap();
    let delivery = reader.receive(&name(MAILBOX), &name("w")).unwrap().unwrap();
    assert_eq!(delivery.envelope.body, "waits");
    let told = monitored(monitor, "/varz", "out_msgs") - before;
    assert!(told < 100, "the reader was told of {told} messages");
    // After its retention, an id may be used again.
    clock.advance(8 * DAY);
    assert_eq!(queue.sweep().unwrap(), MESSAGES as u64);
    assert_eq!(queue.state(&name(MAILBOX), &again.id).unwrap(), None);
    assert_eq!(queue.publish(&other).unwrap(), PublishOutcome::Stored);
}

#[test]
fn content_is_removed_once_nothing_open_names_it() {
    let home = tempfile::tempdir().unwrap();
    let monitor = free_port();
    let server = Server::at(home.path(), free_port(), &["-m".to_owned(), monitor.to_string()]);
    let (clock, team) = (AheadClock::default(), fresh_team());
    let options = server.options(&team).with_patience(PATIENCE).with_clock(Arc::new(clock.clone()));
    let queue = open(&options);
    let stored = || monitored(monitor, "/jsz", "messages");
    let empty = stored();
    let [named, unnamed] = [1, 2].map(|byte| queue.attach(&vec![byte; 300_000]).unwrap());
    let letter = message("see there").with_attachment(named.clone());
    queue.publish(&letter).unwrap();
    assert_eq!(queue.sweep_files(Duration::ZERO).unwrap(), 0, "all of it is young");
    // A sender died in the middle of an upload.
    let subject = format!("$O.ENSEMBLE_FILES_{team}.C.interrupted");
    let before = stored();
    let mut raw = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    raw.write_all(format!("CONNECT {{}}\r\nPUB {subject} 1\r\nx\r\n").as_bytes()).unwrap();
    let start = Instant::now();
    while stored() == before {
        assert!(start.elapsed() < PATIENCE, "the chunk is stored");
    }
    clock.advance(8 * DAY);
    assert_eq!(queue.sweep_files(7 * DAY).unwrap(), 1);
    assert_eq!(queue.attached(&named).unwrap(), [1; 300_000]);
    assert!(matches!(queue.attached(&unnamed), Err(Error::Malformed { .. })));
    let delivery = queue.receive(&name(MAILBOX), &name("w")).unwrap().unwrap();
    queue.settle(&delivery.lease).unwrap();
    assert_eq!(queue.sweep_files(7 * DAY).unwrap(), 1);
    assert!(matches!(queue.attached(&named), Err(Error::Malformed { .. })));
    assert_eq!(stored(), empty + 1, "the settled message is all that is left");
}

#[test]
fn content_that_is_stored_again_meanwhile_is_read_whole() {
    let server = Server::start();
    let clock = AheadClock::default();
    let options =
        server.options(&fresh_team()).with_patience(PATIENCE).with_clock(Arc::new(clock.clone()));
    let queue = open(&options);
    let content = vec![3; 300_000];
    let attachment = queue.attach(&content).unwrap();
    let other = NatsTransport::connect(&options).unwrap();
    std::thread::scope(|scope| {
        let again = scope.spawn(|| {
            for _ in 0..20 {
                // It is too old to be named again.
                clock.advance(DAY);
                assert_eq!(other.attach(&content).unwrap(), attachment);
            }
        });
        while !again.is_finished() {
            assert!(queue.attached(&attachment).unwrap() == content);
        }
        again.join().unwrap();
    });
}

/// By the program for clusters: a server of 2.9 does not note what it removes.
#[test]
fn a_killed_server_has_what_it_had_and_nothing_that_was_removed() {
    if let Some(program) = cluster_program() {
        let home = tempfile::tempdir().unwrap();
        let server = Server::by(&program, home.path(), free_port(), &[]);
        let (team, clock) = (fresh_team(), hand_clock());
        let options = server.options(&team).with_patience(PATIENCE);
        let options = options.with_clock(Arc::new(clock.clone()));
        let queue = with_history(&options, &clock, 20);
        for n in 0..3 {
            queue.publish(&message(&format!("waits {n}"))).unwrap();
        }
        queue.receive(&name(MAILBOX), &name("w")).unwrap().expect("one waits");
        beat_and_end(&queue);
        let before = versions(&server, &team);
        for _ in 0..2 {
            server.restart();
            assert_eq!(versions(&server, &team), before, "{}", program.display());
        }
    }
}

/// A key of the bucket that is written three times, and removed.
fn beat_and_end(queue: &NatsTransport) {
    let mut revision = 0;
    for beat in [&b"1"[..], b"2", b"3", b""] {
        let written = queue.write_file("leases/w.yaml", beat, "", revision).unwrap();
        revision = written.expect("no other writes it");
    }
}

/// All versions that the server has of the team's messages and keys: stream, number, subject.
fn versions(server: &Server, team: &str) -> Vec<(String, u64, String)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = async_nats::connect(server.url()).await.unwrap();
        let context = async_nats::jetstream::new(client);
        let mut all = Vec::new();
        for stream in ["ENSEMBLE_", "KV_ENSEMBLE_REQUESTS_"].map(|kind| format!("{kind}{team}")) {
            let opened = opened(&context, &stream).await;
            let state = opened.get_info().await.unwrap().state;
            for number in state.first_sequence..=state.last_sequence {
                if let Ok(found) = opened.get_raw_message(number).await {
                    all.push((stream.clone(), number, found.subject.to_string()));
                }
            }
        }
        all
    })
}

/// A server that has just begun says for a moment that it has no streams.
async fn opened(context: &Context, stream: &str) -> Stream {
    let start = Instant::now();
    loop {
        match context.get_stream(stream).await {
            Ok(opened) => return opened,
            Err(error) => assert!(start.elapsed() < PATIENCE, "{stream}: {error}"),
        }
    }
}

/// As a server can have it that has lost what it noted last.
#[test]
fn an_older_version_that_is_there_again_is_not_handed_out() {
    let (server, team, clock) = (Server::start(), fresh_team(), hand_clock());
    let options = server.options(&team).with_patience(PATIENCE).with_clock(Arc::new(clock.clone()));
    let queue = open(&options);
    let id = ensemble_core::message::MessageId::new("m-0").unwrap();
    queue.publish(&message("once").with_id(id.clone())).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (context, older) = runtime.block_on(async {
        let context = async_nats::jetstream::new(async_nats::connect(server.url()).await.unwrap());
        let stream = context.get_stream(format!("ENSEMBLE_{team}")).await.unwrap();
        let subject = format!("ens.{team}.q.{MAILBOX}.m-0");
        let older = stream.get_last_raw_message_by_subject(&subject).await.unwrap();
        (context, older)
    });
    let delivery = queue.receive(&name(MAILBOX), &name("w")).unwrap().unwrap();
    queue.settle(&delivery.lease).unwrap();
    let start = Instant::now();
    while queue.set_settled_apart().unwrap() == 0 {
        clock.advance(Duration::from_secs(61));
        assert!(start.elapsed() < PATIENCE, "it is set apart");
    }
    let mut headers = older.headers.clone();
    headers.insert("Nats-Expected-Last-Subject-Sequence", "0");
    runtime.block_on(async {
        let stored = context.publish_with_headers(older.subject, headers, older.payload).await;
        stored.unwrap().await.unwrap();
    });
    clock.advance(Duration::from_secs(600));
    for reader in [&queue, &NatsTransport::connect(&options).unwrap()] {
        assert!(reader.receive(&name(MAILBOX), &name("w")).unwrap().is_none());
    }
    assert_eq!(queue.state(&name(MAILBOX), &id).unwrap(), Some(State::Settled));
}

/// By the object store of NATS's own client, which checks the digest, too.
#[test]
fn other_programs_read_content_as_an_object() {
    let (server, team) = (Server::start(), fresh_team());
    let queue = open(&server.options(&team).with_patience(PATIENCE));
    let content = vec![5; 300_000];
    let attachment = queue.attach(&content).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let read = runtime.block_on(async {
        let client = async_nats::connect(server.url()).await.unwrap();
        let context = async_nats::jetstream::new(client);
        let store = context.get_object_store(&format!("ENSEMBLE_FILES_{team}")).await.unwrap();
        let mut object = store.get(attachment.sha256.to_string()).await.unwrap();
        let mut read = Vec::new();
        object.read_to_end(&mut read).await.unwrap();
        read
    });
    assert!(read == content);
}

/// Prints how long a command's receive takes, with and without a history: `cargo test -- --ignored cost`.
#[test]
#[ignore = "a measurement of minutes"]
fn measurement_of_the_cost_of_a_receive() {
    const MESSAGES: usize = 20_000;
    const ROUNDS: usize = 41;
    let server = Server::start();
    let clock = hand_clock();
    let mut medians = Vec::new();
    for history in [0, MESSAGES] {
        let options = server
            .options(&fresh_team())
            .with_patience(PATIENCE)
            .with_clock(Arc::new(clock.clone()));
        let queue = with_history(&options, &clock, history);
        let mut times: Vec<Duration> = (0..ROUNDS)
            .map(|_| {
                queue.publish(&message("waits")).unwrap();
                let start = Instant::now();
                let reader = NatsTransport::connect(&options).unwrap();
                let delivery = reader.receive(&name(MAILBOX), &name("w")).unwrap().unwrap();
                let took = start.elapsed();
                reader.settle(&delivery.lease).unwrap();
                took
            })
            .collect();
        times.sort_unstable();
        println!("{history} settled before: median {:?} of {ROUNDS}", times[ROUNDS / 2]);
        medians.push(times[ROUNDS / 2]);
    }
    let ratio = medians[1].as_secs_f64() / medians[0].as_secs_f64();
    println!("ratio {ratio:.2}");
    assert!(ratio <= 1.5, "{ratio}");
}

/// Forwards connections to a server, but changes the date in its answers.
fn proxy_of_another_day(target: u16, days: i32) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for here in listener.incoming().map_while(Result::ok) {
            let there = TcpStream::connect(("127.0.0.1", target)).unwrap();
            let ends = [&here, &there].map(|end| end.try_clone().unwrap());
            std::thread::spawn(move || pump(here, there, |_| {}));
            let [back, from] = ends;
            std::thread::spawn(move || pump(from, back, |bytes| change_day(bytes, days)));
        }
    });
    port
}

fn pump(mut from: TcpStream, mut to: TcpStream, change: impl Fn(&mut [u8])) {
    let mut buffer = [0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        change(&mut buffer[..count]);
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// Replaces the day in each `"created":"YYYY-MM-DDT…"`.
fn change_day(bytes: &mut [u8], days: i32) {
    const FIELD: &[u8] = b"\"created\":\"";
    let mut at = 0;
    while let Some(found) = bytes[at..].windows(FIELD.len()).position(|window| window == FIELD) {
        at += found + FIELD.len();
        let Some(day) = bytes.get_mut(at..at + 10) else { return };
        let text = String::from_utf8_lossy(day).into_owned();
        let Ok(time) = format!("{text}T00:00:00Z").parse::<Timestamp>() else { return };
        let moved = time.plus(DAY * days.unsigned_abs()).to_string();
        day.copy_from_slice(&moved.as_bytes()[..10]);
    }
}

#[test]
fn the_time_of_the_server_counts_and_not_that_of_a_host() {
    let server = Server::start();
    let team = fresh_team();
    let queue = open(&server.options(&team).with_patience(PATIENCE));
    queue.publish(&message("done")).unwrap();
    let done = queue.receive(&name(MAILBOX), &name("w")).unwrap().unwrap();
    queue.settle(&done.lease).unwrap();
    let mut expiring = message("expires");
    expiring.expires_at = Some(SystemClock.wall().plus(DAY));
    queue.publish(&expiring).unwrap();
    assert_eq!(queue.sweep().unwrap(), 0, "it is kept for seven days");
    // For this client, the server is eight days ahead of the host's clock.
    let port = proxy_of_another_day(server.port, 8);
    let options = NatsOptions::new(format!("nats://127.0.0.1:{port}"), name(&team));
    let later = NatsTransport::connect(&options.with_patience(PATIENCE)).unwrap();
    let ahead = later.now().since(SystemClock.wall());
    assert!(ahead > 7 * DAY && ahead < 9 * DAY, "{ahead:?}");
    assert_eq!(later.sweep().unwrap(), 1, "the server's days count");
    assert!(later.receive(&name(MAILBOX), &name("w")).unwrap().is_none(), "it has expired");
    assert_eq!(later.dead_letters(&name(MAILBOX)).unwrap()[0].reason, "expired");
}

#[test]
fn all_calls_of_a_command_share_its_patience() {
    const LIMIT: Duration = Duration::from_secs(2);
    let server = Server::start();
    let team = fresh_team();
    open(&server.options(&team).with_patience(PATIENCE)).publish(&message("far")).unwrap();
    let link = Link::to(server.port);
    // Each call is quick enough by itself; all of them are not.
    link.delay(Duration::from_millis(250));
    let url = format!("nats://127.0.0.1:{}", link.port);
    let mut options = NatsOptions::new(url, name(&team)).with_patience(LIMIT);
    options.shares_patience = true;
    let start = Instant::now();
    let taken = NatsTransport::connect(&options)
        .and_then(|far| far.receive(&name(MAILBOX), &name("w")).map(|_| ()));
    assert!(start.elapsed() < 2 * LIMIT, "{:?}", start.elapsed());
    assert!(taken.unwrap_err().is_transient());
}
