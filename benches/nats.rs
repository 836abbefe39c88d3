//! Compares mailboxes on a NATS server with bare async-nats, in turns, in one run with one server:
//! `cargo bench -p ensemble-nats --bench nats`. `-- at-once` measures only the row
//! of several concurrent clients, `-- commands` only those of commands. `-- scale` loads one server with many agents.
//! docs/guides/hosts.md describes the design.
#![allow(missing_docs, unreachable_pub, reason = "a program")]

#[path = "support/nats_at_once.rs"]
mod nats_at_once;
#[path = "support/nats_commands.rs"]
mod nats_commands;
#[path = "support/nats_scale.rs"]
mod nats_scale;
#[path = "support/nats_watched.rs"]
mod nats_watched;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use async_nats::jetstream::message::PublishMessage as Publish;
use async_nats::jetstream::{self, AckKind, consumer::PullConsumer, stream};
use ensemble_core::message::{Envelope, MessageId, Name};
use ensemble_core::spool::Settings;
use ensemble_nats::{NatsOptions, NatsTransport};
use futures_util::StreamExt as _;
use tokio::runtime::{Builder, Runtime};

use nats_watched::{BareWatched, Watched};

/// Messages of one turn.
const MESSAGES: usize = 400;
const ROUNDS: usize = 9;
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

struct Server(Child, u16, #[expect(dead_code, reason = "removed at the end")] tempfile::TempDir);

impl Server {
    fn start() -> Outcome<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let home = tempfile::tempdir()?;
        let mut command = Command::new("nats-server");
        command.args(["-a", "127.0.0.1", "-js", "-p", &port.to_string(), "-sd"]).arg(home.path());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let server = Self(child, port, home);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            std::thread::sleep(LOOK_INTERVAL);
        }
        Ok(server)
    }
    fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.1)
    }
    /// Resident memory of the server now.
    fn usage(&self) -> Outcome<String> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib: f64 = line.ok_or("no VmRSS")?.trim().trim_end_matches(" kB").parse()?;
        Ok(format!("{:.0} MiB", kib / 1024.0))
    }
    /// Processor time used by the server, in seconds.
    fn cpu(&self) -> Outcome<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id()))?;
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
        // The kernel counts in ticks; Linux reports 100 a second.
        Ok((fields[11].parse::<f64>()? + fields[12].parse::<f64>()?) / 100.0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The client a user would write with async-nats alone.
struct Bare {
    runtime: Runtime,
    context: jetstream::Context,
    consumer: PullConsumer,
    subject: String,
}

impl Bare {
    fn new(url: &str, name: &str) -> Outcome<Self> {
        Self::in_stream(url, name, name)
    }

    /// Opens a stream shared by several clients, with a consumer for this one.
    fn in_stream(url: &str, stream: &str, name: &str) -> Outcome<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let subject = format!("bare.{stream}.{name}");
        let (context, consumer) = runtime.block_on(async {
            let context = jetstream::new(async_nats::connect(url).await?);
            let config = stream::Config {
                name: format!("BARE_{stream}"),
                subjects: vec![format!("bare.{stream}.*")],
                retention: stream::RetentionPolicy::WorkQueue,
                storage: stream::StorageType::File,
                ..Default::default()
            };
            let stream = context.get_or_create_stream(config).await?;
            let pull = jetstream::consumer::pull::Config {
                durable_name: Some(name.to_owned()),
                filter_subject: subject.clone(),
                ..Default::default()
            };
            Ok::<_, async_nats::Error>((context, stream.create_consumer(pull).await?))
        })?;
        Ok(Self { runtime, context, consumer, subject })
    }

    fn publish(&self, content: &[u8]) -> Outcome<()> {
        self.runtime.block_on(async {
            let content = content.to_vec().into();
            self.context.publish(self.subject.clone(), content).await?.await?;
            Ok(())
        })
    }

    /// Stores a message once by its id, for as long as the server remembers the id.
    fn publish_once(&self, content: &[u8]) -> Outcome<()> {
        let id = MessageId::generate();
        self.runtime.block_on(async {
            let message = Publish::build().payload(content.to_vec().into()).message_id(id);
            self.context.send_publish(self.subject.clone(), message).await?.await?;
            Ok(())
        })
    }

    fn receive_and_settle(&self) -> Outcome<()> {
        self.runtime.block_on(async {
            // Avoids `fetch`: a consumer may learn of a message a moment after its publish was
            // answered.
            let asked = self.consumer.batch().max_messages(1).expires(Duration::from_secs(5));
            let mut batch = asked.messages().await?;
            let message = batch.next().await.ok_or("no message")??;
            message.double_ack_with(AckKind::Ack).await?;
            Ok(())
        })
    }
}

