use ensemble_app::acting::check_planner;
use ensemble_app::text::one_line;
use ensemble_core::message::{Name, Timestamp};
use ensemble_team::board::{NewSprint, metrics};
use ensemble_team::proto::goal::SprintEvent;
use serde_json::json;

use crate::context::{Context, Failure, Outcome};
use crate::output::STRONG;

/// Begin and end sprints on the blackboard
///
/// `ensemble board checkpoint` stops a sprint until a person resumes it, `ensemble board abort` ends it.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Begin a sprint; the previous one must have ended, and is kept in sprint_history
    Start {
        /// Its name: 1 to 64 of A-Z a-z 0-9 . _ -
        id: Name,
        /// A task that should be done; may be repeated
        #[arg(long, value_name = "ID")]
        planned: Vec<Name>,
        /// A task that could be done; may be repeated
        #[arg(long, value_name = "ID")]
        stretch: Vec<Name>,
        /// When it should end, such as 2026-01-15T18:00:00Z
        #[arg(long = "ends", alias = "deadline", value_name = "TIME")]
        deadline: Option<Timestamp>,
    },
    /// Show the sprint, with the number of its tasks in each state
    Show,
    /// End the sprint, and store its figures
    Complete {
        /// Lessons of the sprint
        #[arg(long, value_name = "TEXT")]
        retrospective: Option<String>,
    },
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        if !matches!(self.verb, Verb::Show) {
            check_planner(context, &context.board()?.read()?)?;
        }
        match self.verb {
            Verb::Start { id, planned, stretch, deadline } => {
                let board = context.board()?;
                let mut locked = board.lock()?;
                locked.start_sprint(&NewSprint { id, planned, stretch, deadline })?;
                locked.commit()?;
            }
            Verb::Show => {}
            Verb::Complete { retrospective } => {
                let board = context.board()?;
                let mut locked = board.lock()?;
                locked.sprint_event(SprintEvent::Complete)?;
                locked.note_metrics(retrospective.as_deref())?;
                locked.commit()?;
            }
        }
        show(context)
    }
}

fn show(context: &Context) -> Outcome {
    let state = context.board()?.read()?;
    let Some(sprint) = &state.sprint else {
        return Err(Failure::nothing("there is no sprint on the blackboard")
            .with_hint("`ensemble board sprint start ID --planned ID` begins one"));
    };
    let mut object = json!(sprint);
    object["metrics"] = metrics(&state);
    if context.out.is_json() {
        return context.out.object(&object);
    }
    let status = object["status"].as_str().unwrap_or("IN_PROGRESS").to_owned();
    context.out.line(context.out.paint(STRONG, format!("{} {status}", sprint.id)))?;
    let names = |names: &[Name]| names.iter().map(Name::as_str).collect::<Vec<_>>().join(" ");
    for (title, tasks) in [("planned", &sprint.scope.planned), ("stretch", &sprint.scope.stretch)] {
        if !tasks.is_empty() {
            context.out.line(format!("  {title}: {}", names(tasks)))?;
        }
    }
    if let Some(deadline) = sprint.timeline.deadline {
        context.out.line(format!("  deadline: {deadline}"))?;
    }
    let numbers = object["metrics"].as_object().into_iter().flatten();
    let numbers: Vec<String> = numbers.map(|(name, value)| format!("{name} {value}")).collect();
    context.out.line(format!("  {}", one_line(&numbers.join(", "))))
}
