use std::path::Path;

use ensemble_app::content::content_of;
use ensemble_app::diagnostics::say;
use ensemble_app::steps::{open_step_mail, open_steps};
use ensemble_core::Error;
use ensemble_core::message::yaml;
use ensemble_team::steps::{AddOutcome, StepPlan};
use serde_json::json;

use super::run::agents;
use crate::context::{Context, Failure, Outcome};

pub(super) fn add(context: &Context, file: &Path) -> Outcome {
    let content = content_of(file)?;
    let plan = yaml::decode_text(&content, file)
        .and_then(|text| StepPlan::parse(text, file))
        .map_err(Failure::input)?;
    let mail = open_step_mail(context)?;
    if let Some(orchestrator) = &plan.orchestrator {
        // Without a mailbox the orchestrator could not receive any notice.
        mail.settings(&mail.mailbox_of(orchestrator))?;
    }
    let store = open_steps(context)?;
    let added = store.add(&plan)?;
    for agent in agents(&store, &plan.task_id)? {
        // It may come later, and take its steps without a mailbox.
        if let Err(error @ Error::NoMailbox { .. }) = mail.settings(&mail.mailbox_of(&agent)) {
            say(&format!("the steps of `{agent}` wait for an agent of that name: {error}"));
        }
    }
    let steps = plan.steps.len();
    let object = json!({
        "task_id": plan.task_id, "steps": steps,
        "already_stored": added == AddOutcome::AlreadyStored,
    });
    let what = ensemble_app::text::plural(steps as u64, "step");
    let said = match added {
        AddOutcome::Stored => format!("task {}: {what} stored", plan.task_id),
        AddOutcome::AlreadyStored => format!("task {}: the same plan is stored", plan.task_id),
    };
    context.out.print_answer(&object, said)
}
