//! States of agents, as the watcher has recorded them, and what each says of trouble.
//!
//! | a stretch | trouble |
//! |---|---|
//! | blocked for [`TROUBLE_AFTER`] | bad: a person had to act |
//! | limited for as long | odd |
//! | gone, and not shut down within [`LEAVING_MAX`] | bad |
//! | any other | none |

use std::collections::BTreeMap;
use std::time::Duration;

use ensemble_core::message::Timestamp;

use super::page::took;
use super::trouble::{SessionTrouble, TroubleWeight};

/// How long an agent is blocked, limited or kept waiting before that is trouble.
pub(super) const TROUBLE_AFTER: Duration = Duration::from_secs(30);
const LEAVING_MAX: Duration = Duration::from_secs(60);
const SPANS_MAX: usize = 3_000;

#[derive(Clone, Debug)]
pub(super) struct StateSpan {
    pub(super) state: String,
    pub(super) why: String,
    pub(super) from: Timestamp,
    pub(super) to: Timestamp,
}

#[derive(Clone, Debug, Default)]
pub(super) struct AgentStates {
    pub(super) spans: Vec<StateSpan>,
    now: Option<(String, String, Timestamp)>,
    pub(super) totals: BTreeMap<String, Duration>,
}

impl AgentStates {
    /// The agent is in another state. Returns the stretch that has ended.
    pub(super) fn enter(&mut self, at: Timestamp, state: &str, why: &str) -> Option<StateSpan> {
        let ended = self.close(at);
        self.now = Some((state.to_owned(), why.to_owned(), at));
        ended
    }

    pub(super) fn close(&mut self, at: Timestamp) -> Option<StateSpan> {
        let (state, why, from) = self.now.take()?;
        let span = StateSpan { state, why, from, to: at };
        *self.totals.entry(span.state.clone()).or_default() += at.since(from);
        if self.spans.len() < SPANS_MAX {
            self.spans.push(span.clone());
        }
        Some(span)
    }

    pub(super) fn time_in(&self, state: &str) -> Duration {
        self.totals.get(state).copied().unwrap_or_default()
    }
}

/// What a stretch says of trouble. `next` is the state after it; none at the end of the log.
pub(super) fn trouble(
    agent: &str,
    span: &StateSpan,
    next: Option<&str>,
    held: Vec<String>,
) -> Option<SessionTrouble> {
    let lasted = span.to.since(span.from);
    let time = took(lasted);
    let (weight, what) = match span.state.as_str() {
        "blocked" if lasted >= TROUBLE_AFTER => {
            (TroubleWeight::Bad, format!("waited for a person for {time}"))
        }
        "limited" if lasted >= TROUBLE_AFTER => {
            (TroubleWeight::Bad, format!("was at its usage limit for {time}"))
        }
        "gone" if next == Some("shutdown") && lasted < LEAVING_MAX => return None,
        // The team ended with the log.
        "gone" if next.is_none() && lasted < TROUBLE_AFTER => return None,
        "gone" => (TroubleWeight::Bad, format!("was gone for {time}")),
        _ => return None,
    };
    let mut why = span.why.clone();
    if span.state == "gone" && !held.is_empty() {
        why = format!("{why}; it held {}", held.join(", "));
    }
    let subjects = std::iter::once(agent.to_owned()).chain(held).collect();
    Some(SessionTrouble {
        weight,
        at: Some(span.from),
        until: Some(span.to),
        who: agent.to_owned(),
        what,
        why,
        subjects,
        story: format!("a:{agent}"),
        may_follow: false,
    })
}
