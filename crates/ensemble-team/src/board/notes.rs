//! Notes that agents leave for others (anomalies, discoveries, hand-overs), and the steps of goal,
//! sprint and circuit breaker.

use serde_json::{Map, Value, json};

use super::analyze::{AnalysisVerdict, AnomalyAnalysis};
use super::locked::LockedBoard;
use super::rules::missing_details;
use super::schema::ANOMALY_TYPES;
use super::state::BoardAnomaly;
use super::{BoardError, BoardObstacle, LostLease};
use crate::proto::goal::{self, GoalEvent, GoalState, SprintEvent, SprintState};
use crate::proto::task::TaskHolder;
use ensemble_core::Result;
use ensemble_core::message::Name;

#[derive(Clone, Debug)]
pub struct NewAnomaly {
    pub kind: String,
    pub task: Option<Name>,
    pub reporter: String,
    pub details: Map<String, Value>,
}

#[derive(Clone, Debug)]
pub struct NewDiscovery {
    pub id: Name,
    pub by: String,
    pub during: Option<Name>,
    pub description: String,
    pub severity: Option<String>,
    /// Whether a planner must look at it at once.
    pub is_immediate: bool,
    pub recommendation: Option<String>,
}

#[derive(Clone, Debug)]
pub struct NewHandoff {
    pub summary: String,
    pub next_action: String,
    /// Further fields: `approach`, `blockers`, `files_modified`, `next_steps` …
    pub more: Map<String, Value>,
}

