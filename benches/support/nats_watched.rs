//! Senders while another client receives notice of every message, as a team's watcher does.
//! Compares our watcher with bare async-nats and an ordered consumer. Each listens in its own thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use async_nats::jetstream::{self, consumer::pull, stream};
use ensemble_core::message::Name;
use ensemble_nats::{NatsOptions, NatsTransport};
use futures_util::StreamExt as _;
use tokio::runtime::{Builder, Runtime};

use crate::{LOOK_INTERVAL, Ours, Outcome};

/// Time a watcher listens before it checks whether to stop.
const LISTEN: Duration = Duration::from_millis(100);
/// Time limit for all notices to arrive.
const PATIENCE: Duration = Duration::from_secs(10);

/// Stops the listener when dropped.
struct Listener {
    over: Arc<AtomicBool>,
    heard: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// `listen` returns the number of new notices, `None` if it cannot continue.
    fn start(mut listen: impl FnMut() -> Option<u64> + Send + 'static) -> Self {
        let (over, heard) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (ends, counts) = (Arc::clone(&over), Arc::clone(&heard));
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                let Some(more) = listen() else { return };
                counts.fetch_add(more, Ordering::Relaxed);
            }
        });
        Self { over, heard, thread: Some(thread) }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A sender and one of our watchers.
pub struct Watched {
    pub sender: Ours,
    listener: Listener,
}

impl Watched {
    pub fn new(url: &str) -> Outcome<Self> {
        let sender = Ours::new(url, "watched")?;
        let watcher = NatsTransport::connect(&NatsOptions::new(url, Name::new("bench")?))?;
        watcher.follow_team()?;
        let mut seen = watcher.wait_for_news(0, Duration::ZERO);
        let listener = Listener::start(move || {
            let now = watcher.wait_for_news(seen, LISTEN);
            Some(now - std::mem::replace(&mut seen, now))
        });
        Ok(Self { sender, listener })
    }

    pub fn heard(&self) -> u64 {
        self.listener.heard.load(Ordering::Relaxed)
    }
}

/// A sender and a consumer of bare async-nats, in their own stream.
pub struct BareWatched {
    runtime: Runtime,
    context: jetstream::Context,
    listener: Listener,
}

impl BareWatched {
    const SUBJECT: &'static str = "barewatched.q";

    pub fn new(url: &str) -> Outcome<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let context = runtime.block_on(async {
            let context = jetstream::new(async_nats::connect(url).await?);
            let config = stream::Config {
                name: "BARE_WATCHED".to_owned(),
                subjects: vec![Self::SUBJECT.to_owned()],
                storage: stream::StorageType::File,
                ..Default::default()
            };
            context.create_stream(config).await?;
            Ok::<_, async_nats::Error>(context)
        })?;
        Ok(Self { runtime, context, listener: listen(url.to_owned())? })
    }

    pub fn publish(&self, content: &[u8]) -> Outcome<()> {
        self.runtime.block_on(async {
            let content = content.to_vec().into();
            self.context.publish(Self::SUBJECT, content).await?.await?;
            Ok(())
        })
    }

    /// Whether all notices arrived within the time limit.
    pub fn has_heard(&self, all: u64) -> bool {
        let deadline = Instant::now() + PATIENCE;
        while self.listener.heard.load(Ordering::Relaxed) < all && Instant::now() < deadline {
            std::thread::sleep(LOOK_INTERVAL);
        }
        self.listener.heard.load(Ordering::Relaxed) == all
    }
}

/// An ordered consumer with its own connection.
fn listen(url: String) -> Outcome<Listener> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let mut messages = runtime.block_on(async {
        let context = jetstream::new(async_nats::connect(url).await?);
        let stream = context.get_stream("BARE_WATCHED").await?;
        let consumer = stream.create_consumer(pull::OrderedConfig::default()).await?;
        Ok::<_, async_nats::Error>(consumer.messages().await?)
    })?;
    Ok(Listener::start(move || {
        runtime.block_on(async {
            match tokio::time::timeout(LISTEN, messages.next()).await {
                Ok(Some(Ok(_))) => Some(1),
                Ok(Some(Err(_)) | None) => None,
                Err(_) => Some(0),
            }
        })
    }))
}
