//! Why a worker is not ready.

use ensemble_app::exit_code::Exit;
use ensemble_app::failure::{Failure, Outcome};
use ensemble_core::proto::ready::ReadinessFailure;
use serde_json::{Value, json};

use crate::context::Context;

/// Says why a worker is not ready: the seed's block on stderr, and an object for `--json`.
pub(crate) fn describe_not_ready(
    context: &Context,
    failure: &ReadinessFailure,
) -> Outcome<Failure> {
    if context.out.is_json() {
        let mut object = json!({ "worker": failure.worker, "ready": false });
        let fields = serde_json::to_value(failure).unwrap_or_default();
        for (key, value) in fields.as_object().into_iter().flatten() {
            object[key] = value.clone();
        }
        object["action"] = Value::from("assign_stopped");
        context.out.object(&object)?;
    }
    Ok(Failure::Block { exit: Exit::Failed, text: failure.to_string() })
}
