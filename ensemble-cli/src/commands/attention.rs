//! What must not be overlooked, for the first line of `team` and `status`. That is mail that waits
//! for an idle agent, and a watcher that does not run.

use std::time::Duration;

use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_core::message::Name;
use ensemble_core::spool::Glance;
use serde::Serialize;

use crate::context::Context;
use crate::exit::Outcome;
use crate::output::WARNING;
use crate::text::{age, one_line};

/// How long mail may wait for an idle agent before it is said loudly. A nudge takes a second, and one
/// that was refused is tried again within 30.
pub(super) const MAIL_WAITS_MAX: Duration = Duration::from_secs(30);
/// How many agents the line names.
const NAMED_MAX: usize = 3;

/// An idle agent with mail that has waited for too long.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Overdue {
    pub(super) agent: Name,
    pub(super) mailbox: Name,
    pub(super) waited_seconds: u64,
    /// What the watcher last said of its nudges, if it said anything.
    pub(super) why: Option<String>,
}

/// How long the oldest message of a mailbox has waited.
pub(super) fn waited(glance: &Glance) -> Option<Duration> {
    let now = u64::try_from(SystemClock.wall().unix_millis()).unwrap_or(0);
    let is_due = glance.waiting > glance.delayed;
    let made_at = glance.oldest_millis.filter(|_| is_due)?;
    Some(Duration::from_millis(now.saturating_sub(made_at)))
}

/// Whether mail that has waited for so long must not be overlooked.
pub(super) fn is_overdue(waited: Option<Duration>) -> bool {
    waited.is_some_and(|waited| waited > MAIL_WAITS_MAX)
}

/// The first line, if there is anything to say.
pub(super) fn print(context: &Context, watcher_runs: bool, overdue: &[Overdue]) -> Outcome {
    let mut parts = Vec::new();
    if !watcher_runs {
        parts.push("no watcher runs, agents are not notified: `ensemble watch` starts it".into());
    }
    for Overdue { agent, waited_seconds, why, .. } in overdue.iter().take(NAMED_MAX) {
        let waited = age(Duration::from_secs(*waited_seconds));
        let why = why.as_ref().map_or_else(String::new, |why| format!(" ({})", one_line(why)));
        parts.push(format!("mail has waited {waited} for {agent}, which is idle{why}"));
    }
    if overdue.len() > NAMED_MAX {
        parts.push(format!("and for {} more", overdue.len() - NAMED_MAX));
    }
    if parts.is_empty() {
        return Ok(());
    }
    let out = &context.out;
    out.line(format!("{}: {}", out.paint(WARNING, "warning"), parts.join("; ")))
}
