//! How often a schedule tries. Here are its times, when a limit without an end is probed, and when
//! a typed line that was not submitted has ended.

use std::time::Duration;

use ensemble_core::env::Monotonic;
use ensemble_core::pane::Deferral;

/// How long mail stays unread before the agent is notified again; doubles with every line.
pub const NUDGE_REPEAT: Duration = Duration::from_secs(60);
pub const NUDGE_REPEAT_MAX: Duration = Duration::from_secs(240);
/// How long after an agent has taken a message it is notified of the rest. Where it works on, its turn is waited for.
pub const NUDGE_FOLLOW: Duration = Duration::from_secs(2);
/// How many lines are submitted, at most, without the agent taking a message.
pub const NUDGES_MAX: u32 = 4;
/// The least time between two lines, even if the mailbox was drained in between.
pub const NUDGE_INTERVAL_MIN: Duration = Duration::from_millis(250);
/// How soon a refused nudge is tried again at first; doubles with every refusal.
pub const RETRY_MIN: Duration = Duration::from_millis(100);
/// The longest wait between two tries.
pub const RETRY_MAX: Duration = Duration::from_secs(30);
/// The longest wait between two tries while the agent works: its turn may end at any moment.
pub const RETRY_BUSY_MAX: Duration = Duration::from_millis(500);
/// The longest wait while a person has the agent: a dialog, a draft, copy-mode.
pub const RETRY_PERSON_MAX: Duration = Duration::from_secs(2);
/// How long the outcome of a nudge may be missing: three exchanges (text, gap, Enter) with a
/// multiplexer that is given five seconds for each.
pub const OUTCOME_PATIENCE: Duration = Duration::from_secs(15);
/// How long an agent that has met a limit without an end is left alone at first. The time doubles
/// with every line that was submitted in vain.
pub const PROBE_MIN: Duration = Duration::from_secs(60);
pub const PROBE_MAX: Duration = Duration::from_secs(15 * 60);

const _: () = assert!(RETRY_MIN.as_millis() < NUDGE_INTERVAL_MIN.as_millis());
const _: () = assert!(NUDGE_INTERVAL_MIN.as_millis() < OUTCOME_PATIENCE.as_millis());
const _: () = assert!(OUTCOME_PATIENCE.as_millis() < RETRY_MAX.as_millis());
const _: () = assert!(NUDGE_INTERVAL_MIN.as_millis() < NUDGE_FOLLOW.as_millis());
const _: () = assert!(RETRY_MAX.as_millis() < NUDGE_REPEAT.as_millis());
const _: () = assert!(NUDGE_REPEAT.as_secs() << (NUDGES_MAX - 2) == NUDGE_REPEAT_MAX.as_secs());
const _: () = assert!(PROBE_MIN.as_secs() < PROBE_MAX.as_secs());

/// The longest wait between two tries behind this reason.
pub(super) const fn retry_max(deferral: &Deferral) -> Duration {
    if matches!(deferral, Deferral::Busy) {
        RETRY_BUSY_MAX
    } else if matches!(deferral, Deferral::CopyMode | Deferral::Draft | Deferral::Dialog { .. }) {
        RETRY_PERSON_MAX
    } else {
        RETRY_MAX
    }
}

/// A usage limit that does not say when it ends: the only way to find out is to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitProbe {
    pub(super) at: Monotonic,
    wait: Duration,
}

impl LimitProbe {
    pub fn first(now: Monotonic) -> Self {
        Self { at: now + PROBE_MIN, wait: PROBE_MIN }
    }

    /// Whether a line is submitted now, although the limit still shows.
    pub fn is_due(self, now: Monotonic) -> bool {
        now >= self.at
    }

    /// After a line was submitted. One that was not due has changed nothing.
    pub fn submitted(self, now: Monotonic) -> Self {
        if !self.is_due(now) {
            return self;
        }
        let wait = (self.wait * 2).min(PROBE_MAX);
        Self { at: now + wait, wait }
    }
}
