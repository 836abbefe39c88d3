//! Time-outs of two roles: Dispatch waits for reports, Conductor for the summary.

use std::time::Duration;

use ensemble_core::env::Monotonic;
use ensemble_core::event_log::{Recorder, types};
use ensemble_core::message::{ConfigDuration, MessageId, Name};
use ensemble_core::proto::Machine as _;
use ensemble_project::ProjectConfig;
use ensemble_project::status::ACTOR;
use ensemble_team::proto::patience::{
    CONDUCTOR_PATIENCE, DISPATCH_PATIENCE, Effect, Event, RolePatience, WaitLimits,
};
use serde_json::json;

/// Maximum number of messages one step reads to find tasks or reports.
const READS_A_STEP: u32 = 32;
/// Prefix of the ids of messages made from drop-box files.
const ROUTED_PREFIX: &str = "r-";

struct WaitingRole {
    name: &'static str,
    patience: RolePatience,
}

#[derive(Default)]
pub(crate) struct DueAction {
    /// Dispatch must look for reports itself.
    pub(crate) poll: bool,
    /// A role was not notified in time.
    pub(crate) ended: bool,
}

pub(crate) struct WaitingRoles {
    dispatch: WaitingRole,
    conductor: WaitingRole,
    reads: u32,
}

impl WaitingRoles {
    pub(crate) fn new(config: &ProjectConfig) -> Self {
        let period = |configured: Option<ConfigDuration>, usual: Duration| {
            configured.map_or(usual, Duration::from)
        };
        let dispatch = WaitLimits {
            patience: period(config.dispatch_patience, DISPATCH_PATIENCE),
            ..WaitLimits::dispatch()
        };
        let conductor = WaitLimits {
            patience: period(config.conductor_patience, CONDUCTOR_PATIENCE),
            ..WaitLimits::conductor()
        };
        Self {
            dispatch: WaitingRole { name: "dispatch", patience: RolePatience::new(dispatch) },
            conductor: WaitingRole { name: "conductor", patience: RolePatience::new(conductor) },
            reads: READS_A_STEP,
        }
    }

    /// A message of this type was stored: it begins, extends or ends a wait.
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

    /// A message landed in a mailbox without a drop box. It is read only if it can matter: while no
    /// role waits, or if it is addressed to a role. A step reads a bounded number, so that a flood
    /// does not cost a read for each message.
    pub(crate) fn landed(
        &mut self,
        now: Monotonic,
        (mailbox, id): (&Name, &MessageId),
        read_kind: impl FnOnce() -> Option<String>,
    ) {
        let both = [&self.dispatch, &self.conductor];
        let is_role = both.iter().any(|role| role.name == mailbox.as_str());
        let no_role_waits = both.iter().all(|role| role.patience.poll_timeout().is_none());
        // Routing already reported messages from drop boxes.
        if id.as_str().starts_with(ROUTED_PREFIX) || !(is_role || no_role_waits) || self.reads == 0
        {
            return;
        }
        self.reads -= 1;
        if let Some(kind) = read_kind() {
            self.stored(now, &kind);
        }
    }

    pub(crate) fn drive(&mut self, now: Monotonic, recorder: &dyn Recorder) -> DueAction {
        self.reads = READS_A_STEP;
        let mut due = DueAction::default();
        for role in [&mut self.dispatch, &mut self.conductor] {
            role.patience.handle_timeout(now);
            while let Some(effect) = role.patience.poll_effect() {
                match effect {
                    Effect::PatienceEnded => {
                        due.ended = true;
                        recorder.record(
                            types::ROLE_PATIENCE_ENDED,
                            ACTOR,
                            json!({ "role": role.name }),
                        );
                    }
                    Effect::Poll => due.poll = true,
                }
            }
        }
        due
    }

    pub(crate) fn next_timeout(&self) -> Option<Monotonic> {
        [&self.dispatch, &self.conductor]
            .into_iter()
            .filter_map(|r| r.patience.poll_timeout())
            .min()
    }

    pub(crate) fn summary(&self, now: Monotonic) -> Vec<serde_json::Value> {
        let row = |role: &WaitingRole| {
            let left = role.patience.poll_timeout().map(|at| at.since(now).as_secs());
            json!({
                "role": role.name, "waits": left.is_some(), "deadline_in_seconds": left,
                "patience_ended": role.patience.has_ended(),
            })
        };
        [&self.dispatch, &self.conductor].map(row).into()
    }
}
