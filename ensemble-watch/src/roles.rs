//! The time-outs of seed 002's roles: Dispatch waits for reports, Conductor for the summary.

use std::time::Duration;

use ensemble_core::env::Monotonic;
use ensemble_core::event_log::Recorder;
use ensemble_core::proto::Machine as _;
use ensemble_core::proto::patience::{
    CONDUCTOR_PATIENCE, DISPATCH_PATIENCE, Effect, Event, Limits, Patience,
};
use serde_json::json;

use crate::project::Config;
use crate::run::ACTOR;

/// A waiting role.
struct Role {
    name: &'static str,
    patience: Patience,
}

/// Dispatch and Conductor.
pub(crate) struct Roles {
    dispatch: Role,
    conductor: Role,
}

impl Roles {
    pub(crate) fn new(config: &Config) -> Self {
        let seconds = |configured: Option<u64>, usual: Duration| {
            configured.map_or(usual, Duration::from_secs)
        };
        let dispatch = Limits {
            patience: seconds(config.dispatch_patience_seconds, DISPATCH_PATIENCE),
            ..Limits::dispatch()
        };
        let conductor = Limits {
            patience: seconds(config.conductor_patience_seconds, CONDUCTOR_PATIENCE),
            ..Limits::conductor()
        };
        Self {
            dispatch: Role { name: "dispatch", patience: Patience::new(dispatch) },
            conductor: Role { name: "conductor", patience: Patience::new(conductor) },
        }
    }

    /// A message of this type was stored: it begins, prolongs or ends a wait.
    pub(crate) fn stored(&mut self, now: Monotonic, kind: &str) {
        let (dispatch, conductor) = match kind {
            "task" => (Some(Event::Started), Some(Event::Started)),
            "report.completed" | "report.review" => (Some(Event::Told), None),
            "report.escalation" => (None, Some(Event::Told)),
            "report.summary" => (Some(Event::Finished), Some(Event::Finished)),
            _ => (None, None),
        };
        for (role, event) in [(&mut self.dispatch, dispatch), (&mut self.conductor, conductor)] {
            if let Some(event) = event {
                role.patience.handle(now, event);
            }
        }
    }

    /// Lets time pass; true if Dispatch is to look for reports itself.
    pub(crate) fn drive(&mut self, now: Monotonic, recorder: &dyn Recorder) -> bool {
        let mut poll = false;
        for role in [&mut self.dispatch, &mut self.conductor] {
            role.patience.handle_timeout(now);
            while let Some(effect) = role.patience.poll_effect() {
                match effect {
                    Effect::PatienceEnded => {
                        recorder.record("role.patience_ended", ACTOR, json!({ "role": role.name }))
                    }
                    Effect::Poll => poll = true,
                }
            }
        }
        poll
    }

    pub(crate) fn next_timeout(&self) -> Option<Monotonic> {
        [&self.dispatch, &self.conductor]
            .into_iter()
            .filter_map(|r| r.patience.poll_timeout())
            .min()
    }

    /// For `status`: who waits, and for how long still.
    pub(crate) fn summary(&self, now: Monotonic) -> Vec<serde_json::Value> {
        let row = |role: &Role| {
            let left = role.patience.poll_timeout().map(|at| at.since(now).as_secs());
            json!({ "role": role.name, "waits": left.is_some(), "deadline_in_seconds": left })
        };
        [&self.dispatch, &self.conductor].map(row).into()
    }
}
