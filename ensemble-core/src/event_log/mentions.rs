//! Skips lines of a log that cannot mention a name, without parsing them.

use std::collections::BTreeSet;

use memchr::memmem::Finder;

use super::lines::FileLine;

/// The start of a line that this library wrote.
const BEGIN: &[u8] = br#"{"timestamp":""#;

#[derive(Debug)]
pub(super) struct MentionFilter {
    finders: Vec<Finder<'static>>,
}

impl MentionFilter {
    pub(super) fn of(names: &BTreeSet<String>) -> Self {
        // A writer may escape any character, so every line with an escape is parsed.
        let patterns = names.iter().map(String::as_str).chain(["\\"]);
        Self { finders: patterns.map(|pattern| Finder::new(pattern).into_owned()).collect() }
    }

    /// Whether a line has both ends of a record and mentions none of the names.
    pub(super) fn nothing_in(&self, line: &FileLine<'_>) -> bool {
        match line {
            FileLine::Whole(text) => {
                text.starts_with(BEGIN)
                    && text.ends_with(b"}")
                    && self.finders.iter().all(|finder| finder.find(text).is_none())
            }
            FileLine::TooLong => false,
        }
    }
}
