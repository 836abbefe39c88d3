//! Records of OpenCode, which our plugin has written by its hooks (docs/guides/ways-in.md): the program keeps its own in a database.
//!
//! A message is one line, under its `id`; the last one counts. OpenCode counts cached tokens and reasoning apart.

use serde::Deserialize;

use super::messages::ReadMessages;
use super::{Tokens, UsageEntry, UsageEvent};
use ensemble_core::message::{Timestamp, read_foreign_json};

#[derive(Deserialize)]
struct OpencodeLine {
    at: Timestamp,
    #[serde(default)]
    turn: bool,
    id: Option<String>,
    #[serde(default)]
    model: String,
    #[serde(default)]
    input: u64,
    #[serde(default)]
    output: u64,
    #[serde(default)]
    reasoning: u64,
    #[serde(default)]
    cache_read: u64,
    #[serde(default)]
    cache_write: u64,
    cost: Option<f64>,
}

pub(super) fn read(line: &[u8], seen: &mut ReadMessages, entries: &mut Vec<UsageEntry>) {
    let Ok(line) = read_foreign_json::<OpencodeLine>(line) else { return };
    if line.turn {
        entries.push(UsageEntry { at: line.at, what: UsageEvent::Turn });
        return;
    }
    let Some(id) = line.id else { return };
    let tokens = Tokens {
        input: line.input,
        cache_write: line.cache_write,
        cache_read: line.cache_read,
        output: line.output + line.reasoning,
        ..Tokens::default()
    };
    // It says 0 for a model whose price it does not know.
    let cost_usd = line.cost.filter(|cost| *cost > 0.0);
    let entry = UsageEntry {
        at: line.at,
        what: UsageEvent::Request { model: line.model, tokens, cost_usd },
    };
    seen.put(id, entry, entries);
}
