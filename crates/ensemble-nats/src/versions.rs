//! The requests to the server: read, list, and the only write, a compare-and-set.
//!
//! ```text
//! put(subject, expected, …)   stored    -> Done(number of the new version)
//!                             refused   -> Stale (another version came before)
//!                             no answer -> sent again; if refused then, read the version: is it this writer's?
//! ```
//!
//! A version carries a random `op`. So a writer whose answer was lost with the connection can
//! recognize its own version, and sending twice stores once.

use std::future::IntoFuture as _;
use std::sync::atomic::Ordering;

use async_nats::HeaderMap;
use async_nats::header::{HeaderName, NATS_EXPECTED_LAST_SUBJECT_SEQUENCE as EXPECTED};
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::LastRawMessageErrorKind;
use bytes::Bytes;
use tokio::time::{Instant, sleep, timeout};

use super::answer::{PublishAnswer, PublishRequest};
use super::api::{PURGE, READ};
use super::consumer::{DeliveredVersion, PullConsumer};
use super::record::{HEADER, MessageRecord, StoredVersion};
use super::server_time::millis;
use super::stream_probe::ProbeOutcome;
use super::wire::{ANSWER_PATIENCE, RETRY_INTERVAL, Wire};
use ensemble_core::Result;

#[derive(Clone, Debug)]
pub(super) struct ListedVersion {
    pub(super) subject: String,
    pub(super) seq: u64,
    pub(super) payload: Bytes,
    /// When it was stored, by the server's clock, in milliseconds since the Unix epoch.
    pub(super) at: u64,
}

