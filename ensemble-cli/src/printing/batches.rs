use ensemble_app::failure::{Failure, Outcome};
use ensemble_app::text;
use ensemble_reports::contract::Summary;
use ensemble_team::driver::{SUMMARY_PATH, TaskBatch};
use serde_json::json;

use crate::context::Context;

/// Prints the summary of a batch; a missing report is a failure.
pub(crate) fn print_summary(
    context: &Context,
    batch: &TaskBatch,
    summary: &Summary,
    is_new: bool,
) -> Outcome {
    if context.out.is_json() {
        let object = json!({ "batch_id": batch.id, "told": is_new, "file": SUMMARY_PATH });
        context.out.object(&text::with_members(object, summary))?;
    } else {
        let what = summary.summary.as_deref().unwrap_or_default();
        let when = if is_new { "" } else { " (sent before)" };
        context.out.line(format!("{}: {}{when}", batch.id, text::one_line(what)))?;
        for error in &summary.errors {
            context.out.line(format!("  {}", text::one_line(error)))?;
        }
    }
    match summary.missing_tasks.is_empty() {
        true => Ok(()),
        false => {
            let missing = text::plural(summary.missing_tasks.len() as u64, "report");
            Err(Failure::nothing(format!("{missing} missing: the conductor was notified")))
        }
    }
}
