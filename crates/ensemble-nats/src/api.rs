//! Beginnings of the subjects of JetStream's API that permissions and denials name.

/// Subjects on which consumers are created. The stream, the consumer's name and its pattern follow, so that a
/// permission can name the pattern.
pub(super) const CREATE_CONSUMER: &str = "$JS.API.CONSUMER.CREATE.";
/// Subjects on which consumers are asked for messages.
pub(super) const NEXT_MESSAGE: &str = "$JS.API.CONSUMER.MSG.NEXT.";
/// Subjects on which a stream is looked up.
pub(super) const STREAM_INFO: &str = "$JS.API.STREAM.INFO.";
pub(super) const CREATE_STREAM: &str = "$JS.API.STREAM.CREATE.";
/// Subjects on which a stream is asked for a message.
pub(super) const READ: &str = "$JS.API.STREAM.MSG.GET.";
/// Subjects on which versions are removed.
pub(super) const PURGE: &str = "$JS.API.STREAM.PURGE.";
