//! Chats of Gemini CLI (seen at 0.61.0; undocumented, so everything in them may be missing).
//!
//! A message is written again when more of it is known, under its `id`; the last one counts. The program counts cached
//! tokens as input, and what it has thought apart from its output.

use serde::Deserialize;

use super::{ReadMessages, Tokens, UsageEntry, UsageEvent};
use ensemble_core::message::{Timestamp, read_foreign_json};

#[derive(Deserialize)]
struct GeminiLine {
    id: Option<String>,
    timestamp: Option<Timestamp>,
    #[serde(default)]
    r#type: String,
    #[serde(default)]
    model: String,
    tokens: Option<GeminiTokens>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct GeminiTokens {
    input: u64,
    output: u64,
    cached: u64,
    thoughts: u64,
    tool: u64,
}

impl From<GeminiTokens> for Tokens {
    fn from(count: GeminiTokens) -> Self {
        Self {
            input: count.input.saturating_sub(count.cached) + count.tool,
            cache_read: count.cached,
            output: count.output + count.thoughts,
            ..Self::default()
        }
    }
}

pub(super) fn read(line: &[u8], seen: &mut ReadMessages, entries: &mut Vec<UsageEntry>) {
    let Ok(GeminiLine { id: Some(id), timestamp: Some(at), r#type, model, tokens }) =
        read_foreign_json(line)
    else {
        return;
    };
    let what = match (r#type.as_str(), tokens) {
        ("user", _) => UsageEvent::Turn,
        (_, Some(count)) => UsageEvent::Request { model, tokens: count.into(), cost_usd: None },
        _ => UsageEvent::Progress,
    };
    seen.put(id, UsageEntry { at, what }, entries);
}
