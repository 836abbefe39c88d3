//! What fuzzers and their regressions reach (feature `fuzzing`): readers of hostile input that are
//! otherwise private. Nothing here is promised to other programs.

use crate::message::canonical_agrees;

/// Whether the reader of canonical envelopes, if it reads this file at all, reads what the YAML parser
/// reads.
pub fn envelope_readers_agree(file: &str) -> bool {
    canonical_agrees(file)
}
