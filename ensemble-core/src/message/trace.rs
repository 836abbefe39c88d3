//! The trace context of a message: the `traceparent` of W3C Trace Context, version 00.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// The trace of a sender's work, and its span in that trace.
///
/// ```
/// use ensemble_core::message::TraceParent;
/// let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// assert_eq!(text.parse::<TraceParent>()?.to_string(), text);
/// # Ok::<(), ensemble_core::message::TraceParentError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceParent {
    /// Id of the trace; never zero.
    pub trace_id: u128,
    /// Id of the sender's span; never zero.
    pub parent_id: u64,
    /// Flags; the lowest bit says that the sender's span is recorded.
    pub flags: u8,
}

/// A text that is no `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not a W3C traceparent, such as 00-<32 hex digits>-<16 hex digits>-01")]
pub struct TraceParentError;

/// A lower-case hexadecimal number of exactly so many digits.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    let is_whole = text.len() == digits && text.bytes().all(is_hex);
    is_whole.then(|| u128::from_str_radix(text, 16).ok())?
}

impl FromStr for TraceParent {
    type Err = TraceParentError;

    /// Fields of later versions, behind those of version 00, are passed over.
    fn from_str(text: &str) -> Result<Self, TraceParentError> {
        let read = || {
            let mut fields = text.split('-');
            let mut next = |digits| hex(fields.next()?, digits);
            let (version, trace_id) = (next(2)?, next(32)?);
            let (parent_id, flags) = (next(16)?, next(2)?);
            let is_known = version != 0xff && (version != 0 || fields.next().is_none());
            (is_known && trace_id != 0 && parent_id != 0).then_some(())?;
            let (parent_id, flags) = (parent_id.try_into().ok()?, flags.try_into().ok()?);
            Some(Self { trace_id, parent_id, flags })
        };
        read().ok_or(TraceParentError)
    }
}

impl Serialize for TraceParent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace_id, self.parent_id, self.flags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_recommendation_allows_is_a_traceparent() {
        let (trace, span) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
        let read = |text: &str| text.parse::<TraceParent>().ok();
        let known = read(&format!("00-{trace}-{span}-01")).unwrap();
        assert_eq!(read(&format!("cc-{trace}-{span}-01-later")), Some(known));
        for bad in [
            String::new(),
            format!("00-{trace}-{span}"),
            format!("00-{trace}-{span}-01-more"),
            format!("ff-{trace}-{span}-01"),
            format!("00-{}-{span}-01", trace.to_uppercase()),
            format!("00-{}-{span}-01", "0".repeat(32)),
            format!("00-{trace}-{}-01", "0".repeat(16)),
            format!("00-{trace}-{span}-1"),
            format!("00-+{}-{span}-01", &trace[1..]),
        ] {
            assert_eq!(read(&bad), None, "{bad}");
        }
    }
}
