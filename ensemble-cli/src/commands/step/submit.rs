//! `ensemble step submit`: the completion tool as a command.

use ensemble_team::steps::{Completion, Submitted};

use super::{driver, mail, open_existing};
use crate::content::FileContent;
use crate::context::Context;
use crate::exit::{Failure, Outcome};

/// Report a step, with the JSON of the tool submit_step_completion
///
/// Refused if the step is not yours, was handed out again since, or is done. Also refused if
/// `failure` comes without a reason, or if there is a member that the tool does not have. The same
/// report again changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  echo '{\"task_id\": \"0-4-1\", \"step_index\": 1, \"agent\": \"Tara\", \"status\": \"success\",
         \"summary\": \"one test, and it fails\"}' | ensemble step submit -f -")]
pub(super) struct Submit {
    #[command(flatten)]
    report: FileContent,
    /// Refuse unless this is still the hand-out that the prompt was about
    #[arg(long, value_name = "N")]
    epoch: Option<u64>,
}

impl Submit {
    pub(super) fn run(self, context: &Context) -> Outcome {
        let content = self.report.read()?;
        let value: serde_json::Value = serde_json::from_slice(&content)
            .map_err(|error| Failure::usage(format!("the report is no JSON: {error}")))?;
        let completion =
            Completion::from_json(&value).map_err(|error| Failure::usage(error.to_string()))?;
        // A caller that does not name itself reports as the worker that it names; a member is known
        // anyway.
        let by = context.agent()?.unwrap_or_else(|| completion.agent.clone());
        let (store, mail, recorder) =
            (open_existing(context)?, mail(context)?, context.recorder()?);
        let driver = driver(context, &store, &mail, &*recorder)?;
        let submitted = driver.submit(&completion, &by, self.epoch)?;
        if context.out.is_json() {
            return context.out.object(&submitted);
        }
        context.out.line(sentence(&submitted))
    }
}

/// What follows from a report, in one sentence.
pub(crate) fn sentence(submitted: &Submitted) -> String {
    let Submitted { key, status, .. } = submitted;
    let follows = match submitted {
        Submitted { already_submitted: true, .. } => {
            "it had been submitted before, nothing changed".to_owned()
        }
        Submitted { queue_done: true, .. } => "that was the last step".to_owned(),
        Submitted {
            next_attempt: Some(attempt), fix_step: Some(fix), fix_by: Some(by), ..
        } => {
            format!("{by} fixes it in step {fix}, then it comes again, as attempt {attempt}")
        }
        Submitted { next_attempt: Some(attempt), .. } => {
            format!("it will be handed out again, as attempt {attempt}, with your error")
        }
        Submitted { paused: true, .. } => {
            "a person has to intervene; wait for your next step".to_owned()
        }
        _ => "the queue goes on".to_owned(),
    };
    format!("{key} is {status}: {follows}")
}
