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

#[derive(Debug, PartialEq, Eq)]
pub(super) enum ProbeOutcome {
    Open,
    Absent,
    Denied(String),
    NotYet(String),
}

#[derive(Deserialize)]
struct ProbeAnswer {
    #[serde(default)]
    stream: String,
    error: Option<ProbeFault>,
}

#[derive(Deserialize)]
struct ProbeFault {
    err_code: u64,
    #[serde(default)]
    description: String,
}

impl Wire {
    /// Whether the stream can be read; sends a request only if this is unknown.
    pub(super) async fn reach(&self) -> ProbeOutcome {
        let connection = self.stream_state.connection();
        if self.stream_state.open_at.load(Ordering::Relaxed) == connection {
            return ProbeOutcome::Open;
        }
        let was_absent = self.stream_state.was_absent.load(Ordering::Relaxed);
        let is_absent = was_absent && self.probe_stream().await == ProbeOutcome::Absent;
        let reached = if is_absent { ProbeOutcome::Absent } else { self.probe().await };
        self.stream_state.was_absent.store(reached == ProbeOutcome::Absent, Ordering::Relaxed);
        if reached == ProbeOutcome::Open {
            self.stream_state.open_at.store(connection, Ordering::Relaxed);
        }
        reached
    }

    async fn probe(&self) -> ProbeOutcome {
        let mut headers = HeaderMap::new();
        headers.insert(async_nats::header::NATS_EXPECTED_STREAM, NO_STREAM);
        let subject = self.stream_state.subject.clone();
        let asked = self.client.request_with_headers(subject, headers, Bytes::new());
        let named = format!("{}\"", self.stream_state.subject);
        let answer = match self.denials.or(&named, timeout(ANSWER_PATIENCE, asked)).await {
            Ok(answer) => answer,
            Err(denied) => return ProbeOutcome::Denied(denied),
        };
        match answer {
            Ok(Ok(message)) => match serde_json::from_slice::<ProbeAnswer>(&message.payload) {
                // Another stream has its subjects.
                Ok(answer) if answer.stream != self.stream_state.stream() => {
                    self.probe_stream().await
                }
                Ok(ProbeAnswer { error: Some(fault), .. })
                    if fault.err_code != ErrorCode::STREAM_NOT_MATCH.0 =>
                {
                    ProbeOutcome::NotYet(fault.description)
                }
                Ok(_) => ProbeOutcome::Open,
                Err(error) => ProbeOutcome::NotYet(error.to_string()),
            },
            Ok(Err(error)) if error.kind() == RequestErrorKind::NoResponders => {
                self.probe_stream().await
            }
            Ok(Err(error)) => ProbeOutcome::NotYet(error.to_string()),
            Err(_) if self.probe_stream().await == ProbeOutcome::Absent => ProbeOutcome::Absent,
            Err(_) => ProbeOutcome::NotYet("no answer".to_owned()),
        }
    }

    /// Looks up whether a stream without a responder exists.
    async fn probe_stream(&self) -> ProbeOutcome {
        let asked = timeout(ANSWER_PATIENCE, self.context.get_stream(self.stream_state.stream()));
        let named = format!("{STREAM_INFO}{}\"", self.stream_state.stream());
        let answer = match self.denials.or(&named, asked).await {
            Ok(answer) => answer,
            Err(denied) => return ProbeOutcome::Denied(denied),
        };
        match answer {
            Ok(Ok(_)) => ProbeOutcome::NotYet("the stream is not ready".to_owned()),
            Ok(Err(error)) => match error.kind() {
                GetStreamErrorKind::JetStream(fault)
                    if fault.error_code() == ErrorCode::STREAM_NOT_FOUND =>
                {
                    ProbeOutcome::Absent
                }
                _ => ProbeOutcome::NotYet(error.to_string()),
            },
            Err(_) => ProbeOutcome::NotYet("no answer".to_owned()),
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
                ProbeOutcome::Open => return Ok(is_created),
                ProbeOutcome::Absent => {
                    let Some(config) = config else {
                        let stream = self.stream_state.stream();
                        let detail =
                            format!("the server has no team of this name (no stream {stream})");
                        return Err(self.refused("find the team", detail));
                    };
                    let making = self.context.create_stream(config.clone());
                    let named = format!("{CREATE_STREAM}{}\"", config.name);
                    match self.denials.or(&named, timeout(ANSWER_PATIENCE, making)).await {
                        Ok(Ok(Ok(_))) => {
                            is_created = true;
                            continue;
                        }
                        Ok(Ok(Err(error))) => error.to_string(),
                        Ok(Err(_)) => "no answer".to_owned(),
                        Err(denied) => return Err(self.refused(OPEN, denied)),
                    }
                }
                ProbeOutcome::Denied(denied) => return Err(self.refused(OPEN, denied)),
                ProbeOutcome::NotYet(detail) => detail,
            };
            if Instant::now() + RETRY_INTERVAL >= deadline {
                let detail = format!("{detail}: is JetStream on (`nats-server -js`)?");
                return Err(self.unreachable(OPEN, detail));
            }
            sleep(RETRY_INTERVAL).await;
        }
    }
}
