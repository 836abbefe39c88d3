use std::time::Duration;

use ensemble_app::exit_code::VerbExit;
use ensemble_app::failure::{Failure, Outcome};
use ensemble_app::wait_line::WaitLine;
use ensemble_app::worker::{explain_not_ready, not_ready_json};
use ensemble_core::event_log::{Recorder, types};
use ensemble_core::message::Name;
use ensemble_core::proto::ready::ReadinessFailure;
use serde_json::Value;

use crate::context::Context;

/// Records an assignment, and says on the terminal how far it is.
pub(crate) struct AssignProgress<'a> {
    pub(crate) recorder: &'a dyn Recorder,
    pub(crate) worker: &'a Name,
    pub(crate) task: &'a str,
    pub(crate) patience: Option<Duration>,
}

impl Recorder for AssignProgress<'_> {
    fn record(&self, kind: &str, actor: &str, data: Value) {
        let Self { worker, task, .. } = self;
        let whom = match kind {
            types::READY_PING => format!("{worker} to answer ping {}", data["attempt"]),
            types::READY_IDLE | types::READY_PONG => format!("{worker} to receive {task}"),
            _ => return self.recorder.record(kind, actor, data),
        };
        WaitLine::change(whom, self.patience);
        self.recorder.record(kind, actor, data);
    }

    fn is_recording(&self) -> bool {
        self.recorder.is_recording()
    }
}

/// Says why a worker is not ready: what happened, the next command, and the seed's block on stderr; and an object for
/// `--json`.
pub(crate) fn describe_not_ready(
    context: &Context,
    failure: &ReadinessFailure,
) -> Outcome<Failure> {
    let (text, hint) = explain_not_ready(context, failure)?;
    if context.out.is_json() {
        context.out.object(&not_ready_json(failure))?;
        return Ok(Failure::refused(text).with_hint(hint));
    }
    let text = format!("ensemble: {text}\nhint: {hint}\n{failure}");
    Ok(Failure::Block { exit: VerbExit::Failed, text })
}
