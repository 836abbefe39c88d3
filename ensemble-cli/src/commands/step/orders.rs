//! `ensemble step retry|unblock|skip|split`, and `heartbeat`.

use std::path::Path;

use ensemble_app::content::content_of;
use ensemble_app::diagnostics::say;
use ensemble_app::steps::{open_existing_steps, open_step_mail};
use ensemble_core::message::written::document;
use ensemble_core::message::{Name, yaml};
use ensemble_team::steps::{SplitPart, StepKey, StepStore};
use serde::Deserialize;
use serde_json::json;

use super::StepChoice;
use crate::context::{Context, Failure, Outcome};

// Its help is that of the verbs that order something for a step.
#[derive(Debug, clap::Args)]
pub(super) struct StepOrder {
    #[command(flatten)]
    which: StepChoice,
    /// Change to mention in the next prompt
    #[arg(long, value_name = "TEXT", default_value = "")]
    note: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StepParts {
    steps: Vec<SplitPart>,
}

fn done(context: &Context, store: &StepStore, which: &StepChoice) -> Outcome {
    // The order is carried out. The watcher tries a notice again.
    if store.owes_notices()?
        && let Err(error) = store.post_notices(&*open_step_mail(context)?)
    {
        say(&format!("an orchestrator is not notified yet: {error}"));
    }
    let step = store.step(&which.key())?;
    context.out.print_answer(&step, format!("{} is {}", step.key, step.status))
}

impl StepOrder {
    pub(super) fn run(
        self,
        context: &Context,
        order: fn(&StepStore, &StepKey, &Name, &str) -> ensemble_core::Result<()>,
    ) -> Outcome {
        let store = open_existing_steps(context)?;
        order(&store, &self.which.key(), &context.actor()?, &self.note)?;
        done(context, &store, &self.which)
    }
}

pub(super) fn split(context: &Context, which: &StepChoice, file: &Path) -> Outcome {
    let content = content_of(file)?;
    let text = yaml::decode_text(&content, file).map_err(Failure::input)?;
    let parts: StepParts = yaml::parse(&document(text), file).map_err(Failure::input)?;
    let store = open_existing_steps(context)?;
    let key = which.key();
    let numbers = store.split(&key, &context.actor()?, &parts.steps)?;
    let object = json!({
        "task_id": key.task_id, "step_index": key.step_index, "parts": numbers,
    });
    let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
    let said = format!("{key} is split into steps {}", numbers.join(", "));
    context.out.print_answer(&object, said)
}

pub(super) fn beat(context: &Context, which: &StepChoice, epoch: Option<u64>) -> Outcome {
    let by = context.agent_required()?;
    let store = open_existing_steps(context)?;
    store.beat(&which.key(), &by, epoch)?;
    done(context, &store, which)
}
