//! Records of OpenCode, which our plugin has written by its hooks (docs/guides/ways-in.md): the program keeps its own in a database.
//!
//! A message is one line, under its `id`; the last one counts. OpenCode counts cached tokens and reasoning apart.

use std::collections::HashMap;

use serde::Deserialize;

use super::{Entry, Tokens, What};
use ensemble_core::message::Timestamp;

/// The messages that were read, and where they stand among the entries.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen(HashMap<String, usize>);

#[derive(Deserialize)]
struct Line {
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

/// Adds what a line says.
pub(super) fn read(line: &[u8], seen: &mut Seen, entries: &mut Vec<Entry>) {
    let Ok(line) = serde_json::from_slice::<Line>(line) else { return };
    if line.turn {
        entries.push(Entry { at: line.at, what: What::Turn });
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
    let entry = Entry { at: line.at, what: What::Request { model: line.model, tokens, cost_usd } };
    match seen.0.get(&id) {
        Some(known) => entries[*known] = entry,
        None => {
            seen.0.insert(id, entries.len());
            entries.push(entry);
        }
    }
}