/// Only the compare-and-sets of a message's life, with async-nats alone. This is the least work
/// that the server requires.
struct Swaps {
    runtime: Runtime,
    context: jetstream::Context,
    subject: String,
    /// Subjects of waiting messages, with their sequence numbers.
    waiting: RefCell<VecDeque<(String, u64)>>,
    sent: Cell<usize>,
}

impl Swaps {
    fn new(url: &str, name: &str) -> Outcome<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let subject = format!("swaps.{name}");
        let context = runtime.block_on(async {
            let context = jetstream::new(async_nats::connect(url).await?);
            let config = stream::Config {
                name: format!("SWAPS_{name}"),
                subjects: vec![format!("{subject}.*")],
                max_messages_per_subject: 1,
                storage: stream::StorageType::File,
                ..Default::default()
            };
            context.create_stream(config).await?;
            Ok::<_, async_nats::Error>(context)
        })?;
        let (waiting, sent) = (RefCell::default(), Cell::new(0));
        Ok(Self { runtime, context, subject, waiting, sent })
    }

    fn swap(&self, subject: &str, last: u64, content: &[u8]) -> Outcome<u64> {
        self.runtime.block_on(async {
            let mut headers = async_nats::HeaderMap::new();
            let expected = async_nats::header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE;
            headers.insert(expected, last.to_string());
            let content = content.to_vec().into();
            let sent = self.context.publish_with_headers(subject.to_owned(), headers, content);
            Ok(sent.await?.await?.sequence)
        })
    }

    fn publish(&self, content: &[u8]) -> Outcome<()> {
        self.sent.set(self.sent.get() + 1);
        let subject = format!("{}.{}", self.subject, self.sent.get());
        let number = self.swap(&subject, 0, content)?;
        self.waiting.borrow_mut().push_back((subject, number));
        Ok(())
    }

    fn receive_and_settle(&self, content: &[u8]) -> Outcome<()> {
        let (subject, number) = self.waiting.borrow_mut().pop_front().ok_or("no message")?;
        let number = self.swap(&subject, number, content)?;
        self.swap(&subject, number, content)?;
        Ok(())
    }
}

struct Ours {
    queue: NatsTransport,
    mailbox: Name,
}

impl Ours {
    fn new(url: &str, mailbox: &str) -> Outcome<Self> {
        let ours = Self::at(url, mailbox)?;
        ours.queue.add_mailbox(&ours.mailbox, &Settings::default())?;
        Ok(ours)
    }

    /// At a mailbox that exists.
    fn at(url: &str, mailbox: &str) -> Outcome<Self> {
        let queue = NatsTransport::connect(&NatsOptions::new(url, Name::new("bench")?))?;
        Ok(Self { queue, mailbox: Name::new(mailbox)? })
    }

    fn publish(&self, body: &str) -> Outcome<()> {
        self.queue.publish(&Envelope::new(self.mailbox.clone(), body))?;
        Ok(())
    }

    fn receive_and_settle(&self) -> Outcome<()> {
        let delivery = self.queue.receive(&self.mailbox, &self.mailbox)?.ok_or("no message")?;
        self.queue.settle(&delivery.lease)?;
        Ok(())
    }
}

/// Durations of one kind of call in one turn, in microseconds.
#[derive(Clone, Copy)]
struct Times {
    median: f64,
    /// The 99th percentile.
    late: f64,
}

