//! The server's answer to a publish, of which only the fields for a compare-and-set are parsed.
//!
//! ```text
//! {"stream": …, "seq": 7}               Stored(7)
//! {"error": {"err_code": 10071, …}}     Stale: another version came before (10164 from newer servers)
//! {"error": {"description": "maximum bytes exceeded", …}}   Crowded: it has no room
//! {"error": …}                          Refused
//! no responder, connection broken       Failed
//! ```
//!
//! async-nats offers the same, but with its own time limits around this crate's, a count of
//! unanswered requests, and a parsed tree of each answer.

use std::pin::pin;
use std::task::Poll;

use async_nats::client::RequestErrorKind;
use async_nats::jetstream::{self, ErrorCode};
use async_nats::{Client, HeaderMap, Request};
use bytes::Bytes;
use serde::Deserialize;

pub(super) struct PublishRequest<'a> {
    pub(super) subject: &'a str,
    pub(super) headers: HeaderMap,
    pub(super) payload: Bytes,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum PublishAnswer {
    Stored(u64),
    Stale,
    Crowded(String),
    Refused(String),
    Failed(String),
}

#[derive(Deserialize)]
struct ParsedAnswer {
    seq: Option<u64>,
    error: Option<jetstream::Error>,
}

impl PublishRequest<'_> {
    /// Sends the publish, runs a function until the server has answered, and returns the answer.
    /// The caller limits the time.
    pub(super) async fn ask(
        self,
        client: &Client,
        meanwhile: &mut Option<impl FnOnce() + Send>,
    ) -> PublishAnswer {
        let request = Request::new().headers(self.headers).payload(self.payload).timeout(None);
        let mut asked = pin!(client.send_request(self.subject.to_owned(), request));
        let mut early = Poll::Pending;
        if let Some(meanwhile) = meanwhile.take() {
            early = std::future::poll_fn(|cx| Poll::Ready(asked.as_mut().poll(cx))).await;
            // Write it to the server now, before the function runs.
            tokio::task::yield_now().await;
            meanwhile();
        }
        let answer = match early {
            Poll::Ready(answer) => answer,
            Poll::Pending => asked.await,
        };
        match answer {
            Ok(message) => PublishAnswer::of(&message.payload),
            Err(error) => match error.kind() {
                // No responder yet: a server that starts, or a cluster without a leader.
                RequestErrorKind::NoResponders
                | RequestErrorKind::TimedOut
                | RequestErrorKind::Other => PublishAnswer::Failed(error.to_string()),
                RequestErrorKind::InvalidSubject | RequestErrorKind::MaxPayloadExceeded => {
                    PublishAnswer::Refused(error.to_string())
                }
            },
        }
    }
}

impl PublishAnswer {
    fn of(answer: &[u8]) -> Self {
        match serde_json::from_slice::<ParsedAnswer>(answer) {
            Ok(ParsedAnswer { error: Some(error), .. }) => match error.error_code() {
                ErrorCode::STREAM_WRONG_LAST_SEQUENCE | WRONG_LAST_SEQUENCE_UNTOLD => Self::Stale,
                code if is_full(code, &error.to_string()) => Self::Crowded(error.to_string()),
                _ => Self::Refused(error.to_string()),
            },
            Ok(ParsedAnswer { seq: Some(seq), .. }) => Self::Stored(seq),
            Ok(ParsedAnswer { seq: None, error: None }) => {
                Self::Refused("the responder of the team's subjects is not a stream".to_owned())
            }
            Err(error) => Self::Refused(format!("the answer cannot be read: {error}")),
        }
    }
}

/// Whether the stream, the account or the server has reached a limit of bytes or messages.
fn is_full(code: ErrorCode, text: &str) -> bool {
    // A stream at its limit and a disk that is full share a code with other failures to store.
    code == ErrorCode::INSUFFICIENT_RESOURCES
        || code == ErrorCode::STORAGE_RESOURCES_EXCEEDED
        || FULL.iter().any(|said| text.contains(said))
}

/// Newer servers (2.15.1 for one) that do not know the right sequence say this, and not the code of before.
const WRONG_LAST_SEQUENCE_UNTOLD: ErrorCode = ErrorCode(10164);

const FULL: [&str; 4] = [
    "maximum bytes exceeded",
    "maximum messages exceeded",
    "no space left on device",
    "insufficient storage",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(answer: &str) -> String {
        match PublishAnswer::of(answer.as_bytes()) {
            PublishAnswer::Refused(why) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn server_answers_are_parsed() {
        let stored = br#"{"stream":"ENSEMBLE_t","seq":7,"duplicate":true}"#;
        assert_eq!(PublishAnswer::of(stored), PublishAnswer::Stored(7));
        let stale = br#"{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 3"},"stream":"s","seq":0}"#;
        assert_eq!(PublishAnswer::of(stale), PublishAnswer::Stale);
        let untold = br#"{"error":{"code":400,"err_code":10164,"description":"wrong last sequence"},"stream":"s","seq":0}"#;
        assert_eq!(PublishAnswer::of(untold), PublishAnswer::Stale);
        let full = r#"{"error":{"code":400,"err_code":10077,"description":"maximum bytes exceeded"},"stream":"s","seq":0}"#;
        let answered = PublishAnswer::of(full.as_bytes());
        assert!(matches!(answered, PublishAnswer::Crowded(why) if why.contains("maximum bytes")));
        let other = r#"{"error":{"code":400,"err_code":10060,"description":"expected stream does not match"},"stream":"s","seq":0}"#;
        assert!(refusal(other).contains("does not match"));
    }

    #[test]
    fn answer_that_is_not_from_a_stream_is_rejected() {
        assert!(refusal("{}").contains("is not a stream"));
        assert!(refusal("hello").contains("cannot be read"));
    }
}
