//! Rollouts of Codex (seen at 0.169.0; undocumented, so everything in them may be missing).
//!
//! `token_count` has the sum of the session so far. It is also written when nothing was used, so a request is a growth
//! of the sum. A sum that shrinks begins again. The program counts cached tokens as input, and reasoning as output.

use serde::Deserialize;
use serde_json::Value;

use super::{Tokens, UsageEntry, UsageEvent};
use ensemble_core::message::{Timestamp, read_foreign_json};

#[derive(Clone, Debug, Default)]
pub(super) struct CodexSession {
    model: String,
    total: CodexSum,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct CodexSum {
    input_tokens: u64,
    cached_input_tokens: u64,
    cache_write_input_tokens: u64,
    output_tokens: u64,
}

#[derive(Deserialize)]
struct CodexLine {
    timestamp: Option<Timestamp>,
    #[serde(default)]
    r#type: String,
    #[serde(default)]
    payload: Value,
}

impl CodexSum {
    /// The usage since an earlier sum; `None` if this one begins again.
    fn minus(self, earlier: Self) -> Option<Self> {
        Some(Self {
            input_tokens: self.input_tokens.checked_sub(earlier.input_tokens)?,
            cached_input_tokens: self
                .cached_input_tokens
                .checked_sub(earlier.cached_input_tokens)?,
            cache_write_input_tokens: self
                .cache_write_input_tokens
                .checked_sub(earlier.cache_write_input_tokens)?,
            output_tokens: self.output_tokens.checked_sub(earlier.output_tokens)?,
        })
    }

    const fn tokens(self) -> Tokens {
        let cached = self.cached_input_tokens + self.cache_write_input_tokens;
        Tokens {
            input: self.input_tokens.saturating_sub(cached),
            cache_write: self.cache_write_input_tokens,
            cache_write_hour: 0,
            cache_read: self.cached_input_tokens,
            output: self.output_tokens,
        }
    }
}

pub(super) fn read(line: &[u8], session: &mut CodexSession, entries: &mut Vec<UsageEntry>) {
    let Ok(CodexLine { timestamp: Some(at), r#type, mut payload }) = read_foreign_json(line) else {
        return;
    };
    if r#type == "turn_context" {
        if let Some(model) = payload["model"].as_str() {
            model.clone_into(&mut session.model);
        }
        return;
    }
    let what = match (r#type.as_str(), payload["type"].as_str()) {
        ("event_msg", Some("task_started")) => UsageEvent::Turn,
        ("event_msg", Some("token_count")) => match used(&mut payload, session) {
            Some(tokens) => {
                UsageEvent::Request { model: session.model.clone(), tokens, cost_usd: None }
            }
            None => return,
        },
        ("event_msg" | "response_item", _) => UsageEvent::Progress,
        _ => return,
    };
    entries.push(UsageEntry { at, what });
}

fn used(payload: &mut Value, session: &mut CodexSession) -> Option<Tokens> {
    let mut sum = |name: &str| serde_json::from_value(payload["info"][name].take()).ok();
    let total: CodexSum = sum("total_token_usage")?;
    let grown = match total.minus(session.total) {
        Some(grown) => grown,
        None => sum("last_token_usage")?,
    };
    session.total = total;
    (grown != CodexSum::default()).then(|| grown.tokens())
}
