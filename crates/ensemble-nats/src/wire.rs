//! The connection to the server and the stream of one team, with the errors that its calls end in.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::header::NATS_ROLLUP;
use async_nats::jetstream::context::Context;
use async_nats::jetstream::stream::Stream;

use super::denials::UserDenials;
use super::patience::CallPatience;
use super::server_time::ServerTime;
use super::stream_state::StreamState;
use ensemble_core::Error;
use ensemble_core::message::MessageId;

pub(super) const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// How long one try waits for its answer before the request is sent again.
pub(super) const ANSWER_PATIENCE: Duration = Duration::from_secs(2);

/// A connection and the stream of one team. Clones are the same connection.
#[derive(Clone, Debug)]
pub(super) struct Wire {
    pub(super) client: async_nats::Client,
    pub(super) context: Context,
    pub(super) stream: Stream<()>,
    pub(super) stream_state: StreamState,
    pub(super) server: String,
    /// Time limit of a whole call, or of several.
    pub(super) patience: CallPatience,
    pub(super) denials: UserDenials,
    pub(super) time: ServerTime,
    /// Pattern of the messages that are removed to make room for changes of state.
    pub(super) reserve: String,
    /// Whether a missing stream counts as an empty one.
    pub(super) may_be_absent: bool,
    /// Whether reads of the whole stream were denied, so that each read takes a consumer of its pattern.
    pub(super) is_narrow: Arc<AtomicBool>,
    pub(super) ops: OperationNames,
}

/// Generates unique names for the versions that a connection writes. Clones generate different
/// names, too.
#[derive(Clone, Debug)]
pub(super) struct OperationNames {
    /// A random part for the connection.
    connection: Arc<str>,
    given: Arc<AtomicU64>,
}

impl OperationNames {
    pub(super) fn new() -> Self {
        Self { connection: MessageId::generate().as_str().into(), given: Arc::default() }
    }

    pub(super) fn next(&self) -> String {
        format!("{}.{}", self.connection, self.given.fetch_add(1, Ordering::Relaxed))
    }
}

impl Wire {
    /// The same connection for another stream, which may be absent.
    pub(super) fn of(&self, stream: Stream<()>, stream_state: StreamState) -> Self {
        let is_narrow = Arc::default();
        Self { stream, stream_state, may_be_absent: true, is_narrow, ..self.clone() }
    }

    pub(super) fn unreachable(&self, operation: &'static str, detail: impl ToString) -> Error {
        let mut detail = detail.to_string().trim_end_matches('.').to_owned();
        if !detail.ends_with('?') {
            detail.push_str(" (is the server up?)");
        }
        Error::Server { operation, server: self.server.clone(), detail, unreachable: true }
    }

    pub(super) fn refused(&self, operation: &'static str, detail: impl ToString) -> Error {
        let (server, detail) = (self.server.clone(), detail.to_string());
        Error::Server { operation, server, detail, unreachable: false }
    }

    /// A consumer of this pattern failed: for good if it was denied.
    pub(super) fn unheard(
        &self,
        operation: &'static str,
        pattern: &str,
        error: impl ToString,
    ) -> Error {
        match self.denial_of_consumers(pattern) {
            Some(denied) => self.refused(operation, denied),
            None => self.unreachable(operation, error),
        }
    }

    /// The server's store is full: trying later may help.
    pub(super) fn without_room(&self, operation: &'static str, detail: &str) -> Error {
        let detail = format!("{FULL} ({detail}): it accepts messages again once there is room");
        Error::Server { operation, server: self.server.clone(), detail, unreachable: true }
    }

    pub(super) fn denial_of_consumers(&self, pattern: &str) -> Option<String> {
        self.denials.of_consumers(self.stream_state.stream(), pattern)
    }

    /// Headers of a change, which removes the versions before it.
    ///
    /// A stream that keeps one version by a limit notes no removal, and a server that is killed has all of them again.
    /// The last of those would count once the message is removed (docs/decisions/0037-removals-are-noted.md).
    pub(super) fn replacing(&self, headers: HeaderMap, expected: u64) -> HeaderMap {
        match expected > 0 && notes_removals(&self.client.server_info().version) {
            true => rolled_up(headers),
            false => headers,
        }
    }
}

/// Beginning of the error of a server without room.
pub(super) const FULL: &str = "its store is full";

/// Headers of a version that removes those before it.
pub(super) fn rolled_up(mut headers: HeaderMap) -> HeaderMap {
    headers.insert(NATS_ROLLUP, ROLLUP);
    headers
}

/// Whether a server of this version notes what it removes before it forgets it. One of 2.9 that is killed can lose a
/// version that it has answered for, and the one before it as well.
pub(super) fn notes_removals(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= (2, 10)
}

const ROLLUP: &str = "sub";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_from_2_10_on_note_what_they_remove() {
        for (version, is_noted) in [
            ("2.9.10", false),
            ("2.10.0", true),
            ("2.15.1", true),
            ("3.0.0-beta.1", true),
            ("", false),
        ] {
            assert_eq!(notes_removals(version), is_noted, "{version}");
        }
    }
}