enum MessageLookup {
    Told(Option<Box<StreamMessage>>),
    Failed(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PutOutcome {
    Done(u64),
    Stale,
}

/// For callers that only wait.
pub(super) const NOTHING: Option<fn()> = None;

impl Wire {
    /// Writes a version of a message if the last sequence in its subject is `expected` (0: none).
    /// Runs a function until the server has answered.
    pub(super) async fn put(
        &self,
        subject: String,
        expected: u64,
        mut record: MessageRecord,
        payload: Bytes,
        meanwhile: Option<impl FnOnce() + Send>,
    ) -> Result<(PutOutcome, MessageRecord)> {
        record.op = self.ops.next();
        let header = record.to_header();
        let headers = || self.replacing(one_header(&header), expected);
        let put = self.send(&subject, expected, headers, payload, meanwhile).await?;
        let Some(put) = put else {
            // A try whose answer was lost may have succeeded.
            let ours = self.read(&subject).await?.filter(|stored| stored.record.op == record.op);
            return Ok((
                ours.map_or(PutOutcome::Stale, |stored| PutOutcome::Done(stored.seq)),
                record,
            ));
        };
        Ok((put, record))
    }

    /// Returns `None` if the write was refused after an earlier try got no answer.
    pub(super) async fn compare_and_set(
        &self,
        subject: &str,
        expected: u64,
        headers: HeaderMap,
        payload: Bytes,
    ) -> Result<Option<PutOutcome>> {
        self.send(subject, expected, || headers.clone(), payload, NOTHING).await
    }

    async fn send(
        &self,
        subject: &str,
        expected: u64,
        headers: impl Fn() -> HeaderMap,
        payload: Bytes,
        mut meanwhile: Option<impl FnOnce() + Send>,
    ) -> Result<Option<PutOutcome>> {
        let deadline = self.patience.deadline();
        let mut is_in_doubt = false;
        // A denial names the whole subject.
        let named = format!("{subject}\"");
        loop {
            let mut headers = headers();
            headers.insert(EXPECTED, expected.to_string());
            let question = PublishRequest { subject, headers, payload: payload.clone() };
            let left = deadline.saturating_duration_since(Instant::now());
            let asked = question.ask(&self.client, &mut meanwhile);
            let asked = self.denials.or(&named, timeout(left.min(ANSWER_PATIENCE), asked));
            let detail = match asked.await {
                Ok(Ok(PublishAnswer::Stored(seq))) => return Ok(Some(PutOutcome::Done(seq))),
                Ok(Ok(PublishAnswer::Stale)) => {
                    return Ok((!is_in_doubt).then_some(PutOutcome::Stale));
                }
                // A change of state may use the reserve; a new message may not.
                Ok(Ok(PublishAnswer::Crowded(_)))
                    if expected > 0 && !self.may_be_absent && self.spend_reserve().await? =>
                {
                    continue;
                }
                Ok(Ok(PublishAnswer::Crowded(detail))) => {
                    return Err(self.without_room("store a message", &detail));
                }
                Ok(Ok(PublishAnswer::Refused(detail))) if !is_passing(&detail) => {
                    return Err(self.refused("store a message", detail));
                }
                Ok(Ok(PublishAnswer::Refused(detail) | PublishAnswer::Failed(detail))) => detail,
                Ok(Err(_)) => "no answer".to_owned(),
                Err(denied) => return Err(self.refused("store a message", denied)),
            };
            is_in_doubt = true;
            if Instant::now() + RETRY_INTERVAL >= deadline {
                return Err(self.unreachable("store a message", detail));
            }
            sleep(RETRY_INTERVAL).await;
        }
    }

    /// The last version in a subject, or in all subjects of a pattern, from the leader.
    pub(super) async fn read(&self, subject: &str) -> Result<Option<StoredVersion>> {
        let found = self.last(subject).await?;
        Ok(found.map(|message| {
            let record = MessageRecord::of(Some(&message.headers));
            StoredVersion::new(message.sequence, record, message.payload, millis(message.time))
        }))
    }

    pub(super) async fn last(&self, subject: &str) -> Result<Option<StreamMessage>> {
        let deadline = self.patience.deadline();
        loop {
            let detail = match self.reach().await {
                ProbeOutcome::Open => match self.ask_for(subject, deadline).await? {
                    MessageLookup::Told(message) => return Ok(message.map(|message| *message)),
                    MessageLookup::Failed(detail) => {
                        self.stream_state.shut();
                        detail
                    }
                },
                ProbeOutcome::Absent if self.may_be_absent => return Ok(None),
                ProbeOutcome::Absent => {
                    return Err(self.refused("read a message", "the team's stream does not exist"));
                }
                ProbeOutcome::Denied(denied) => return Err(self.refused("read a message", denied)),
                ProbeOutcome::NotYet(detail) => detail,
            };
            if Instant::now() + RETRY_INTERVAL >= deadline {
                return Err(self.unreachable("read a message", detail));
            }
            sleep(RETRY_INTERVAL).await;
        }
    }

    async fn ask_for(&self, subject: &str, deadline: Instant) -> Result<MessageLookup> {
        if self.is_narrow.load(Ordering::Relaxed) {
            return self.hear_last(subject).await;
        }
        let asked = self.stream.get_last_raw_message_by_subject(subject);
        let left = deadline.saturating_duration_since(Instant::now());
        let named = format!("{READ}{}\"", self.stream_state.stream());
        let asked = self.denials.or(&named, timeout(left.min(ANSWER_PATIENCE), asked)).await;
        let Ok(answer) = asked else {
            self.is_narrow.store(true, Ordering::Relaxed);
            return self.hear_last(subject).await;
        };
        Ok(match answer {
            Ok(Ok(message)) => MessageLookup::Told(Some(Box::new(message))),
            Ok(Err(error)) => match error.kind() {
                LastRawMessageErrorKind::NoMessageFound => MessageLookup::Told(None),
                LastRawMessageErrorKind::JetStream(fault)
                    if self.may_be_absent && fault.error_code() == ErrorCode::STREAM_NOT_FOUND =>
                {
                    MessageLookup::Told(None)
                }
                LastRawMessageErrorKind::JetStream(fault) if !is_passing(&fault.to_string()) => {
                    return Err(self.refused("read a message", fault));
                }
                _ => MessageLookup::Failed(error.to_string()),
            },
            Err(_) => MessageLookup::Failed("no answer".to_owned()),
        })
    }

    /// As [`Wire::ask_for`], by a consumer that delivers the last version. A permission can limit it to its pattern.
    async fn hear_last(&self, pattern: &str) -> Result<MessageLookup> {
        let hearing = async {
            let mut consumer =
                PullConsumer::open(self, pattern, DeliverPolicy::Last, false).await?;
            if consumer.pending() == 0 {
                return Ok::<_, async_nats::Error>(None);
            }
            consumer.ask(1).await?;
            timeout(ANSWER_PATIENCE, consumer.hear()).await?
        };
        let detail = match hearing.await {
            Ok(told) => {
                return Ok(MessageLookup::Told(told.map(|told| Box::new(told.into_last()))));
            }
            Err(error) => error.to_string(),
        };
        match self.denial_of_consumers(pattern) {
            Some(denied) => Err(self.refused("read a message", denied)),
            None => Ok(MessageLookup::Failed(detail)),
        }
    }

    /// Writes the first version of a subject. Returns the outcome; `op` in the header identifies
    /// the writer.
    pub(super) async fn create(
        &self,
        subject: &str,
        expected: u64,
        payload: Bytes,
        mut headers: HeaderMap,
    ) -> Result<PutOutcome> {
        // `op` distinguishes two writers of equal content: only one of them was first.
        let op = self.ops.next();
        headers.insert(STATE.clone(), op.as_str());
        if let Some(put) = self.compare_and_set(subject, expected, headers, payload).await? {
            return Ok(put);
        }
        let standing = self.last(subject).await?;
        let ours = standing.filter(|m| m.headers.get(HEADER).is_some_and(|h| h.as_str() == op));
        Ok(ours.map_or(PutOutcome::Stale, |ours| PutOutcome::Done(ours.sequence)))
    }

    /// Removes the versions of a subject up to this one.
    /// Returns their number.
    pub(super) async fn purge(&self, subject: &str, seq: u64) -> Result<u64> {
        let purge = self.stream.purge().filter(subject).sequence(seq + 1).into_future();
        let named = format!("{PURGE}{}\"", self.stream_state.stream());
        let purged = self.denials.or(&named, purge).await;
        let purged = purged.map_err(|denied| self.refused("remove a version", denied))?;
        let purged = purged.map_err(|error| self.unreachable("remove a version", error))?;
        Ok(purged.purged)
    }

    pub(super) async fn subjects(&self, pattern: &str) -> Result<Vec<String>> {
        let deadline = self.patience.deadline();
        let listed =
            self.list_until(deadline, pattern, DeliverPolicy::LastPerSubject, true).await?;
        Ok(listed.into_iter().map(|found| found.subject).collect())
    }

    pub(super) async fn list(&self, pattern: &str) -> Result<Vec<ListedVersion>> {
        let deadline = self.patience.deadline();
        self.list_until(deadline, pattern, DeliverPolicy::LastPerSubject, false).await
    }

    pub(super) async fn list_until(
        &self,
        deadline: Instant,
        pattern: &str,
        which: DeliverPolicy,
        headers_only: bool,
    ) -> Result<Vec<ListedVersion>> {
        loop {
            let Some(head) = self.last(pattern).await? else { return Ok(Vec::new()) };
            let left = deadline.saturating_duration_since(Instant::now());
            let detail =
                match timeout(left, self.list_versions(pattern, which, headers_only, usize::MAX))
                    .await
                {
                    // The answering server may be behind the leader.
                    Ok(Ok(all)) if all.last().is_some_and(|found| found.seq >= head.sequence) => {
                        return Ok(all);
                    }
                    Ok(Ok(_)) => "the updates did not come in time".to_owned(),
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => "no answer".to_owned(),
                };
            if let Some(denied) = self.denial_of_consumers(pattern) {
                return Err(self.refused("list messages", denied));
            }
            if Instant::now() + RETRY_INTERVAL >= deadline {
                return Err(self.unreachable("list messages", detail));
            }
            sleep(RETRY_INTERVAL).await;
        }
    }

    /// What one consumer delivers of a pattern until nothing is pending: `most` versions at most.
    pub(super) async fn list_versions(
        &self,
        pattern: &str,
        which: DeliverPolicy,
        headers_only: bool,
        most: usize,
    ) -> std::result::Result<Vec<ListedVersion>, async_nats::Error> {
        let mut consumer = PullConsumer::open(self, pattern, which, headers_only).await?;
        let mut all = Vec::new();
        while consumer.pending() > 0 && all.len() < most {
            consumer.ask(1).await?;
            while consumer.pending() > 0 && all.len() < most {
                let told = timeout(ANSWER_PATIENCE, consumer.hear()).await??;
                let Some(DeliveredVersion { message, seq, at }) = told else { break };
                let subject = message.subject.to_string();
                all.push(ListedVersion { subject, seq, payload: message.payload, at });
            }
        }
        Ok(all)
    }
}

/// Built once, because a header name is validated letter by letter.
static STATE: HeaderName = HeaderName::from_static(HEADER);

fn one_header(content: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(STATE.clone(), content);
    headers
}

/// Whether an error is transient: a server reports it while it starts, elects a leader or loses
/// one.
fn is_passing(error: &str) -> bool {
    ["temporarily unavailable", "no responders", "not available", "leader", "no suitable peers"]
        .iter()
        .any(|said| error.contains(said))
}
