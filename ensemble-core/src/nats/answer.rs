//! The server's answer to what is published, read as far as a compare-and-set needs it.
//!
//! ```text
//! {"stream": …, "seq": 7}               Stored(7)
//! {"error": {"err_code": 10071, …}}     Stale: another version came before
//! {"error": …}                          Refused
//! nobody listens, connection broken     Failed
//! ```
//!
//! async-nats would answer the same with limits of time of its own around ours, a count of what is not answered
//! yet, and an answer that is read into a tree first.

use std::pin::pin;
use std::task::Poll;

use async_nats::client::RequestErrorKind;
use async_nats::jetstream::{self, ErrorCode};
use async_nats::{Client, HeaderMap, Request};
use bytes::Bytes;
use serde::Deserialize;

/// What is to be stored, and where.
pub(super) struct Question<'a> {
    pub(super) subject: &'a str,
    pub(super) headers: HeaderMap,
    pub(super) payload: Bytes,
}

/// What became of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answered {
    /// As this number.
    Stored(u64),
    /// Another version came before.
    Stale,
    /// The server says no, and why.
    Refused(String),
    /// There is no answer; trying later may help.
    Failed(String),
}

#[derive(Deserialize)]
struct Answer {
    seq: Option<u64>,
    error: Option<jetstream::Error>,
}

impl Question<'_> {
    /// Sends it, does something else until the server has answered, and returns what it says. Who asks limits
    /// the time.
    pub(super) async fn ask(
        self,
        client: &Client,
        meanwhile: &mut Option<impl FnOnce() + Send>,
    ) -> Answered {
        let request = Request::new().headers(self.headers).payload(self.payload).timeout(None);
        let mut asked = pin!(client.send_request(self.subject.to_owned(), request));
        let mut early = Poll::Pending;
        if let Some(meanwhile) = meanwhile.take() {
            early = std::future::poll_fn(|cx| Poll::Ready(asked.as_mut().poll(cx))).await;
            // It is written to the server now, not after what is done meanwhile.
            tokio::task::yield_now().await;
            meanwhile();
        }
        let answer = match early {
            Poll::Ready(answer) => answer,
            Poll::Pending => asked.await,
        };
        match answer {
            Ok(message) => Answered::of(&message.payload),
            Err(error) => match error.kind() {
                // Nobody listens yet: a server that starts, a cluster without a leader.
                RequestErrorKind::NoResponders
                | RequestErrorKind::TimedOut
                | RequestErrorKind::Other => Answered::Failed(error.to_string()),
                RequestErrorKind::InvalidSubject | RequestErrorKind::MaxPayloadExceeded => {
                    Answered::Refused(error.to_string())
                }
            },
        }
    }
}

impl Answered {
    fn of(answer: &[u8]) -> Self {
        match serde_json::from_slice::<Answer>(answer) {
            Ok(Answer { error: Some(error), .. }) => match error.error_code() {
                ErrorCode::STREAM_WRONG_LAST_SEQUENCE => Self::Stale,
                _ => Self::Refused(error.to_string()),
            },
            Ok(Answer { seq: Some(seq), .. }) => Self::Stored(seq),
            Ok(Answer { seq: None, error: None }) => {
                Self::Refused("what listens to the team's subjects is no stream".to_owned())
            }
            Err(error) => Self::Refused(format!("an answer that cannot be read: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(answer: &str) -> String {
        match Answered::of(answer.as_bytes()) {
            Answered::Refused(why) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn answers_of_a_server_are_read() {
        let stored = br#"{"stream":"ENSEMBLE_t","seq":7,"duplicate":true}"#;
        assert_eq!(Answered::of(stored), Answered::Stored(7));
        let stale = br#"{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 3"},"stream":"s","seq":0}"#;
        assert_eq!(Answered::of(stale), Answered::Stale);
        let full = r#"{"error":{"code":400,"err_code":10077,"description":"maximum bytes exceeded"},"stream":"s","seq":0}"#;
        assert!(refusal(full).contains("maximum bytes exceeded"));
    }

    #[test]
    fn what_is_no_answer_of_a_stream_is_refused() {
        assert!(refusal("{}").contains("no stream"));
        assert!(refusal("hello").contains("cannot be read"));
    }
}
