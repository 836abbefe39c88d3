//! What stands still on the blackboard, for `status`: each trouble, and the command that helps.

use ensemble_core::env::{Clock as _, SystemClock};
use ensemble_team::admission::NotAdmitted;
use ensemble_team::board::{Board, BoardOptions, Control, is_missing};
use ensemble_watch::alarms::raised;
use ensemble_watch::project::Project;
use ensemble_watch::troubles::{self, Trouble};

use super::controls::directory;
use crate::exit::{Outcome, obstacle_hint};

/// What stands still now. Without a blackboard, that is a paused team.
pub(crate) fn of_board(project: &Project) -> Outcome<Vec<Trouble>> {
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
            troubles::of_board(&board, &state, &controls, SystemClock.wall(), &raised(project))
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
