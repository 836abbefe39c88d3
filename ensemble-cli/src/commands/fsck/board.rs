use ensemble_app::failure::Outcome;
use ensemble_team::board::BoardFinding;
use serde_json::json;

use super::{BROKEN, FoundProblem, FsckNote, REPAIRABLE};
use crate::context::Context;

/// The problems; what harms nothing is added to the notes. Without a blackboard there are none.
pub(super) fn check_board(
    context: &Context,
    repair: bool,
    notes: &mut Vec<FsckNote>,
) -> Outcome<Vec<FoundProblem>> {
    let found = match context.board_if_any() {
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
    let (harmless, problems): (Vec<_>, Vec<_>) = found.into_iter().partition(|it| it.is_note);
    let note = |BoardFinding { path, problem: text, .. }| FsckNote { path, text };
    notes.extend(harmless.into_iter().map(note));
    Ok(problems.iter().map(on_board).collect())
}

fn on_board(finding: &BoardFinding) -> FoundProblem {
    FoundProblem {
        object: json!(finding),
        path: finding.path.clone(),
        problem: finding.problem.clone(),
        is_repaired: finding.repaired,
        state: if finding.is_repairable { REPAIRABLE } else { BROKEN },
    }
}
