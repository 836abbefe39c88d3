//! The event log as a stream: the changes by all hosts of a team, in the server's order.
//!
//! Each record is one line of JSON with `timestamp`, `session_id`, `seq`, `type`, `actor` and
//! `data`, as in the log on disk. Recording never fails its caller and never waits for the server.
//! Records go through a bounded queue to a task; lost records are counted. A record that was sent
//! twice, because an answer was lost, is stored once within the server's window.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::stream::{Config, StorageType};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::NatsTransport;
use super::stream_state::StreamState;
use super::wire::Wire;
use ensemble_core::Result;
use ensemble_core::env::{Clock, SystemClock};
use ensemble_core::event_log::Recorder;
use ensemble_core::message::{MessageId, Name};

/// Most records that wait for the server.
const QUEUED_MAX: usize = 4096;
/// Most tries to send a record.
const TRIES_MAX: u32 = 5;
/// How long records are kept, unless the stream is configured otherwise.
const KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Longest record, in bytes, as in the log on disk.
const LINE_BYTES_MAX: usize = ensemble_core::event_log::LINE_BYTES_MAX;

/// A recorder that writes to the team's log on the server.
#[derive(Debug)]
pub struct NatsLog {
    session: String,
    next: AtomicU64,
    queue: mpsc::Sender<(u64, String)>,
    missing: Arc<AtomicU64>,
}

impl NatsTransport {
    /// Begins a session in the team's log.
    ///
    /// # Errors
    /// The stream cannot be created.
    pub fn log(&self, host: &Name) -> Result<NatsLog> {
        self.open_log_stream()?;
        let session = format!("{host}-{}", MessageId::generate());
        let (queue, records) = mpsc::channel(QUEUED_MAX);
        let missing = Arc::new(AtomicU64::new(0));
        let subject = self.subjects.log(&session);
        let sending =
            send(self.wire.clone(), subject, session.clone(), records, Arc::clone(&missing));
        self.runtime.spawn(sending);
        Ok(NatsLog { session, next: AtomicU64::new(0), queue, missing })
    }

    /// Makes the stream of the log, unless it is there.
    pub(super) fn open_log_stream(&self) -> Result<()> {
        if self.has_log.load(Ordering::Relaxed) {
            return Ok(());
        }
        let config = Config {
            name: self.subjects.log_stream(),
            subjects: vec![self.subjects.log_all()],
            max_age: KEPT,
            storage: StorageType::File,
            ..Config::default()
        };
        let wire = self.wire.clone();
        self.call("open the log", async move {
            match wire.context.get_or_create_stream(config).await {
                Ok(_) => Ok(()),
                Err(error) => Err(wire.refused("open the log", error)),
            }
        })?;
        self.has_log.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// All records in the team's log stream, in the server's order.
    ///
    /// # Errors
    /// [`ensemble_core::Error::Server`].
    pub fn read_log(&self) -> Result<Vec<Value>> {
        let (wire, name) = (self.wire.clone(), self.subjects.log_stream());
        let (pattern, connections) = (self.subjects.log_all(), self.connections.clone());
        self.call("read the log", async move {
            let opened = wire.context.get_stream_no_info(&name).await;
            let stream = opened.map_err(|error| wire.refused("read the log", error))?;
            let stream_state = StreamState::new(name, pattern.trim_end_matches('>'), connections);
            let records =
                Wire { stream, stream_state, ..(*wire).clone() }.history(&pattern).await?;
            Ok(records.iter().filter_map(|r| serde_json::from_slice(&r.payload).ok()).collect())
        })
    }
}

async fn send(
    wire: Arc<Wire>,
    subject: String,
    session: String,
    mut records: mpsc::Receiver<(u64, String)>,
    missing: Arc<AtomicU64>,
) {
    while let Some((seq, line)) = records.recv().await {
        let mut headers = HeaderMap::new();
        let id = format!("{session}.{seq}");
        headers.insert(async_nats::header::NATS_MESSAGE_ID, id.as_str());
        let payload = Bytes::from(line);
        let mut is_stored = false;
        for _ in 0..TRIES_MAX {
            let sent = async {
                let (headers, payload) = (headers.clone(), payload.clone());
                wire.context.publish_with_headers(subject.clone(), headers, payload).await?.await
            };
            if sent.await.is_ok() {
                is_stored = true;
                break;
            }
        }
        if !is_stored {
            missing.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl NatsLog {
    /// Number of records that did not reach the server.
    #[must_use]
    pub fn missing(&self) -> u64 {
        self.missing.load(Ordering::Relaxed)
    }
}

impl Recorder for NatsLog {
    fn record(&self, kind: &str, actor: &str, data: Value) {
        let seq = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let line = |data: Value| {
            json!({
                "timestamp": SystemClock.wall(), "session_id": self.session, "seq": seq,
                "type": kind, "actor": actor, "data": data,
            })
            .to_string()
        };
        let mut text = line(data);
        if text.len() > LINE_BYTES_MAX {
            text = line(json!({ "truncated": true, "bytes": text.len() }));
        }
        if self.queue.try_send((seq, text)).is_err() {
            self.missing.fetch_add(1, Ordering::Relaxed);
        }
    }
}
