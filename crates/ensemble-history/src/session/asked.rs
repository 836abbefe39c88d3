//! Requests: who asked whom for a decision, and how long the asker waited.

use std::time::Duration;

use ensemble_core::event_log::{Record, types};
use ensemble_core::message::Timestamp;

use super::page::took;
use super::states::TROUBLE_AFTER;
use super::trouble::{SessionTrouble, TroubleWeight, member};

const REQUESTS_MAX: usize = 2_000;
const UNDECIDED_MAX: Duration = ensemble_project::attention::UNDECIDED_MAX;
/// The kind whose requests end by themselves.
const SHUTDOWN: &str = "shutdown";

#[derive(Clone, Debug)]
pub(super) struct SessionRequest {
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) from: String,
    pub(super) to: String,
    pub(super) task: String,
    pub(super) opened: Timestamp,
    pub(super) closed: Option<(Timestamp, String)>,
}

impl SessionRequest {
    /// How long the asker has waited, at `end` at the latest.
    pub(super) fn waited(&self, end: Timestamp) -> Duration {
        self.closed.as_ref().map_or(end, |(at, _)| *at).since(self.opened)
    }

    /// The question, for people.
    pub(super) fn label(&self) -> String {
        let kind = self.kind.replace('_', " ");
        match self.task.is_empty() {
            true => kind,
            false => format!("{kind} of {}", self.task),
        }
    }

    pub(super) fn outcome(&self) -> &str {
        self.closed.as_ref().map_or("undecided", |(_, outcome)| outcome)
    }

    /// The problem that it indicates, if any. An agent that does not answer a shutdown request is ended: that is not
    /// a problem.
    pub(super) fn trouble(&self, end: Timestamp) -> Option<SessionTrouble> {
        let waited = self.waited(end);
        let (time, label, to) = (took(waited), self.label(), &self.to);
        let (weight, what) = match self.closed.as_ref().map(|(_, outcome)| outcome.as_str()) {
            _ if self.kind == SHUTDOWN => return None,
            None if waited >= TROUBLE_AFTER => {
                (TroubleWeight::Bad, format!("has waited {time} for {to} to decide on the {label}"))
            }
            Some("expired" | "timed_out") => {
                (TroubleWeight::Bad, format!("waited {time}: {to} did not decide on the {label}"))
            }
            Some("rejected") => (TroubleWeight::Odd, format!("had its {label} rejected by {to}")),
            Some(_) if waited >= UNDECIDED_MAX => {
                (TroubleWeight::Odd, format!("waited {time} for {to} to decide on the {label}"))
            }
            _ => return None,
        };
        Some(SessionTrouble {
            weight,
            at: Some(self.opened),
            until: self.closed.as_ref().map(|(at, _)| *at),
            who: self.from.clone(),
            what,
            why: format!("request {}", self.id),
            subjects: vec![self.id.clone()],
            story: format!("r:{}", self.id),
            may_follow: false,
        })
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct SessionRequests {
    pub(super) all: Vec<SessionRequest>,
    pub(super) hidden: u64,
}

impl SessionRequests {
    pub(super) fn apply_record(&mut self, record: &Record) {
        let text = |name: &str| member(record, name);
        let id = text("request_id");
        match record.kind.as_str() {
            types::REQUEST_OPENED if self.all.len() >= REQUESTS_MAX => self.hidden += 1,
            types::REQUEST_OPENED => self.all.push(SessionRequest {
                kind: text("kind"),
                from: text("from"),
                to: text("to"),
                task: text("task_id"),
                opened: record.timestamp,
                closed: None,
                id,
            }),
            types::REQUEST_DECIDED | types::REQUEST_EXPIRED | types::REQUEST_CANCELLED => {
                let known = self.all.iter_mut().rev().find(|asked| asked.id == id);
                if let Some(asked) = known.filter(|asked| asked.closed.is_none()) {
                    let outcome = match record.kind.as_str() {
                        types::REQUEST_EXPIRED => "expired".to_owned(),
                        types::REQUEST_CANCELLED => "cancelled".to_owned(),
                        _ => text("outcome"),
                    };
                    asked.closed = Some((record.timestamp, outcome));
                }
            }
            _ => {}
        }
    }
}
