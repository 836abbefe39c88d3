//! Records of OpenCode, which our plugin has written by its hooks (docs/guides/ways-in.md): the program keeps its own in a database.
//!
//! A message is one line, under its `id`; the last one counts. OpenCode counts cached tokens and reasoning apart.

use serde::Deserialize;

use super::{ReadMessages, Tokens, UsageEntry, UsageEvent};
use ensemble_core::message::{Timestamp, read_foreign_json};

#[derive(Deserialize, Default)]
#[serde(default)]
struct OpencodeLine {
    at: Option<Timestamp>,
    turn: bool,
    id: Option<String>,
    model: String,
    input: u64,
    output: u64,
    reasoning: u64,
    cache_read: u64,
    cache_write: u64,
    cost: Option<f64>,
}

pub(super) fn read(line: &[u8], seen: &mut ReadMessages, entries: &mut Vec<UsageEntry>) {
    let Ok(line) = read_foreign_json::<OpencodeLine>(line) else { return };
    let Some(at) = line.at else { return };
    if line.turn {
        entries.push(UsageEntry { at, what: UsageEvent::Turn });
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
    let what = UsageEvent::Request { model: line.model, tokens, cost_usd };
    seen.put(id, UsageEntry { at, what }, entries);
}
