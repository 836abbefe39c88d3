//! Skips lines of a log that cannot mention a name, without parsing them.

use std::collections::BTreeSet;

use aho_corasick::AhoCorasick;

use super::lines::Line;
use crate::{Error, Result};

/// The start of a line that this library wrote.
const BEGIN: &[u8] = br#"{"timestamp":""#;

/// Names that a record may mention.
#[derive(Debug)]
pub(super) struct Mentions {
    finder: AhoCorasick,
}

impl Mentions {
    pub(super) fn of(names: &BTreeSet<String>) -> Result<Self> {
        // A writer may escape any character, so every line with an escape is parsed.
        let patterns = names.iter().map(String::as_str).chain(["\\"]);
        let finder = AhoCorasick::new(patterns)
            .map_err(|e| Error::malformed("ids", "ids", format!("cannot be searched for: {e}")))?;
        Ok(Self { finder })
    }

    /// Whether a line has both ends of a record and mentions none of the names.
    pub(super) fn nothing_in(&self, line: &Line<'_>) -> bool {
        match line {
            Line::Whole(text) => {
                text.starts_with(BEGIN) && text.ends_with(b"}") && !self.finder.is_match(*text)
            }
            Line::TooLong => false,
        }
    }
}
