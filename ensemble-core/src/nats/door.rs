//! Whether a stream can be read yet, and making it.
//!
//! A server that makes a stream, or finds it again after its start, knows its name before it has its
//! messages. nats-server 2.9 dies of a question for a message at that instant (a nil dereference in
//! `jsMsgGetRequest`, seen with 2.9.10), as when one host makes a team and another looks into it. But
//! what is published to a stream is answered by its leader, and not before that has the messages:
//!
//! ```text
//! knock: a message that is said to be for another stream
//!   refused as such by this stream  -> it can be read
//!   nobody listens, no such stream  -> it is absent: an empty one for who reads, made by who writes
//!   nobody listens, there is one    -> knock again
//! where it was absent, it is looked for first: one question, as for one that is open
//! ```
//!
//! Nothing is stored by that. One knock is enough for a connection; after a fault there is another one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_nats::HeaderMap;
use async_nats::client::RequestErrorKind;
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::GetStreamErrorKind;
use async_nats::jetstream::stream::Config;
use bytes::Bytes;
use serde::Deserialize;
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, sleep, timeout};

use super::wire::{ANSWER_PATIENCE, RETRY_INTERVAL, Wire};

/// No stream has this name: it has a dot.
const NO_STREAM: &str = "no.stream";

/// What one connection knows of a stream. Clones know the same.
#[derive(Clone, Debug)]
pub(super) struct Door {
    stream: String,
    subject: String,
    /// At which connection it was open, counted from one; 0 if it is not known to be.
    open_at: Arc<AtomicU64>,
    /// It was not there when it was looked for last.
    was_absent: Arc<AtomicBool>,
    /// Counts the connections that were made.
    connections: Receiver<u64>,
}

/// What became of a knock.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reached {
    /// It can be read.
    Open,
    /// There is no such stream.
    Absent,
    /// Trying later may help.
    NotYet(String),
}

/// The answer of a stream to what is published to it.
#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    stream: String,
    error: Option<Fault>,
}

#[derive(Deserialize)]
struct Fault {
    err_code: u64,
    #[serde(default)]
    description: String,
}

impl Door {
    /// Of a stream with all subjects below `prefix`, which ends with a dot.
    pub(super) fn new(stream: String, prefix: &str, connections: Receiver<u64>) -> Self {
        let subject = format!("{prefix}knock");
        let (open_at, was_absent) = Default::default();
        Self { stream, subject, open_at, was_absent, connections }
    }

    fn connection(&self) -> u64 {
        *self.connections.borrow() + 1
    }

    /// Something failed, so that it is to be asked again.
    pub(super) fn shut(&self) {
        self.open_at.store(0, Ordering::Relaxed);
    }
}

impl Wire {
    /// Whether the stream can be read; asks only what is not known yet.
    pub(super) async fn reach(&self) -> Reached {
        let connection = self.door.connection();
        if self.door.open_at.load(Ordering::Relaxed) == connection {
            return Reached::Open;
        }
        let was_absent = self.door.was_absent.load(Ordering::Relaxed);
        let is_absent = was_absent && self.look().await == Reached::Absent;
        let reached = if is_absent { Reached::Absent } else { self.knock().await };
        self.door.was_absent.store(reached == Reached::Absent, Ordering::Relaxed);
        if reached == Reached::Open {
            self.door.open_at.store(connection, Ordering::Relaxed);
        }
        reached
    }

    async fn knock(&self) -> Reached {
        let mut headers = HeaderMap::new();
        headers.insert(async_nats::header::NATS_EXPECTED_STREAM, NO_STREAM);
        let subject = self.door.subject.clone();
        let asked = self.client.request_with_headers(subject, headers, Bytes::new());
        match timeout(ANSWER_PATIENCE, asked).await {
            Ok(Ok(message)) => match serde_json::from_slice::<Answer>(&message.payload) {
                // Another stream has its subjects.
                Ok(answer) if answer.stream != self.door.stream => self.look().await,
                Ok(Answer { error: Some(fault), .. })
                    if fault.err_code != ErrorCode::STREAM_NOT_MATCH.0 =>
                {
                    Reached::NotYet(fault.description)
                }
                Ok(_) => Reached::Open,
                Err(error) => Reached::NotYet(error.to_string()),
            },
            Ok(Err(error)) if error.kind() == RequestErrorKind::NoResponders => self.look().await,
            Ok(Err(error)) => Reached::NotYet(error.to_string()),
            Err(_) => Reached::NotYet("no answer".to_owned()),
        }
    }

    /// Whether there is such a stream, of which nobody listens.
    async fn look(&self) -> Reached {
        match timeout(ANSWER_PATIENCE, self.context.get_stream(&self.door.stream)).await {
            Ok(Ok(_)) => Reached::NotYet("the stream is not ready".to_owned()),
            Ok(Err(error)) => match error.kind() {
                GetStreamErrorKind::JetStream(fault)
                    if fault.error_code() == ErrorCode::STREAM_NOT_FOUND =>
                {
                    Reached::Absent
                }
                _ => Reached::NotYet(error.to_string()),
            },
            Err(_) => Reached::NotYet("no answer".to_owned()),
        }
    }

    /// Makes the stream if there is none, and returns when it can be read.
    pub(super) async fn open(&self, config: &Config) -> std::result::Result<(), String> {
        let deadline = Instant::now() + self.patience;
        loop {
            let detail = match self.reach().await {
                Reached::Open => return Ok(()),
                Reached::Absent => {
                    let making = self.context.create_stream(config.clone());
                    match timeout(ANSWER_PATIENCE, making).await {
                        Ok(Ok(_)) => continue,
                        Ok(Err(error)) => error.to_string(),
                        Err(_) => "no answer".to_owned(),
                    }
                }
                Reached::NotYet(detail) => detail,
            };
            if Instant::now() + RETRY_INTERVAL >= deadline {
                return Err(format!("{detail}: is JetStream on (`nats-server -js`)?"));
            }
            sleep(RETRY_INTERVAL).await;
        }
    }
}
