//! Chats of Gemini CLI (seen at 0.61.0; undocumented, so everything in them may be missing).
//!
//! A message is written again when more of it is known, under its `id`; the last one counts. The program counts cached
//! tokens as input, and what it has thought apart from its output.

use std::collections::HashMap;

use serde::Deserialize;

use super::{Entry, Tokens, What};
use ensemble_core::message::Timestamp;

/// The messages that were read, and where they stand among the entries.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen(HashMap<String, usize>);

#[derive(Deserialize)]
struct Line {
    id: Option<String>,
    timestamp: Option<Timestamp>,
    #[serde(default)]
    r#type: String,
    #[serde(default)]
    model: String,
    tokens: Option<Count>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Count {
    input: u64,
    output: u64,
    cached: u64,
    thoughts: u64,
    tool: u64,
}

impl From<Count> for Tokens {
    fn from(count: Count) -> Self {
        Self {
            input: count.input.saturating_sub(count.cached) + count.tool,
            cache_read: count.cached,
            output: count.output + count.thoughts,
            ..Self::default()
        }
    }
}

/// Adds what a line says.
pub(super) fn read(line: &[u8], seen: &mut Seen, entries: &mut Vec<Entry>) {
    let Ok(Line { id: Some(id), timestamp: Some(at), r#type, model, tokens }) =
        serde_json::from_slice(line)
    else {
        return;
    };
    let what = match (r#type.as_str(), tokens) {
        ("user", _) => What::Turn,
        (_, Some(count)) => What::Request { model, tokens: count.into(), cost_usd: None },
        _ => What::Progress,
    };
    let entry = Entry { at, what };
    match seen.0.get(&id) {
        Some(known) => entries[*known] = entry,
        None => {
            seen.0.insert(id, entries.len());
            entries.push(entry);
        }
    }
}
