//! Checks the blackboard for `ensemble admin fsck`.

use ensemble_app::failure::Outcome;
use ensemble_app::text::one_line;
use ensemble_team::board::is_missing;
use ensemble_team::board::{Board, BoardFinding};

use super::FsckNote;
use crate::context::Context;
use crate::output::{BAD, GOOD};

/// The problems; what harms nothing is added to the notes. Without a blackboard there are none.
pub(super) fn check_board(
    context: &Context,
    repair: bool,
    notes: &mut Vec<FsckNote>,
) -> Outcome<Vec<BoardFinding>> {
    let found = match find(context) {
        Ok(None) => return Ok(Vec::new()),
        Ok(Some(board)) => board.fsck(repair)?,
        // The files of this host are checked without the servers.
        Err(failure) if context.project()?.has_shared_board() => {
            let (path, text) = ("the blackboard".to_owned(), failure.text());
            notes.push(FsckNote { path, text: format!("was not checked: {text}") });
            return Ok(Vec::new());
        }
        Err(failure) => return Err(failure),
    };
    let (harmless, problems): (Vec<BoardFinding>, Vec<BoardFinding>) =
        found.into_iter().partition(|finding| finding.is_note);
    notes.extend(
        harmless
            .into_iter()
            .map(|BoardFinding { path, problem: text, .. }| FsckNote { path, text }),
    );
    Ok(problems)
}

/// The blackboard, if there is one.
pub(super) fn find(context: &Context) -> Outcome<Option<Board>> {
    let project = context.project()?;
    match project.find_board(context.board_options(project)?, context.shared_files()?) {
        Ok(board) => Ok(Some(board)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn print(context: &Context, finding: &BoardFinding) -> Outcome {
    let out = &context.out;
    if out.is_json() {
        return out.object(finding);
    }
    let what = match (finding.repaired, finding.is_repairable) {
        (true, _) => out.paint(GOOD, "repaired"),
        (false, true) => out.paint(BAD, "can be repaired"),
        (false, false) => out.paint(BAD, "broken"),
    };
    out.line(format!("{what}  {}: {}", one_line(&finding.path), one_line(&finding.problem)))
}
