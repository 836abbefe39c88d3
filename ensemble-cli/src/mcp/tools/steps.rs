use ensemble_app::steps::{describe_submitted, hand_out_prompt};
use ensemble_app::transport::admit_steps;
use ensemble_team::steps::{ClaimOutcome, ClaimRequest, Completion};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ToolAnswer, ToolError};
use crate::mcp::ToolContext;

pub(super) fn submit(desk: &ToolContext, value: Value) -> ToolAnswer {
    admit_steps(&desk.app())?;
    let completion =
        Completion::from_json(&value).map_err(|mistakes| ToolError::new(mistakes.to_string()))?;
    let key = completion.key();
    let known = desk.known(&key);
    match desk.steps()?.submit(&completion, &desk.agent, known) {
        Ok(submitted) => {
            desk.forget(&key);
            let mut object = serde_json::to_value(&submitted).unwrap_or_default();
            object["message"] = json!(describe_submitted(&submitted));
            Ok(object)
        }
        Err(error) => {
            // The error tells the agent what has changed, so its next attempt may use the current steps.
            desk.learn_all()?;
            Err(error.into())
        }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NextStepParams {
    /// Only steps of this task.
    task_id: Option<String>,
}

pub(super) fn next(desk: &ToolContext, next: NextStepParams) -> ToolAnswer {
    admit_steps(&desk.app())?;
    let mut ask = ClaimRequest::of(desk.agent.clone());
    if let Some(task) = next.task_id {
        ask = ask.in_task(task);
    }
    desk.store.observe()?;
    match desk.store.claim_step(&ask)? {
        ClaimOutcome::Handed(step) => {
            let object = hand_out_prompt(&desk.store, &step)?;
            desk.learn_all()?;
            Ok(object)
        }
        ClaimOutcome::Nothing(nothing) => Err(ToolError::new(nothing.to_string())),
    }
}
