use ensemble_app::queue::OpeningPurpose;
use ensemble_app::text::{one_line, plural, with_members};
use ensemble_core::Error;
use ensemble_team::board::{self, Board, BoardError, State, TaskStatus, Violation};
use serde_json::json;

use crate::context::{Context, Failure, Outcome, VerbExit};
use crate::output::{BAD, STRONG, WARNING};
use crate::printing::print_tasks;

mod edit;

/// Look at the blackboard, check it and edit it
///
/// The blackboard is .ensemble/state.yaml beside the queue, or .liza/state.yaml if there is no such file.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Create an empty blackboard
    Init,
    /// Show what is on the blackboard
    Show,
    /// Check the blackboard against all its rules
    ///
    /// Prints every violation with its field. Exit code 4 if there is one.
    Validate {
        /// Also check whether worktrees and specifications exist
        #[arg(long)]
        worktrees: bool,
    },
    /// Edit the blackboard in $VISUAL or $EDITOR
    ///
    /// The editor gets a copy. It becomes the board if it breaks no rule and the board has not changed
    /// in the meantime. Otherwise the board stays as it is, and the copy is kept.
    Edit {
        /// The editor, a command for sh [default: $VISUAL, or $EDITOR]
        #[arg(long, value_name = "COMMAND")]
        editor: Option<String>,
    },
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        match self.verb {
            Verb::Init => init(context),
            Verb::Show => show(context),
            Verb::Validate { worktrees } => validate(context, worktrees),
            Verb::Edit { editor } => edit::edit(context, editor),
        }
    }
}

fn init(context: &Context) -> Outcome {
    let project = context.project()?;
    let mut options = context.board_options(project)?;
    options.shared = context.shared_files_for(OpeningPurpose::Begin)?;
    let board = match project.has_shared_board() {
        true => Board::create_shared(project.root(), options)?,
        false => Board::create(project.root(), options)?,
    };
    context.out.print_answer(
        &json!({ "path": board.path() }),
        format!("created {}", board.place().display()),
    )
}

fn show(context: &Context) -> Outcome {
    let board = context.board()?;
    let state = board.read()?;
    let controls = board.controls()?;
    if context.out.is_json() {
        let object = json!({ "path": board.path(), "controls": controls });
        return context.out.object(&with_members(object, &state));
    }
    for control in &controls {
        let text = format!("{}: {}", control.title(), control.reason);
        context
            .out
            .line(context.out.paint(WARNING, one_line(text.trim_end_matches([':', ' ']))))?;
    }
    if let Some(goal) = &state.goal {
        let description = goal.description.as_deref().unwrap_or_default();
        let text = format!("goal {}: {}", goal.id, one_line(description));
        context.out.line(context.out.paint(STRONG, text))?;
    }
    context.out.line(summary(&state))?;
    if !state.agents.is_empty() {
        let row = |(name, agent): (&ensemble_core::message::Name, &board::BoardAgent)| {
            let task = agent.current_task.as_ref().map_or("-", |task| task.as_str());
            let word = serde_json::to_value(agent.status).unwrap_or_default();
            let used = agent.context_percent.filter(|used| *used > 0);
            vec![
                name.to_string(),
                agent.role.clone().unwrap_or_else(|| "-".to_owned()),
                word.as_str().unwrap_or_default().to_owned(),
                task.to_owned(),
                board.lease_until(&state, name).map_or_else(|| "-".to_owned(), |at| at.to_string()),
                used.map_or_else(String::new, |used| format!("{used}%")),
            ]
        };
        let rows = state.agents.iter().map(row).collect();
        let title = ["agent", "role", "status", "task", "lease until", "context"];
        context.out.table(&title, rows)?;
    }
    if state.tasks.is_empty() {
        return Ok(());
    }
    print_tasks(context, &state, state.tasks.iter().collect())
}

fn summary(state: &State) -> String {
    let mut counts: Vec<(TaskStatus, u64)> = Vec::new();
    for task in &state.tasks {
        match counts.iter_mut().find(|(status, _)| *status == task.status) {
            Some((_, count)) => *count += 1,
            None => counts.push((task.status, 1)),
        }
    }
    counts.sort_unstable();
    let parts: Vec<String> =
        counts.iter().map(|(status, count)| format!("{count} {}", status.as_str())).collect();
    let tasks = plural(state.tasks.len() as u64, "task");
    let revision = state.revision;
    if parts.is_empty() {
        return format!("{tasks}, revision {revision}");
    }
    format!("{tasks}, revision {revision}: {}", parts.join(", "))
}

fn validate(context: &Context, worktrees: bool) -> Outcome {
    let board = context.board()?;
    let mut warnings = Vec::new();
    let violations = match board.read().map_err(Error::into_area) {
        Ok(state) => {
            warnings.clone_from(&state.warnings);
            let project = board.project().to_owned();
            match worktrees {
                true => board::missing_files(&state, |path| project.join(path).exists()),
                false => Vec::new(),
            }
        }
        Err(Ok(BoardError::Invalid { violations, .. })) => violations,
        Err(Err(Error::Malformed { field, detail, .. })) => {
            vec![Violation { path: field, problem: detail }]
        }
        Err(Ok(other)) => return Err(Error::from(other).into()),
        Err(Err(other)) => return Err(other.into()),
    };
    if context.out.is_json() {
        let valid = violations.is_empty();
        let (path, count) = (board.path(), violations.len());
        context.out.object(&json!({
            "path": path, "valid": valid, "count": count, "violations": violations,
            "warnings": warnings,
        }))?;
    } else {
        for Violation { path, problem } in &violations {
            let path = context.out.paint(BAD, one_line(path));
            context.out.line(format!("{path}: {}", one_line(problem)))?;
        }
        for Violation { path, problem } in &warnings {
            let path = context.out.paint(WARNING, format!("warning: {}", one_line(path)));
            context.out.line(format!("{path}: {}", one_line(problem)))?;
        }
    }
    if !violations.is_empty() {
        context.out.flush()?;
        let rules = plural(violations.len() as u64, "violation");
        return Err(Failure::new(
            VerbExit::Corrupt,
            format!("{}: {rules}", board.path().display()),
        ));
    }
    match context.out.is_json() {
        true => Ok(()),
        false => context.out.line(format!("{} is valid", board.path().display())),
    }
}
