//! Message files.

use std::path::Path;

use ensemble_core::Error;
use ensemble_core::fuzzing::envelope_readers_agree;
use ensemble_core::message::{BODY_BYTES_MAX, ENVELOPE_BYTES_MAX, Envelope};

/// Both readers agree, and an envelope that was read round-trips.
pub fn check(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        assert!(envelope_readers_agree(text), "the two readers differ");
    }
    let path = Path::new("019bc0fd-89c0-7000-8000-00000000001e.yaml");
    let envelope = match Envelope::decode(data, path) {
        Ok(envelope) => envelope,
        Err(error) => return super::check_error(&error.to_string()),
    };
    assert!(data.len() <= ENVELOPE_BYTES_MAX);
    match envelope.encode() {
        Ok(file) => {
            let again = Envelope::decode(&file, path).expect("a written envelope reads back");
            assert_eq!(again, envelope);
            assert_eq!(again.body, envelope.body);
            assert_eq!(again.encode().expect("a read envelope can be written"), file);
        }
        // A shorter hand-written form may exceed the limit in our form; no other refusal is
        // allowed.
        Err(Error::TooLarge { .. }) => {
            assert!(envelope.body.len() > BODY_BYTES_MAX / 6, "refused without a reason");
        }
        Err(error) => panic!("read, but not written: {error}"),
    }
}
