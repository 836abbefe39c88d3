//! Checks whether a stream can be read, and creates it.
//!
//! A server that creates a stream, or restores it after its start, knows its name before its
//! messages. A request for a message at that instant crashes nats-server 2.9 (a nil dereference
//! in `jsMsgGetRequest`, seen with 2.9.10). This happens when one host creates a team and another
//! reads it. But a publish to a stream is answered by its leader, which has the messages by then:
//!
//! ```text
//! probe: a publish that names another stream as its target
//!   rejected as such by this stream  -> it can be read
//!   no responder, no such stream     -> it is absent: a reader sees an empty one, a writer creates it
//!   no responder, the stream exists  -> probe again
//!   no answer                        -> absent if the server says so: a leaf node has a responder for every subject
//! if it was absent, it is looked up first: one request, as for an open one
//! ```
//!
//! A probe stores nothing. One probe is enough for a connection; after an error there is another
//! one.

use std::sync::atomic::Ordering;

use async_nats::HeaderMap;
use async_nats::client::RequestErrorKind;
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::GetStreamErrorKind;
use async_nats::jetstream::stream::Config;
use bytes::Bytes;
use serde::Deserialize;
use tokio::time::{Instant, sleep, timeout};

use super::api::{CREATE_STREAM, STREAM_INFO};
use super::wire::{ANSWER_PATIENCE, RETRY_INTERVAL, Wire};
use ensemble_core::Result;

/// A name that no stream has, because it contains a dot.
const NO_STREAM: &str = "no.stream";

/// Result of a probe.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reached {
    /// The stream can be read.
    Open,
    /// There is no such stream.
    Absent,
    /// The server denies the question.
    Denied(String),
    /// A retry may help.
    NotYet(String),
}

/// A stream's answer to a publish.
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

impl Wire {
    /// Whether the stream can be read; sends a request only if this is unknown.
    pub(super) async fn reach(&self) -> Reached {
        let connection = self.stream_state.connection();
        if self.stream_state.open_at.load(Ordering::Relaxed) == connection {
            return Reached::Open;
        }
        let was_absent = self.stream_state.was_absent.load(Ordering::Relaxed);
        let is_absent = was_absent && self.look().await == Reached::Absent;
        let reached = if is_absent { Reached::Absent } else { self.probe().await };
        self.stream_state.was_absent.store(reached == Reached::Absent, Ordering::Relaxed);
        if reached == Reached::Open {
            self.stream_state.open_at.store(connection, Ordering::Relaxed);
        }
        reached
    }

    async fn probe(&self) -> Reached {
        let mut headers = HeaderMap::new();
        headers.insert(async_nats::header::NATS_EXPECTED_STREAM, NO_STREAM);
        let subject = self.stream_state.subject.clone();
        let asked = self.client.request_with_headers(subject, headers, Bytes::new());
        let named = format!("{}\"", self.stream_state.subject);
        let answer = match self.denials.or(&named, timeout(ANSWER_PATIENCE, asked)).await {
            Ok(answer) => answer,
            Err(denied) => return Reached::Denied(denied),
        };
        match answer {
            Ok(Ok(message)) => match serde_json::from_slice::<Answer>(&message.payload) {
                // Another stream has its subjects.
                Ok(answer) if answer.stream != self.stream_state.stream() => self.look().await,
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
            Err(_) if self.look().await == Reached::Absent => Reached::Absent,
            Err(_) => Reached::NotYet("no answer".to_owned()),
        }
    }

    /// Looks up whether a stream without a responder exists.
    async fn look(&self) -> Reached {
        let asked = timeout(ANSWER_PATIENCE, self.context.get_stream(self.stream_state.stream()));
        let answer = match self.denials.or(STREAM_INFO, asked).await {
            Ok(answer) => answer,
            Err(denied) => return Reached::Denied(denied),
        };
        match answer {
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

    /// Returns when the stream can be read: whether it was created, as `config` says. Without a configuration, one that
    /// does not exist is an error.
    pub(super) async fn open(&self, config: Option<&Config>) -> Result<bool> {
        const OPEN: &str = "open the stream";
        let deadline = self.patience.deadline();
        let mut is_created = false;
        loop {
            let detail = match self.reach().await {
                Reached::Open => return Ok(is_created),
                Reached::Absent => {
                    let Some(config) = config else {
                        let stream = self.stream_state.stream();
                        let detail =
                            format!("the server has no team of this name (no stream {stream})");
                        return Err(self.refused("find the team", detail));
                    };
                    let making = self.context.create_stream(config.clone());
                    match self.denials.or(CREATE_STREAM, timeout(ANSWER_PATIENCE, making)).await {
                        Ok(Ok(Ok(_))) => {
                            is_created = true;
                            continue;
                        }
                        Ok(Ok(Err(error))) => error.to_string(),
                        Ok(Err(_)) => "no answer".to_owned(),
                        Err(denied) => return Err(self.refused(OPEN, denied)),
                    }
                }
                Reached::Denied(denied) => return Err(self.refused(OPEN, denied)),
                Reached::NotYet(detail) => detail,
            };
            if Instant::now() + RETRY_INTERVAL >= deadline {
                let detail = format!("{detail}: is JetStream on (`nats-server -js`)?");
                return Err(self.unreachable(OPEN, detail));
            }
            sleep(RETRY_INTERVAL).await;
        }
    }
}
