use ensemble_app::acting::check_planner;
use ensemble_app::tasks::missing_file;
use ensemble_app::text::one_line;
use ensemble_core::message::Name;
use ensemble_team::board::NewGoal;
use ensemble_team::proto::goal::GoalEvent;
use serde_json::{Value, json};

use crate::context::{Context, Failure, Outcome};
use crate::output::STRONG;

/// Set the goal on the blackboard, and show its state
///
/// PLANNING until `begin`, then IN_PROGRESS until `complete` or `abort`, which are final.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Set the goal; the previous one must have ended
    Set {
        /// Its name: 1 to 64 of A-Z a-z 0-9 . _ -
        id: Name,
        /// Description of the goal
        #[arg(long, short, value_name = "TEXT")]
        description: String,
        /// Specification: a path below the project, perhaps with #section
        #[arg(long = "spec", value_name = "PATH")]
        spec_ref: Option<String>,
    },
    /// Show it
    Show,
    /// Begin work on the goal, once its plan is complete
    Begin,
    /// Declare the goal reached
    Complete,
    /// Give up the goal
    Abort,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        if !matches!(self.verb, Verb::Show) {
            check_planner(context, &context.board()?.read()?)?;
        }
        match self.verb {
            Verb::Set { id, description, spec_ref } => {
                let board = context.board()?;
                let mut locked = board.lock()?;
                let missing = missing_file(&board, spec_ref.as_deref());
                locked.set_goal(&NewGoal { id, description, spec_ref })?;
                locked.commit()?;
                show(context)?;
                let missing = missing.trim_start();
                if missing.is_empty() || context.out.is_json() {
                    return Ok(());
                }
                context.out.line(missing)
            }
            Verb::Show => show(context),
            Verb::Begin => step(context, GoalEvent::Begin),
            Verb::Complete => step(context, GoalEvent::Complete),
            Verb::Abort => step(context, GoalEvent::Abort),
        }
    }
}

fn step(context: &Context, event: GoalEvent) -> Outcome {
    let board = context.board()?;
    let mut locked = board.lock()?;
    locked.goal_event(event)?;
    locked.commit()?;
    show(context)
}

fn show(context: &Context) -> Outcome {
    let state = context.board()?.read()?;
    let Some(goal) = &state.goal else {
        return Err(Failure::nothing("there is no goal on the blackboard")
            .with_hint("`ensemble board goal set ID -d TEXT` sets one"));
    };
    let object = json!(goal);
    if context.out.is_json() {
        return context.out.object(&object);
    }
    let status = object["status"].as_str().unwrap_or("PLANNING").to_owned();
    context.out.line(context.out.paint(STRONG, format!("{} {status}", goal.id)))?;
    for field in ["description", "spec_ref"] {
        if let Value::String(text) = &object[field] {
            context.out.line(format!("  {field}: {}", one_line(text)))?;
        }
    }
    Ok(())
}
