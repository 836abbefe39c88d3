use ensemble_app::departing::DepartureFate;
use ensemble_app::failure::{Failure, Outcome};
use ensemble_core::proto::request::Outcome as Answer;

use crate::context::Context;

/// Prints the fate of each agent. Fails if an agent is still there.
pub(crate) fn print_fates(context: &Context, fates: &[DepartureFate]) -> Outcome {
    if context.out.is_json() {
        let refusals = fates.iter().filter_map(|fate| fate.object.as_ref());
        refusals.into_iter().try_for_each(|object| context.out.object(object))?;
    }
    let mut rows = Vec::new();
    for DepartureFate { agent, request_id, word, detail, .. } in fates {
        if context.out.is_json() {
            context.out.object(&serde_json::json!({
                "agent": agent, "request_id": request_id, "state": word, "detail": detail,
            }))?;
            continue;
        }
        let detail = match detail.as_str() {
            word if word == Answer::Approved.word() => "it agreed",
            word if word == Answer::Expired.word() => "stopped without an answer",
            words => words,
        };
        rows.push(vec![agent.to_string(), (*word).to_owned(), detail.to_owned()]);
    }
    if !rows.is_empty() {
        context.out.table(&["agent", "state", "detail"], rows)?;
    }
    let there: Vec<&str> =
        fates.iter().filter(|fate| fate.word != "gone").map(|fate| fate.agent.as_str()).collect();
    if there.is_empty() {
        return Ok(());
    }
    let text = format!("still there: {}", there.join(", "));
    Err(Failure::refused(text).with_hint("`--force` ends them without their consent"))
}
