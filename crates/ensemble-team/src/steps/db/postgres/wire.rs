//! Messages of the protocol of PostgreSQL, version 3: a byte that names the kind, a length, and the body.

use std::io::{self, Read, Write as _};
use std::time::{Duration, Instant};

use super::error::PgError;
use super::stream::Stream;

/// Largest message of a server, in bytes.
const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;
const READ_BYTES: usize = 16 * 1024;
/// The kind and the length.
const HEAD_BYTES: usize = 5;

/// A message of the server.
pub(super) struct Message {
    pub(super) kind: u8,
    pub(super) body: Vec<u8>,
}

impl Message {
    /// A reader of the body.
    pub(super) fn fields(&self) -> Fields<'_> {
        Fields(&self.body)
    }
}

/// Reads the body of a message, field by field. What is missing reads as an error.
pub(super) struct Fields<'m>(&'m [u8]);

impl<'m> Fields<'m> {
    pub(super) fn bytes(&mut self, count: usize) -> Result<&'m [u8], PgError> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or_else(malformed)?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(super) fn short(&mut self) -> Result<usize, PgError> {
        Ok(self.bytes(2)?.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }

    pub(super) fn long(&mut self) -> Result<u32, PgError> {
        Ok(self.bytes(4)?.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))
    }

    /// A text that ends with a zero byte.
    pub(super) fn text(&mut self) -> Result<&'m str, PgError> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or_else(malformed)?;
        let text = std::str::from_utf8(self.bytes(end)?).map_err(|_| malformed())?;
        self.bytes(1)?;
        Ok(text)
    }

    /// The rest, as a text.
    pub(super) fn rest(&self) -> Result<&'m str, PgError> {
        std::str::from_utf8(self.0).map_err(|_| malformed())
    }

    pub(super) const fn left(&self) -> usize {
        self.0.len()
    }
}

pub(super) fn malformed() -> PgError {
    PgError::Unusable("the server's answer is not that of a PostgreSQL server".to_owned())
}

/// A connection that sends and receives whole messages.
pub(super) struct Wire {
    stream: Stream,
    /// What was received and not read yet.
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Wire {
    pub(super) const fn new(stream: Stream) -> Self {
        Self { stream, input: Vec::new(), output: Vec::new() }
    }

    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Adds a message to what is sent next. The first message of a connection has no kind.
    pub(super) fn put(&mut self, kind: Option<u8>, body: &[&[u8]]) {
        self.output.extend(kind);
        let bytes = 4 + body.iter().map(|part| part.len()).sum::<usize>();
        self.output.extend(u32::try_from(bytes).unwrap_or(u32::MAX).to_be_bytes());
        body.iter().for_each(|part| self.output.extend_from_slice(part));
    }

    pub(super) fn send(&mut self) -> Result<(), PgError> {
        let sent = self.stream.write_all(&self.output).and_then(|()| self.stream.flush());
        self.output.clear();
        sent.map_err(PgError::away)
    }

    /// The next message, for which the server has this long.
    pub(super) fn receive(&mut self, patience: Duration) -> Result<Message, PgError> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(message) = self.take()? {
                return Ok(message);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || !self.fill(left)? {
                return Err(PgError::away(format!("no answer within {} s", patience.as_secs())));
            }
        }
    }

    /// The next message, if it is here or comes within this time.
    pub(super) fn receive_news(&mut self, patience: Duration) -> Result<Option<Message>, PgError> {
        if let Some(message) = self.take()? {
            return Ok(Some(message));
        }
        match patience.is_zero() || !self.fill(patience)? {
            true => Ok(None),
            false => self.take(),
        }
    }

    /// The first message of the input, if it is complete.
    fn take(&mut self) -> Result<Option<Message>, PgError> {
        let Some((&[kind, ref length @ ..], _)) = self.input.split_first_chunk::<HEAD_BYTES>()
        else {
            return Ok(None);
        };
        let bytes = length.iter().fold(0, |number, byte| number << 8 | usize::from(*byte));
        if !(4..=MESSAGE_BYTES_MAX).contains(&bytes) {
            return Err(malformed());
        }
        if self.input.len() < bytes + 1 {
            return Ok(None);
        }
        let body = self.input[HEAD_BYTES..=bytes].to_vec();
        self.input.drain(..=bytes);
        Ok(Some(Message { kind, body }))
    }

    /// Receives more; `false` if nothing came within this time.
    fn fill(&mut self, time: Duration) -> Result<bool, PgError> {
        self.stream.limit(time).map_err(PgError::away)?;
        let before = self.input.len();
        self.input.resize(before + READ_BYTES, 0);
        let read = self.stream.read(&mut self.input[before..]);
        self.input.truncate(before + read.as_ref().map_or(0, |bytes| *bytes));
        match read {
            Ok(0) => Err(PgError::away("the server has closed the connection")),
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(error) if is_late(&error) => Ok(false),
            Err(error) => Err(PgError::away(error)),
        }
    }
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
