//! What is said to the server: read, list, and the one write there is, a compare-and-set.
//!
//! ```text
//! put(subject, expected, …)   stored    -> Done(number of the new version)
//!                             refused   -> Stale (another version came before)
//!                             no answer -> sent again; once refused, read what is there: is it ours?
//! ```
//!
//! A version carries a random `op`. So a writer whose answer was lost with the connection finds out
//! whether its version is the one that stands, and sending twice stores once.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::{DeliverPolicy, push::OrderedConfig};
use async_nats::jetstream::context::{Context, PublishErrorKind};
use async_nats::jetstream::stream::{LastRawMessageErrorKind, Stream};
use bytes::Bytes;
use futures_util::StreamExt as _;
use tokio::time::{Instant, sleep};

use super::record::{HEADER, Record, Stored};
use crate::message::MessageId;
use crate::{Error, Result};

/// Between two tries while the server is away.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// How long one try waits for its answer before the same is sent again.
pub(super) const ANSWER_PATIENCE: Duration = Duration::from_secs(2);

/// A connection and the stream of one team. Clones are the same connection.
#[derive(Clone, Debug)]
pub(super) struct Wire {
    pub(super) client: async_nats::Client,
    pub(super) context: Context,
    pub(super) stream: Stream<()>,
    pub(super) server: String,
    /// How long a call may take in all.
    pub(super) patience: Duration,
}

/// What became of a compare-and-set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    Done(u64),
    Stale,
}

impl Wire {
    /// An error that trying later may mend.
    pub(super) fn unreachable(&self, operation: &'static str, detail: impl ToString) -> Error {
        let detail = format!(
            "{} (is the server up? `ensemble doctor` looks)",
            detail.to_string().trim_end_matches('.')
        );
        Error::Server { operation, server: self.server.clone(), detail, unreachable: true }
    }

    pub(super) fn refused(&self, operation: &'static str, detail: impl ToString) -> Error {
        let (server, detail) = (self.server.clone(), detail.to_string());
        Error::Server { operation, server, detail, unreachable: false }
    }

