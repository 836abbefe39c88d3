//! Envelopes: immutable message files, and the checked names inside them.
//!
//! [`Envelope`] is a message. [`Envelope::encode`] and [`Envelope::decode`] convert it to and from
//! its file form, which PROTOCOL.md describes field by field.

pub(crate) mod canonical;
mod class;
mod digest;
mod envelope;
mod fence;
pub mod fields;
mod foreign_json;
mod json;
mod name;
mod nearest;
pub mod period;
mod purpose;
mod reserved;
#[cfg(feature = "schema")]
mod schema;
mod sender;
mod temporary;
mod timestamp;
mod trace;
mod words;
pub mod written;
pub mod yaml;

#[cfg(feature = "fuzzing")]
pub(crate) use canonical::agrees as canonical_agrees;
pub use class::DeliveryClass;
pub use digest::{Digest, DigestError};
pub use envelope::{
    Attachment, BODY_BYTES_MAX, ENVELOPE_BYTES_MAX, Envelope, FORMAT_VERSION, PRIORITY_MAX,
    fill_body,
};
pub(crate) use envelope::{HEADER_BYTES_MAX, check_headers};
pub use fence::fenced;
pub use foreign_json::{describe_json_fault, read_foreign_json};
pub use name::{MessageId, NAME_BYTES_MAX, Name, NameError};
#[doc(hidden)]
pub use nearest::nearest;
pub use period::ConfigDuration;
pub use purpose::{
    MessagePurpose, NOTICE_NAMESPACES, PLAIN_TYPE, REQUEST_SUFFIX, RESPONSE_SUFFIX, TASK_TYPE,
    WORK_TYPES,
};
pub use reserved::{OPERATOR, RESERVED_NAMES, ReservedName};
#[cfg(feature = "schema")]
pub use schema::EnvelopeFile;
pub use sender::{KnownSender, SenderProof};
#[doc(hidden)]
pub use temporary::is_temporary_file;
pub use timestamp::{Timestamp, TimestampError};
pub use trace::{TraceParent, TraceParentError};
#[doc(hidden)]
pub use words::{is_deceiving, shell_quoted, shell_word};

impl crate::error::AreaError for NameError {}
impl crate::error::AreaError for TimestampError {}
