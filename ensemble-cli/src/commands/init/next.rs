//! The next three commands, for what is found here: agents in panes, agents on PATH, or neither.

use ensemble_app::agent_panes::count_unowned_agents;
use ensemble_app::agent_program::installed_programs;
use ensemble_app::text::plural;
use ensemble_core::message::shell_word;
use ensemble_project::{Project, QUEUE_VARIABLE};

use crate::context::{Context, Outcome};

const COMMAND_CHARS: usize = 40;

pub(super) fn print_next_steps(context: &Context, project: &Project) -> Outcome {
    let step = |(command, why): (&str, &str)| (command.to_owned(), why.to_owned());
    let steps = match (count_unowned_agents(context), installed_programs().first()) {
        (0, None) => [
            ("ensemble mailbox add worker-1", "a mailbox for each agent"),
            ("ensemble send --to worker-1 'say hello'", "prints the message's id"),
            ("ensemble recv --as worker-1", "receives it; `settle ID` ends it"),
        ]
        .map(step),
        (0, Some(program)) => [
            (&*format!("ensemble {program}"), "start the first agent in this terminal"),
            (&*format!("ensemble send --to {program} 'say hello'"), "from another terminal"),
            ("ensemble", "watch what happens"),
        ]
        .map(step),
        (count, _) => [
            (
                "ensemble agent adopt --all",
                &*format!("adopt the {} in tmux", plural(count as u64, "agent")),
            ),
            ("ensemble team", "see their names"),
            ("ensemble send --to NAME 'say hello'", "each is notified of its mail"),
        ]
        .map(step),
    };
    print_steps(context, project, steps)
}

pub(super) fn print_steps(
    context: &Context,
    project: &Project,
    steps: impl IntoIterator<Item = (String, impl std::fmt::Display)>,
) -> Outcome {
    context.out.line("Next:")?;
    // The other steps find only the queue around them.
    if !Project::discover(None).is_ok_and(|around| around.queue == project.queue) {
        let queue = shell_word(&project.queue.to_string_lossy());
        context.out.line(format!("  export {QUEUE_VARIABLE}={queue}"))?;
    }
    steps.into_iter().try_for_each(|(command, why)| {
        context.out.line(format!("  {command:<COMMAND_CHARS$}{why}"))
    })
}
