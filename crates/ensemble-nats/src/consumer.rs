//! A pull consumer of this connection: it delivers only what is requested.
//!
//! ```text
//! open    the current versions of a pattern are pending; later ones are added
//! ask     for a number; later versions are delivered as they come, until the request times out
//! hear    the next one, and how many are pending after it
//! ```
//!
//! A push consumer would send a connection every version that it wrote itself, which costs the
//! server more than storing it. A pull consumer can let versions accumulate: of a message that has
//! changed in the meantime only the last version is delivered.
//!
//! A consumer is in its server's memory. One that is lost with its server, or unused for some
//! seconds, does not answer at all. A missing number among the delivered ones is an error, too. In
//! both cases the caller starts again.

use std::time::Duration;

use async_nats::jetstream;
use async_nats::jetstream::consumer::pull::{BatchConfig, Config};
use async_nats::jetstream::consumer::{AckPolicy, Consumer as Asked, DeliverPolicy};
use async_nats::jetstream::message::StreamMessage;
use async_nats::{StatusCode, Subscriber};
use futures_util::StreamExt as _;
use time::OffsetDateTime;
use tokio::time::timeout;

use super::api::CREATE_CONSUMER;
use super::server_time::millis;
use super::wire::{ANSWER_PATIENCE, Wire};

/// How long the server keeps a request that it cannot answer yet. Each answer is a sign of life of
/// both.
const QUESTION_TIME: Duration = Duration::from_secs(10);
/// Time without a request after which the server removes the consumer.
const LEFT_ALONE: Duration = Duration::from_secs(5);
const BATCH_MAX: u64 = 256;

/// One consumer, and the subscription to which it delivers.
pub(super) struct PullConsumer {
    asked: Asked<Config>,
    context: jetstream::Context,
    inbox: String,
    answers: Subscriber,
    /// The consumer's number of the last delivered version.
    told: u64,
    /// How many versions of the last request are still to come.
    open: u64,
    pending: u64,
}

pub(super) struct DeliveredVersion {
    pub(super) message: async_nats::Message,
    pub(super) seq: u64,
    /// When it was stored, by the server's clock, in milliseconds since the Unix epoch.
    pub(super) at: u64,
}

impl DeliveredVersion {
    /// The version in the form in which a stream returns its last message.
    pub(super) fn into_last(self) -> StreamMessage {
        let at = i128::from(self.at) * 1_000_000;
        StreamMessage {
            subject: self.message.subject,
            sequence: self.seq,
            headers: self.message.headers.unwrap_or_default(),
            payload: self.message.payload,
            time: OffsetDateTime::from_unix_timestamp_nanos(at)
                .unwrap_or(OffsetDateTime::UNIX_EPOCH),
        }
    }
}

impl PullConsumer {
    /// Opens a consumer of a pattern: for the last version of every subject, or
    /// `DeliverPolicy::All`.
    pub(super) async fn open(
        wire: &Wire,
        pattern: &str,
        deliver_policy: DeliverPolicy,
        headers_only: bool,
    ) -> Result<Self, async_nats::Error> {
        if let Some(denied) = wire.denials.of_creation(wire.stream_state.stream(), pattern) {
            return Err(denied.into());
        }
        let inbox = wire.client.new_inbox();
        let name = inbox.rsplit('.').next().unwrap_or_default().to_owned();
        let named = format!("{CREATE_CONSUMER}{}.{name}.{pattern}\"", wire.stream_state.stream());
        let config = Config {
            name: Some(name),
            filter_subject: pattern.to_owned(),
            deliver_policy,
            headers_only,
            ack_policy: AckPolicy::None,
            memory_storage: true,
            num_replicas: 1,
            inactive_threshold: LEFT_ALONE,
            ..Config::default()
        };
        let making = async {
            let answers = wire.client.subscribe(inbox.clone()).await?;
            let asked = wire.stream.create_consumer(config).await?;
            Ok::<_, async_nats::Error>((asked, answers))
        };
        // The creation may be denied, and the answers' subject, too.
        let making = wire.denials.or(&named, timeout(ANSWER_PATIENCE, making));
        let (asked, answers) = making.await???;
        wire.time.set_time(asked.cached_info().created);
        let (context, pending) = (wire.context.clone(), asked.cached_info().num_pending);
        Ok(Self { asked, context, inbox, answers, told: 0, open: 0, pending })
    }

    pub(super) const fn pending(&self) -> u64 {
        self.pending
    }

    /// Requests the pending versions, or at least the next one, up to the largest batch.
    pub(super) async fn ask(&mut self, at_least: u64) -> Result<(), async_nats::Error> {
        self.open = self.pending.max(at_least).clamp(1, BATCH_MAX);
        let batch = BatchConfig {
            batch: usize::try_from(self.open).unwrap_or(1),
            expires: Some(QUESTION_TIME),
            ..BatchConfig::default()
        };
        Ok(self.asked.request_batch(batch, self.inbox.clone().into()).await?)
    }

    /// The next requested version; `None` once the request is finished.
    pub(super) async fn hear(&mut self) -> Result<Option<DeliveredVersion>, async_nats::Error> {
        if self.open == 0 {
            return Ok(None);
        }
        let answer = timeout(QUESTION_TIME + ANSWER_PATIENCE, self.answers.next()).await?;
        let message = answer.ok_or("the connection has ended")?;
        match message.status {
            // The request has timed out.
            Some(StatusCode::TIMEOUT | StatusCode::NOT_FOUND) => {
                self.open = 0;
                return Ok(None);
            }
            Some(status) if status != StatusCode::OK => {
                return Err(format!("the consumer answers {status}").into());
            }
            Some(_) | None => {}
        }
        let message = jetstream::Message { message, context: self.context.clone() };
        let info = message.info()?;
        if info.consumer_sequence != self.told + 1 {
            return Err("a delivered version was lost".into());
        }
        let (seq, at) = (info.stream_sequence, millis(info.published));
        self.told += 1;
        self.open -= 1;
        self.pending = info.pending;
        Ok(Some(DeliveredVersion { message: message.message, seq, at }))
    }
}
