//! Questions and their answers: two subjects a request, each written once.
//!
//! A decision is created by compare-and-set with nothing before it, so the first one stands and every
//! later one learns what was decided. What is inside is for [`crate::requests`] to say.

use async_nats::HeaderMap;
use bytes::Bytes;

use super::receive::no_message;
use super::{NatsTransport, Put};
use crate::Result;
use crate::message::MessageId;

/// What became of a write that only the first can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum First {
    /// This one stands.
    Ours,
    /// Another one came before; this is what it says.
    Theirs(Vec<u8>),
}

impl NatsTransport {
    /// Asks a question.
    ///
    /// # Errors
    /// [`crate::Error::Server`].
    pub fn ask(&self, id: &MessageId, question: &[u8]) -> Result<First> {
        self.write_once(self.subjects.request(id, "request"), question)
    }

    /// Decides a question, unless it was decided before.
    ///
    /// # Errors
    /// [`crate::Error::NoMessage`] if nobody has asked, or [`crate::Error::Server`].
    pub fn decide(&self, id: &MessageId, decision: &[u8]) -> Result<First> {
        if self.question(id)?.is_none() {
            return Err(no_message(id, "among the requests".to_owned()));
        }
        self.write_once(self.subjects.request(id, "decision"), decision)
    }

    /// What was asked.
    ///
    /// # Errors
    /// [`crate::Error::Server`].
    pub fn question(&self, id: &MessageId) -> Result<Option<Vec<u8>>> {
        self.content(self.subjects.request(id, "request"))
    }

    /// What was decided.
    ///
    /// # Errors
    /// [`crate::Error::Server`].
    pub fn decision(&self, id: &MessageId) -> Result<Option<Vec<u8>>> {
        self.content(self.subjects.request(id, "decision"))
    }

    fn content(&self, subject: String) -> Result<Option<Vec<u8>>> {
        let wire = self.wire.clone();
        self.call("read a request", async move {
            Ok(wire.last(&subject).await?.map(|message| message.payload.to_vec()))
        })
    }

    fn write_once(&self, subject: String, content: &[u8]) -> Result<First> {
        let (wire, content) = (self.wire.clone(), Bytes::copy_from_slice(content));
        // Two that decide the same are told apart: only one of them was first.
        let op = MessageId::generate().to_string();
        self.call("write a request", async move {
            let mut headers = HeaderMap::new();
            headers.insert(super::record::HEADER, op.as_str());
            let put = wire.compare_and_set(&subject, 0, headers, content).await?;
            if matches!(put, Some(Put::Done(_))) {
                return Ok(First::Ours);
            }
            let standing = wire.last(&subject).await?;
            Ok(standing.map_or(First::Theirs(Vec::new()), |message| {
                let header = message.headers.get(super::record::HEADER);
                if header.is_some_and(|h| h.as_str() == op) {
                    First::Ours
                } else {
                    First::Theirs(message.payload.to_vec())
                }
            }))
        })
    }
}
