//! Passing over the lines of a log that cannot be about something, without reading them as records.

use std::collections::BTreeSet;

use aho_corasick::AhoCorasick;

use super::lines::Line;
use crate::{Error, Result};

/// Where a line begins that this library has written.
const BEGIN: &[u8] = br#"{"timestamp":""#;

/// Names that a record may mention.
#[derive(Debug)]
pub(super) struct Mentions {
    finder: AhoCorasick,
}

impl Mentions {
    pub(super) fn of(names: &BTreeSet<String>) -> Result<Self> {
        // Any character may be written as an escape, so whatever has one is looked at.
        let patterns = names.iter().map(String::as_str).chain(["\\"]);
        let finder = AhoCorasick::new(patterns)
            .map_err(|e| Error::malformed("ids", "ids", format!("cannot be looked for: {e}")))?;
        Ok(Self { finder })
    }

    /// Whether a line is a record, as far as that can be seen at both of its ends, and mentions none of them.
    pub(super) fn nothing_in(&self, line: &Line<'_>) -> bool {
        match line {
            Line::Whole(text) => {
                text.starts_with(BEGIN) && text.ends_with(b"}") && !self.finder.is_match(*text)
            }
            Line::TooLong => false,
        }
    }
}
