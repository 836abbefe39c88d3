use ensemble_app::steps::open_existing_steps;
use ensemble_app::text::one_line;
use ensemble_team::steps::{StepStore, StepView};
use serde_json::json;

use super::StepChoice;
use crate::context::{Context, Outcome};
use crate::output::{BAD, GOOD, STRONG, WARNING};

pub(super) fn list(context: &Context, task: Option<&str>) -> Outcome {
    let store = open_existing_steps(context)?;
    store.observe()?;
    match task {
        Some(task) => steps(context, &store, task),
        None => queues(context, &store),
    }
}

fn queues(context: &Context, store: &StepStore) -> Outcome {
    let queues = store.queues()?;
    let row = |queue: &ensemble_team::steps::StepQueueView| {
        let state = match () {
            () if queue.is_done() => "done",
            () if queue.is_paused() => "paused",
            () => "open",
        };
        let [open, held, stuck, done] =
            [queue.open, queue.held, queue.stuck, queue.done].map(|n| n.to_string());
        let (task, title) = (one_line(&queue.task_id), one_line(&queue.title));
        vec![task, state.to_owned(), open, held, stuck, done, title]
    };
    let heading = ["task", "state", "waiting", "held", "stuck", "done", "title"];
    context.out.print_list(&queues, &heading, row)
}

fn steps(context: &Context, store: &StepStore, task: &str) -> Outcome {
    store.queue(task)?;
    let steps = store.steps(task)?;
    let row = |step: &StepView| {
        vec![
            step.key.step_index.to_string(),
            status(step),
            step.agent.to_string(),
            step.attempt.to_string(),
            one_line(&step.goal),
        ]
    };
    let heading = ["step", "status", "agent", "attempt", "goal"];
    context.out.print_list(&steps, &heading, row)
}

fn status(step: &StepView) -> String {
    match (step.status.as_str(), step.resolution.as_deref()) {
        ("COMPLETED", Some(how @ ("skipped" | "split"))) => format!("COMPLETED ({how})"),
        ("FAILED", _) if step.waits_for_fix => "FAILED (waits for its fix)".to_owned(),
        ("FAILED", _) if step.fix_due => "FAILED (fix due)".to_owned(),
        (status, _) => status.to_owned(),
    }
}

pub(super) fn show(context: &Context, which: &StepChoice) -> Outcome {
    let store = open_existing_steps(context)?;
    store.observe()?;
    let key = which.key();
    let (step, runs) = (store.step(&key)?, store.runs(&key)?);
    if context.out.is_json() {
        let mut object = serde_json::to_value(&step).unwrap_or_default();
        object["runs"] = json!(runs);
        return context.out.object(&object);
    }
    let style = match step.status.as_str() {
        "COMPLETED" => GOOD,
        "BLOCKED" => WARNING,
        "FAILED" => BAD,
        _ => STRONG,
    };
    let holder = step.holder.as_ref().map(ToString::to_string);
    let blockers = (step.status == "BLOCKED").then(|| step.blockers.join("; "));
    let lines = [
        ("status", Some(context.out.paint(style, status(&step)))),
        ("goal", Some(one_line(&step.goal))),
        ("agent", Some(step.agent.to_string())),
        ("fix by", step.fix_by.as_ref().map(ToString::to_string)),
        ("fixes", step.fixes.map(|index| format!("step {index}"))),
        ("plan", step.needs_plan.then(|| "must be approved first".to_owned())),
        ("holder", holder),
        ("attempt", Some(format!("{} (epoch {})", step.attempt, step.epoch))),
        ("blockers", blockers.map(|text| one_line(&text))),
        ("error", step.last_error.as_deref().map(one_line)),
        ("summary", step.summary.as_deref().map(one_line)),
        ("note", step.note.as_deref().map(one_line)),
    ];
    for (name, value) in lines {
        if let Some(value) = value {
            context.out.line(format!("{name:<9} {value}"))?;
        }
    }
    if runs.is_empty() {
        return Ok(());
    }
    context.out.line("")?;
    let row = |run: &ensemble_team::steps::RunView| {
        let outcome = run.outcome.as_deref().unwrap_or("under way");
        let summary = run.summary.as_deref().map(one_line).unwrap_or_default();
        let (epoch, agent) = (run.epoch.to_string(), run.agent.to_string());
        vec![epoch, agent, run.taken_at.clone(), outcome.to_owned(), summary]
    };
    let heading = ["epoch", "agent", "taken", "outcome", "summary"];
    context.out.table(&heading, runs.iter().map(row).collect())
}
