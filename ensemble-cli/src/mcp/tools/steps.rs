//! `submit_step_completion`.

use ensemble_team::steps::{Completion, completion_schema};
use serde_json::{Value, json};

use super::{Answer, Trouble};
use crate::commands::step_sentence;
use crate::mcp::Desk;

/// The seed's schema, with the team's names in it.
pub(super) fn schema(desk: &Desk) -> Value {
    // Without the names the schema only says less; the call itself is checked anyway.
    completion_schema(&desk.agents().unwrap_or_default())
}

pub(super) fn submit(desk: &Desk, value: Value) -> Answer {
    crate::transports::admit_steps(&desk.context())?;
    let completion =
        Completion::from_json(&value).map_err(|mistakes| Trouble::new(mistakes.to_string()))?;
    let key = completion.key();
    let known = desk.known(&key);
    match desk.steps().submit(&completion, &desk.agent, known) {
        Ok(submitted) => {
            desk.forget(&key);
            let mut object = serde_json::to_value(&submitted).unwrap_or_default();
            object["message"] = json!(step_sentence(&submitted));
            Ok(object)
        }
        Err(error) => {
            // Now it has been told, and the next try is about what is the case.
            desk.learn_all()?;
            Err(error.into())
        }
    }
}
