//! Whether a worker is ready: how it is found out, and why it is not.

use std::time::Duration;

use ensemble_app::exit_code::VerbExit;
use ensemble_app::failure::{Failure, Outcome};
use ensemble_app::wait_line::WaitLine;
use ensemble_app::worker::not_ready_json;
use ensemble_core::event_log::{Recorder, types};
use ensemble_core::message::Name;
use ensemble_core::proto::ready::{ErrorType, NOT_TYPED, ReadinessFailure};
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
    let ReadinessFailure { worker, attempt, .. } = failure;
    let times = if *attempt == 1 { "once".to_owned() } else { format!("{attempt} times") };
    let unsent = failure.observation.strip_prefix(NOT_TYPED).and_then(|it| it.split_once("; "));
    let text = match unsent {
        Some((why, _)) => format!("{worker} is not ready: it could not be pinged: {why}"),
        None => format!("{worker} is not ready: pinged {times}, and no answer"),
    };
    let is_configured = context.project()?.config.agents.contains_key(worker);
    let hint = match failure.error_type {
        ErrorType::WorkspaceNotOpen | ErrorType::ProviderLaunchFailed if is_configured => {
            format!("`ensemble up {worker}` starts it, then try again")
        }
        _ if failure.window_inspected => {
            format!("`ensemble agent inspect {worker}` shows its screen")
        }
        _ if context.project()?.roster().get(worker)?.is_some() => {
            format!("`ensemble team {worker}` shows what is known of it")
        }
        _ => "`ensemble team` lists the agents; a mailbox without one answers no ping".to_owned(),
    };
    if context.out.is_json() {
        context.out.object(&not_ready_json(failure))?;
        return Ok(Failure::refused(text).with_hint(hint));
    }
    let text = format!("ensemble: {text}\nhint: {hint}\n{failure}");
    Ok(Failure::Block { exit: VerbExit::Failed, text })
}