    /// Writes a version of a message if the last one in its subject is number `expected` (0: if
    /// there is none), and does something else until the server has answered.
    pub(super) async fn put(
        &self,
        subject: String,
        expected: u64,
        mut record: Record,
        payload: Bytes,
        meanwhile: impl FnOnce() + Send,
    ) -> Result<(Put, Record)> {
        record.op = MessageId::generate().into();
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, record.to_header().as_str());
        let put = self.send(&subject, expected, headers, payload, meanwhile).await?;
        let Some(put) = put else {
            // A try whose answer was lost may have been ours.
            let ours = self.read(&subject).await?.filter(|stored| stored.record.op == record.op);
            return Ok((ours.map_or(Put::Stale, |stored| Put::Done(stored.seq)), record));
        };
        Ok((put, record))
    }

    /// `None` if it was refused after an earlier try got no answer.
    pub(super) async fn compare_and_set(
        &self,
        subject: &str,
        expected: u64,
        headers: HeaderMap,
        payload: Bytes,
    ) -> Result<Option<Put>> {
        self.send(subject, expected, headers, payload, nothing).await
    }

    async fn send(
        &self,
        subject: &str,
        expected: u64,
        mut headers: HeaderMap,
        payload: Bytes,
        meanwhile: impl FnOnce() + Send,
    ) -> Result<Option<Put>> {
        headers
            .insert(async_nats::header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, expected.to_string());
        let deadline = Instant::now() + self.patience;
        let mut is_in_doubt = false;
        let mut meanwhile = Some(meanwhile);
        loop {
            let sent = async {
                let (subject, headers) = (subject.to_owned(), headers.clone());
                let answer =
                    self.context.publish_with_headers(subject, headers, payload.clone()).await?;
                if let Some(meanwhile) = meanwhile.take() {
                    // It is written to the server now, not after what is done meanwhile.
                    tokio::task::yield_now().await;
                    meanwhile();
                }
                answer.await
            };
            let left = deadline.saturating_duration_since(Instant::now());
            let detail = match tokio::time::timeout(left.min(ANSWER_PATIENCE), sent).await {
                Ok(Ok(ack)) => return Ok(Some(Put::Done(ack.sequence))),
                Ok(Err(error)) => match error.kind() {
                    PublishErrorKind::WrongLastSequence if is_in_doubt => return Ok(None),
                    PublishErrorKind::WrongLastSequence => return Ok(Some(Put::Stale)),
                    // Nobody listens yet: a server that starts, a cluster without a leader.
                    PublishErrorKind::StreamNotFound
                    | PublishErrorKind::TimedOut
                    | PublishErrorKind::BrokenPipe => error.to_string(),
                    PublishErrorKind::WrongLastMessageId
                    | PublishErrorKind::MaxAckPending
                    | PublishErrorKind::MaxPayloadExceeded
                    | PublishErrorKind::Other => {
                        if !is_passing(&error.to_string()) {
                            return Err(self.refused("store a message", error));
                        }
                        error.to_string()
                    }
                },
                Err(_) => "no answer".to_owned(),
            };
            is_in_doubt = true;
            if Instant::now() + RETRY_INTERVAL >= deadline {
                return Err(self.unreachable("store a message", detail));
            }
            sleep(RETRY_INTERVAL).await;
        }
    }

    /// The last version in a subject, or in all subjects of a pattern, as the leader knows it.
    pub(super) async fn read(&self, subject: &str) -> Result<Option<Stored>> {
        let found = self.last(subject).await?;
        Ok(found.map(|message| {
            let record = Record::of(Some(&message.headers));
            Stored::new(message.sequence, record, message.payload, millis(message.time))
        }))
    }

    pub(super) async fn last(
        &self,
        subject: &str,
    ) -> Result<Option<async_nats::jetstream::message::StreamMessage>> {
        let deadline = Instant::now() + self.patience;
        loop {
            let asked = self.stream.get_last_raw_message_by_subject(subject);
            let left = deadline.saturating_duration_since(Instant::now());
            let detail = match tokio::time::timeout(left.min(ANSWER_PATIENCE), asked).await {
                Ok(Ok(message)) => return Ok(Some(message)),
                Ok(Err(error)) => match error.kind() {
                    LastRawMessageErrorKind::NoMessageFound => return Ok(None),
                    LastRawMessageErrorKind::JetStream(fault)
                        if !is_passing(&fault.to_string()) =>
                    {
                        return Err(self.refused("read a message", fault));
                    }
                    _ => error.to_string(),
                },
                Err(_) => "no answer".to_owned(),
            };
            if Instant::now() + RETRY_INTERVAL >= deadline {
                return Err(self.unreachable("read a message", detail));
            }
            sleep(RETRY_INTERVAL).await;
        }
    }

    /// The content of the last version of every subject of a pattern.
    pub(super) async fn list(&self, pattern: &str) -> Result<Vec<Bytes>> {
        if self.last(pattern).await?.is_none() {
            return Ok(Vec::new());
        }
        let failed = |error: async_nats::Error| self.unreachable("list messages", error);
        let consumer = self
            .stream
            .create_consumer(self.ordered(pattern))
            .await
            .map_err(|error| failed(error.into()))?;
        let mut messages = consumer.messages().await.map_err(|error| failed(error.into()))?;
        let mut contents = Vec::new();
        while let Some(message) = messages.next().await {
            let message = message.map_err(|error| failed(error.into()))?;
            contents.push(message.payload.clone());
            if message.info().map_err(failed)?.pending == 0 {
                break;
            }
        }
        Ok(contents)
    }

    /// A consumer that tells of the last version of every subject, and then of each new one.
    pub(super) fn ordered(&self, pattern: &str) -> OrderedConfig {
        OrderedConfig {
            deliver_subject: self.client.new_inbox(),
            filter_subject: pattern.to_owned(),
            deliver_policy: DeliverPolicy::LastPerSubject,
            ..OrderedConfig::default()
        }
    }
}

/// For whoever only waits.
pub(super) fn nothing() {}

/// A time of the server, in milliseconds since the Unix epoch.
pub(super) fn millis(time: time::OffsetDateTime) -> u64 {
    u64::try_from(time.unix_timestamp_nanos() / 1_000_000).unwrap_or(0)
}

/// What a server says while it starts, elects a leader or loses one.
fn is_passing(error: &str) -> bool {
    ["temporarily unavailable", "no responders", "not available", "leader", "no suitable peers"]
        .iter()
        .any(|said| error.contains(said))
}
