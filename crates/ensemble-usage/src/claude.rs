//! Transcripts of Claude Code (seen at 2.1.331; undocumented, so everything in them may be missing).
//!
//! One answer of the model is written as several lines, one for each block, with the same `message.id` and
//! `requestId`. Their numbers grow, so the last one counts. A resumed session may repeat lines of an earlier
//! transcript; they count once for the agent.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;

use super::{Tokens, UsageEntry, UsageEvent};
use ensemble_core::message::{Timestamp, read_foreign_json};

/// The model's name in lines that the program has written itself.
const NO_MODEL: &str = "<synthetic>";

#[derive(Clone, Debug, Default)]
pub(super) struct ClaudeRequests(HashMap<(String, String), usize>);

#[derive(Deserialize, Default)]
#[serde(default)]
struct ClaudeLine {
    r#type: String,
    timestamp: Option<Timestamp>,
    #[serde(rename = "requestId", alias = "requestRef")]
    request: Option<String>,
    #[serde(rename = "costUSD")]
    cost_usd: Option<f64>,
    #[serde(rename = "isMeta")]
    is_meta: bool,
    message: Option<ClaudeMessage>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ClaudeMessage {
    id: String,
    model: String,
    usage: Option<ClaudeUsage>,
    content: Value,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ClaudeUsage {
    input_tokens: u64,
    cache_creation_input_tokens: u64,
    cache_read_input_tokens: u64,
    output_tokens: u64,
    cache_creation: Option<CacheCreation>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct CacheCreation {
    ephemeral_1h_input_tokens: u64,
}

impl From<ClaudeUsage> for Tokens {
    fn from(usage: ClaudeUsage) -> Self {
        let hour = usage.cache_creation.map_or(0, |written| written.ephemeral_1h_input_tokens);
        let hour = hour.min(usage.cache_creation_input_tokens);
        Self {
            input: usage.input_tokens,
            cache_write: usage.cache_creation_input_tokens - hour,
            cache_write_hour: hour,
            cache_read: usage.cache_read_input_tokens,
            output: usage.output_tokens,
        }
    }
}

pub(super) fn read(line: &[u8], seen: &mut ClaudeRequests, entries: &mut Vec<UsageEntry>) {
    let Ok(ClaudeLine {
        r#type,
        timestamp: Some(at),
        request,
        cost_usd,
        is_meta,
        message: Some(message),
    }) = read_foreign_json(line)
    else {
        return;
    };
    let what = match (r#type.as_str(), message.usage) {
        ("user", _) if !is_meta && !holds_result(&message.content) => UsageEvent::Turn,
        ("assistant", Some(usage)) if message.model != NO_MODEL => {
            UsageEvent::Request { model: message.model, tokens: usage.into(), cost_usd }
        }
        _ => UsageEvent::Progress,
    };
    let entry = UsageEntry { at, what };
    if let (UsageEvent::Request { .. }, Some(request)) = (&entry.what, request) {
        match seen.0.get(&(message.id.clone(), request.clone())) {
            Some(known) => return replace(&mut entries[*known], entry),
            None => seen.0.insert((message.id, request), entries.len()),
        };
    }
    entries.push(entry);
}

/// The later line of a request counts, unless it says less.
fn replace(known: &mut UsageEntry, later: UsageEntry) {
    let total = |entry: &UsageEntry| match &entry.what {
        UsageEvent::Request { tokens, .. } => tokens.total(),
        UsageEvent::Turn | UsageEvent::Progress => 0,
    };
    if total(&later) >= total(known) {
        *known = later;
    }
}

fn holds_result(content: &Value) -> bool {
    let blocks = content.as_array().map_or(&[][..], Vec::as_slice);
    blocks.iter().any(|block| block["type"] == "tool_result")
}
