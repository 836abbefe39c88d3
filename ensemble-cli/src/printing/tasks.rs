use ensemble_app::failure::Outcome;
use ensemble_core::message::Name;
use ensemble_team::board::{BoardTask, State, unmet};

use crate::context::Context;

pub(crate) fn print_tasks(context: &Context, state: &State, tasks: Vec<&BoardTask>) -> Outcome {
    let row = |task: &BoardTask| {
        let waits: Vec<&str> = match task.status.is_terminal() {
            true => Vec::new(),
            false => unmet(state, task).into_iter().map(Name::as_str).collect(),
        };
        let name = |name: Option<&Name>| name.map_or_else(|| "-".to_owned(), Name::to_string);
        vec![
            task.id.to_string(),
            task.status.as_str().to_owned(),
            name(task.reviewing_by.as_ref().or(task.assigned_to.as_ref())),
            if waits.is_empty() { "-".to_owned() } else { waits.join(" ") },
            task.description.clone().unwrap_or_default(),
        ]
    };
    let rows = tasks.into_iter().map(row).collect();
    context.out.table(&["task", "status", "agent", "waits for", "description"], rows)
}
