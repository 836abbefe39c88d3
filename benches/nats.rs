//! Mailboxes on a NATS server against bare async-nats, in turns, in one run with one server:
//! `cargo bench -p ensemble-core --features nats --bench nats`. docs/scale.md has the figures.
#![allow(missing_docs, unreachable_pub, reason = "a program")]

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use async_nats::jetstream::{self, AckKind, consumer::PullConsumer, stream};
use ensemble_core::env::Transport as _;
use ensemble_core::message::{Envelope, Name};
use ensemble_core::nats::{NatsOptions, NatsTransport};
use ensemble_core::spool::Settings;
use futures_util::StreamExt as _;
use tokio::runtime::{Builder, Runtime};

/// Messages of one turn.
const MESSAGES: usize = 400;
const ROUNDS: usize = 9;
/// Senders and receivers at a time, for the throughput.
const WORKERS: usize = 4;
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

struct Server(Child, u16, tempfile::TempDir);

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
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What anybody would write with async-nats alone.
struct Bare {
    runtime: Runtime,
    context: jetstream::Context,
    consumer: PullConsumer,
    subject: String,
}

impl Bare {
    fn new(url: &str, name: &str) -> Outcome<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let subject = format!("bare.{name}");
        let (context, consumer) = runtime.block_on(async {
            let context = jetstream::new(async_nats::connect(url).await?);
            let config = stream::Config {
                name: format!("BARE_{name}"),
                subjects: vec![subject.clone()],
                retention: stream::RetentionPolicy::WorkQueue,
                storage: stream::StorageType::File,
                ..Default::default()
            };
            let stream = context.create_stream(config).await?;
            let pull = jetstream::consumer::pull::Config {
                durable_name: Some("worker".to_owned()),
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

    fn receive_and_settle(&self) -> Outcome<()> {
        self.runtime.block_on(async {
            let mut batch = self.consumer.fetch().max_messages(1).messages().await?;
            let message = batch.next().await.ok_or("no message")??;
            message.double_ack_with(AckKind::Ack).await?;
            Ok(())
        })
    }
}

struct Ours {
    queue: NatsTransport,
    mailbox: Name,
}

impl Ours {
    fn new(url: &str, mailbox: &str) -> Outcome<Self> {
        let queue = NatsTransport::connect(&NatsOptions::new(url, Name::new("bench")?))?;
        let mailbox = Name::new(mailbox)?;
        queue.add_mailbox(&mailbox, &Settings::default())?;
        Ok(Self { queue, mailbox })
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

/// The median time of one call, in microseconds.
fn median(mut act: impl FnMut() -> Outcome<()>) -> Outcome<f64> {
    let mut times = Vec::with_capacity(MESSAGES);
    for _ in 0..MESSAGES {
        let start = Instant::now();
        act()?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[MESSAGES / 2])
}

/// How many messages a second all workers send and receive together.
fn throughput<T: Sync>(
    workers: &[T],
    act: impl Fn(&T) -> Outcome<()> + Sync,
) -> Outcome<f64> {
    let start = Instant::now();
    std::thread::scope(|scope| {
        let running: Vec<_> = workers
            .iter()
            .map(|worker| scope.spawn(|| (0..MESSAGES).try_for_each(|_| act(worker))))
            .collect();
        running.into_iter().try_for_each(|worker| worker.join().map_err(|_| "a worker failed")?)
    })?;
    Ok((workers.len() * MESSAGES) as f64 / start.elapsed().as_secs_f64())
}

fn row(name: &str, unit: &str, mut rounds: Vec<(f64, f64)>, is_time: bool) {
    let ratio = |(ours, bare): &(f64, f64)| if is_time { bare / ours } else { ours / bare };
    rounds.sort_by(|a, b| ratio(a).total_cmp(&ratio(b)));
    let (low, middle, high) = (rounds[1], rounds[ROUNDS / 2], rounds[ROUNDS - 2]);
    println!(
        "{name:<34} ours {:>9.1} {unit}   bare {:>9.1} {unit}   {:.2} x ({:.2}-{:.2})   goal 0.8 x",
        middle.0, middle.1, ratio(&middle), ratio(&low), ratio(&high)
    );
}

fn main() -> Outcome<()> {
    if std::env::args().any(|argument| argument == "--test") {
        return Ok(());
    }
    let server = Server::start()?;
    let body = "a line of a task that somebody shall do\n".repeat(24);
    let envelope = Envelope::new(Name::new("m")?, body.as_str()).encode()?;
    println!("one server, messages of {} bytes, {ROUNDS} rounds of {MESSAGES}", envelope.len());
    let (ours, bare) = (Ours::new(&server.url(), "one")?, Bare::new(&server.url(), "one")?);
    let (mut publish, mut receive, mut both) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        publish.push((median(|| ours.publish(&body))?, median(|| bare.publish(&envelope))?));
        receive.push((
            median(|| ours.receive_and_settle())?,
            median(|| bare.receive_and_settle())?,
        ));
    }
    row("publish, latency", "us", publish, true);
    row("receive + settle, latency", "us", receive, true);
    let names: Vec<String> = (0..WORKERS).map(|n| format!("w{n}")).collect();
    let ours: Vec<Ours> =
        names.iter().map(|n| Ours::new(&server.url(), n)).collect::<Outcome<_>>()?;
    let bare: Vec<Bare> =
        names.iter().map(|n| Bare::new(&server.url(), n)).collect::<Outcome<_>>()?;
    for _ in 0..ROUNDS {
        let a = throughput(&ours, |w| w.publish(&body).and_then(|()| w.receive_and_settle()))?;
        let b = throughput(&bare, |w| w.publish(&envelope).and_then(|()| w.receive_and_settle()))?;
        both.push((a, b));
    }
    row("publish + receive + settle, 4 at once", "/s", both, false);
    Ok(())
}
