//! The usage of work: time, turns, requests, tokens and cost, read from the records that agents' programs keep.
//!
//! | program | its record | a turn begins with | a request to the model is |
//! |---|---|---|---|
//! | Claude Code | the transcript, and those of its subagents | a `user` line that holds no result of a tool | the lines of one `message.id` and `requestId`; the last counts |
//! | Codex | the rollout | `task_started` | a growth of `total_token_usage` |
//! | Gemini CLI | the chat | a message of type `user` | a message with `tokens` |
//! | OpenCode | what our plugin has said by its hooks | a prompt | an answer of the model, under its `id` |
//!
//! *Which record is whose*: the hooks of a session say it ([`ensemble_tmux::session::AgentSession::records`]). For Codex without
//! hooks its own rollouts say it, where they can be of one agent only ([`Rollouts`]). Of other programs without hooks
//! nothing is known.
//!
//! *Which task a request was for*: the one that the agent held at that time, by the event log ([`HeldTask`]). Of
//! several, the one received last counts. A request outside of all tasks counts for the agent alone.
//!
//! Nothing here writes. Of a record that is missing or damaged, the readable part counts. The formats may change with
//! each version of a program.
#![forbid(unsafe_code)]

mod attribution;
mod claude;
mod codex;
mod gemini;
mod lines;
mod opencode;
mod prices;
mod reader;
mod rollouts;
mod team;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::ops::AddAssign;
use std::time::Duration;

use ensemble_core::message::Timestamp;
use serde::Serialize;

pub use attribution::{HeldTask, HeldTasks};
pub use lines::ReadingLimit;
pub use prices::{Price, PriceError, Prices};
pub use reader::{RecordedProgram, UsageRecords};
pub use rollouts::{RolloutClaim, Rollouts, UnclearRollout};
pub use team::{AgentUsage, TeamRecords, by_task};

/// Numbers of tokens. The kinds are apart: no token is counted in two of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tokens {
    /// Read by the model, and neither written to nor read from its cache.
    pub input: u64,
    /// Written to the cache, for minutes.
    pub cache_write: u64,
    pub cache_write_hour: u64,
    pub cache_read: u64,
    /// Written by the model, its reasoning included.
    pub output: u64,
}

impl Tokens {
    pub const fn total(&self) -> u64 {
        self.input + self.cache_write + self.cache_write_hour + self.cache_read + self.output
    }
}

impl AddAssign for Tokens {
    fn add_assign(&mut self, other: Self) {
        self.input += other.input;
        self.cache_write += other.cache_write;
        self.cache_write_hour += other.cache_write_hour;
        self.cache_read += other.cache_read;
        self.output += other.output;
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct UsageEntry {
    /// The program's own time stamp.
    pub at: Timestamp,
    pub what: UsageEvent,
}

#[derive(Clone, Debug, PartialEq)]
pub enum UsageEvent {
    Turn,
    Request {
        /// The program's name of the model.
        model: String,
        tokens: Tokens,
        /// Its cost in US dollars, if the program itself says it.
        cost_usd: Option<f64>,
    },
    /// The turn continued.
    Progress,
}

/// Messages that are written again when more of them is known, and where they are among the entries.
#[derive(Debug, Default)]
struct ReadMessages(HashMap<String, usize>);

impl ReadMessages {
    fn put(&mut self, id: String, entry: UsageEntry, entries: &mut Vec<UsageEntry>) {
        match self.0.get(&id) {
            Some(known) => entries[*known] = entry,
            None => {
                self.0.insert(id, entries.len());
                entries.push(entry);
            }
        }
    }
}

/// Time, requests, tokens and cost of some work.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct UsageTotals {
    pub turns: u64,
    pub requests: u64,
    /// Time in turns, in seconds: from the start of each to its last entry.
    pub seconds: u64,
    pub tokens: Tokens,
    /// Cost in US dollars: of the requests whose model has a known price.
    pub cost_usd: f64,
    /// Tokens of models without a known price.
    pub unpriced_tokens: u64,
    pub models: BTreeMap<String, Tokens>,
}

impl UsageTotals {
    /// Adds entries of one record, in their order.
    pub fn add<'a>(&mut self, entries: impl IntoIterator<Item = &'a UsageEntry>, prices: &Prices) {
        let mut turn: Option<(Timestamp, Timestamp)> = None;
        let mut time = Duration::ZERO;
        for UsageEntry { at, what } in entries {
            match what {
                UsageEvent::Turn => {
                    self.turns += 1;
                    time += turn
                        .replace((*at, *at))
                        .map_or(Duration::ZERO, |(from, to)| to.since(from));
                }
                UsageEvent::Progress => {}
                UsageEvent::Request { model, tokens, cost_usd } => {
                    self.add_request(model, *tokens, *cost_usd, prices);
                }
            }
            // The first entry of a task may be in the middle of a turn.
            let (_, last) = turn.get_or_insert((*at, *at));
            *last = (*last).max(*at);
        }
        time += turn.map_or(Duration::ZERO, |(from, to)| to.since(from));
        self.seconds += time.as_secs();
    }

    fn add_request(&mut self, model: &str, tokens: Tokens, cost: Option<f64>, prices: &Prices) {
        self.requests += 1;
        self.tokens += tokens;
        *self.models.entry(model.to_owned()).or_default() += tokens;
        match cost.or_else(|| prices.of(model).map(|price| price.cost_usd(tokens))) {
            Some(cost) => self.cost_usd += cost,
            None => self.unpriced_tokens += tokens.total(),
        }
    }

    pub fn merge(&mut self, other: &Self) {
        self.turns += other.turns;
        self.requests += other.requests;
        self.seconds += other.seconds;
        self.tokens += other.tokens;
        self.cost_usd += other.cost_usd;
        self.unpriced_tokens += other.unpriced_tokens;
        for (model, tokens) in &other.models {
            *self.models.entry(model.clone()).or_default() += *tokens;
        }
    }
}