impl LockedBoard<'_> {
    pub fn add_anomaly(&mut self, anomaly: &NewAnomaly) -> Result<()> {
        let refused = |why: BoardObstacle| Err(BoardError::not_allowed("note an anomaly", why));
        if !ANOMALY_TYPES.contains(&anomaly.kind.as_str()) {
            return refused(BoardObstacle::AnomalyType);
        }
        let details = Value::Object(anomaly.details.clone());
        let missing = missing_details(&anomaly.kind, &details);
        if !missing.is_empty() {
            return refused(BoardObstacle::AnomalyDetails { kind: anomaly.kind.clone(), missing });
        }
        self.note_anomaly((&anomaly.kind, &anomaly.reporter), anomaly.task.as_ref(), details)
    }

    fn note_anomaly(
        &mut self,
        (kind, reporter): (&str, &str),
        task: Option<&Name>,
        details: Value,
    ) -> Result<()> {
        let now = self.now();
        self.append(
            "anomalies",
            json!({ "timestamp": now, "task": task, "reporter": reporter, "type": kind,
                    "details": details }),
        );
        self.record_step("anomaly.noted", json!({ "task": task, "type": kind, "agent": reporter }));
        self.refresh()
    }

    /// Notes an anomaly that Ensemble itself has observed at a task.
    pub(super) fn observe(&mut self, kind: &str, id: &Name, details: Value) -> Result<()> {
        self.note_anomaly((kind, "ensemble"), Some(id), details)
    }

    /// Records a loop. An existing anomaly of the same reporter, task and pattern is incremented, so that a loop is
    /// one anomaly however long it lasts.
    pub fn count_loop(&mut self, anomaly: &NewAnomaly) -> Result<()> {
        let detail = |details: &Value, name: &str| details.get(name).cloned().unwrap_or_default();
        let new = Value::Object(anomaly.details.clone());
        let count = detail(&new, "count").as_u64().unwrap_or(1);
        let is_before = |known: &BoardAnomaly| {
            known.kind == anomaly.kind
                && known.task == anomaly.task
                && known.reporter.as_ref() == Some(&anomaly.reporter)
                && detail(&known.details, "error_pattern") == detail(&new, "error_pattern")
                && detail(&known.details, "count").as_u64().is_some_and(|known| known + 1 == count)
        };
        let Some(at) = self.state().anomalies.iter().rposition(is_before) else {
            return self.add_anomaly(anomaly);
        };
        let now = self.now();
        let known = &mut self.section("anomalies", json!([]))[at];
        known["timestamp"] = json!(now);
        known["details"] = new;
        let step = json!({ "task": anomaly.task, "type": anomaly.kind, "agent": anomaly.reporter });
        self.record_step("anomaly.counted", step);
        self.refresh()
    }

    pub fn discover(&mut self, new: &NewDiscovery) -> Result<()> {
        if self.state().discovered.iter().any(|known| known.id == new.id) {
            let what = format!("note discovery `{}`", new.id);
            return Err(BoardError::not_allowed(what, BoardObstacle::DiscoveryExists));
        }
        let urgency = if new.is_immediate { "immediate" } else { "deferred" };
        let now = self.now();
        let mut item = json!({
            "id": new.id, "by": new.by, "during": new.during, "description": new.description,
            "severity": new.severity, "urgency": urgency, "recommendation": new.recommendation,
            "created": now, "converted_to_task": null,
        });
        if let Value::Object(fields) = &mut item {
            fields.retain(|name, value| name == "converted_to_task" || !value.is_null());
        }
        self.append("discovered", item);
        self.record_step("discovery.noted", json!({ "id": new.id, "urgency": urgency }));
        self.refresh()
    }

    /// Leaves notes for the next agent at a task. Only the task's holder may.
    pub fn hand_off(&mut self, id: &Name, holder: &TaskHolder, notes: &NewHandoff) -> Result<()> {
        let task = self.task(id)?;
        let is_holder = task.assigned_to.as_ref() == Some(&holder.by)
            && task.lease_epoch.unwrap_or_default() == holder.epoch
            && task.status == super::TaskStatus::Claimed;
        if !is_holder {
            let what = format!("hand over task `{id}`");
            let why = LostLease::Task { agent: holder.by.clone(), epoch: holder.epoch };
            return Err(BoardError::Fenced { what, why }.into());
        }
        let mut entry = json!({
            "agent": holder.by, "timestamp": self.now(), "summary": notes.summary,
            "next_action": notes.next_action,
        });
        if let Value::Object(fields) = &mut entry {
            for (name, value) in &notes.more {
                fields.entry(name.clone()).or_insert_with(|| value.clone());
            }
        }
        if let Value::Object(handoff) = self.section("handoff", json!({})) {
            handoff.insert(id.to_string(), entry);
        }
        self.fields(id)?.set("handoff_pending", true);
        self.record_step("handoff.noted", json!({ "task": id, "agent": holder.by }));
        self.refresh()
    }

    pub fn goal_event(&mut self, event: GoalEvent) -> Result<()> {
        let what = "change the goal";
        let Some(current) = self.state().goal.as_ref() else {
            return Err(BoardError::not_allowed(what, BoardObstacle::NoGoal));
        };
        let before = current.status.unwrap_or(GoalState::Planning);
        let state = goal::next_goal(before, event).map_err(|goal::GoalRefusal| {
            BoardError::not_allowed(what, BoardObstacle::GoalState { state: before })
        })?;
        self.section("goal", json!({}))["status"] = json!(state);
        self.record_step("goal.stepped", json!({ "status": state }));
        self.refresh()
    }

    pub fn sprint_event(&mut self, event: SprintEvent) -> Result<()> {
        let what = "change the sprint";
        let Some(current) = self.state().sprint.as_ref() else {
            return Err(BoardError::not_allowed(what, BoardObstacle::NoSprint));
        };
        let before = current.status.unwrap_or(SprintState::InProgress);
        let state = goal::next_sprint(before, event).map_err(|goal::GoalRefusal| {
            BoardError::not_allowed(what, BoardObstacle::SprintState { state: before })
        })?;
        let now = json!(self.now());
        let sprint = self.section("sprint", json!({}));
        sprint["status"] = json!(state);
        match event {
            SprintEvent::Checkpoint => sprint["timeline"]["checkpoint_at"] = now,
            SprintEvent::Complete | SprintEvent::Abort => sprint["timeline"]["ended"] = now,
            SprintEvent::Resume => {}
        }
        self.record_step("sprint.stepped", json!({ "status": state }));
        self.refresh()
    }

    /// Writes the result of [`super::analyze`]. A trigger stays until [`LockedBoard::resume`].
    pub fn note_analysis(&mut self, analysis: &AnomalyAnalysis) -> Result<()> {
        let now = json!(self.now());
        let breaker = self.section("circuit_breaker", json!({}));
        breaker["last_check"] = now.clone();
        match (&analysis.verdict, breaker["status"].as_str()) {
            (_, Some("TRIGGERED")) => {}
            (AnalysisVerdict::Ok, _) => breaker["status"] = json!("OK"),
            (AnalysisVerdict::Triggered, _) => {
                breaker["status"] = json!("TRIGGERED");
                let triggers = json!(analysis.triggers);
                let count = analysis.anomalies;
                breaker["current_trigger"] =
                    json!({ "at": now, "anomalies": count, "triggers": triggers });
                let patterns: Vec<_> = analysis.triggers.iter().map(|t| t.pattern).collect();
                self.record_step("breaker.triggered", json!({ "patterns": patterns }));
            }
        }
        self.refresh()
    }

    /// Acknowledges a triggered circuit breaker after a person has looked. The anomalies so far no
    /// longer count.
    pub fn resume(&mut self, by: &str) -> Result<()> {
        let now = json!(self.now());
        let breaker = self.section("circuit_breaker", json!({}));
        if breaker["status"].as_str() != Some("TRIGGERED") {
            return Err(BoardError::not_allowed("resume", BoardObstacle::BreakerClosed));
        }
        let mut seen = breaker["current_trigger"].take();
        if seen.is_object() {
            seen["acknowledged_by"] = json!(by);
            seen["acknowledged_at"] = now;
        }
        breaker["status"] = json!("OK");
        match &mut breaker["history"] {
            Value::Array(history) => history.push(seen),
            history => *history = json!([seen]),
        }
        self.record_step("breaker.resumed", json!({ "by": by }));
        self.refresh()
    }
}
