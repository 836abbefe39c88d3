//! Envelopes: immutable message files, and the checked names inside them.
//!
//! [`Envelope`] is what travels; [`Envelope::encode`] and [`Envelope::decode`] are its file form,
//! described field by field in PROTOCOL.md.

mod canonical;
mod digest;
mod envelope;
mod fence;
mod name;
mod purpose;
mod timestamp;
pub mod yaml;

#[cfg(feature = "schema")]
pub use crate::schema::EnvelopeFile;
#[cfg(feature = "fuzzing")]
pub(crate) use canonical::agrees as canonical_agrees;
pub use digest::{Digest, DigestError};
pub use envelope::{
    Attachment, BODY_BYTES_MAX, ENVELOPE_BYTES_MAX, Envelope, FORMAT_VERSION, PRIORITY_MAX,
};
pub use fence::fenced;
pub use name::{MessageId, NAME_BYTES_MAX, Name, NameError};
pub use purpose::{
    NOTICE_NAMESPACES, Purpose, REQUEST_SUFFIX, RESPONSE_SUFFIX, TASK_TYPE, WORK_TYPES,
};
pub use timestamp::{Timestamp, TimestampError};
