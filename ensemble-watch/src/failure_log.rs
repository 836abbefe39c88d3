//! Failures that repeat in the watcher: warnings of all its parts are counted here.
//!
//! ```text
//! tracing::warn! ── FailureLog ── stderr, when a failure is new
//!                             └── `failures` of watch.json, once it came REPEATS_MIN times: a need
//! ```
//!
//! A failure has ended when it has not come for LASTS_FACTOR times as long as it took between two of its last. So no part
//! of the watcher has to say that it works again.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ensemble_core::env::{Clock as _, Monotonic, SystemClock};
use ensemble_core::message::Timestamp;
use serde_json::{Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Filter};

const REPEATS_MIN: u32 = 5;
/// How many times the interval between two failures passes before they count as ended.
const LASTS_FACTOR: u32 = 3;
const LASTS_MIN: Duration = Duration::from_secs(10);
pub(crate) const LASTS_MAX: Duration = Duration::from_secs(10 * 60);
const FAILURES_MAX: usize = 100;
const SHOWN_MAX: usize = 10;
const ERROR_CHARS_MAX: usize = 300;

pub(crate) static FAILURES: FailureLog = FailureLog(Mutex::new(BTreeMap::new()));

pub(crate) struct FailureLog(Mutex<BTreeMap<String, RepeatedFailure>>);

struct RepeatedFailure {
    count: u32,
    error: String,
    since: Timestamp,
    last: Monotonic,
    interval: Duration,
}

impl RepeatedFailure {
    fn lasts(&self, now: Monotonic) -> bool {
        let longest = (self.interval * LASTS_FACTOR).clamp(LASTS_MIN, LASTS_MAX);
        now.since(self.last) < longest
    }
}

impl FailureLog {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, RepeatedFailure>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a failure. Whether it is new, or has another error now.
    fn count(&self, now: Monotonic, tried: String, error: String) -> bool {
        let mut all = self.all();
        all.retain(|_, known| known.lasts(now));
        if let Some(known) = all.get_mut(&tried) {
            let is_new = known.error != error;
            (known.interval, known.last) = (now.since(known.last), now);
            (known.count, known.error) = (known.count.saturating_add(1), error);
            return is_new;
        }
        if all.len() < FAILURES_MAX {
            let since = SystemClock.wall();
            let interval = LASTS_MAX;
            all.insert(tried, RepeatedFailure { count: 1, error, since, last: now, interval });
        }
        true
    }

    /// Counts the panics after which this process has started again.
    pub(crate) fn count_panics(&self, times: u32) {
        let (since, last) = (SystemClock.wall(), SystemClock.monotonic());
        let error = "a bug, which its output describes".to_owned();
        let panics = RepeatedFailure { count: times, error, since, last, interval: LASTS_MAX };
        self.all().insert("the watcher panics".to_owned(), panics);
    }

    pub(crate) fn summary(&self, now: Monotonic) -> Value {
        let all = self.all();
        let repeated = all.iter().filter(|(_, it)| it.count >= REPEATS_MIN && it.lasts(now));
        let shown = repeated.take(SHOWN_MAX).map(|(tried, it)| {
            let error: String = it.error.chars().take(ERROR_CHARS_MAX).collect();
            json!({ "what": tried, "error": error, "count": it.count, "since": it.since })
        });
        shown.collect()
    }
}

/// Lets a warning through when it is new, and counts it.
pub(crate) struct NewFailures;

impl<S: Subscriber> Filter<S> for NewFailures {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let (level, target) = (event.metadata().level(), event.metadata().target());
        if *level > Level::WARN || !target.starts_with("ensemble") {
            return true;
        }
        let mut said = SaidFields::default();
        event.record(&mut said);
        FAILURES.count(SystemClock.monotonic(), said.tried, said.error)
    }
}

/// The text of an event with the subject that its fields name, and its error.
#[derive(Default)]
struct SaidFields {
    tried: String,
    error: String,
}

impl Visit for SaidFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        match field.name() {
            "error" | "why" => self.error = text,
            "message" if self.tried.is_empty() => self.tried = text,
            "message" => self.tried = format!("{text}: {}", self.tried),
            _ if self.tried.is_empty() => self.tried = text,
            _ => self.tried = format!("{}: {text}", self.tried),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_that_repeat_are_a_need() {
        let log = FailureLog(Mutex::new(BTreeMap::new()));
        log.count_panics(REPEATS_MIN - 1);
        assert_eq!(log.summary(SystemClock.monotonic()), json!([]));
        log.count_panics(REPEATS_MIN);
        assert_eq!(log.summary(SystemClock.monotonic())[0]["what"], "the watcher panics");
    }

    #[test]
    fn what_fails_again_and_again_is_said_once_and_shown_until_it_stops() {
        let log = FailureLog(Mutex::new(BTreeMap::new()));
        let mut now = Monotonic::ZERO;
        let mut fail = |log: &FailureLog, error: &str| {
            now = now + Duration::from_secs(30);
            (log.count(now, "cannot list".to_owned(), error.to_owned()), now)
        };
        assert!(fail(&log, "no disk").0);
        for _ in 2..REPEATS_MIN {
            let (is_new, now) = fail(&log, "no disk");
            assert_eq!((is_new, log.summary(now)), (false, json!([])));
        }
        let (is_new, now) = fail(&log, "no room");
        assert!(is_new, "another error is said again");
        let shown = log.summary(now);
        assert_eq!(
            (&shown[0]["what"], &shown[0]["error"]),
            (&"cannot list".into(), &"no room".into())
        );
        assert_eq!(shown[0]["count"], REPEATS_MIN);
        assert_eq!(log.summary(now + Duration::from_secs(91)), json!([]));
    }
}
