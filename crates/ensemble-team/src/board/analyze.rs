//! The circuit breaker: finds patterns in the anomalies that no single agent can see (seed 001's
//! siblings). [`analyze`] only observes; [`super::Board::check_breaker`] stops the team with a
//! CHECKPOINT, and only a person's `resume` acknowledges the anomalies.
//!
//! | pattern | threshold | anomalies counted | flaw |
//! |---|---|---|---|
//! | `retry_cluster` | 3 | `retry_loop` with one `error_pattern`, and a `count` of at least 2 | ARCHITECTURE_FLAW |
//! | `debt_accumulation` | 3 | `debt_created`, and `trade_off` that created debt | SCOPE_FLAW |
//! | `assumption_cascade` | 2 | `assumption_violated` with one `assumption` | SPEC_FLAW |
//! | `workaround_pattern` | 2 | `workaround` | ARCHITECTURE_FLAW |
//! | `spec_gap_cluster` | 2 | `spec_gap` and `spec_ambiguity` | SPEC_FLAW |
//! | `external_service_outage` | 2 | `external_blocker` of one `blocker_service` | EXTERNAL_DEPENDENCY |

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use super::state::{BoardAnomaly, State};
use ensemble_core::message::Name;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum AnalysisVerdict {
    Ok,
    Triggered,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AnomalyPattern {
    RetryCluster,
    DebtAccumulation,
    AssumptionCascade,
    WorkaroundPattern,
    SpecGapCluster,
    ExternalServiceOutage,
}

impl AnomalyPattern {
    pub const ALL: [Self; 6] = [
        Self::RetryCluster,
        Self::DebtAccumulation,
        Self::AssumptionCascade,
        Self::WorkaroundPattern,
        Self::SpecGapCluster,
        Self::ExternalServiceOutage,
    ];

    pub const fn threshold(self) -> usize {
        match self {
            Self::RetryCluster | Self::DebtAccumulation => 3,
            Self::AssumptionCascade
            | Self::WorkaroundPattern
            | Self::SpecGapCluster
            | Self::ExternalServiceOutage => 2,
        }
    }

    pub const fn flaw(self) -> &'static str {
        match self {
            Self::RetryCluster | Self::WorkaroundPattern => "ARCHITECTURE_FLAW",
            Self::DebtAccumulation => "SCOPE_FLAW",
            Self::AssumptionCascade | Self::SpecGapCluster => "SPEC_FLAW",
            Self::ExternalServiceOutage => "EXTERNAL_DEPENDENCY",
        }
    }

    /// Grouping key under which an anomaly counts for this pattern; `None` if it does not count.
    fn key(self, anomaly: &BoardAnomaly) -> Option<String> {
        let detail = |name: &str| match anomaly.details.get(name) {
            Some(Value::String(text)) => text.trim().to_lowercase(),
            Some(other) => other.to_string(),
            None => String::new(),
        };
        let creates_debt =
            !matches!(detail("debt_created").as_str(), "" | "false" | "null" | "none");
        match (self, anomaly.kind.as_str()) {
            // One failure is not a loop yet.
            (Self::RetryCluster, "retry_loop") if detail("count") != "1" => {
                Some(detail("error_pattern"))
            }
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

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PatternTrigger {
    pub pattern: AnomalyPattern,
    pub flaw: &'static str,
    /// Common value of the anomalies; empty if they share only their type.
    pub about: String,
    pub count: usize,
    pub tasks: BTreeSet<Name>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AnomalyAnalysis {
    pub verdict: AnalysisVerdict,
    pub triggers: Vec<PatternTrigger>,
    pub anomalies: usize,
    /// Number of anomalies that a person acknowledged before.
    pub acknowledged: usize,
}

/// Analyses the anomalies since the last acknowledgement.
pub fn analyze(state: &State) -> AnomalyAnalysis {
    let acknowledged = acknowledged(state).min(state.anomalies.len());
    let mut triggers = Vec::new();
    for pattern in AnomalyPattern::ALL {
        let mut groups: BTreeMap<String, Vec<&BoardAnomaly>> = BTreeMap::new();
        for anomaly in &state.anomalies[acknowledged..] {
            if let Some(key) = pattern.key(anomaly) {
                groups.entry(key).or_default().push(anomaly);
            }
        }
        for (about, anomalies) in groups {
            if anomalies.len() >= pattern.threshold() {
                let tasks = anomalies.iter().filter_map(|anomaly| anomaly.task.clone()).collect();
                let (flaw, count) = (pattern.flaw(), anomalies.len());
                triggers.push(PatternTrigger { pattern, flaw, about, count, tasks });
            }
        }
    }
    let verdict =
        if triggers.is_empty() { AnalysisVerdict::Ok } else { AnalysisVerdict::Triggered };
    AnomalyAnalysis { verdict, triggers, anomalies: state.anomalies.len(), acknowledged }
}

/// Number of anomalies when a person last resumed. It is a number, not a time, because clocks jump.
fn acknowledged(state: &State) -> usize {
    let history = state.circuit_breaker.as_ref().map(|breaker| &breaker.history);
    let counts = history.into_iter().flatten().filter_map(|seen| seen.get("anomalies")?.as_u64());
    counts.max().and_then(|count| usize::try_from(count).ok()).unwrap_or_default()
}
