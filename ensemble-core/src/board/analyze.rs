//! The circuit breaker: patterns in the anomalies that no single agent can see (seed 001's siblings).
//! It only observes; what stops the team is the CHECKPOINT that its caller may set, and only a
//! person's `resume` acknowledges.
//!
//! | pattern | from how many on | of what | says |
//! |---|---|---|---|
//! | `retry_cluster` | 3 | `retry_loop` with one `error_pattern` | ARCHITECTURE_FLAW |
//! | `debt_accumulation` | 3 | `debt_created`, and `trade_off` that created some | SCOPE_FLAW |
//! | `assumption_cascade` | 2 | `assumption_violated` with one `assumption` | SPEC_FLAW |
//! | `workaround_pattern` | 2 | `workaround` | ARCHITECTURE_FLAW |
//! | `spec_gap_cluster` | 2 | `spec_gap` and `spec_ambiguity` | SPEC_FLAW |
//! | `external_service_outage` | 2 | `external_blocker` of one `blocker_service` | EXTERNAL_DEPENDENCY |

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use super::state::{Anomaly, State};
use crate::message::Name;

/// Whether something was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Verdict {
    /// Nothing.
    Ok,
    /// A person should look.
    Triggered,
}

/// Which pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, clippy::allow_attributes, reason = "explained by the table above")]
pub enum Pattern {
    RetryCluster,
    DebtAccumulation,
    AssumptionCascade,
    WorkaroundPattern,
    SpecGapCluster,
    ExternalServiceOutage,
}

impl Pattern {
    /// All.
    pub const ALL: [Self; 6] = [
        Self::RetryCluster,
        Self::DebtAccumulation,
        Self::AssumptionCascade,
        Self::WorkaroundPattern,
        Self::SpecGapCluster,
        Self::ExternalServiceOutage,
    ];

    /// From how many anomalies on it is one.
    #[must_use]
    pub const fn threshold(self) -> usize {
        match self {
            Self::RetryCluster | Self::DebtAccumulation => 3,
            Self::AssumptionCascade
            | Self::WorkaroundPattern
            | Self::SpecGapCluster
            | Self::ExternalServiceOutage => 2,
        }
    }

    /// What is probably wrong.
    #[must_use]
    pub const fn flaw(self) -> &'static str {
        match self {
            Self::RetryCluster | Self::WorkaroundPattern => "ARCHITECTURE_FLAW",
            Self::DebtAccumulation => "SCOPE_FLAW",
            Self::AssumptionCascade | Self::SpecGapCluster => "SPEC_FLAW",
            Self::ExternalServiceOutage => "EXTERNAL_DEPENDENCY",
        }
    }

    /// Under which common name an anomaly counts for it, if it does.
    fn key(self, anomaly: &Anomaly) -> Option<String> {
        let detail = |name: &str| match anomaly.details.get(name) {
            Some(Value::String(text)) => text.trim().to_lowercase(),
            Some(other) => other.to_string(),
            None => String::new(),
        };
        let creates_debt =
            !matches!(detail("debt_created").as_str(), "" | "false" | "null" | "none");
        match (self, anomaly.kind.as_str()) {
            (Self::RetryCluster, "retry_loop") => Some(detail("error_pattern")),
            (Self::DebtAccumulation, "debt_created") => Some(String::new()),
            (Self::DebtAccumulation, "trade_off") if creates_debt => Some(String::new()),
            (Self::AssumptionCascade, "assumption_violated") => Some(detail("assumption")),
            (Self::WorkaroundPattern, "workaround") => Some(String::new()),
            (Self::SpecGapCluster, "spec_gap" | "spec_ambiguity") => Some(String::new()),
            (Self::ExternalServiceOutage, "external_blocker") => Some(detail("blocker_service")),
            _ => None,
        }
    }
}

/// A pattern that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Trigger {
    /// Which.
    pub pattern: Pattern,
    /// What is probably wrong.
    pub flaw: &'static str,
    /// What the anomalies have in common; empty if it is their type only.
    pub about: String,
    /// How many.
    pub count: usize,
    /// During which tasks.
    pub tasks: BTreeSet<Name>,
}

/// What the anomalies say together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Analysis {
    /// Whether something was found.
    pub verdict: Verdict,
    /// What.
    pub triggers: Vec<Trigger>,
    /// How many anomalies there are.
    pub anomalies: usize,
    /// How many of those a person had acknowledged before.
    pub acknowledged: usize,
}

/// Looks at the anomalies since the last acknowledgement.
#[must_use]
pub fn analyze(state: &State) -> Analysis {
    let acknowledged = acknowledged(state).min(state.anomalies.len());
    let mut triggers = Vec::new();
    for pattern in Pattern::ALL {
        let mut groups: BTreeMap<String, Vec<&Anomaly>> = BTreeMap::new();
        for anomaly in &state.anomalies[acknowledged..] {
            if let Some(key) = pattern.key(anomaly) {
                groups.entry(key).or_default().push(anomaly);
            }
        }
        for (about, anomalies) in groups {
            if anomalies.len() >= pattern.threshold() {
                let tasks = anomalies.iter().filter_map(|anomaly| anomaly.task.clone()).collect();
                let (flaw, count) = (pattern.flaw(), anomalies.len());
                triggers.push(Trigger { pattern, flaw, about, count, tasks });
            }
        }
    }
    let verdict = if triggers.is_empty() { Verdict::Ok } else { Verdict::Triggered };
    Analysis { verdict, triggers, anomalies: state.anomalies.len(), acknowledged }
}

/// How many anomalies there were when a person last resumed. A number and not a time: clocks jump.
fn acknowledged(state: &State) -> usize {
    let history = state.circuit_breaker.as_ref().map(|breaker| &breaker.history);
    let counts = history.into_iter().flatten().filter_map(|seen| seen.get("anomalies")?.as_u64());
    counts.max().and_then(|count| usize::try_from(count).ok()).unwrap_or_default()
}