fn times(mut act: impl FnMut() -> Outcome<()>) -> Outcome<Times> {
    let mut times = Vec::with_capacity(MESSAGES);
    for _ in 0..MESSAGES {
        let start = Instant::now();
        act()?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok(Times { median: times[MESSAGES / 2], late: times[MESSAGES * 99 / 100] })
}

/// The round with the median ratio of speeds, and the spread of the others without the two extremes.
fn row(name: &str, unit: &str, rounds: Vec<(f64, f64)>, is_time: bool) {
    print_row(name, unit, rounds, |(ours, bare)| if is_time { bare / ours } else { ours / bare });
}

/// The same of times, as a multiple of the bare one.
fn row_at_most(name: &str, rounds: Vec<(f64, f64)>) {
    print_row(name, "us", rounds, |(ours, bare)| ours / bare);
}

fn print_row(
    name: &str,
    unit: &str,
    mut rounds: Vec<(f64, f64)>,
    ratio: impl Fn(&(f64, f64)) -> f64,
) {
    rounds.sort_by(|a, b| ratio(a).total_cmp(&ratio(b)));
    let (low, middle, high) = (rounds[1], rounds[ROUNDS / 2], rounds[ROUNDS - 2]);
    println!(
        "{name:<46} ours {:>8.1} {unit:<6} bare {:>8.1} {unit:<6} {:.2} x ({:.2}-{:.2})",
        middle.0,
        middle.1,
        ratio(&middle),
        ratio(&low),
        ratio(&high)
    );
}

/// Medians and late percentiles of both sides.
fn rows(name: &str, rounds: &[(Times, Times)]) {
    let of = |which: fn(&Times) -> f64| rounds.iter().map(|(a, b)| (which(a), which(b))).collect();
    row(name, "us", of(|times| times.median), true);
    row(&format!("{name}, p99"), "us", of(|times| times.late), true);
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [first, url] = &arguments[..]
        && first == nats_commands::BARE_CLIENT
    {
        return nats_commands::connect_and_call(url);
    }
    let asks = |word: &str| arguments.iter().any(|argument| argument == word);
    if asks("--test") {
        return Ok(());
    }
    let body = "a line of a task that an agent shall do\n".repeat(24);
    let envelope = Envelope::new(Name::new("m")?, body.as_str()).encode()?;
    if asks("scale") {
        return nats_scale::scale(&body);
    }
    let server = match Server::start() {
        Ok(server) => server,
        Err(error) => {
            println!("NATS is left out: cannot start nats-server: {error}");
            return Ok(());
        }
    };
    println!(
        "one server, messages of {} bytes, {ROUNDS} rounds of {MESSAGES}; goal 0.8 x bare",
        envelope.len()
    );
    if asks("commands") {
        return nats_commands::commands(&server, &body);
    }
    if !asks("at-once") {
        compare(&server, &body, &envelope)?;
        nats_commands::commands(&server, &body)?;
    }
    nats_at_once::at_once(&server, &body, &envelope)
}

/// Measures all rows: latencies of single calls first, then the throughput of several clients.
fn compare(server: &Server, body: &str, envelope: &[u8]) -> Outcome<()> {
    let url = server.url();
    let (ours, bare) = (Ours::new(&url, "one")?, Bare::new(&url, "one")?);
    // No watcher follows this mailbox, so the server notifies no client.
    let alone = Ours::new(&url, "alone")?;
    // Uses a separate stream, so that messages of other rows do not wait in this consumer.
    let once = Bare::new(&url, "once")?;
    let swaps = Swaps::new(&url, "one")?;
    let mut rounds = [const { Vec::new() }; 7];
    for _ in 0..ROUNDS {
        let sent = times(|| ours.publish(body))?;
        let bare_sent = times(|| bare.publish(envelope))?;
        let untold = times(|| alone.publish(body))?;
        let swapped = times(|| swaps.publish(envelope))?;
        let sent_once = times(|| once.publish_once(envelope))?;
        rounds[0].push((sent, bare_sent));
        rounds[1].push((sent, swapped));
        rounds[2].push((untold, bare_sent));
        rounds[3].push((untold, swapped));
        rounds[6].push((untold, sent_once));
        let done = times(|| ours.receive_and_settle())?;
        rounds[4].push((done, times(|| bare.receive_and_settle())?));
        rounds[5].push((done, times(|| swaps.receive_and_settle(envelope))?));
    }
    let names = [
        "publish",
        "publish, against its compare-and-set",
        "publish, no follower",
        "the same, against its compare-and-set",
        "receive + settle",
        "receive + settle, against two of them",
        "publish, no follower, against Nats-Msg-Id",
    ];
    names.iter().zip(&rounds).for_each(|(name, rounds)| rows(name, rounds));
    drop((ours, bare, alone, once, swaps));
    watched(&url, body, envelope)
}

/// A watcher on each side receives notice of every message.
fn watched(url: &str, body: &str, envelope: &[u8]) -> Outcome<()> {
    let (ours, bare) = (Watched::new(url)?, BareWatched::new(url)?);
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let sent = times(|| ours.sender.publish(body))?;
        rounds.push((sent, times(|| bare.publish(envelope))?));
    }
    if ours.heard() == 0 || !bare.has_heard((ROUNDS * MESSAGES) as u64) {
        return Err("a watcher received no notice of the messages".into());
    }
    rows("publish, a watcher is notified", &rounds);
    Ok(())
}
