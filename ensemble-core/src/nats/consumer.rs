//! A consumer of this connection: it tells what it is asked for, and nothing by itself.
//!
//! ```text
//! open    what a pattern holds now is pending, and what comes later is added
//! ask     for so many; what is not pending yet is told as it comes, until the answer's time is over
//! hear    the next one, and how many are pending after it
//! ```
//!
//! One that pushes would tell a connection of every version that it has written itself, each for more than
//! the server spends on storing it. Who asks can let them gather: of a message that has gone on meanwhile
//! only the last version is told.
//!
//! A consumer lives in its server's memory. One that is lost with its server, or left alone for some
//! seconds, does not answer any more, not even that it is gone; a number that is missing among those that
//! are told is an error, too. Whoever asked begins anew.

use std::time::Duration;

use async_nats::jetstream;
use async_nats::jetstream::consumer::pull::{BatchConfig, Config};
use async_nats::jetstream::consumer::{AckPolicy, Consumer as Asked, DeliverPolicy};
use async_nats::{StatusCode, Subscriber};
use futures_util::StreamExt as _;
use tokio::time::timeout;

use super::wire::{ANSWER_PATIENCE, Wire, millis};

/// How long the server keeps a question that it cannot answer yet. Each is a sign of life of both.
const QUESTION_TIME: Duration = Duration::from_secs(10);
/// After so long without a question the server forgets the consumer.
const LEFT_ALONE: Duration = Duration::from_secs(5);
/// The most that is asked for at a time.
const BATCH_MAX: u64 = 256;

/// One consumer, and the subscription to which it answers.
pub(super) struct Consumer {
    asked: Asked<Config>,
    context: jetstream::Context,
    inbox: String,
    answers: Subscriber,
    /// The number of the last version that was told, as the consumer counts.
    told: u64,
    /// How many of the last question are still to be told.
    open: u64,
    /// How many wait to be asked for.
    pending: u64,
}

/// A version that is new, or was there before.
pub(super) struct Told {
    pub(super) message: async_nats::Message,
    /// Its number in the stream.
    pub(super) seq: u64,
    /// When it was stored, by the server's clock, in milliseconds since the Unix epoch.
    pub(super) at: u64,
}

impl Consumer {
    /// Of what a pattern holds: the last version of every subject, or `DeliverPolicy::All`.
    pub(super) async fn open(
        wire: &Wire,
        pattern: &str,
        deliver_policy: DeliverPolicy,
        headers_only: bool,
    ) -> Result<Self, async_nats::Error> {
        let config = Config {
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
            let inbox = wire.client.new_inbox();
            let answers = wire.client.subscribe(inbox.clone()).await?;
            let asked = wire.stream.create_consumer(config).await?;
            Ok::<_, async_nats::Error>((asked, inbox, answers))
        };
        let (asked, inbox, answers) = timeout(ANSWER_PATIENCE, making).await??;
        let (context, pending) = (wire.context.clone(), asked.cached_info().num_pending);
        Ok(Self { asked, context, inbox, answers, told: 0, open: 0, pending })
    }

    /// How many were pending after the last one that was told.
    pub(super) const fn pending(&self) -> u64 {
        self.pending
    }

    /// Asks for what is pending, or the next one to come; for no more than it can be told at a time.
    pub(super) async fn ask(&mut self, at_least: u64) -> Result<(), async_nats::Error> {
        self.open = self.pending.max(at_least).clamp(1, BATCH_MAX);
        let batch = BatchConfig {
            batch: usize::try_from(self.open).unwrap_or(1),
            expires: Some(QUESTION_TIME),
            ..BatchConfig::default()
        };
        Ok(self.asked.request_batch(batch, self.inbox.clone().into()).await?)
    }

    /// The next one of those that were asked for; `None` once there is none of them any more.
    pub(super) async fn hear(&mut self) -> Result<Option<Told>, async_nats::Error> {
        if self.open == 0 {
            return Ok(None);
        }
        let answer = timeout(QUESTION_TIME + ANSWER_PATIENCE, self.answers.next()).await?;
        let message = answer.ok_or("the connection has ended")?;
        match message.status {
            // Its time is over.
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
            return Err("something that was told got lost".into());
        }
        let (seq, at) = (info.stream_sequence, millis(info.published));
        self.told += 1;
        self.open -= 1;
        self.pending = info.pending;
        Ok(Some(Told { message: message.message, seq, at }))
    }
}
