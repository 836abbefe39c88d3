use std::time::Duration;

use ensemble_app::failure::Outcome;
use ensemble_app::text::plural;

use super::DoctorCheck;
use crate::context::Context;

const PATIENCE: Duration = Duration::from_secs(2);

/// Whether the server answers and has the tables; nothing for queues in a file.
pub(super) fn check(context: &Context) -> Outcome<Option<DoctorCheck>> {
    let project = context.project()?;
    if !project.has_shared_steps() {
        return Ok(None);
    }
    let mut options = project.step_options(context.recorder()?);
    options.patience = PATIENCE;
    let store = project.open_steps(options)?;
    Ok(Some(match store.queues() {
        Ok(queues) => {
            let text = plural(queues.len() as u64, "queue");
            DoctorCheck::ok("step queues", format!("{text} at {}", store.path().display()))
        }
        Err(error) => {
            let remedy = match error.is_transient() {
                true => "start the server, or fix `steps: {postgres: ADDRESS}` in ensemble.yaml",
                false => {
                    "correct `steps` in ensemble.yaml, the password's file, or the rights at the server"
                }
            };
            DoctorCheck::fail("step queues", error.to_string(), remedy)
        }
    }))
}
