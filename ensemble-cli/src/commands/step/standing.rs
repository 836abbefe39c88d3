//! Step queues that stand until a person intervenes, for `status`.

use ensemble_team::steps::{STEPS_FILE, Standing};

use crate::context::Context;
use crate::exit::{Outcome, say};
use crate::output::WARNING;
use crate::text::one_line;

/// Width of a line with its command. The command is never cut.
const WIDTH: usize = 80;
/// Fewest characters of a reason that are shown.
const REASON_CHARS_MIN: usize = 16;
/// Most lines; further steps are counted.
const SHOWN_MAX: usize = 5;

/// The steps that wait for an intervention. A damaged database is a warning: it must not hide the
/// rest of the status.
pub(crate) fn standing(context: &Context) -> Outcome<Vec<Standing>> {
    if !context.project()?.state.join(STEPS_FILE).exists() {
        return Ok(Vec::new());
    }
    let found = super::open(context).and_then(|store| Ok(store.standing()?));
    Ok(found.unwrap_or_else(|failure| {
        say(&format!("warning: step queues: {}", failure.text()));
        Vec::new()
    }))
}

/// A line for each, with the command that lets it go on.
pub(crate) fn print(context: &Context, standing: &[Standing]) -> Outcome {
    for step in standing.iter().take(SHOWN_MAX) {
        context.out.line(context.out.paint(WARNING, line(step)))?;
    }
    match standing.len().saturating_sub(SHOWN_MAX) {
        0 => Ok(()),
        more => context.out.line(format!("steps: {more} more stand: `ensemble step list`")),
    }
}

fn line(step: &Standing) -> String {
    let (task, index) = (one_line(&step.key.task_id), step.key.step_index);
    let what = match step.stops_queue {
        true => format!("steps: task {task} stands at step {index}"),
        false => format!("steps: step {index} of task {task} stands"),
    };
    let command = format!("ensemble step {} {task} {index}", step.remedy);
    let room = WIDTH.saturating_sub(what.chars().count() + command.chars().count() + ": ; ".len());
    let reason = cut(&one_line(&step.reason), room.max(REASON_CHARS_MIN));
    format!("{what}: {reason}; {command}")
}

fn cut(text: &str, chars_max: usize) -> String {
    match text.chars().count() > chars_max {
        true => text.chars().take(chars_max - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}
