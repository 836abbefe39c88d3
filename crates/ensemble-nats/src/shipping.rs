//! The event logs of all hosts in one stream: each watcher ships the lines of its host, and reads the others'.
//!
//! A line is stored under its host, with an id that follows from its content. So a line that is shipped twice
//! within the server's window is stored once, and readers pass over later copies.

use std::sync::atomic::Ordering;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::stream::{Config, StorageType};
use bytes::Bytes;

use super::NatsTransport;
use super::api::{CREATE_STREAM, STREAM_INFO};
use super::consumer::PullConsumer;
use super::stream_state::StreamState;
use super::wire::Wire;
use ensemble_core::message::{Digest, Name};
use ensemble_core::{Error, Result};

/// How long records are kept, unless the stream is configured otherwise.
const KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShippedLine {
    pub number: u64,
    pub host: Name,
    pub text: String,
}

impl NatsTransport {
    /// Appends lines of a host's event log to the team's, in this order.
    ///
    /// # Errors
    /// [`Error::Server`]; shipping the same lines again is safe.
    pub fn ship_log(&self, host: &Name, lines: &[String]) -> Result<()> {
        self.open_log_stream()?;
        let subject = self.subjects.log(host.as_str());
        for line in lines {
            let digest = Digest::of(line.as_bytes());
            let mut headers = HeaderMap::new();
            let id = format!("{host}.{digest}");
            headers.insert(async_nats::header::NATS_MESSAGE_ID, id.as_str());
            let (wire, subject, payload) =
                (self.wire.clone(), subject.clone(), Bytes::from(line.clone()));
            self.call("ship the event log", async move {
                let named = format!("{subject}\"");
                let sent = async {
                    wire.context.publish_with_headers(subject, headers, payload).await?.await
                };
                let stored = wire.denials.or(&named, sent).await;
                let stored = stored.map_err(|denied| wire.refused("ship the event log", denied))?;
                stored.map(drop).map_err(|error| match error.kind() {
                    // The servers answer, and do not store it, for example because they are full.
                    PublishErrorKind::Other | PublishErrorKind::MaxPayloadExceeded => {
                        wire.refused("ship the event log", error)
                    }
                    _ => wire.unreachable("ship the event log", error),
                })
            })?;
        }
        Ok(())
    }

    /// Lines of all hosts' logs after this number, oldest first, at most this many.
    pub fn shipped_after(&self, number: u64, limit: usize) -> Result<Vec<ShippedLine>> {
        let (pattern, log) = (self.subjects.log_all(), self.log_wire()?);
        self.call("read the event logs", async move {
            let Some(last) = log.last(&pattern).await? else { return Ok(Vec::new()) };
            if last.sequence <= number {
                return Ok(Vec::new());
            }
            let failed =
                |error: async_nats::Error| log.unheard("read the event logs", &pattern, error);
            let policy = DeliverPolicy::ByStartSequence { start_sequence: number + 1 };
            let mut consumer =
                PullConsumer::open(&log, &pattern, policy, false).await.map_err(failed)?;
            let mut lines = Vec::new();
            while consumer.pending() > 0 && lines.len() < limit {
                consumer.ask(1).await.map_err(failed)?;
                while let Some(told) = consumer.hear().await.map_err(failed)? {
                    let host = super::subject::TeamSubjects::log_host(&told.message.subject);
                    let text = String::from_utf8(told.message.payload.to_vec()).ok();
                    if let (Some(host), Some(text)) = (host, text) {
                        lines.push(ShippedLine { number: told.seq, host, text });
                    }
                    if consumer.pending() == 0 {
                        break;
                    }
                }
            }
            Ok(lines)
        })
    }

    fn open_log_stream(&self) -> Result<()> {
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
        let (wire, asked) = (self.wire.clone(), format!("{STREAM_INFO}{}\"", config.name));
        self.call("open the log", async move {
            // A host that may not ship its log tries each second, and the server would log each try.
            let opening = async {
                let context = &wire.context;
                let opened = match wire.denials.permit(&format!("{CREATE_STREAM}{}", config.name)) {
                    true => context
                        .get_or_create_stream(config)
                        .await
                        .map(drop)
                        .map_err(|e| e.to_string()),
                    false => {
                        context.get_stream(config.name).await.map(drop).map_err(|e| e.to_string())
                    }
                };
                opened.map_err(|error| wire.refused("open the log", error))
            };
            let denied = |text| wire.refused("open the log", text);
            wire.denials.or(&asked, opening).await.map_err(denied)?
        })?;
        self.has_log.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// A connection to the stream of the log, which may be absent.
    fn log_wire(&self) -> Result<Wire> {
        let (wire, name) = (self.wire.clone(), self.subjects.log_stream());
        let (pattern, connections) = (self.subjects.log_all(), self.connections.clone());
        self.call("read the event logs", async move {
            let opened = wire.context.get_stream_no_info(&name).await;
            let stream = opened.map_err(|error| wire.refused("read the event logs", error))?;
            let stream_state = StreamState::new(name, pattern.trim_end_matches('>'), connections);
            Ok::<_, Error>(wire.of(stream, stream_state))
        })
    }
}
