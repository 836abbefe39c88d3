use ensemble_app::failure::{Failure, Outcome};
use ensemble_app::steps::{describe_submitted, open_existing_steps, open_step_mail, step_driver};
use ensemble_core::message::{describe_json_fault, read_foreign_json};
use ensemble_team::steps::Completion;

use crate::context::Context;
use crate::flags::content::FileContent;

/// Report a step, with the JSON of the tool submit_step_completion
///
/// Refused if the step is not yours, was handed out again since, or is done. Also refused if
/// `failure` comes without a reason, or if there is a member that the tool does not have. The same
/// report again changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  echo '{\"task_id\": \"0-4-1\", \"step_index\": 1, \"agent\": \"Tara\", \"status\": \"success\",
         \"summary\": \"one test, and it fails\"}' | ensemble step submit -f -")]
pub(super) struct SubmitStep {
    #[command(flatten)]
    report: FileContent,
    /// Refuse unless this is still the hand-out that the prompt was about
    #[arg(long, value_name = "N")]
    epoch: Option<u64>,
}

impl SubmitStep {
    pub(super) fn run(self, context: &Context) -> Outcome {
        let content = self.report.read()?;
        let value: serde_json::Value = read_foreign_json(&content).map_err(|error| {
            Failure::usage(format!("the report is not JSON: {}", describe_json_fault(&error)))
        })?;
        let completion =
            Completion::from_json(&value).map_err(|error| Failure::usage(error.to_string()))?;
        // A caller that does not name itself reports as the worker that it names; a member is known
        // anyway.
        let by = context.agent()?.unwrap_or_else(|| completion.agent.clone());
        let (store, mail, recorder) =
            (open_existing_steps(context)?, open_step_mail(context)?, context.recorder()?);
        let driver = step_driver(context, &store, &mail, &*recorder)?;
        let submitted = driver.submit(&completion, &by, self.epoch)?;
        context.out.print_answer(&submitted, describe_submitted(&submitted))
    }
}
