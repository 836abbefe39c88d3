//! What stands still on the blackboard, for `status`: each trouble, and the command that helps.

use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_team::admission::NotAdmitted;
use ensemble_team::board::{Board, BoardOptions, Control, is_missing};
use ensemble_team::budget::BudgetFile;
use ensemble_watch::project::Project;
use ensemble_watch::troubles::{self, Trouble};

use super::controls::directory;
use super::usage::allowance_hint;
use crate::context::Context;
use crate::exit::{Outcome, obstacle_hint};
use crate::output::WARNING;
use crate::text::{one_line, plural};

/// How many troubles are shown; the worst come first on the board, too.
const SHOWN_MAX: usize = 10;

/// What stands still now: on the blackboard, or by a budget that is used up. Without a blackboard, also a paused team.
pub(super) fn all(project: &Project) -> Outcome<Vec<Trouble>> {
    let mut found = of_board(project)?;
    for parked in BudgetFile::open(&project.state).stands_in_the_way()? {
        let about = parked.scope.arguments();
        let help = allowance_hint(&parked.scope);
        let text = NotAdmitted::Budget(Box::new(parked)).to_string();
        found.push(troubles::over_budget(about, text, help));
    }
    Ok(found)
}

fn of_board(project: &Project) -> Outcome<Vec<Trouble>> {
    let board = match Board::find(project.root(), BoardOptions::new("status")) {
        Ok(board) => board,
        Err(error) if is_missing(&error) => {
            return Ok(project
                .admissions()
                .control()?
                .as_ref()
                .map(in_force)
                .into_iter()
                .collect());
        }
        Err(error) => return Ok(vec![troubles::unreadable(&error.to_string())]),
    };
    let mut found = match board.read() {
        Ok(state) => {
            let controls = Control::read_all(directory(&board))?;
            troubles::of_board(&board, &state, &controls, SystemClock.wall())
        }
        Err(error) => vec![troubles::unreadable(&error.to_string())],
    };
    // One that has waited for long is among them already.
    if let Some(control) = project.admissions().control()?
        && !found.iter().any(|trouble| trouble.about == control.file.name())
    {
        found.push(in_force(&control));
    }
    Ok(found)
}

/// A control file: while it is there, waiting work is not taken up.
fn in_force(control: &Control) -> Trouble {
    let obstacle = NotAdmitted::Control(control.clone());
    let help = obstacle_hint(&obstacle).unwrap_or_default();
    troubles::in_force(control, obstacle.to_string(), help)
}

/// A line each, and one with the command.
pub(super) fn print(context: &Context, found: &[Trouble]) -> Outcome {
    let out = &context.out;
    for Trouble { text, help, .. } in found.iter().take(SHOWN_MAX) {
        out.line(format!("{}: {}", out.paint(WARNING, "stands still"), one_line(text)))?;
        out.line(format!("  -> {}", one_line(help)))?;
    }
    match found.len().saturating_sub(SHOWN_MAX) {
        0 => Ok(()),
        more => {
            let more = plural(more as u64, "more trouble");
            out.line(format!("{more}: `ensemble status --json` has all"))
        }
    }
}
