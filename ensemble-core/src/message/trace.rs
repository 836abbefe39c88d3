//! The trace context of a message: a `traceparent` of W3C Trace Context.

use std::str::FromStr;

use serde::Serialize;

/// A valid `traceparent`: the trace of a sender's work, and its span in that trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TraceParent(String);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not a W3C traceparent, such as 00-<32 hex digits>-<16 hex digits>-01")]
pub struct TraceParentError;

impl TraceParent {
    /// Version, trace, span and flags in hexadecimal digits, with dashes between them: 55 characters.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for TraceParent {
    type Err = TraceParentError;

    /// Fields that a later version has after those of version 00 are dropped.
    fn from_str(text: &str) -> Result<Self, TraceParentError> {
        let is_hex = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
        let fields: Vec<&str> = text.splitn(5, '-').collect();
        let lengths = fields.iter().map(|field| field.len()).take(4);
        let is_zero = |field: &str| field.bytes().all(|b| b == b'0');
        let is_valid = lengths.eq([2, 32, 16, 2])
            && fields[..4].iter().all(|field| field.bytes().all(is_hex))
            && fields[0] != "ff"
            && (fields[0] != "00" || fields.len() == 4)
            && !is_zero(fields[1])
            && !is_zero(fields[2]);
        if is_valid { Ok(Self(fields[..4].join("-"))) } else { Err(TraceParentError) }
    }
}
