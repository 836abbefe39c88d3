use std::path::PathBuf;

use ensemble_app::content::content_of;
use ensemble_app::diagnostics::say;
use ensemble_app::steps::{open_step_mail, open_steps};
use ensemble_core::Error;
use ensemble_core::message::yaml;
use ensemble_team::steps::{AddOutcome, StepPlan};
use serde_json::json;

use super::run::agents;
use crate::context::{Context, Failure, Outcome};

/// Store all steps of a task
///
/// The same plan again changes nothing; another plan of the same task is refused.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: ensemble step add -f plan.yaml
with in plan.yaml:
  task_id: 0-4-1
  orchestrator: conductor            # its mailbox is notified when a person must intervene
  policy: tdd                        # red, green, refactor, review in each cycle
  resources: [{path: docs/api.md}]   # shown with each step
  steps:
    - {agent: Tara, phase: red, goal: Write a failing test for login, files: [tests/login.rs]}
    - {agent: Devon, phase: green, goal: Make it pass, files: [src/login.rs],
       context: [tests/login.rs]}
    - {agent: Tara, phase: review, goal: Review the login, context: [src/login.rs],
       fix_by: Devon}               # if it fails: a fix step for Devon, then the review again
    - {agent: Devon, phase: red, cycle: logout, goal: Write a failing test for logout,
       plan: true}                  # only with an approved plan")]
pub(super) struct AddSteps {
    /// The plan, in YAML or JSON; `-` for stdin
    #[arg(short, long, value_name = "FILE|-", value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
}

impl AddSteps {
    pub(super) fn run(self, context: &Context) -> Outcome {
        let content = content_of(&self.file)?;
        let plan = yaml::decode_text(&content, &self.file)
            .and_then(|text| StepPlan::parse(text, &self.file))
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
}
